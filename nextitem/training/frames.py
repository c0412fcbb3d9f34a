"""Frames as files, which is what the trainer reads: whoever gives a frame gets what a file of it would give."""

import os
import shutil
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import polars as pl

from training.errors import InputError

Data: TypeAlias = str | os.PathLike[str] | pl.DataFrame | pl.LazyFrame | Mapping[str, Sequence[Any]] | Any
"""A log: the path of a file or of an archive's folder, a polars or pandas frame, or a dictionary of columns."""


class DataFile:
    """The file of what was given. A frame has one in a folder of its own, which goes when this object does."""

    def __init__(self, data: Data) -> None:
        self._data = data
        self._path = Path(data) if isinstance(data, str | os.PathLike) else None

    @property
    def path(self) -> Path:
        """Where it lies; a frame is written when it is first asked for. Raises InputError for what is none."""
        if self._path is None:
            frame = to_polars(self._data)
            folder = _make_folder(self)
            frame.write_parquet(folder / "frame.parquet")
            self._path = folder / "frame.parquet"
        return self._path


class ItemsFile(DataFile):
    """The same of what is known of items, which is read from CSV: cells that are lists get `|` between their parts."""

    @property
    def path(self) -> Path:
        """As DataFile's."""
        if self._path is None:
            frame = to_polars(self._data)
            lists = [name for name, kind in frame.schema.items() if isinstance(kind, pl.List)]
            folder = _make_folder(self)
            joined = frame.with_columns(pl.col(name).cast(pl.List(pl.String)).list.join("|") for name in lists)
            joined.write_csv(folder / "items.csv")
            self._path = folder / "items.csv"
        return self._path


def to_polars(data: Any) -> pl.DataFrame:  # noqa: ANN401 - what a program gives
    """A frame as polars has it. Raises InputError for what is no frame."""
    if isinstance(data, pl.DataFrame):
        return data
    if isinstance(data, pl.LazyFrame):
        return data.collect()
    if isinstance(data, Mapping):
        return pl.DataFrame(dict(data), strict=False)
    if type(data).__module__.partition(".")[0] == "pandas" and hasattr(data, "columns"):
        return pl.DataFrame({str(name): _read_pandas(data[name]) for name in data.columns})
    raise InputError(
        f"{type(data).__name__} is no log: give the path of a file, a frame of polars or pandas, or a dict of columns"
    )


def _read_pandas(column: Any) -> pl.Series:  # noqa: ANN401 - pandas is not imported
    """A column of pandas without pyarrow: numbers and times by numpy, all else value by value, missing ones null."""
    if getattr(column.dtype, "tz", None) is not None:
        clock = column.dt.tz_convert("UTC").dt.tz_localize(None).to_numpy().astype("datetime64[ms]")
        return pl.Series(clock).dt.replace_time_zone("UTC")
    if isinstance(column.dtype, np.dtype):
        values = column.to_numpy()
        if values.dtype.kind == "M":
            return pl.Series(values.astype("datetime64[ms]"))
        if values.dtype.kind in "biuf":
            return pl.Series(values)
    values, missing = column.astype(object).to_numpy(), column.isna().to_numpy()
    cells = [None if gone else value for value, gone in zip(values.tolist(), missing, strict=True)]
    return pl.Series(cells, strict=False)


def _make_folder(owner: object) -> Path:
    folder = tempfile.mkdtemp(prefix="nextitem-")
    weakref.finalize(owner, shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)
