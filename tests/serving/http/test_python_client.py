"""The Python client against the service: both kinds of it, over a line that loses answers, and the page's examples."""

import asyncio
import http.client
import json
import logging
import re
import threading
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from nextitem.client import (
    AsyncClient,
    Client,
    EventsRejected,
    Forbidden,
    HistoryBehind,
    Invalid,
    NotFound,
    Unauthorized,
    Unavailable,
    Unreachable,
    decode_id,
    encode_id,
)
from nextitem.client.exchange import draw_pause
from nextitem.client.settings import KEY_FILE, URL
from service.auth.key_file import SCOPES, create_key

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "python-client.md"


class Awaited:
    """An AsyncClient whose methods wait, so that both clients run the same scenarios."""

    def __init__(self, *given, **options):
        self._runner = asyncio.Runner()
        self._client = AsyncClient(*given, **options)

    def __getattr__(self, name):
        method = getattr(self._client, name)
        return lambda *given, **named: self._runner.run(method(*given, **named))

    def close(self):
        """Close both."""
        self._runner.run(self._client.close())
        self._runner.close()


class Line(ThreadingHTTPServer):
    """A proxy before the service: `faults` names what becomes of the next requests, one word each."""

    daemon_threads = True

    def __init__(self, url):
        self.target = url.removeprefix("http://")
        self.faults: deque[str] = deque()
        self.seen: list[bytes] = []
        self.given_up = threading.Event()
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    """One connection to the proxy."""

    protocol_version = "HTTP/1.1"
    server: Line

    def do_POST(self):
        """Do as the next fault says: pass the request on or not, and its answer or not."""
        line = self.server
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        line.seen.append(body)
        fault = line.faults.popleft() if line.faults else "none"
        if fault == "cut":  # before the service has it
            self.close_connection = True
            return
        if fault.isdigit():
            self.answer(int(fault), b"<html>no nextitem here</html>", {"Retry-After": "1"} if fault == "503" else {})
            return
        status, headers, content = self.pass_on(body)
        if fault == "hold":
            line.given_up.wait(30)
        if fault in ("lose", "hold"):  # after the service did its work
            self.close_connection = True
            return
        self.answer(status, content, headers)

    do_GET = do_DELETE = do_POST  # noqa: N815 - http.server looks for these names

    def pass_on(self, body):
        """What the service says."""
        upstream = http.client.HTTPConnection(self.server.target, timeout=30)
        kept = {name: value for name, value in self.headers.items() if name.lower() not in ("host", "connection")}
        try:
            upstream.request(self.command, self.path, body or None, kept)
            answer = upstream.getresponse()
            return answer.status, {"content-type": answer.headers.get("content-type", "")}, answer.read()
        finally:
            upstream.close()

    def answer(self, status, content, headers):
        """Send an answer."""
        self.send_response(status)
        length = {} if status == 204 else {"content-length": str(len(content))}
        for name, value in {**headers, **length}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        """Nothing."""


@pytest.fixture(scope="module")
def keys_file(tmp_path_factory):
    """The service's file of keys."""
    return tmp_path_factory.mktemp("keys") / "keys.json"


@pytest.fixture(scope="module")
def key(keys_file):
    """A key with every scope."""
    return create_key(keys_file, SCOPES)


@pytest.fixture(scope="module")
def other_key(keys_file):
    """A key that opens none of what the client asks."""
    return create_key(keys_file, ["metrics"])


@pytest.fixture(scope="module")
def url(start_once, keys_file, key, other_key):  # noqa: ARG001 - the file must hold the keys
    """Where a service with keys is."""
    return start_once("--keys-file", str(keys_file)).url


@pytest.fixture(scope="module")
def proxy(url):
    """The proxy before it."""
    with Line(url) as line:
        thread = threading.Thread(target=line.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield line
        line.given_up.set()
        line.shutdown()
        thread.join()


@pytest.fixture
def line(proxy):
    """The proxy, with no fault left and nothing seen."""
    proxy.faults.clear()
    proxy.seen.clear()
    return proxy


@pytest.fixture(params=[Client, Awaited], ids=["sync", "async"])
def connect(request, key):
    """Make clients of one kind, with the key unless told otherwise; closed after the test."""
    made = []

    def make(url, **options):
        made.append(request.param(url, **({"key": key} | options)))
        return made[-1]

    yield make
    for each in made:
        each.close()


def count(receipt):
    """How many events it acknowledges. On a busy machine the service may refuse one first, and have it all the same."""
    return receipt.accepted + receipt.duplicates


def stored(client, user):
    """The ids of a user's events, in their order."""
    return [event.event_id for event in client.get_history(user).events]


def test_every_method(connect, url, user):
    """Each does what it says, and its answer is read."""
    client = connect(url)
    receipt = client.record(user_id=user, item_id="i01", type="view", value=0.5, properties={"page": 3})
    assert (count(receipt), receipt.rejected, receipt.history) == (1, (), {user: 1})
    answer = client.recommend(
        user_id=user, k=3, after=receipt, timeout_ms=2000, return_metadata=["title"], explain=True
    )
    assert len(answer.items) == answer.count == 3
    assert answer.history.version == 1
    assert "i01" not in answer.item_ids
    assert answer.items[0].metadata == {"title": f"Title of {answer.item_ids[0]}"}
    first, second = client.recommend_batch([{"user_id": user}, {"items": ["i02"], "k": 1}], after=receipt)
    assert (first.user_id, second.user_id, second.count) == (user, None, 1)
    pinned = client.recommend(items=["i02"], timeout_ms=2000, pins=[{"item_id": "i05", "rank": 2}]).items
    assert [item.item_id for item in pinned if item.pinned] == [pinned[1].item_id] == ["i05"]
    similar = client.find_similar(item_ids=["i02"], by="next", k=2, exclude_item_ids=["i03"], timeout_ms=2000)
    assert (similar.source, len(similar.item_ids), similar.model) == ("model", similar.count, answer.model)
    assert not {"i02", "i03"} & {*similar.item_ids}
    [event] = client.get_history(user).events
    assert (event.item_id, event.value) == ("i01", 0.5)
    found = client.find_items("title of i0", limit=2)
    assert (found.count, found.more) == (2, True)
    assert client.get_item(found.items[0].item_id).metadata == found.items[0].metadata
    assert client.get_model().version == client.get_models().deployment.champion
    assert client.get_readiness().status == "ok"
    client.erase(user)
    assert client.get_history(user).events == ()


@pytest.mark.parametrize("suffix", ["a/b", "..", "100%", "%2F", "?q=#x", "/history", "{07}:*"])
def test_ids_with_punctuation(connect, url, user, suffix):
    """They are one part of the path, whatever is in them."""
    client = connect(url)
    client.record(user_id=user + suffix, item_id="i01")
    assert client.get_history(user + suffix).version == 1
    client.erase(user + suffix)
    with pytest.raises(NotFound, match="404 not-found"):
        client.get_item(suffix + user)
    assert client.get_history("..").user_id == ".."


@pytest.mark.parametrize("original", ["café au lait", "100 %", "日本 %E6", "\x00\n", "👩‍👩‍👧"])
def test_encoded_ids_go_all_the_way(connect, url, user, original):
    """What the service refuses is taken encoded, in bodies and paths, and comes back as it was sent."""
    client = connect(url)
    with pytest.raises(EventsRejected):
        client.record(user_id=user + original, item_id="i01")
    encoded = encode_id(user + original)
    client.record(user_id=encoded, item_id=encode_id(original))
    answer = client.get_history(encoded)
    assert decode_id(answer.user_id) == user + original
    assert [decode_id(event.item_id) for event in answer.events] == [original]
    assert client.recommend(user_id=encoded, k=1).user_id == encoded
    client.erase(encoded)


@pytest.mark.parametrize("faults", [["lose"], ["lose", "lose", "cut"], ["502", "lose", "504"], ["cut", "hold", "lose"]])
def test_an_event_whose_answer_is_lost_counts_once(connect, line, user, faults):
    """However often it was sent, and whether the service stored it or not: once, under one id."""
    line.faults.extend(faults)
    receipt = connect(line.url, attempt_timeout_s=0.5).record(user_id=user, item_id="i01")
    assert count(receipt) == 1
    assert len(line.seen) > len(faults)
    [sent] = {json.loads(body)["events"][0]["event_id"] for body in line.seen}
    assert stored(connect(line.url), user) == [sent]


def test_many_events_over_a_line_that_loses_answers(connect, line, user):
    """Each request of several is sent until it is acknowledged; all events count once, in their order."""
    line.faults.extend(["none", "lose", "cut", "lose", "none", "lose"])
    events = [{"user_id": user, "item_id": f"i{number:04}"} for number in range(2500)]
    receipt = connect(line.url).record_many(events)
    assert len(line.seen) >= 7
    assert count(receipt) == 2500
    assert receipt.history == {user: 2500}
    history = connect(line.url).get_history(user)
    assert history.version == 2500
    assert [event.item_id for event in history.events] == [f"i{number:04}" for number in range(2500)][
        -len(history.events) :
    ]


def test_what_was_not_acknowledged_can_be_recorded_again(connect, line, user):
    """The error has the events with the ids that were sent; the service may have had them."""
    line.faults.extend(["lose"] * 99)
    client = connect(line.url, timeout_s=0.3)
    with pytest.raises(Unreachable, match=r"No answer to POST /events within 0.3 s") as raised:
        client.record_many([{"user_id": user, "item_id": "i01"}, {"user_id": user, "item_id": "i02"}])
    assert raised.value.receipt.accepted == 0
    line.faults.clear()
    client = connect(line.url)
    assert count(client.record_many(raised.value.unacknowledged)) == 2
    assert stored(client, user) == [event["event_id"] for event in raised.value.unacknowledged]


def test_retry_after_is_waited_for(connect, line, user, monkeypatch):
    """A 503 with Retry-After: 1 is not followed by a request within the second."""
    waited = []

    def note_pause(*given):
        waited.append(draw_pause(*given))
        return waited[-1]

    monkeypatch.setattr("nextitem.client.exchange.draw_pause", note_pause)
    line.faults.append("503")
    assert count(connect(line.url).record(user_id=user, item_id="i01")) == 1
    assert len(line.seen) >= 2
    assert 1 <= waited[0] <= 1.1
    line.faults.append("503")
    with pytest.raises(Unavailable) as raised:  # for a recommendation that is too long
        connect(line.url).recommend(user_id=user)
    assert raised.value.retry_after_s == 1


def test_rejected_events_are_in_the_receipt(connect, url, user):
    """What is invalid, and what conflicts; alone in its request or among others. One event alone raises."""
    client = connect(url)
    good, bad = {"user_id": user, "item_id": "i01", "event_id": "e-1"}, {"user_id": user, "item_id": "x" * 257}
    receipt = client.record_many([good, bad, good, {**good, "item_id": "i02"}])
    assert count(receipt) == 2
    assert [(each.index, each.pointer, each.code) for each in receipt.rejected] == [
        (1, "/item_id", "too_long"),
        (3, "/event_id", "conflict"),
    ]
    assert [(each.index, each.pointer) for each in client.record_many([bad] * 12).rejected] == [
        (index, "/item_id" if index < 10 else "") for index in range(12)
    ]
    large = {**good, "event_id": "e-2", "properties": {"p": "x" * 300_000}}
    assert [each.code for each in client.record_many([large]).rejected] == ["body-too-large"]
    with pytest.raises(EventsRejected, match=r"/item_id must have at most 256 characters \(too_long\)"):
        client.record(**bad)
    with pytest.raises(EventsRejected, match="conflict"):
        client.record(**{**good, "item_id": "i02"})
    with pytest.raises(Invalid) as raised:
        client.record_many([good, bad], strict=True)
    assert raised.value.pointer == "/events/1/item_id"
    assert stored(client, user) == ["e-1"]


def test_recommendations_end_in_time(connect, line, user):
    """A lost answer is asked for again with the time that is left; one that does not come ends with the limit."""
    client = connect(line.url, network_ms=5000)
    line.faults.extend(["cut", "lose"])
    assert client.recommend(user_id=user, k=1, timeout_ms=2000).count == 1
    times = [json.loads(body)["timeout_ms"] for body in line.seen]
    assert len(times) == 3
    assert times[0] == 2000
    assert times[2] <= times[1] <= times[0]
    line.faults.append("hold")
    with pytest.raises(Unreachable, match=r"POST /recommend within 0.25 s, one attempt"):
        connect(line.url).recommend(user_id=user, timeout_ms=50)


def test_problems_are_exceptions(connect, line, key, other_key):
    """With what the service says to do, sent once each, and without the key."""
    cases = [
        (Unauthorized, {"key": key + "x"}, lambda client: client.get_model(), "401 unauthorized: Send a valid key"),
        (Unauthorized, {"key": None}, lambda client: client.get_model(), "401 unauthorized"),
        (Forbidden, {"key": other_key}, lambda client: client.get_model(), "scope recommend"),
        (Invalid, {}, lambda client: client.recommend(), "give user_id, items or both"),
        (Invalid, {}, lambda client: client.recommend(user_id="u", k=0), r"/k must be at least 1 \(range\)"),
        (
            HistoryBehind,
            {},
            lambda client: client.recommend(user_id="u", min_history_version=99),
            "409 history-version",
        ),
    ]
    for kind, options, call, said in cases:
        line.seen.clear()
        with pytest.raises(kind, match=said) as raised:
            call(connect(line.url, **options))
        assert len(line.seen) == 1
        assert key not in repr(raised.value)
        assert raised.value.request_id in str(raised.value)


def test_a_service_that_is_not_there(connect):
    """The message says where to look, and that nothing listened."""
    client = connect("http://127.0.0.1:9", timeout_s=0.2)
    with pytest.raises(Unreachable, match=r"GET /model within 0.2 s, .* \(ConnectError: .*\)\. Is the service running"):
        client.get_model()


def test_keys_are_in_no_log(connect, url, key, user, caplog):
    """Not even where every library says all that it does."""
    with caplog.at_level(logging.DEBUG):
        connect(url).record(user_id=user, item_id="i01")
    assert "/events" in caplog.text
    assert key not in caplog.text


def test_threads_share_a_client(url, key, user):
    """More of them than connections: all events are stored, each once."""
    with Client(url, key=key, max_connections=3) as client, ThreadPoolExecutor(8) as threads:
        receipts = [*threads.map(lambda number: client.record(user_id=user, item_id=f"i{number}"), range(40))]
        assert sum(map(count, receipts)) == 40
        assert client.get_history(user).version == 40


def test_tasks_share_a_client(url, key, user):
    """As threads do."""

    async def main():
        async with AsyncClient(url, key=key, max_connections=3) as client:
            return await asyncio.gather(*(client.record(user_id=user, item_id=f"i{number}") for number in range(40)))

    assert sum(map(count, asyncio.run(main()))) == 40


@pytest.fixture
def in_environment(url, key, tmp_path, monkeypatch):
    """The service's address and a file with the key, as the environment has them."""
    file = tmp_path / "key"
    file.write_text(key)
    monkeypatch.setenv(URL, url)
    monkeypatch.setenv(KEY_FILE, str(file))


BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_the_page_s_examples_run(in_environment, capsys, number):  # noqa: ARG001 - it is the environment's
    """Each by itself, as it stands; only the service is this one."""
    exec(compile(BLOCKS[number], f"{PAGE.name}, example {number}", "exec"), {"__name__": "__main__"})  # noqa: S102
    assert capsys.readouterr().out


def test_the_page_has_examples():
    """Of both clients."""
    assert len(BLOCKS) >= 4
    assert any("AsyncClient" in block for block in BLOCKS)
