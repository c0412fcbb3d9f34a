"""Vectors of items from a file, such as embeddings of their texts or pictures: Parquet or NumPy's .npz."""

import hashlib
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from model.contract.event_logs.columns import ITEM, find_columns
from model.contract.event_logs.errors import LogError
from model.contract.event_logs.ids import encode_id
from model.contract.npy import ARRAY_FAULTS
from training.errors import DataError

_FORMS = "a .parquet file with a column of ids and one of lists, or an .npz file with the arrays ids and vectors"
_SHOWN = 3


@dataclass(frozen=True, kw_only=True)
class ItemVectors:
    """Vectors (N, E) of items, a row for each id, and the file that they come from."""

    ids: list[str]
    vectors: NDArray[np.float32]
    file: str
    sha256: str


def read_item_vectors(path: Path, ids: str = "plain") -> ItemVectors:
    """Read a file of vectors. With `ids` = percent ids are encoded as a log's. Raises DataError."""
    if not path.is_file():
        raise DataError(f"{path} is not a file")
    if path.suffix == ".parquet":
        names, vectors = _read_parquet(path)
    elif path.suffix == ".npz":
        names, vectors = _read_npz(path)
    else:
        raise DataError(f"{path}: vectors of items are {_FORMS}")
    if ids == "percent":
        names = [encode_id(name) for name in names]
    if not names:
        raise DataError(f"{path} holds no vectors")
    if len(set(names)) < len(names):
        seen: set[str] = set()
        twice = next(name for name in names if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise DataError(f"{path} holds two vectors of item {twice!r:.80}")
    wrong = ~np.isfinite(vectors).all(axis=1)
    if wrong.any():
        raise DataError(f"{path}: the vector of item {names[int(wrong.argmax())]!r:.80} holds what is no finite number")
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return ItemVectors(ids=names, vectors=vectors, file=path.name, sha256=digest)


def _read_parquet(path: Path) -> tuple[list[str], NDArray[np.float32]]:
    try:
        rows = pl.read_parquet(path)
    except (pl.exceptions.PolarsError, OSError) as error:
        raise DataError(f"{path} cannot be read as Parquet: {str(error).splitlines()[0]}") from error
    lists = [name for name, kind in rows.schema.items() if isinstance(kind, pl.List | pl.Array)]
    if len(lists) != 1:
        found = f"{len(lists)} columns of lists ({', '.join(lists)})" if lists else "no column of lists"
        raise DataError(f"{path} has {found}: it must have one, the vectors")
    others = [name for name in rows.columns if name not in lists]
    try:
        item = "id" if "id" in others else find_columns(path, others, {}, [ITEM])[ITEM]
    except LogError as error:
        raise DataError(f"{path} has no column 'item' or 'id', only {', '.join(rows.columns)}") from error
    rows = rows.select(pl.col(item).cast(pl.String), pl.col(lists[0])).drop_nulls()
    column = rows[lists[0]]
    if isinstance(column.dtype, pl.Array):
        column = column.arr.to_list()
    lengths, flat = column.list.len().unique(), column.explode()
    if not flat.dtype.is_numeric():
        raise DataError(f"{path}: the column {lists[0]} holds no numbers")
    if len(lengths) > 1 or flat.null_count():
        raise DataError(f"{path}: the vectors must have the same length and no empty place")
    size = int(lengths[0]) if len(lengths) else 0
    return rows[item].to_list(), flat.cast(pl.Float32).to_numpy().reshape(len(rows), size)


def _read_npz(path: Path) -> tuple[list[str], NDArray[np.float32]]:
    try:
        with np.load(path, allow_pickle=False) as file:
            missing = [name for name in ("ids", "vectors") if name not in file.files]
            if missing:
                raise DataError(f"{path} has no array {missing[0]!r}, only {', '.join(file.files)}")
            ids, vectors = file["ids"], file["vectors"]
    except (*ARRAY_FAULTS, OSError, EOFError, zipfile.BadZipFile) as error:
        raise DataError(f"{path} cannot be read as NumPy's .npz with plain arrays: {error}") from error
    if ids.ndim != 1 or ids.dtype.kind not in "Uiu":
        raise DataError(f"{path}: ids must be one array of texts or whole numbers, such as np.array(ids, dtype=str)")
    if vectors.ndim != 2 or len(vectors) != len(ids) or vectors.dtype.kind not in "fiu":
        raise DataError(f"{path}: vectors must be numbers, a row for each of the {len(ids)} ids")
    return [str(name) for name in ids.tolist()], vectors.astype(np.float32)


def describe_overlap(vectors: ItemVectors, known: list[str]) -> str:
    """Ids of both sides, for whoever finds that none is the same."""
    theirs, ours = (", ".join(names[:_SHOWN]) for names in (vectors.ids, known))
    return f"it has {theirs}, the log {ours}"
