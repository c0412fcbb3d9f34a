"""The README leads and looks up nothing: it stays short, and the answers that it shows are the tutorial's."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
TUTORIAL = (ROOT / "docs" / "tutorial.md").read_text()


def test_readme_is_short():
    """About 120 lines; what does not fit has a page under docs/."""
    assert len(README.splitlines()) <= 130


def test_readme_shows_answers_of_the_tour():
    """Each answer stands in the tutorial's tour, which a test runs (tests/end_to_end), but for its line breaks."""
    [shown] = re.findall(r"```console\n(.*?)```", README, flags=re.DOTALL)
    [tour] = re.findall(r"```console\n(.*?)```", TUTORIAL, flags=re.DOTALL)
    printed = {re.sub(r"\s", "", line) for line in tour.splitlines() if line.startswith("{")}
    answers = re.findall(r"(?ms)^\{.*?\}$(?=\n\n|\Z)", shown.strip())
    assert len(answers) == 3
    assert {re.sub(r"\s", "", answer) for answer in answers} <= printed
