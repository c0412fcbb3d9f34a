"""What a log's reader says: how it was read, what it left out, what may be wrong, and which option changes it."""

import io

import pytest
from rich.console import Console

from training.errors import DataError
from training.logs import findings, reading_bar
from training.logs.items import read_items
from training.logs.reader import read_log
from training.logs.reading_bar import ReadingBar
from training.recipe import DataRecipe

HEAD = "user,item,timestamp\n"


@pytest.fixture
def read(tmp_path):
    """A function that reads rows as a log, without a word on stderr."""

    def plant(rows, **settings):
        path = tmp_path / "a.csv"
        path.write_text(HEAD + rows)
        return read_log(path, DataRecipe(**settings), announce=False)

    return plant


def test_events_without_ids_are_counted(read):
    """With the first line and both ways to have it otherwise."""
    log = read("a,x,1\na,x,2\n,x,3\nb,NaN,3\nnull,,3\n")
    [warning] = log.warnings
    assert warning.startswith(
        "3 of 5 events (60.0%) lack an id (2 the user, 2 the item, the first in line 4) and are left"
    )
    assert "--missing-ids refuse stops there, keep takes texts such as NaN for ids" in warning
    assert len(log.items) == 2


def test_texts_such_as_nan_are_kept_on_request(read):
    """An empty cell is refused even then."""
    assert "NaN" in read("a,x,1\na,x,2\nb,NaN,3\n", missing_ids="keep").vocabulary
    with pytest.raises(DataError, match=r"line 3: no item; --missing-ids skip leaves such events out"):
        read("a,NaN,1\na,,2\n", missing_ids="keep")


def test_exact_repeats_are_counted_and_left_out_on_request(read):
    """The same user, item and time; the same item at another time is no repeat."""
    rows = "a,x,1\na,y,1\na,x,1\nb,x,1\na,x,2\na,x,1\nb,y,3\n"
    [warning] = read(rows).warnings
    assert warning.startswith("2 of 7 events (28.6%) repeat another one exactly (user, item and time) and are kept")
    assert "--set data.duplicates=drop" in warning
    dropped = read(rows, duplicates="drop")
    assert len(dropped.items) == 5
    assert dropped.warnings == ("2 of 7 events repeat another one exactly and are left out (data.duplicates)",)


def test_repeats_cannot_be_told_without_times(read):
    """To ask for it is an error; not to ask says nothing."""
    assert not any("repeat" in warning for warning in read("a,x,1\na,x,1\n", timestamp_column="").warnings)
    with pytest.raises(DataError, match=r"set data\.duplicates=keep"):
        read("a,x,1\na,x,1\n", timestamp_column="", duplicates="drop")


def test_robots_are_pointed_out_and_left_out_on_request(read):
    """More than a thousand events and two hundred times the median: how it was judged is said."""
    rows = "".join(f"bot,x{i % 50},{i}\n" for i in range(1200)) + "".join(
        f"u{i % 10},x{i % 50},{i}\n" for i in range(50)
    )
    [warning] = read(rows).warnings
    assert warning.startswith("1 of 11 users (9.1%) may be robots, with 1,200 of 1,250 events (96.0%), one with 1,200")
    assert "more than 1,000, the larger of 1,000 and 200 times the median" in warning
    assert "--set data.max_user_events=1000 leaves them out" in warning
    log = read(rows, max_user_events=1100)
    assert "bot" not in log.user_ids
    assert (
        log.warnings[0]
        == "1 of 11 users have more than 1,100 events (1,200 of 1,250) and are left out (data.max_user_events)"
    )


def test_a_busy_user_is_no_robot(read):
    """A thousand events are none where others have ten."""
    rows = "".join(f"a,x{i % 50},{i}\n" for i in range(1200)) + "".join(f"u{i % 5},x{i % 50},{i}\n" for i in range(50))
    assert not any("robots" in warning for warning in read(rows).warnings)


def test_items_of_one_event_are_counted(read):
    """With the option that leaves them out."""
    [warning] = read("a,x,1\na,y,2\nb,x,3\n").warnings
    assert warning == (
        "1 of 2 items (50.0%) occur in one event only and are kept; --set data.min_item_events=2 leaves them out"
    )
    assert read("a,x,1\na,y,2\nb,x,3\n", min_item_events=2).warnings == ()


def test_users_whom_the_service_refuses_are_counted(read):
    """They train; with --ids percent they and items of any characters are encoded."""
    [warning] = read("a b,x,1\nc,x,2\nüx,x,2\n").warnings
    assert warning.startswith("2 of 3 users (66.7%) have ids that the service refuses")
    log = read("a b,café,1\nc,café,2\n", ids="percent")
    assert log.user_ids == ["a%20b", "c"]
    assert log.vocabulary.item_ids == ("caf%C3%A9",)
    assert log.warnings == ()
    with pytest.raises(DataError, match=r"line 2: an item id is 1 to 256 .*; encoded it is longer"):
        read(f"a,{'é' * 50},1\n", ids="percent")


def test_items_files_are_encoded_along(tmp_path):
    """Or their metadata would belong to nothing."""
    path = tmp_path / "items.csv"
    path.write_text("movieId;title\ncafé 1;One\n100%;Two\n")
    assert read_items(path, "percent") == {"caf%C3%A9%201": {"title": "One"}, "100%25": {"title": "Two"}}
    assert list(read_items(path)) == ["café 1", "100%"]


def test_it_is_said_once_on_stderr(tmp_path, capsys, monkeypatch):
    """How the log was read, and each warning with the file before it; on one process of several."""
    monkeypatch.setattr(findings, "_announced", set())
    path = tmp_path / "a.csv"
    path.write_text("userId;item;when\na;x;2024-05-31 10:00\na;y;2024-05-31\n")
    for _ in range(2):
        read_log(path, DataRecipe(timestamp_column="when"))
    read_as, warning = capsys.readouterr().err.splitlines()
    assert read_as == (
        f"nextitem-train: {path}: text separated by semicolons; user = userId, item = item, time = when "
        "(times without a zone, read in UTC; --time-zone changes that)"
    )
    assert warning.startswith(f"nextitem-train: WARNING: {path}: 2 of 2 items (100.0%) occur in one event only")
    monkeypatch.setattr(findings, "_announced", set())
    monkeypatch.setenv("RANK", "1")
    read_log(path, DataRecipe(timestamp_column="when"))
    assert capsys.readouterr().err == ""


def test_a_bar_shows_what_takes_long(tmp_path, monkeypatch):
    """On a terminal, with the file's name; elsewhere, and for what is read at once, there is none."""
    for terminal, quiet, shown in ((True, 0.0, True), (True, 60.0, False), (False, 0.0, False)):
        monkeypatch.setattr(reading_bar, "_QUIET_SECONDS", quiet)
        screen = io.StringIO()
        with ReadingBar(tmp_path / "large.csv", Console(file=screen, force_terminal=terminal, width=100)) as bar:
            bar.show(1, 4)
            bar.show(3, 4)
        assert ("reading large.csv" in screen.getvalue()) == shown
