"""The literature's files without a header: `user item` a line, or a line a user with all items, oldest first."""

from pathlib import Path

import polars as pl

from training.logs.tables import RowLocator, read_lines


def read_pairs(path: Path) -> pl.DataFrame:
    """Columns row, user and item, in the order of the file; blank lines count but give nothing. Raises DataError."""
    rows = pl.DataFrame({"line": read_lines(path)}).with_row_index("row")
    rows = rows.with_columns(pl.col("line").str.replace_all("\t", " ", literal=True).str.strip_chars())
    rows = rows.filter(pl.col("line") != "")
    pair = rows["line"].str.splitn(" ", 2).struct  # a fourth of the time of a regular expression
    pairs = rows.select(
        "row", pair.field("field_0").alias("user"), pair.field("field_1").str.strip_chars_start().alias("item")
    )
    folded = pairs["item"].is_null() | pairs["item"].str.contains(" ", literal=True)
    return _unfold(path, rows) if folded.any() else pairs


def _unfold(path: Path, rows: pl.DataFrame) -> pl.DataFrame:
    """Lines of one user each. A user with two lines means that a third field is no item but a time or a rating."""
    fields = rows["line"].str.extract_all(r"\S+")
    locator = RowLocator(path, "lines")
    locator.refuse(rows, fields.list.len() < 2, "neither `user item` nor a user with all items")
    users = fields.list.first()
    locator.refuse(
        rows,
        ~users.is_first_distinct(),
        "not `user item`, nor a user's only line with all items: files with more columns want a header and "
        "--format csv",
    )
    return pl.DataFrame({"row": rows["row"], "user": users, "item": fields.list.slice(1)}).explode("item")
