"""MovieLens 100K, 1M and 20M as interactions.csv and items.csv, from sources that are pinned by digest.

GroupLens publishes them. The recbole wheel on PyPI carries a copy of the smallest with the same events in the same
order; both sources give the same files.
"""

import csv
import io
import re
import zipfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import httpx
import polars as pl

from model.contract.atomic_files import write_whole
from training.data.download import download_url, download_wheel, require_digest
from training.errors import FetchError

FLAGS = (
    *("unknown", "Action", "Adventure", "Animation", "Children's", "Comedy", "Crime", "Documentary", "Drama"),
    *("Fantasy", "Film-Noir", "Horror", "Musical", "Mystery", "Romance", "Sci-Fi", "Thriller", "War", "Western"),
)
"""The genres of MovieLens-100K in the order of its columns."""
INTERACTIONS, ITEMS = "interactions.csv", "items.csv"
_TITLE = re.compile(r"(?P<title>.*?)\s*\((?P<year>\d{4})\)\s*(\(V\))?")
_UNKNOWN = {"unknown", "unkonwn", "(no genres listed)"}  # the second is how the copy spells it

Rows = Iterable[Sequence[str]]


@dataclass(frozen=True)
class Source:
    """Where an archive comes from, what it must be and how it is read."""

    name: str
    sha256: str
    obtain: Callable[[], bytes]
    read_events: Callable[[zipfile.ZipFile], pl.DataFrame]
    """Columns user, item, value and timestamp as text, in the order of the file."""
    read_items: Callable[[zipfile.ZipFile], Rows]
    """Rows of item, title, year, genres."""


@dataclass(frozen=True)
class DataSet:
    """A public data set with the sources to try, in their order."""

    title: str
    readme: str
    sources: Sequence[Source]

    @property
    def licence(self) -> str:
        """The terms of use, and what to cite."""
        return (
            f"{self.title} is for research use: see https://files.grouplens.org/datasets/movielens/{self.readme}. "
            "Cite F. M. Harper and J. A. Konstan (2015), The MovieLens Datasets: History and Context, "
            "ACM TiiS 5(4), https://doi.org/10.1145/2827872"
        )


def fetch(data_set: DataSet, folder: Path) -> bool:
    """Write both files into `folder`. Returns False if they were there. Raises FetchError when every source fails."""
    if (folder / INTERACTIONS).is_file() and (folder / ITEMS).is_file():
        return False
    faults = []
    for source in data_set.sources:
        try:
            with zipfile.ZipFile(io.BytesIO(require_digest(source.obtain(), source.sha256))) as archive:
                events = source.read_events(archive).select("user", "item", "timestamp", "value")
                items = _to_csv(("item", "title", "year", "genres"), source.read_items(archive))
        except (
            *(FetchError, OSError, httpx.HTTPError, zipfile.BadZipFile, KeyError, ValueError),
            pl.exceptions.PolarsError,
        ) as error:
            faults.append(f"{source.name}: {str(error) or type(error).__name__}")
            continue
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(folder / ITEMS, items)
        write_whole(folder / INTERACTIONS, events.write_csv().encode())
        return True
    raise FetchError(f"{data_set.title} cannot be downloaded ({'; '.join(faults)}): check the network and try again")


def _to_csv(header: Sequence[str], rows: Rows) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return text.getvalue().encode()


def _read_ratings(archive: zipfile.ZipFile, *, name: str, header: bool = False) -> pl.DataFrame:
    """Users, items, values and times, which stand in this order in every one of the archives."""
    content = archive.read(name).replace(b"::", b"\t")
    return pl.read_csv(
        content,
        separator="," if name.endswith(".csv") else "\t",
        has_header=header,
        new_columns=["user", "item", "value", "timestamp"],
        infer_schema=False,
    )


def _read_flagged_items(archive: zipfile.ZipFile) -> Rows:
    for line in archive.read("ml-100k/u.item").decode("latin-1").split("\n"):
        if line.strip():
            cells = line.rstrip("\r").split("|")
            genres = [genre for genre, flag in zip(FLAGS, cells[5:], strict=True) if flag == "1"]
            yield cells[0], *_split_title(cells[1], ""), _join_genres(genres)


def _read_copied_items(archive: zipfile.ZipFile) -> Rows:
    text = archive.read("recbole/dataset_example/ml-100k/ml-100k.item").decode("utf-8")
    for line in text.split("\n")[1:]:
        if line.strip():
            item, title, year, genres = line.rstrip("\r").split("\t")
            yield item, *_split_title(title, year), _join_genres(genres.split())


def _read_named_items(archive: zipfile.ZipFile, *, name: str, encoding: str, header: bool) -> Rows:
    """The larger archives' films: id, title with year, genres by name."""
    text = archive.read(name).decode(encoding)
    lines = csv.reader(io.StringIO(text)) if header else (line.split("::") for line in text.splitlines())
    for place, cells in enumerate(lines):
        if cells and not (header and place == 0):
            item, title, genres = cells
            yield item, *_split_title(title, ""), _join_genres(genres.split("|"))


def _split_title(title: str, year: str) -> tuple[str, str]:
    """Title and year, the year being wherever the source left it; a film without a known title has neither."""
    found = _TITLE.fullmatch(title.strip())
    if found:
        title, year = found["title"], found["year"]
    title = " ".join(title.split())
    return ("" if title in _UNKNOWN else title), (year if re.fullmatch(r"\d{4}", year) else "")


def _join_genres(genres: Iterable[str]) -> str:
    return "|".join(genre for genre in genres if genre not in _UNKNOWN)


def _from_grouplens(
    name: str,
    sha256: str,
    read_events: Callable[[zipfile.ZipFile], pl.DataFrame],
    read_items: Callable[[zipfile.ZipFile], Rows],
) -> Source:
    url = f"https://files.grouplens.org/datasets/movielens/{name}.zip"
    return Source("GroupLens", sha256, partial(download_url, url), read_events, read_items)


DATA_SETS = {
    "ml-100k": DataSet(
        "MovieLens-100K",
        "ml-100k-README.txt",
        (
            _from_grouplens(
                "ml-100k",
                "50d2a982c66986937beb9ffb3aa76efe955bf3d5c6b761f4e3a7cd717c6a3229",
                partial(_read_ratings, name="ml-100k/u.data"),
                _read_flagged_items,
            ),
            Source(
                "the recbole wheel",
                "9c9948202011f37eb0a7c6768129313f00d6403ad221ec940d5e2d5d5f33a407",
                partial(download_wheel, "recbole==1.2.1"),
                partial(_read_ratings, name="recbole/dataset_example/ml-100k/ml-100k.inter", header=True),
                _read_copied_items,
            ),
        ),
    ),
    "ml-1m": DataSet(
        "MovieLens-1M",
        "ml-1m-README.txt",
        (
            _from_grouplens(
                "ml-1m",
                "a6898adb50b9ca05aa231689da44c217cb524e7ebd39d264c56e2832f2c54e20",
                partial(_read_ratings, name="ml-1m/ratings.dat"),
                partial(_read_named_items, name="ml-1m/movies.dat", encoding="latin-1", header=False),
            ),
        ),
    ),
    "ml-20m": DataSet(
        "MovieLens-20M",
        "ml-20m-README.html",
        (
            _from_grouplens(
                "ml-20m",
                "96f243c338a8665f6bcc89c53edf6ee39162a846940de6b7c8c48aeada765ff3",
                partial(_read_ratings, name="ml-20m/ratings.csv", header=True),
                partial(_read_named_items, name="ml-20m/movies.csv", encoding="utf-8", header=True),
            ),
        ),
    ),
}
