"""Reads interaction logs: CSV, TSV, Parquet and the literature's lines, the text ones also as .gz; a service's archive.

Times are epoch seconds or milliseconds (a file whose largest time is below 10^11 is in seconds: as milliseconds that
would be March 1973), RFC 3339 with a zone, or Parquet datetimes (UTC unless they say otherwise). Events are sorted by
time within each user, and events of one time keep the order of the file. Times outside the years 1900 to 2286 are
refused: they are in microseconds, or no times at all.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl

from model.contract.vocabulary import MAX_ID_LENGTH, Vocabulary, is_valid_id
from training.data.archive import SEGMENT_COLUMNS, SEGMENTS, read_segments
from training.data.interactions import Log
from training.data.k_core import drop_rare
from training.data.pair_files import read_pairs
from training.data.tables import RowLocator, cast_column, read_table
from training.errors import DataError
from training.recipe import DataRecipe

_SECONDS_BELOW = 1e11
_EARLIEST_MS, _LATEST_MS = -2_208_988_800_000, 9_999_999_999_999  # the years 1900 and 2286
_UNITS = "epoch seconds, epoch milliseconds and RFC 3339 with a zone are understood"
_FORMATS = {".csv": "csv", ".tsv": "tsv", ".parquet": "parquet", ".pq": "parquet", ".txt": "lines"}
_PLAIN = f"1 to {MAX_ID_LENGTH} printable ASCII characters without spaces"
_USER, _ITEM, _TIME, _TYPE, _VALUE = "user", "item", "time", "type", "value"


def read_log(path: Path, recipe: DataRecipe, *, vocabulary: Vocabulary | None = None, base: Path | None = None) -> Log:
    """Read a log. With a vocabulary, events of items outside it are dropped and counted. Raises DataError.

    `base` is a log of what came before: its events older than the first one of `path` are read, too.
    """
    rows, locator = _read_events(path, recipe)
    if base is not None:
        rows = _put_before(rows, path, base, recipe)
    rows = drop_rare(rows, recipe)
    if rows.is_empty():
        raise DataError(f"{path} holds no events{' that [data] keeps' if recipe.filters else ''}")
    user_ids = rows[_USER].unique().sort().to_list()
    if vocabulary is None:
        vocabulary = _collect_items(rows, locator)
    coded = rows.select(
        rows[_USER].cast(pl.Enum(user_ids)).to_physical().cast(pl.Int64),
        rows[_ITEM].cast(pl.Enum(vocabulary.item_ids), strict=False).to_physical().cast(pl.Int64),
        *(name for name in (_TIME, _TYPE, _VALUE) if name in rows.columns),
    )
    known = coded.drop_nulls(_ITEM)
    for column in (_TIME, _USER):  # two stable sorts by one column take a fifth of the time of one sort by both
        known = known.sort(column, maintain_order=True) if column in known.columns else known
    counts = np.bincount(known[_USER].to_numpy(), minlength=len(user_ids))
    return Log(
        user_ids=user_ids,
        vocabulary=vocabulary,
        offsets=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        items=(known[_ITEM].to_numpy() + 1).astype(np.int32),
        timestamps_ms=known[_TIME].to_numpy().astype(np.int64) if _TIME in known.columns else None,
        types=known[_TYPE].to_numpy().astype(np.str_) if _TYPE in recipe.event_features else None,
        values=known[_VALUE].to_numpy().astype(np.float32) if _VALUE in recipe.event_features else None,
        dropped=len(coded) - len(known),
    )


def _read_events(path: Path, recipe: DataRecipe) -> tuple[pl.DataFrame, RowLocator]:
    """The wanted events of one file or folder, their times in epoch milliseconds."""
    kind = _name_format(path, recipe)
    if kind == SEGMENTS:
        recipe = replace(recipe, **SEGMENT_COLUMNS)
    rows = _read_rows(path, kind, recipe)
    locator = RowLocator(path, kind)
    for name in (_USER, _ITEM):
        locator.refuse(rows, rows[name].is_null() | (rows[name] == ""), f"no {name}")
    rows = _keep_wanted(rows, recipe, locator)
    if _TIME in rows.columns and not rows.is_empty():
        rows = rows.with_columns(_read_times(path, rows, recipe.timestamp_column, locator))
    return rows, locator


def _put_before(rows: pl.DataFrame, path: Path, base: Path, recipe: DataRecipe) -> pl.DataFrame:
    """The events with those of another log before them that are older than all of them."""
    earlier, locator = _read_events(base, recipe)
    for log, events in ((path, rows), (base, earlier)):
        if _TIME not in events.columns:
            raise DataError(f"{log} has no times, so it is unknown which events of {base} came before it")
    if not rows.is_empty():
        earlier = earlier.filter(earlier[_TIME] < rows[_TIME].min())
    if earlier.is_empty():
        return rows
    _collect_items(earlier, locator)  # here a fault can still be located
    return pl.concat([earlier, rows], how="vertical_relaxed")


def _name_format(path: Path, recipe: DataRecipe) -> str:
    if path.is_dir():
        return SEGMENTS
    if not path.is_file():
        raise DataError(f"{path} is neither a file nor a folder of segments")
    if recipe.format != "auto":
        return recipe.format
    suffixes = [suffix.lower() for suffix in path.suffixes if suffix.lower() != ".gz"]
    if not suffixes or suffixes[-1] not in _FORMATS:
        raise DataError(
            f"{path}: the file name does not tell the format ({', '.join(_FORMATS)}, also .gz): set data.format"
        )
    return _FORMATS[suffixes[-1]]


def _read_rows(path: Path, kind: str, recipe: DataRecipe) -> pl.DataFrame:
    """The wanted columns under our own names, each row with its number in the file."""
    if kind == "lines" and recipe.event_features:
        raise DataError(f"{path} has only users and items: data.event_features needs a file with columns")
    if kind == "lines":
        return read_pairs(path)
    wanted = {_USER: recipe.user_column, _ITEM: recipe.item_column}
    if recipe.timestamp_column:
        wanted[_TIME] = recipe.timestamp_column
    if recipe.event_types or _TYPE in recipe.event_features:
        wanted[_TYPE] = recipe.type_column
    if recipe.min_value is not None or _VALUE in recipe.event_features:
        wanted[_VALUE] = recipe.value_column
    table = read_segments(path) if kind == SEGMENTS else read_table(path, kind)
    for name, column in wanted.items():
        if column not in table.columns:
            key = f"data.{'timestamp' if name == _TIME else name}_column"
            raise DataError(f"{path} has no column {column!r}, only {', '.join(table.columns)}: set {key}")
    columns = {
        name: table[column]
        if name == _TIME
        else cast_column(path, table[column], pl.Float64, "numbers")
        if name == _VALUE
        else cast_column(path, table[column], pl.String, "text or whole numbers")
        for name, column in wanted.items()
    }
    rows = pl.DataFrame(columns).with_row_index("row")
    if kind in ("parquet", SEGMENTS):
        return rows
    return rows.filter(~pl.all_horizontal(pl.exclude("row").is_null()))  # blank lines


def _keep_wanted(rows: pl.DataFrame, recipe: DataRecipe, locator: RowLocator) -> pl.DataFrame:
    """Only the events of the wanted types and values."""
    if recipe.event_types:
        rows = rows.filter(pl.col(_TYPE).is_in(recipe.event_types))
    if recipe.min_value is not None:
        values = rows[_VALUE]
        locator.refuse(rows, values.is_null() | ~values.is_finite(), f"{recipe.value_column!r} is no number")
        rows = rows.filter(values >= recipe.min_value)
    if _TYPE in recipe.event_features:
        wrong = [name for name in rows[_TYPE].unique().to_list() if name is None or not is_valid_id(name)]
        bad = rows[_TYPE].is_null() | rows[_TYPE].is_in([name for name in wrong if name is not None])
        locator.refuse(rows, bad, f"{recipe.type_column!r} is no type: {_PLAIN}")
    return rows


def _read_times(path: Path, rows: pl.DataFrame, name: str, locator: RowLocator) -> pl.Series:
    """The time column as epoch milliseconds, whatever it was; `name` is its name in the file."""
    column = rows[_TIME]
    locator.refuse(rows, column.is_null(), f"no {name}")
    if column.dtype == pl.Date or isinstance(column.dtype, pl.Datetime):
        times = column.cast(pl.Datetime("ms")).to_physical()
    else:
        times = _parse_times(path, rows, column.alias(name), locator)
    far = (times < _EARLIEST_MS) | (times > _LATEST_MS)
    locator.refuse(rows, far, f"the time in column {name!r} lies outside the years 1900 to 2286: {_UNITS}")
    return times.round().cast(pl.Int64).alias(_TIME)


def _parse_times(path: Path, rows: pl.DataFrame, column: pl.Series, locator: RowLocator) -> pl.Series:
    """Numbers or texts as epoch milliseconds of any size."""
    if not column.dtype.is_numeric():
        column = cast_column(path, column, pl.String, f"times: {_UNITS}")
    numbers = column.cast(pl.Float64, strict=False)  # exact up to 2^53 ms
    if numbers[0] is None:
        times = column.str.to_datetime("%+", time_unit="ms", time_zone="UTC", strict=False)
        locator.refuse(
            rows, times.is_null(), f"the time in column {column.name!r} is neither a number nor RFC 3339 with a zone"
        )
        return times.to_physical()
    bad = numbers.is_null() | ~numbers.is_finite()
    locator.refuse(
        rows, bad.fill_null(value=True), f"the time in column {column.name!r} is no epoch time like the first one"
    )
    largest = np.abs(numbers.to_numpy()).max()
    return numbers * (1000 if largest < _SECONDS_BELOW else 1)


def _collect_items(rows: pl.DataFrame, locator: RowLocator) -> Vocabulary:
    item_ids: list[str] = rows[_ITEM].unique().to_list()
    wrong = [item_id for item_id in item_ids if not is_valid_id(item_id)]
    if wrong:
        locator.refuse(rows, rows[_ITEM].is_in(wrong), f"an item id is {_PLAIN}")
    return Vocabulary.from_items(item_ids)
