"""fetch: both sources give the same files, anything unexpected is refused."""

import hashlib
import io
import threading
import zipfile
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest

from training.arguments.names import DATA_SET_NAMES
from training.cli import main
from training.data.download import download_url
from training.data.movielens import DATA_SETS, FLAGS, INTERACTIONS, ITEMS, fetch
from training.errors import FetchError

EVENTS = [("196", "242", "3", "881250949"), ("186", "302", "3", "891717742"), ("22", "242", "1", "878887116")]


def _zip(files):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def _flags(*genres):
    return "|".join("1" if genre in genres else "0" for genre in FLAGS)


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


def _source(index, content, name="ml-100k"):
    source = DATA_SETS[name].sources[index]
    return replace(source, sha256=hashlib.sha256(content).hexdigest(), obtain=lambda: content)


def _broken(index, error):
    def obtain():
        raise error

    return replace(DATA_SETS["ml-100k"].sources[index], obtain=obtain)


def _fetch(folder, sources, name="ml-100k"):
    return fetch(replace(DATA_SETS[name], sources=sources), folder)


def test_both_sources_give_the_same_files(tmp_path, grouplens, wheel):
    """Byte for byte, the order of the events kept, titles and years normalised."""
    _fetch(tmp_path / "a", [_source(0, grouplens)])
    _fetch(tmp_path / "b", [_source(1, wheel)])
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
    assert _fetch(tmp_path, [_broken(0, httpx.ConnectTimeout("timed out")), _source(1, wheel)])
    assert (tmp_path / INTERACTIONS).is_file()


def test_what_is_there_is_not_fetched_again(tmp_path, wheel):
    """A second call asks nobody."""
    assert _fetch(tmp_path, [_source(1, wheel)])
    assert not _fetch(tmp_path, [_broken(0, AssertionError("asked"))])


def test_another_digest_is_refused(tmp_path, grouplens, wheel):
    """Content that is not the pinned archive is not even opened, and nothing is written."""
    wrong = [replace(_source(0, grouplens), sha256="0" * 64), replace(_source(1, wheel), obtain=lambda: grouplens)]
    with pytest.raises(
        FetchError, match=r"GroupLens: the downloaded file has .*recbole wheel: the downloaded file has"
    ):
        _fetch(tmp_path / "data", wrong)
    assert not (tmp_path / "data").exists()


def test_every_fault_is_told_when_no_source_serves(tmp_path):
    """The message names each source with its reason and what to do."""
    faults = [_broken(0, httpx.ConnectError("no route")), _broken(1, FetchError("pip could not"))]
    with pytest.raises(FetchError, match=r"GroupLens: no route; the recbole wheel: pip could not\): check the network"):
        _fetch(tmp_path, faults)


def test_an_archive_of_another_shape_is_refused(tmp_path):
    """A pinned digest of something else still ends in a sentence."""
    with pytest.raises(FetchError, match="GroupLens"):
        _fetch(tmp_path, [_source(0, _zip({"readme": "nothing"}))])
    with pytest.raises(FetchError, match="not a zip"):
        _fetch(tmp_path, [_source(0, b"html")])


def test_the_larger_sets_are_read_as_the_small_one(tmp_path):
    """1M by its double colons and Latin-1, 20M by its CSV: the same two files, titles and genres cleaned."""
    one = _zip(
        {
            "ml-1m/ratings.dat": "1::1193::5::978300760\n1::661::3::978302109\n",
            "ml-1m/movies.dat": "1193::Misérables, Les (1995)::Drama|Musical\n661::M*A*S*H (1970)::War\n".encode(
                "latin-1"
            ),
        }
    )
    twenty = _zip(
        {
            "ml-20m/ratings.csv": "userId,movieId,rating,timestamp\n1,1193,5,978300760\n1,661,3,978302109\n",
            "ml-20m/movies.csv": (
                'movieId,title,genres\r\n1193,"Misérables, Les (1995) ",Drama|Musical\r\n661,M*A*S*H (1970),War\r\n'
            ),
        }
    )
    for name, content in (("ml-1m", one), ("ml-20m", twenty)):
        assert _fetch(tmp_path / name, [_source(0, content, name)], name)
        assert (tmp_path / name / INTERACTIONS).read_text() == (
            "user,item,timestamp,value\n1,1193,978300760,5\n1,661,978302109,3\n"
        )
        assert (tmp_path / name / ITEMS).read_text(encoding="utf-8") == (
            'item,title,year,genres\n1193,"Misérables, Les",1995,Drama|Musical\n661,M*A*S*H,1970,War\n'
        )


def test_films_without_genres_have_none(tmp_path):
    """How 20M says that nobody listed any is no genre."""
    content = _zip(
        {
            "ml-20m/ratings.csv": "userId,movieId,rating,timestamp\n1,7,2.5,1\n",
            "ml-20m/movies.csv": "movieId,title,genres\n7,Untitled,(no genres listed)\n",
        }
    )
    assert _fetch(tmp_path, [_source(0, content, "ml-20m")], "ml-20m")
    assert (tmp_path / ITEMS).read_text().splitlines()[1] == "7,Untitled,,"
    assert (tmp_path / INTERACTIONS).read_text().splitlines()[1] == "1,7,1,2.5"


def test_the_real_sources_are_pinned():
    """Every archive is known by its sha256, and every set tells its licence."""
    assert tuple(DATA_SETS) == DATA_SET_NAMES
    assert {name: [source.sha256[:8] for source in data_set.sources] for name, data_set in DATA_SETS.items()} == {
        "ml-100k": ["50d2a982", "9c994820"],
        "ml-1m": ["a6898adb"],
        "ml-20m": ["96f243c3"],
    }
    assert all(len(source.sha256) == 64 for data_set in DATA_SETS.values() for source in data_set.sources)
    assert all(data_set.title in data_set.licence for data_set in DATA_SETS.values())


class _Server(BaseHTTPRequestHandler):
    """Knows one address."""

    def do_GET(self):
        self.send_response(200 if self.path == "/ml.zip" else 404)
        self.end_headers()
        self.wfile.write(b"archive" * 1000)

    def log_message(self, *arguments):
        """Say nothing."""


def test_a_download_is_what_the_server_sent():
    """Over a real socket, without a length in its head; a missing file is a fault, not a page."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Server) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            address = f"http://127.0.0.1:{server.server_address[1]}"
            assert download_url(f"{address}/ml.zip") == b"archive" * 1000
            with pytest.raises(httpx.HTTPStatusError, match="404"):
                download_url(f"{address}/gone.zip")
        finally:
            server.shutdown()
            thread.join()


def test_an_unreachable_server_ends_with_a_sentence(tmp_path, monkeypatch, capsys):
    """`fetch ml-1m` without a network: what was tried, why it failed and what to do, and nothing on disk."""

    def refuse(*arguments, **options):  # noqa: ARG001 - the signature of httpx.stream
        raise httpx.ConnectError("[Errno -2] Name or service not known")

    monkeypatch.setattr(httpx, "stream", refuse)
    assert main(["fetch", "ml-1m", "--out", str(tmp_path / "data")]) == 1
    said = capsys.readouterr().err
    assert said.startswith("nextitem-train: MovieLens-1M cannot be downloaded (GroupLens: [Errno -2] Name or service")
    assert "check the network" in said
    assert not (tmp_path / "data").exists()
