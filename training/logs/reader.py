"""Reads interaction logs in the usual forms (docs/reference/data.md), and a service's archive.

Form, columns, times and ids follow the rules of model/contract/event_logs. Events are sorted by time within each user,
and events of one time keep the order of the file.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from pathlib import Path

import numpy as np
import polars as pl

from model.contract.event_logs.columns import find_columns
from model.contract.event_logs.errors import LogError
from model.contract.event_logs.form import PAIRS, Form, describe_reading
from model.contract.event_logs.ids import ID_RULE
from model.contract.event_logs.options import LogOptions
from model.contract.id_rule import is_valid_id
from model.contract.vocabulary import Vocabulary
from training.data.interactions import Log
from training.errors import DataError
from training.logs.archive import SEGMENT_COLUMNS, SEGMENTS, read_segments
from training.logs.cleaning import clean
from training.logs.findings import announce_reading, describe_left_out, find_warnings
from training.logs.ids import ITEM, USER, collect_items, drop_missing, encode_ids
from training.logs.pair_files import read_pairs
from training.logs.reading_bar import ReadingBar
from training.logs.tables import ROW, RowLocator, cast_column, find_table, read_table
from training.logs.times import read_times
from training.recipe import DataRecipe

_TIME, _TYPE, _VALUE = "time", "type", "value"
_COLUMN_KEYS = {
    USER: "user_column",
    ITEM: "item_column",
    _TIME: "timestamp_column",
    _TYPE: "type_column",
    _VALUE: "value_column",
}
_DEFAULTS = {entry.name: entry.default for entry in fields(DataRecipe)}


@dataclass(frozen=True, kw_only=True)
class _Events:
    """The wanted events of one file or folder."""

    rows: pl.DataFrame
    locator: RowLocator
    options: LogOptions
    read_as: str
    left_out: list[str] = field(default_factory=list)


def read_log(
    path: Path,
    recipe: DataRecipe,
    *,
    vocabulary: Vocabulary | None = None,
    base: Path | None = None,
    announce: bool = True,
) -> Log:
    """Read a log. With a vocabulary, events of items outside it are dropped and counted. Raises DataError.

    `base` is a log of what came before: its events older than the first one of `path` are read, too. With `announce`
    stderr is told how the log was read and what may be wrong with it.
    """
    with _as_data_errors():
        events = _read_events(path, recipe)
        if base is not None:
            events = _put_before(events, path, base, recipe)
    rows, left_out = clean(events.rows, recipe)
    left_out = [*events.left_out, *left_out]
    if rows.is_empty():
        why = " that [data] keeps" if recipe.filters else f": {'; '.join(left_out)}" if left_out else ""
        raise DataError(f"{path} holds no events{why}")
    known_items = vocabulary or collect_items(rows, events.options, events.locator)
    log = replace(_arrange(rows, known_items, recipe), read_as=events.read_as)
    # A log that is read for a model is one that was looked at when the model was trained.
    log = replace(log, warnings=(*left_out, *(find_warnings(log) if vocabulary is None else ())))
    if announce:
        announce_reading(path, log)
    return log


@contextmanager
def _as_data_errors() -> Iterator[None]:
    try:
        yield
    except LogError as error:
        raise DataError(str(error)) from error


def _arrange(rows: pl.DataFrame, vocabulary: Vocabulary, recipe: DataRecipe) -> Log:
    """The rows as arrays, by user and time."""
    user_ids = rows[USER].unique().sort().to_list()
    coded = rows.select(
        rows[USER].cast(pl.Enum(user_ids)).to_physical().cast(pl.Int64),
        rows[ITEM].cast(pl.Enum(vocabulary.item_ids), strict=False).to_physical().cast(pl.Int64),
        *(name for name in (_TIME, _TYPE, _VALUE) if name in rows.columns),
    )
    known = coded.drop_nulls(ITEM)
    for column in (_TIME, USER):  # two stable sorts by one column take a fifth of the time of one sort by both
        known = known.sort(column, maintain_order=True) if column in known.columns else known
    counts = np.bincount(known[USER].to_numpy(), minlength=len(user_ids))
    return Log(
        user_ids=user_ids,
        vocabulary=vocabulary,
        offsets=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        items=(known[ITEM].to_numpy() + 1).astype(np.int32),
        timestamps_ms=known[_TIME].to_numpy().astype(np.int64) if _TIME in known.columns else None,
        types=known[_TYPE].to_numpy().astype(np.str_) if _TYPE in recipe.event_features else None,
        values=known[_VALUE].to_numpy().astype(np.float32) if _VALUE in recipe.event_features else None,
        dropped=len(coded) - len(known),
    )


def _read_events(path: Path, recipe: DataRecipe) -> _Events:
    """The wanted events, their times in epoch milliseconds."""
    if path.is_dir():
        recipe = replace(recipe, **SEGMENT_COLUMNS)
    elif not path.is_file():
        raise DataError(f"{path} is neither a file nor a folder of segments")
    options = make_options(recipe)
    form = Form(SEGMENTS) if path.is_dir() else find_table(path, recipe.format)
    locator = RowLocator(path, form.kind)
    rows, roles = _read_rows(path, form, recipe, options)
    rows, missing = drop_missing(rows, options, locator)
    rows = encode_ids(_keep_wanted(rows, roles, recipe, locator), options)
    said = None
    if _TIME in roles and not rows.is_empty():
        times, said = read_times(rows, rows[_TIME].alias(roles[_TIME]), options, locator)
        rows = rows.with_columns(times.alias(_TIME))
    return _Events(
        rows=rows,
        locator=locator,
        options=options,
        read_as="a service's archive" if path.is_dir() else describe_reading(form, roles, said),
        left_out=[describe_left_out(missing)] if missing else [],
    )


def _put_before(events: _Events, path: Path, base: Path, recipe: DataRecipe) -> _Events:
    """The events with those of another log before them that are older than all of them."""
    earlier = _read_events(base, recipe)
    for log, rows in ((path, events.rows), (base, earlier.rows)):
        if _TIME not in rows.columns:
            raise DataError(f"{log} has no times, so it is unknown which events of {base} came before it")
    before = earlier.rows
    if not events.rows.is_empty():
        before = before.filter(before[_TIME] < events.rows[_TIME].min())
    if before.is_empty():
        return events
    collect_items(before, earlier.options, earlier.locator)  # here a fault can still be located
    return replace(
        events,
        rows=pl.concat([before, events.rows], how="vertical_relaxed"),
        read_as=f"{events.read_as}; before it {base}: {earlier.read_as}",
        left_out=[*(f"{base}: {left}" for left in earlier.left_out), *events.left_out],
    )


def make_options(recipe: DataRecipe) -> LogOptions:
    """The options that a recipe stands for. A column under its default name is looked for under usual ones, too."""
    names = {role: getattr(recipe, key) for role, key in _COLUMN_KEYS.items()}
    return LogOptions(
        format=recipe.format,
        columns={role: name for role, name in names.items() if name != _DEFAULTS[_COLUMN_KEYS[role]]},
        time_zone=recipe.time_zone,
        time_unit=recipe.time_unit,
        ids=recipe.ids,
        missing_ids=recipe.missing_ids,
    )


def _read_rows(path: Path, form: Form, recipe: DataRecipe, options: LogOptions) -> tuple[pl.DataFrame, dict[str, str]]:
    """The wanted columns under the names of their roles, each row with its number; and the column of each role."""
    wanted = [USER, ITEM]
    wanted += [_TIME] * bool(recipe.timestamp_column)
    wanted += [_TYPE] * bool(recipe.event_types or _TYPE in recipe.event_features)
    wanted += [_VALUE] * bool(recipe.min_value is not None or _VALUE in recipe.event_features)
    if form.kind == PAIRS:
        if recipe.event_features:
            raise DataError(f"{path} has only users and items: data.event_features needs a file with columns")
        return read_pairs(path), {USER: USER, ITEM: ITEM}
    if form.kind == SEGMENTS:
        segments = read_segments(path)
        roles = {role: getattr(recipe, _COLUMN_KEYS[role]) for role in wanted}
        table = segments.select(pl.col(name).alias(role) for role, name in roles.items()).with_row_index(ROW)
    else:
        found = find_columns(path, form.names, options.columns, wanted)
        roles = {role: found[role] for role in wanted}
        with ReadingBar(path) as bar:
            table = read_table(path, form, roles, bar.show)
    return table.with_columns(
        _cast(path, table[role].alias(name), role).alias(role) for role, name in roles.items()
    ), roles


def _cast(path: Path, column: pl.Series, role: str) -> pl.Series:
    if role == _TIME:
        return column
    if role == _VALUE:
        return cast_column(path, column, pl.Float64, "numbers")
    return cast_column(path, column, pl.String, "text or whole numbers")


def _keep_wanted(rows: pl.DataFrame, roles: dict[str, str], recipe: DataRecipe, locator: RowLocator) -> pl.DataFrame:
    """Only the events of the wanted types and values."""
    if recipe.event_types:
        rows = rows.filter(pl.col(_TYPE).is_in(recipe.event_types))
    if recipe.min_value is not None:
        values = rows[_VALUE]
        locator.refuse(rows, values.is_null() | ~values.is_finite(), f"{roles[_VALUE]!r} is no number")
        rows = rows.filter(values >= recipe.min_value)
    if _TYPE in recipe.event_features:
        wrong = [name for name in rows[_TYPE].unique().to_list() if name is None or not is_valid_id(name)]
        bad = rows[_TYPE].is_null() | rows[_TYPE].is_in([name for name in wrong if name is not None])
        locator.refuse(rows, bad, f"{roles[_TYPE]!r} is no type: {ID_RULE}")
    return rows
