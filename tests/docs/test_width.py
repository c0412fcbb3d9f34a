"""Prose in the README and under docs/ wraps at 120 columns; tables, pictures and code may be wider."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_prose_wraps_at_120(page):
    """No wider line, so that a change of a sentence is a change of a few lines."""
    prose = re.sub(r"(?ms)^ *```.*?^ *```", "", page.read_text()).splitlines()
    wide = [line for line in prose if len(line) > 120 and not re.match(r" *\||!\[|#| {4}", line)]
    assert wide == []
