"""Columns of logs: found by their usual names, and otherwise asked for in one line that can be pasted."""

import re
import shlex
from pathlib import Path

import pytest

from model.contract.event_logs.columns import find_columns, read_columns
from model.contract.event_logs.errors import LogError

LOG = Path("events.csv")


@pytest.mark.parametrize(
    ("header", "user", "item", "time"),
    [
        ("user,item,timestamp", "user", "item", "timestamp"),
        ("userId,movieId,rating,timestamp", "userId", "movieId", "timestamp"),
        ("USER_ID,Product-ID,Event Time", "USER_ID", "Product-ID", "Event Time"),
        ("event_time,event_type,product_id,price,user_id,user_session", "user_id", "product_id", "event_time"),
        ("session,sku,ts", "session", "sku", "ts"),
        ("visitorid,event,itemid,date", "visitorid", "itemid", "date"),
        ("reviewerID,asin,overall,unixReviewTime", "reviewerID", "asin", "unixReviewTime"),
        ("item,product_id,user,uid,timestamp,date", "user", "item", "timestamp"),
    ],
)
def test_usual_names_are_found(header, user, item, time):
    """Whatever their case and however they are joined; the documented name wins, and people win over sessions."""
    found = find_columns(LOG, header.split(","), {})
    assert (found["user"], found["item"], found["time"]) == (user, item, time)


def test_types_and_values_are_found_where_there_is_no_doubt():
    """They are no error where they are missing or two, unless they are asked for."""
    names = ["user", "item", "timestamp", "behavior", "price", "quantity"]
    found = find_columns(LOG, names, {})
    assert found["type"] == "behavior"
    assert "value" not in found
    with pytest.raises(
        LogError, match=r"2 columns that may be the value \('price', 'quantity'\).*--columns value=price$"
    ):
        find_columns(LOG, names, {}, ("user", "item", "value"))


@pytest.mark.parametrize(
    ("names", "given", "message", "option"),
    [
        (
            ["a", "b", "c"],
            {},
            "no column for user and item and time: its columns are 'a', 'b', 'c'",
            "user=COLUMN,item=COLUMN,time=COLUMN",
        ),
        (["user", "b", "c"], {}, "no column for item and time", "item=COLUMN,time=COLUMN"),
        (
            ["user", "sku", "asin", "c"],
            {},
            "no column for time and 2 columns that may be the item ('sku', 'asin')",
            "item=sku,time=COLUMN",
        ),
        (["user", "item", "ts"], {"item": "sku"}, "no column for item ('sku')", "item=COLUMN"),
        (["user", "Product ID", "sku", "ts"], {}, "2 columns that may be the item", "item=Product ID"),
        (
            ["1", "2", "3"],
            {},
            "it has no header, so its columns are numbered 1 to 3",
            "user=COLUMN,item=COLUMN,time=COLUMN",
        ),
    ],
)
def test_all_that_is_missing_is_said_at_once(names, given, message, option):
    """In one line, with an option that a shell takes as it stands and that `--columns` reads."""
    with pytest.raises(LogError, match=re.escape(message)) as caught:
        find_columns(LOG, tuple(names), given)
    words = shlex.split(str(caught.value).partition("Say which: ")[2].partition(";")[0])
    assert words == ["--columns", option]
    assert set(read_columns(option)) <= {"user", "item", "time"}


def test_given_columns_win_and_may_be_none():
    """A role that is given is not guessed, and an empty one has no column."""
    found = find_columns(LOG, ["user", "uid", "item", "timestamp"], {"user": "uid", "time": ""})
    assert found == {"user": "uid", "item": "item"}


def test_a_hundred_columns_are_not_all_listed():
    """Twenty are, cut where they are long."""
    with pytest.raises(LogError, match="and 80 more") as caught:
        find_columns(LOG, [f"{'x' * 1000}{number}" for number in range(100)], {})
    assert len(str(caught.value)) < 1500


def test_the_option_is_read():
    """Roles and names; `timestamp` is another word for `time`, and names may hold blanks."""
    assert read_columns("user=u id,item=sku,timestamp=when") == {"user": "u id", "item": "sku", "time": "when"}
    assert read_columns("time=") == {"time": ""}


@pytest.mark.parametrize("text", ["", "user", "who=x", "user=", "user=a,user=b", "user=a,,item=b"])
def test_a_wrong_option_is_refused(text):
    """It says how it is written."""
    with pytest.raises(ValueError, match="user=COLUMN,item=COLUMN,time=COLUMN"):
        read_columns(text)
