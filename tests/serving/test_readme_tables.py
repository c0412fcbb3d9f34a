"""The README's tables against the code: every setting and every metric is documented, as it is."""

import re
from pathlib import Path

import pytest

from service.cli import describe_default
from service.metrics import Metrics
from service.settings import PREFIX, Settings

README = Path(__file__).parents[2] / "README.md"


def read_table(heading):
    """The rows of the table under a heading."""
    section = README.read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return [line for line in section.splitlines() if line.startswith("| `")]


def test_every_setting_stands_in_the_readme():
    """Option, variable, default and description are those of the code, in its order."""
    expected = [
        f"| `--{name.replace('_', '-')}` | `{PREFIX}{name.upper()}` "
        f"| {describe_default(field).removeprefix('default: ')} | {field.description} |"
        for name, field in Settings.model_fields.items()
    ]
    assert read_table("Settings") == expected


def test_every_metric_stands_in_the_readme():
    """Name, labels, kind and help are those of the code, in its order."""
    metrics = Metrics(event_types=["view"], model_version="v", routes=[("/x", "GET")])
    expected = [
        f"| `{metric._name}{'_total' if metric._type == 'counter' else ''}` "
        f"| {', '.join(f'`{label}`' for label in metric._labelnames) or 'none'} "
        f"| {metric._type} | {metric._documentation} |"
        for metric in metrics._registry._collector_to_names
    ]
    assert len(expected) >= 14
    assert read_table("Metrics") == expected


@pytest.mark.parametrize("link", re.findall(r"\]\((?!http)([^)#]+)\)", README.read_text()))
def test_every_link_leads_somewhere(link):
    """Files that the README links exist."""
    assert (README.parent / link).exists()
