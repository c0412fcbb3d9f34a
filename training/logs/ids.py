"""A log's ids: events that lack one are left out or refused, and ids may be encoded, as `--ids` says."""

from dataclasses import dataclass

import polars as pl

from model.contract.event_logs.ids import ID_RULE, NO_IDS, WAY_OUT, encode_id
from model.contract.event_logs.options import LogOptions
from model.contract.id_rule import MAX_ID_LENGTH, is_valid_id
from model.contract.vocabulary import Vocabulary
from training.logs.tables import RowLocator

USER, ITEM = "user", "item"
_ENCODED = r"[^!-$&-~]"
VALID = rf"^[!-~]{{1,{MAX_ID_LENGTH}}}$"
"""The id rule, as polars wants it."""


@dataclass(frozen=True)
class LeftOut:
    """How many of a log's events lack an id."""

    users: int
    items: int
    events: int
    of: int
    first: str
    """The place of the first one: line 12."""


def drop_missing(rows: pl.DataFrame, options: LogOptions, locator: RowLocator) -> tuple[pl.DataFrame, LeftOut | None]:
    """The rows with a user and an item, and what was left out. Raises DataError where none may be missing."""
    missing = {name: _find_missing(rows[name], options) for name in (USER, ITEM)}
    either = missing[USER] | missing[ITEM]
    if not either.any():
        return rows, None
    if options.missing_ids != "skip":
        for name, bad in missing.items():
            locator.refuse(rows, bad, f"no {name}; --missing-ids skip leaves such events out")
    counts = int(missing[USER].sum()), int(missing[ITEM].sum()), int(either.sum())
    return rows.filter(~either), LeftOut(*counts, of=len(rows), first=locator.name(rows, either))


def encode_ids(rows: pl.DataFrame, options: LogOptions) -> pl.DataFrame:
    """The rows with ids as `--ids` says."""
    if options.ids == "plain":
        return rows
    for name in (USER, ITEM):
        distinct = rows[name].unique()
        originals = distinct.filter(distinct.str.contains(_ENCODED)).to_list()
        if originals:
            encoded = [encode_id(original) for original in originals]
            rows = rows.with_columns(pl.col(name).replace(originals, encoded))
    return rows


def collect_items(rows: pl.DataFrame, options: LogOptions, locator: RowLocator) -> Vocabulary:
    """The vocabulary of all items. Raises DataError for ids that break the id rule."""
    item_ids: list[str] = rows[ITEM].unique().to_list()
    wrong = [item_id for item_id in item_ids if not is_valid_id(item_id)]
    if wrong:
        way_out = WAY_OUT if options.ids == "plain" else "encoded it is longer"
        locator.refuse(rows, rows[ITEM].is_in(wrong), f"an item id is {ID_RULE}; {way_out}")
    return Vocabulary.from_items(item_ids)


def _find_missing(ids: pl.Series, options: LogOptions) -> pl.Series:
    missing = ids.is_null() | (ids.str.strip_chars() == "")
    return missing if options.missing_ids == "keep" else missing | ids.is_in(NO_IDS)
