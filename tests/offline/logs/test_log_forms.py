"""Logs as people bring them: trainer and service take the same events from a file, or refuse it alike."""

import gzip
from functools import partial

import polars as pl
import pytest

from model.contract.event_logs.errors import LogError
from model.contract.event_logs.options import LogOptions
from model.contract.event_logs.stream import open_log
from training.errors import DataError
from training.logs import tables
from training.logs.reader import read_log
from training.recipe import DataRecipe

pack = partial(gzip.compress, mtime=0)  # tests are named by what is packed, which must not hold the time
COLUMN_KEYS = {"user": "user_column", "item": "item_column", "time": "timestamp_column"}
HEAD = "user,item,timestamp\n"


@pytest.fixture
def write(tmp_path):
    """A function that plants a file."""

    def plant(name, content):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return plant


@pytest.fixture
def planted(write, request):
    """The path of a planted file."""
    return write(*request.param)


def by_trainer(path, columns=None, **options):
    """The events (user, item, milliseconds) as the trainer reads them."""
    named = {COLUMN_KEYS[role]: name for role, name in (columns or {}).items()}
    log = read_log(path, DataRecipe(**named, **options), announce=False)
    owners, indexes = log.histories.flatten()
    items = log.vocabulary.decode(indexes.tolist())
    times = log.timestamps_ms.tolist() if log.timestamps_ms is not None else [None] * len(items)
    return sorted(zip((log.user_ids[owner] for owner in owners), items, times, strict=True)), log


def by_service(path, columns=None, **options):
    """The same as the service reads them."""
    with open_log(path, LogOptions(columns=columns or {}, **options)) as log:
        return sorted((event.user_id, event.item_id, event.timestamp_ms) for event in log), log


FORMS = [
    ("a.csv", "user_id,movieId,rating,TS\n1,x,5,1700000000\n2,y,4,1700000001\n", {}),
    ("a.csv", "userId;itemId;Event Time\n1;x;2023-11-14 22:13:20\n2;y;2023-11-14T22:13:21\n", {}),
    ("a.csv", "user|item|date\n1|x|2024-05-31\n2|y|2024/06/01\n", {"time_zone": "America/New_York"}),
    ("a.csv", "user\titem\ttime\n1\tx\t20240531\n2\ty\t20240601\n", {"time_zone": "Asia/Tokyo"}),
    (
        "a.csv",
        "\ufeffuser,item,time\r\n\r\n1,x,2024-03-31 02:30\r\n2,y,2024-10-27 02:30:00.25\r\n",
        {"time_zone": "Europe/Berlin"},
    ),
    ("a.csv", 'user,title,item,time\n1,"5"" disk, ""new""\nline",x,1700000000000\n2,"a\n\nb",y,1700000000001\n', {}),
    ("a.csv", 'user,title,item,time\n1,5" disk,x,1700000000000000\n2,"a, b",y,1700000000001000\n', {}),
    ("a.csv", "user,item,time\n1,x,2024-05-31 10:00+02\n2,y,2024-05-31 10:00:00 UTC\n", {}),
    ("a.csv", "user,item,time\n1,x,2024-05-31T10:00Z\n2,y,2024-05-31 10:00:00.5-0330\n", {}),
    ("a.csv", "user,item,time\n1,x,1700000000000000000\n2,y,0\n", {}),
    ("a.csv", "user,item,time\n1,x,1700000000\n2,y,10\n", {"time_unit": "ms"}),
    ("a.csv", "user,item,time\n1,x,5\nNaN,y,5\n2,,5\n2,y,6\n3,z,7\n", {}),
    ("a.csv", "user,item,time\n1,café au lait,5\n2,100%,5\n2,日本,6\n", {"ids": "percent"}),
    ("a.csv", "user,item,time\n1,NaN,5\n", {"missing_ids": "keep"}),
    ("a.dat", "1::x::5::978300760\n2::y::3::978302109\n", {"columns": {"user": "1", "item": "2", "time": "4"}}),
    ("a.csv.gz", pack(b"uid,sku,when\n1,x,9\n2,y,8\n"), {"columns": {"time": "when"}}),
    (
        "a.jsonl",
        '{"user":1,"item":"x","ts":1700000000}\n\n{"x":[1],"ts":1700000001.5,"item":"caf\\u00e9","user":"2"}\n',
        {"ids": "percent"},
    ),
    ("a.ndjson", '{"user":1,"item":"[x]","ts":"2024-05-31"}\n{"user":2,"item":"{","ts":"2024-06-01"}\n', {}),
    ("a.json.gz", pack(b'{"user":1,"item":null,"ts":3}\n{"user":2,"item":"y","ts":4}\n'), {}),
    ("a.txt", "1 x\n2 y z\n", {}),
    ("a.txt", "user_id\titem_id\ttimestamp\n1\tx\t5\n2\ty\t6\n", {}),
]


@pytest.mark.parametrize("block_bytes", [1 << 20, 16])
@pytest.mark.parametrize(("planted", "options"), [(form[:2], form[2]) for form in FORMS], indirect=["planted"])
def test_trainer_and_service_read_the_same_events(planted, monkeypatch, options, block_bytes):
    """Whatever separates, quotes and packs them, and wherever the trainer's blocks end."""
    monkeypatch.setattr(tables, "_BLOCK_BYTES", block_bytes)
    trained, log = by_trainer(planted, **options)
    served, opened = by_service(planted, **options)
    assert trained == served
    assert len(trained) >= 1
    assert log.read_as == opened.description or "value" in opened.roles or "type" in opened.roles


FAULTS = [
    ("a.csv", HEAD + "u,x,1700000000\nu,x,1700000000000\n", {}, r"line 3: the time 1700000000000 seems to be in milli"),
    ("a.csv", HEAD + "u,x,1700000000\n\nu,x,2024-05-31\n", {}, r"line 4: the time '2024-05-31' names no zone, but"),
    ("a.csv", HEAD + "u,x,2024-05-31\nu,x,2024-05-31T10:00:00Z\n", {}, r"line 3: .* names a zone, but the first one"),
    ("a.csv", HEAD + "u,x,31.05.2024\n", {}, r"line 2: the time '31.05.2024' may have day or month first"),
    ("a.csv", HEAD + "u,x,2024-02-30\n", {}, r"line 2: the time '2024-02-30' is no time"),
    ("a.csv", HEAD + "u,x,1e300\n", {}, r"line 2: the time '1e300' lies outside the years 1900 to 2286"),
    ("a.csv", HEAD + f"u,x,{'9' * 500}x\n", {}, r"line 2: the time '9{40}\.\.\.' cannot be read"),
    ("a.csv", HEAD + "u,x,\n", {}, r"line 2: no timestamp"),
    ("a.csv", HEAD + "u,x,1\nu,x,1,1\n", {}, r"line 3: 4 fields where the header has 3"),
    ("a.csv", HEAD + 'u,x,1\nu,"x,1\nv,y,2\n', {}, r"line 3: a field with quotes that do not match"),
    ("a.csv", HEAD.encode() + b"u,\xff,1\n", {}, r"line 2: not UTF-8"),
    ("a.csv", HEAD + "u,x,1\n,x,1\n", {"missing_ids": "refuse"}, r"line 3: no user"),
    ("a.csv", HEAD + "u,a b,1\n", {}, r"line 2: .*; --ids percent encodes other characters"),
    ("a.csv", "who;item;when\nu;x;1\n", {}, r"no column for user and time: its columns are 'who', 'item', 'when'"),
    ("a.csv", HEAD + "u,x,1\n", {"time_zone": "Mars"}, r"there is no time zone 'Mars'"),
    ("a.jsonl", '{"user":1,"item":2,"ts":3}\n\n{"user":1,\n', {}, r"line 3: not a JSON object"),
    (
        "a.jsonl",
        '{"user":1,"item":2,"ts":3}\n{"user":1,"item":{"id":2},"ts":3}\n',
        {},
        r"line 2: 'item' is neither text",
    ),
    ("a.json", '[{"user":1}]', {}, r"is one JSON list: write one object a line"),
    ("a.log", "x", {}, r"the file name does not tell the format"),
]


@pytest.mark.parametrize(("name", "content", "options", "message"), FAULTS)
def test_trainer_and_service_refuse_alike(write, name, content, options, message):
    """By one sentence with the line and what to do, and never with the whole line."""
    path = write(name, content)
    for read, error in ((by_trainer, DataError), (by_service, LogError)):
        with pytest.raises(error, match=message) as caught:
            read(path, **options)
        assert "\n" not in str(caught.value)
        assert len(str(caught.value)) - len(str(path)) < 320


def test_zstandard_is_read_by_the_trainer_alone(tmp_path):
    """The trainer has polars for it; the standard library of the service cannot."""
    path = tmp_path / "a.csv.zst"
    pl.LazyFrame({"user": ["u", "u"], "item": ["x", "y"], "timestamp": [1, 2]}).sink_csv(path, compression="zstd")
    assert path.read_bytes()[:4] == b"\x28\xb5\x2f\xfd"
    assert by_trainer(path)[0] == [("u", "x", 1000), ("u", "y", 2000)]
    with pytest.raises(LogError, match="read by nextitem-train only"):
        by_service(path)


def test_parquet_times_without_a_zone_are_read_in_one(tmp_path):
    """Datetimes and dates, in the zone of the option; whole numbers are told by their size."""
    days = pl.DataFrame({"uid": [1, 1], "sku": [7, 8], "date": ["2024-05-31", "2024-06-01"]})
    days.with_columns(pl.col("date").str.to_date()).write_parquet(tmp_path / "a.parquet")
    [first, second], log = by_trainer(tmp_path / "a.parquet", time_zone="Asia/Tokyo")
    assert (first, second) == (("1", "7", 1_717_081_200_000), ("1", "8", 1_717_167_600_000))
    assert "time = date (times without a zone, read in Asia/Tokyo; --time-zone changes that)" in log.read_as
    days.with_columns(date=pl.Series([1_700_000_000_000_000, 0])).write_parquet(tmp_path / "b.parquet")
    assert by_trainer(tmp_path / "b.parquet")[0][0] == ("1", "7", 1_700_000_000_000)


def test_other_columns_are_never_held(tmp_path, monkeypatch):
    """A table is read in blocks, of which only what is asked for is kept."""
    kept: list[tuple[str, ...]] = []
    whole = pl.concat
    monkeypatch.setattr(pl, "concat", lambda parts: whole([*map(kept_columns(kept), parts)]))
    path = tmp_path / "a.csv"
    path.write_text("user,item,timestamp,note\n" + "".join(f"u{i % 9},x{i % 7},{i},{'n' * 100}\n" for i in range(500)))
    monkeypatch.setattr(tables, "_BLOCK_BYTES", 4096)
    assert len(by_trainer(path)[0]) == 500
    assert len(kept) > 10
    assert set(kept) == {("user", "item", "time")}


def kept_columns(kept):
    """A function that notes a part's columns."""

    def note(part):
        kept.append(tuple(part.columns))
        return part

    return note
