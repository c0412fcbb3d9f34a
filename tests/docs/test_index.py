"""Every page under docs/ is found from the index, and every decision says whether it stands."""

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
DECISIONS = sorted((DOCS / "decisions").glob("0*.md"))


def list_pages(page):
    """The pages under docs/ that a page links to."""
    names = re.findall(r"\]\((?!https?:)([^)\s#]+\.md)", page.read_text())
    return {(page.parent / name).resolve() for name in names}


def test_every_page_is_in_an_index():
    """In docs/README.md, or in the index of the decisions or the lab that it names."""
    index = DOCS / "README.md"
    listed = list_pages(index)
    for folder in ("decisions", "lab"):
        assert DOCS / folder / "README.md" in listed
        listed |= list_pages(DOCS / folder / "README.md")
    assert set(DOCS.rglob("*.md")) - {index} - listed == set()


@pytest.mark.parametrize("page", DECISIONS, ids=lambda page: page.stem)
def test_every_decision_has_the_status_that_the_index_says(page):
    """One line under the title, repeated in the table of docs/decisions."""
    [status] = re.findall(r"\A# .+\n\n\*\*Status:\*\* (.+)\.\n", page.read_text())
    assert re.search(
        rf"(?m)^\| \[{page.name[:4]}\]\({page.name}\) \| .+ \| {re.escape(status)} \|$",
        (DOCS / "decisions" / "README.md").read_text(),
    )
