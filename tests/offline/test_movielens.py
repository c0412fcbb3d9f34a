"""fetch: both sources give the same files, anything unexpected is refused."""

import hashlib
import io
import zipfile
from dataclasses import replace

import httpx
import pytest

from training.errors import FetchError
from training.movielens import GENRES, INTERACTIONS, ITEMS, SOURCES, fetch

EVENTS = [("196", "242", "3", "881250949"), ("186", "302", "3", "891717742"), ("22", "242", "1", "878887116")]


def _zip(files):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def _flags(*genres):
    return "|".join("1" if genre in genres else "0" for genre in GENRES)


@pytest.fixture
def grouplens():
    """The published archive in small: Latin-1, years in titles, genres as flags."""
    films = [
        f"242|Kolya (1996)|24-Jan-1997||url|{_flags('Comedy')}",
        f"267|unknown||||{_flags('unknown')}",
        f"302|Misérables, Les (1995)|01-Jan-1995||url|{_flags('Drama', 'Musical')}",
        f"1412|Land Before Time III: The Time of the Great Giving (1995) (V)|||url|{_flags('Animation')}",
        f"11|Seven (Se7en) (1995)|||url|{_flags('Crime', 'Thriller')}",
    ]
    return _zip(
        {
            "ml-100k/u.data": "".join("\t".join(event) + "\n" for event in EVENTS),
            "ml-100k/u.item": ("\n".join(films) + "\n").encode("latin-1"),
        }
    )


@pytest.fixture
def wheel():
    """The copy in small: UTF-8, a year column, genres by name, its own spelling of unknown."""
    folder = "recbole/dataset_example/ml-100k/ml-100k"
    films = [
        "item_id:token\tmovie_title:token_seq\trelease_year:token\tclass:token_seq",
        "242\tKolya\t1996\tComedy",
        "267\tunkonwn\tunkonwn\tunknown",
        "302\tMisérables, Les\t1995\tDrama Musical",
        "1412\tLand Before Time III: The Time of the Great Giving (1995)\tV\tAnimation",
        "11\tSeven (Se7en)\t1995\tCrime Thriller",
    ]
    head = "user_id:token\titem_id:token\trating:float\ttimestamp:float\n"
    return _zip(
        {
            f"{folder}.inter": head + "\n".join("\t".join(event) for event in EVENTS),
            f"{folder}.item": "\n".join(films) + "\n",
        }
    )


def _source(index, content):
    return replace(SOURCES[index], sha256=hashlib.sha256(content).hexdigest(), obtain=lambda: content)


def _broken(index, error):
    def obtain():
        raise error

    return replace(SOURCES[index], obtain=obtain)


def test_both_sources_give_the_same_files(tmp_path, grouplens, wheel):
    """Byte for byte, the order of the events kept, titles and years normalised."""
    fetch(tmp_path / "a", [_source(0, grouplens)])
    fetch(tmp_path / "b", [_source(1, wheel)])
    for name in (INTERACTIONS, ITEMS):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    lines = (tmp_path / "a" / INTERACTIONS).read_text().splitlines()
    assert lines == ["user,item,timestamp,value", "196,242,881250949,3", "186,302,891717742,3", "22,242,878887116,1"]
    assert (tmp_path / "a" / ITEMS).read_text(encoding="utf-8").splitlines() == [
        "item,title,year,genres",
        "242,Kolya,1996,Comedy",
        "267,,,",
        '302,"Misérables, Les",1995,Drama|Musical',
        "1412,Land Before Time III: The Time of the Great Giving,1995,Animation",
        "11,Seven (Se7en),1995,Crime|Thriller",
    ]


def test_the_second_source_steps_in(tmp_path, wheel):
    """When the first cannot be reached, the copy serves."""
    assert fetch(tmp_path, [_broken(0, httpx.ConnectTimeout("timed out")), _source(1, wheel)])
    assert (tmp_path / INTERACTIONS).is_file()


def test_what_is_there_is_not_fetched_again(tmp_path, wheel):
    """A second call asks nobody."""
    assert fetch(tmp_path, [_source(1, wheel)])
    assert not fetch(tmp_path, [_broken(0, AssertionError("asked"))])


def test_another_digest_is_refused(tmp_path, grouplens, wheel):
    """Content that is not the pinned archive is not even opened, and nothing is written."""
    wrong = [replace(_source(0, grouplens), sha256="0" * 64), replace(_source(1, wheel), obtain=lambda: grouplens)]
    with pytest.raises(FetchError, match=r"GroupLens: what came has another digest .*recbole wheel: what came has"):
        fetch(tmp_path / "data", wrong)
    assert not (tmp_path / "data").exists()


def test_every_fault_is_told_when_no_source_serves(tmp_path):
    """The message names each source with its reason and what to do."""
    faults = [_broken(0, httpx.ConnectError("no route")), _broken(1, FetchError("pip could not"))]
    with pytest.raises(FetchError, match=r"GroupLens: no route; the recbole wheel: pip could not\): check the network"):
        fetch(tmp_path, faults)


def test_an_archive_of_another_shape_is_refused(tmp_path):
    """A pinned digest of something else still ends in a sentence."""
    with pytest.raises(FetchError, match="GroupLens"):
        fetch(tmp_path, [_source(0, _zip({"readme": "nothing"}))])
    with pytest.raises(FetchError, match="not a zip"):
        fetch(tmp_path, [_source(0, b"html")])


def test_the_real_sources_are_pinned():
    """Both archives are known by their sha256."""
    assert [source.sha256[:8] for source in SOURCES] == ["50d2a982", "9c994820"]
    assert all(len(source.sha256) == 64 for source in SOURCES)
