"""The options that say how a log is read: shorter names for keys of [data], for every command that reads one."""

import json

import pytest

from training.arguments.parser import make_parser
from training.cli import main

LOG = """who;what;when
änne k;café;2024-05-31 00:30
änne k;thé;2024-06-01 00:30
bob;café;2024-06-02
bob;NaN;2024-06-03
"""
OPTIONS = ["--columns", "user=who,item=what,time=when", "--time-zone", "Europe/Berlin", "--ids", "percent"]


@pytest.fixture
def log(tmp_path):
    """A log that needs every option."""
    path = tmp_path / "log.csv"
    path.write_text(LOG)
    return path


@pytest.mark.parametrize(
    "command", ["fit r", "evaluate pop", "benchmark", "attention run", "recommend run", "describe"]
)
def test_every_command_that_reads_a_log_takes_them(command):
    """They become settings in the order in which they were given, names of any kind among them."""
    extra = {"fit": ["--out", "x"], "recommend": ["--users", "all"]}.get(command.split()[0], [])
    given = ["--set", "data.ids=plain", "--columns", 'user=a "b",time=', "--ids", "percent", "--time-unit", "ms"]
    options = make_parser().parse_args([*command.split(), "--data", "x", *extra, *given])
    assert options.settings == [
        "data.ids=plain",
        'data.user_column="a \\"b\\""',
        'data.timestamp_column=""',
        'data.ids="percent"',
        'data.time_unit="ms"',
    ]


def test_describe_says_how_the_log_was_read(log, capsys):
    """The form, columns and zone, what was left out and what may be wrong; in JSON, too."""
    assert main(["describe", "--data", str(log), *OPTIONS]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    assert (
        "read as text separated by semicolons; user = who, item = what, time = when (times without a zone" in shown.out
    )
    assert "2024-05-30T22:30:00Z to 2024-06-01T22:00:00Z" in shown.out
    assert "WARNING: 1 of 4 events (25.0%) lack an id" in shown.out
    assert main(["describe", "--data", str(log), *OPTIONS, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["users"], found["items"], found["actions"]) == (2, 2, 3)
    assert len(found["warnings"]) == 2


def test_the_error_holds_the_option_to_paste(log, capsys):
    """Pasted, with names in place of COLUMN, it works."""
    assert main(["describe", "--data", str(log)]) == 2
    said = capsys.readouterr().err
    assert said.endswith(
        "Say which: --columns user=COLUMN,item=COLUMN,time=COLUMN; time= says that there are no times\n"
    )
    assert main(["describe", "--data", str(log), "--columns", "user=who,item=what,time=when"]) == 2
    assert "line 2: an item id is 1 to 256 printable ASCII characters" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (["--columns", "who"], "columns are given as user=COLUMN,item=COLUMN,time=COLUMN"),
        (["--time-zone", "Mars"], "there is no time zone 'Mars': give a name such as Europe/Berlin"),
        (["--ids", "base64"], "data.ids must be one of plain, percent"),
        (["--missing-ids", "x"], "data.missing_ids must be one of skip, refuse, keep"),
        (["--time-unit", "h"], "data.time_unit must be one of auto, s, ms, us, ns"),
        (["--format", "xml"], "data.format must be one of auto, csv, tsv, jsonl, lines, parquet"),
        (["--set", "data.duplicates=no"], "data.duplicates must be one of keep, drop"),
        (["--set", "data.max_user_events=0"], "data.max_user_events must be at least 1"),
    ],
)
def test_wrong_values_are_refused(log, capsys, option, message):
    """With what they may be, and status 2."""
    if option[0] == "--columns":
        with pytest.raises(SystemExit, match="2"):
            main(["describe", "--data", str(log), *option])
    else:
        assert main(["describe", "--data", str(log), *option]) == 2
    assert message in capsys.readouterr().err
