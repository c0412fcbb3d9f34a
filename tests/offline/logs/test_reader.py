"""Reading logs: every format gives the same log, and every fault is named by file and line."""

import gzip
from datetime import timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from model.contract.vocabulary import Vocabulary
from training.data.interactions import Log
from training.errors import DataError
from training.logs.reader import read_log
from training.recipe import DataRecipe

CSV = "user,item,timestamp\nb,y,20\na,x,10\na,z,30\nb,x,5\na,y,20\n"


def _write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def _times(log: Log) -> list[int]:
    assert log.timestamps_ms is not None
    return log.timestamps_ms.tolist()


def _histories(log):
    return {user: log.vocabulary.decode(row.tolist()) for user, row in zip(log.user_ids, log.histories, strict=True)}


@pytest.mark.parametrize("kind", ["csv", "csv.gz", "tsv", "tsv.gz", "parquet", "txt", "txt.gz"])
def test_every_format_reads_as_the_same_log(tmp_path, kind):
    """CSV, TSV, Parquet and lines, plain or gzipped: the same users, items and order, whatever the rows' order."""
    path = tmp_path / f"log.{kind}"
    text = {"csv": CSV, "tsv": CSV.replace(",", "\t"), "txt": "b x\na x\nb y\na y\na z\n"}.get(kind.split(".")[0], "")
    if kind == "parquet":
        pl.read_csv(CSV.encode()).write_parquet(path)
    elif kind.endswith(".gz"):
        _write(path, gzip.compress(text.encode()))
    else:
        _write(path, text)
    log = read_log(path, DataRecipe())
    assert _histories(log) == {"a": ["x", "y", "z"], "b": ["x", "y"]}
    if not kind.startswith("txt"):
        assert log.fingerprint == read_log(_write(tmp_path / "same.csv", CSV), DataRecipe()).fingerprint


@pytest.mark.parametrize("name", ["log.txt", "log.txt.gz"])
def test_a_line_may_hold_a_user_s_whole_history(tmp_path, name):
    """`user item item ...`: the same log as the pairs, with blanks, tabs and a user of one item."""
    text = "a x y  x\n\n b\tz \nc y x\n"
    content = gzip.compress(text.encode()) if name.endswith(".gz") else text
    folded = read_log(_write(tmp_path / name, content), DataRecipe())
    assert _histories(folded) == {"a": ["x", "y", "x"], "b": ["z"], "c": ["y", "x"]}
    pairs = _write(tmp_path / "pairs.txt", "a x\nb z\na  y\nc\ty\na x\nc x\n")
    assert folded.fingerprint == read_log(pairs, DataRecipe()).fingerprint


RARE = "a x\na y\na z\nb x\nb y\nc x\nc w\n"


@pytest.mark.parametrize(
    ("settings", "left"),
    [
        ({}, {"a": ["x", "y", "z"], "b": ["x", "y"], "c": ["x", "w"]}),
        ({"min_item_events": 2}, {"a": ["x", "y"], "b": ["x", "y"], "c": ["x"]}),
        ({"min_user_events": 2, "min_item_events": 2}, {"a": ["x", "y"], "b": ["x", "y"]}),
        (
            {"min_user_events": 2, "min_item_events": 2, "filter_rounds": 1},
            {"a": ["x", "y"], "b": ["x", "y"], "c": ["x"]},
        ),
        ({"min_user_events": 3}, {"a": ["x", "y", "z"]}),
    ],
)
def test_rare_users_and_items_are_left_out(tmp_path, settings, left):
    """Both are counted at once; c has two events until its rare item is gone, which only a second round notices."""
    log = read_log(_write(tmp_path / "log.txt", RARE), DataRecipe(**settings))
    assert _histories(log) == left
    assert set(log.vocabulary.item_ids) == {item for items in left.values() for item in items}


def test_nothing_frequent_is_said(tmp_path):
    """A core that is empty is an error that names [data]."""
    with pytest.raises(DataError, match=r"no events that \[data\] keeps"):
        read_log(_write(tmp_path / "log.txt", RARE), DataRecipe(min_item_events=4))


def test_rare_items_are_counted_before_unknown_ones_go(tmp_path):
    """A run's vocabulary does not change who is frequent: c keeps its place by an item that the run does not know."""
    path = _write(tmp_path / "log.txt", "a x\na y\nc x\nc w\nb w\n")
    log = read_log(path, DataRecipe(min_user_events=2), vocabulary=Vocabulary(["x"]))
    assert _histories(log) == {"a": ["x"], "c": ["x"]}
    assert log.dropped == 2


def test_equal_times_keep_the_order_of_the_file(tmp_path):
    """A stable sort: a thousand events at one time stay as they were, between an earlier and a later one."""
    items = np.random.default_rng(0).permutation(1000)
    rows = ["u,late,9"] + [f"u,i{item},5" for item in items] + ["u,early,1"]
    log = read_log(_write(tmp_path / "ties.csv", "user,item,timestamp\n" + "\n".join(rows) + "\n"), DataRecipe())
    assert _histories(log)["u"] == ["early", *(f"i{item}" for item in items), "late"]


@pytest.mark.parametrize(
    ("times", "milliseconds"),
    [
        (["1700000000", "1700000001"], [1_700_000_000_000, 1_700_000_001_000]),
        (["1700000000000", "1700000000001"], [1_700_000_000_000, 1_700_000_000_001]),
        (["1700000000.25", "1700000001"], [1_700_000_000_250, 1_700_000_001_000]),
        (["2023-11-14T22:13:20Z", "2023-11-15T00:13:20.5+02:00"], [1_700_000_000_000, 1_700_000_000_500]),
        (["9999999999", "0"], [9_999_999_999_000, 0]),
        (["-2208988800", "0"], [-2_208_988_800_000, 0]),
        (["100000000000", "0"], [100_000_000_000, 0]),
    ],
)
def test_times_are_told_by_magnitude(tmp_path, times, milliseconds):
    """Seconds below 10^11, milliseconds from there on, RFC 3339 otherwise: all become epoch milliseconds."""
    path = _write(tmp_path / "t.csv", f"user,item,timestamp\nu,x,{times[0]}\nv,y,{times[1]}\n")
    assert _times(read_log(path, DataRecipe())) == milliseconds


def test_parquet_datetimes_are_read_in_their_zone(tmp_path):
    """A naive datetime is UTC, another zone is converted."""
    frame = pl.DataFrame({"user": [1], "item": [7], "timestamp": ["2023-11-14T23:13:20"]})
    naive = frame.with_columns(pl.col("timestamp").str.to_datetime(time_unit="us"))
    zoned = naive.with_columns(pl.col("timestamp").dt.replace_time_zone("Europe/Berlin"))
    naive.write_parquet(tmp_path / "naive.parquet")
    zoned.write_parquet(tmp_path / "zoned.parquet")
    assert _times(read_log(tmp_path / "naive.parquet", DataRecipe())) == [1_700_003_600_000]
    assert _times(read_log(tmp_path / "zoned.parquet", DataRecipe())) == [1_700_000_000_000]
    assert read_log(tmp_path / "naive.parquet", DataRecipe()).last_event_at == "2023-11-14T23:13:20Z"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", "", r"a\.csv is empty"),
        ("a.csv", "user,item,timestamp\n", r"a\.csv holds no events"),
        (
            "a.csv",
            "user,item,when\nu,x,1\n",
            r"no column for time: its columns are 'user', 'item', 'when'.* --columns time=COLUMN",
        ),
        ("a.csv", "who,item,timestamp\nu,x,1\n", r"no column for user: .* Say which: --columns user=COLUMN$"),
        ("a.csv", "user,item,timestamp\n,x,1\n", r"a\.csv holds no events: 1 of 1 events \(100.0%\) lack an id"),
        ("a.csv", "user,item,timestamp\nu,x,1\nu,y\n", r"a\.csv, line 3: no timestamp"),
        ("a.csv", "user,item,timestamp\nu,x,1\nu,y,2,3\n", r"a\.csv, line 3: 4 fields where the header has 3"),
        (
            "a.csv",
            "user,item,timestamp\nu,x,1\n\nu,y,soon\n",
            r"a\.csv, line 4: the time 'soon' cannot be read: .* \(column 'timestamp'\)",
        ),
        ("a.csv", "user,item,timestamp\nu,x,nan\n", r"a\.csv, line 2: the time 'nan' cannot be read"),
        ("a.csv", "user,item,timestamp\nu,x,1e300\n", r"a\.csv, line 2: the time '1e300' lies outside"),
        ("a.csv", "user,item,timestamp\nu,x y,1\nu,x z,1\n", r"line 2: an item id is 1 to 256 .* \(1 more like it\)"),
        ("a.csv", "user,item,timestamp\nu,x,1\nu,caf\u00e9,1\n", r"a\.csv, line 3: an item id is"),
        ("a.csv", f"user,item,timestamp\nu,{'x' * 257},1\n", r"a\.csv, line 2: an item id is"),
        ("a.csv", b"user,item,timestamp\nu,\xff,1\n", r"a\.csv, line 2: not UTF-8: save the file as UTF-8"),
        (
            "a.csv",
            'user,item,timestamp\nu,x,1\nu,"y,2\nu,z,3\n',
            r"a\.csv, line 3: a field with quotes that do not match",
        ),
        ("a.csv.gz", b"no gzip at all", r"a\.csv\.gz"),
        ("a.tsv", "user\titem\ttimestamp\nu\tx\t1\t2\n", r"a\.tsv, line 2: 4 fields where the header has 3"),
        ("a.txt", "u x\nu\n", r"a\.txt, line 2: neither `user item` nor a user with all items"),
        ("a.txt", "u x\n\nu x 3\n", r"a\.txt, line 3: not `user item`, nor a user's only line"),
        ("a.txt", "u x 1\nv x 2\nu y 3\n", r"a\.txt, line 3: not `user item`, .* want a header and --format csv"),
        ("a.parquet", b"PAR0", r"a\.parquet cannot be read as Parquet"),
        ("a.log", "{}", r"a\.log: the file name does not tell the format .*: say it, --format csv\|tsv"),
    ],
)
def test_faults_name_file_line_and_remedy(tmp_path, name, content, message):
    """Every broken file is refused by one sentence that says where the fault is."""
    with pytest.raises(DataError, match=message) as caught:
        read_log(_write(tmp_path / name, content), DataRecipe())
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "time",
    ["1e16", "1e300", "10000000000000", "99999999999", "-2208988801", "9999-12-31T00:00:00Z"],
)
def test_times_beyond_the_years_are_refused(tmp_path, time):
    """Times before 1900 or after 2286, in whatever unit their size speaks for, are refused with place and column."""
    path = _write(tmp_path / "t.csv", f"user,item,when\nu,x,{time}\n")
    wanted = r"t\.csv, line 2: the time '.*' lies outside the years 1900 to 2286: .* --time-unit .* \(column 'when'\)"
    with pytest.raises(DataError, match=wanted):
        read_log(path, DataRecipe(timestamp_column="when"))


def test_one_time_beyond_the_years_is_found(tmp_path):
    """The fault is that of the row that has it, in Parquet datetimes too."""
    times = pl.Series(["2023-11-14T00:00:00", "1899-12-31T23:59:59"]).str.to_datetime(time_unit="us")
    pl.DataFrame({"user": [1, 1], "item": [7, 8], "timestamp": times}).write_parquet(tmp_path / "t.parquet")
    with pytest.raises(DataError, match=r"t\.parquet, row 2: the time '1899-12-31 23:59:59' lies outside"):
        read_log(tmp_path / "t.parquet", DataRecipe())


@pytest.mark.parametrize(
    ("column", "cell", "kind"),
    [
        ("user", b"\xff", "Binary, not text or whole numbers"),
        ("item", ["x"], r"List\(String\), not text or whole numbers"),
        ("item", {"id": "x"}, r"Struct\(.*\), not text or whole numbers"),
        ("type", ["buy"], r"List\(String\), not text or whole numbers"),
        ("value", [1.0], r"List\(Float64\), not numbers"),
        ("timestamp", [1], r"List\(Int64\), not times: numbers since 1970"),
        ("timestamp", b"\xff", "Binary, not times: numbers since 1970"),
        ("timestamp", timedelta(1), r"Duration\(.*\), not times: numbers since 1970"),
    ],
)
def test_columns_of_a_wrong_type_are_named(tmp_path, column, cell, kind):
    """A Parquet column that holds something else than its use is refused by file, name and type."""
    row = {"user": 1, "item": 7, "timestamp": 5, "type": "buy", "value": 1.0, column: cell}
    pl.DataFrame({name: [value] for name, value in row.items()}).write_parquet(tmp_path / "t.parquet")
    with pytest.raises(DataError, match=rf"t\.parquet: column '{column}' has the type {kind}"):
        read_log(tmp_path / "t.parquet", DataRecipe(event_types=("buy",), min_value=0.0))


def test_a_missing_file_is_said_to_be_missing(tmp_path):
    """A path that is no file is refused, a folder without segments too."""
    with pytest.raises(DataError, match="is neither a file"):
        read_log(tmp_path / "none.csv", DataRecipe())
    with pytest.raises(DataError, match="holds no segments"):
        read_log(tmp_path, DataRecipe())


def test_item_ids_of_the_longest_kind_are_taken(tmp_path):
    """256 characters and every printable punctuation keep the id rule."""
    punctuation = "!#$%&'()*+-./:;<=>?@[]^_`{|}~"
    path = _write(tmp_path / "ids.csv", f"user,item,timestamp\nu,{'x' * 256},1\nu,{punctuation},2\n")
    assert _histories(read_log(path, DataRecipe()))["u"] == ["x" * 256, punctuation]


def test_columns_may_have_other_names_and_no_times(tmp_path):
    """The recipe names columns; without a timestamp column the file's order is the order."""
    path = _write(tmp_path / "other.csv", "uid,sku,x\nu,c,1\nu,a,1\nv,b,1\n")
    log = read_log(path, DataRecipe(user_column="uid", item_column="sku", timestamp_column=""))
    assert _histories(log) == {"u": ["c", "a"], "v": ["b"]}
    assert log.timestamps_ms is None
    assert log.last_event_at is None


def test_types_and_values_filter(tmp_path):
    """Only the wanted types and values remain; filters that keep nothing say so, values must be numbers."""
    path = _write(
        tmp_path / "f.csv", "user,item,timestamp,type,value\nu,a,1,view,5\nu,b,2,buy,3.5\nu,c,3,buy,3\nu,d,4,cart,9\n"
    )
    assert _histories(read_log(path, DataRecipe(event_types=("buy", "cart")))) == {"u": ["b", "c", "d"]}
    assert _histories(read_log(path, DataRecipe(min_value=3.5))) == {"u": ["a", "b", "d"]}
    with pytest.raises(DataError, match=r"no events that \[data\] keeps"):
        read_log(path, DataRecipe(event_types=("gone",)))
    bad = _write(tmp_path / "g.csv", "user,item,timestamp,value\nu,a,1,high\n")
    with pytest.raises(DataError, match=r"g\.csv, line 2: 'value' is no number"):
        read_log(bad, DataRecipe(min_value=1.0))


def test_a_given_vocabulary_drops_and_counts_unknown_items(tmp_path):
    """Events of unknown items go, their users stay even when nothing of them is left."""
    log = read_log(_write(tmp_path / "log.csv", CSV), DataRecipe(), vocabulary=Vocabulary(["q", "z"]))
    assert log.dropped == 4
    assert _histories(log) == {"a": ["z"], "b": []}
    assert log.items.tolist() == [2]


def test_the_fingerprint_follows_the_content(tmp_path):
    """Another item, another order in time or another user make another fingerprint."""
    base = read_log(_write(tmp_path / "a.csv", CSV), DataRecipe()).fingerprint
    others = [CSV.replace("a,x", "a,w"), CSV.replace("a,x,10", "a,x,40"), CSV.replace("b,", "c,")]
    prints = {read_log(_write(tmp_path / "b.csv", other), DataRecipe()).fingerprint for other in others}
    assert len(prints | {base}) == 4
