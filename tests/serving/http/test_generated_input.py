"""Input made by generators, sent to a service as a process: no 5xx, no echo, no word in the log, no growth.

FUZZ_TIMES=20, as `make fuzz` sets it, sends twenty times as much.
"""

import gc
import itertools
import json
import os
import shutil
import signal
import time
from typing import Any

import httpx
import orjson
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from service.http.body import EVENTS_MAX_BYTES

TIMES = int(os.environ.get("FUZZ_TIMES", "1"))
CASES = {"/recommend": 35, "/events": 35, "/similar": 15}
"""How many cases a route gets, right ones and as many wrong ones; others get OTHER_CASES."""
OTHER_CASES = 6
BODIES = 250
GROWTH_MAX_KB = 32 * 1024
CANARY = b"c4n4ry"
JSON = {"content-type": "application/json"}
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
GENERATED: dict[str, Any] = {"deadline": None, "suppress_health_check": list(HealthCheck), "database": None}
SEEDS = [
    b'{"event_id":"c4n4ry","user_id":"c4n4ry","item_id":"i01","value":1.5,"timestamp":1763719498123,"type":"view"}',
    b'{"events":[{"user_id":"c4n4ry","item_id":"c4n4ry","properties":{"c4n4ry":[]}}]}',
    b'{"user_id":"c4n4ry","items":["i01","c4n4ry"],"k":3,"exclude_seen":false,"candidate_item_ids":["i02"]}',
    b'{"items":["i01"],"exclude_item_ids":["c4n4ry"],"min_history_version":1,"user_id":"c4n4ry"}',
    b'{"items":["i01"],"filter":{"all":[{"field":"genres","in":["c4n4ry"]},{"not":{"field":"year","gte":1,"lt":2e3}}]}}',
    b'{"items":["i01"],"filter":{"any":[{"field":"c4n4ry","exists":true},{"field":"title","in":["c4n4ry",1]}]}}',
    b'{"items":["i01"],"pins":[{"item_id":"i02","rank":1}],"max_per":{"field":"c4n4ry","count":1},"diversity":0.0}',
    b'{"items":["i01"],"boosts":[{"filter":{"field":"genres","in":["c4n4ry","War"]},"add":-2.5}],"scenario":null}',
    b'{"items":["i01"],"boosts":[{"filter":{"not":{"field":"year","gte":1995}},"add":1}],"scenario":"c4n4ry"}',
    b'{"item_ids":["i01"],"by":"next","k":3,"exclude_item_ids":["c4n4ry"],"filter":{"not":{"field":"c4n4ry","gt":1}}}',
]
PIECES = [
    b'"',
    b"{",
    b"}",
    b"[",
    b",",
    b":",
    b"\\u0000",
    b"\\ud800",
    b"\xff",
    b"\xc0\xaf",
    b"\xed\xa0\x80",
    b"-0",
    b"1e400",
]
PIECES += [b"NaN", b"null", b"true", b"\x00", b"\r\n", b"\x1b[31m", b"9" * 400, b"c4n4ry"]


@pytest.fixture(scope="module")
def target(start_once, filterable_bundle, tmp_path_factory):
    """A service whose log is at its most talkative; at the end it is alive, no larger, and has told nothing."""
    folder = shutil.copytree(filterable_bundle, tmp_path_factory.mktemp("changed") / "bundles")  # requests change it
    process = start_once("--log-level", "debug", "--bundle", str(folder), embedded=True)
    with httpx.Client(base_url=process.url) as client:
        for _ in range(50):  # what is allocated once, is now
            for path in ("/recommend", "/events"):
                client.post(path, content=SEEDS[0], headers=JSON)
        before_kb = read_memory_kb(process.pid)
        yield process
        assert client.get("/health/live").status_code == 200
        grown_kb = read_memory_kb(process.pid) - before_kb
    process.signal(signal.SIGTERM)
    assert process.wait() == 0
    assert grown_kb <= GROWTH_MAX_KB
    assert CANARY.decode() not in str(process.log)
    assert {entry["level"] for entry in process.log} <= {"debug", "info"}


def read_memory_kb(pid):
    """The resident memory of a process."""
    with open(f"/proc/{pid}/status") as status:  # noqa: PTH123 - no path of ours
        [line] = [line for line in status if line.startswith("VmRSS")]
    return int(line.split()[1])


@pytest.mark.timeout(120 * TIMES)
@pytest.mark.parametrize("mode", GenerationMode)
def test_cases_made_of_the_openapi_document(target, mode):
    """Requests as it describes them, and as it forbids: the answer is always one that it describes, too."""
    sent = 0
    schema = schemathesis.openapi.from_url(f"{target.url}/openapi.json")
    for found in schema.get_all_operations():
        assert isinstance(found, Ok)
        operation = found.ok()

        @settings(max_examples=CASES.get(operation.path, OTHER_CASES) * TIMES, **GENERATED)
        @given(case=operation.as_strategy(generation_mode=mode))
        def send(case):
            nonlocal sent
            sent += 1
            case.validate_response(case.call(), checks=CHECKS)

        if mode is GenerationMode.POSITIVE or operation.body or operation.query or operation.path_parameters:
            send()
    assert sent >= 75 * TIMES


@st.composite
def bodies(draw):
    """A request with pieces cut out, put in, doubled and flipped; or bytes."""
    content = bytearray(draw(st.sampled_from(SEEDS)))
    for _ in range(draw(st.integers(0, 4))):
        start = draw(st.integers(0, len(content)))
        match draw(st.sampled_from(["cut", "put", "flip", "double", "end"])):
            case "cut":
                del content[start : start + draw(st.integers(1, 8))]
            case "put":
                content[start:start] = draw(st.sampled_from(PIECES) | st.binary(max_size=4))
            case "flip" if start < len(content):
                content[start] ^= 1 << draw(st.integers(0, 7))
            case "double":
                content[start:start] = content[: draw(st.integers(0, len(content)))]
            case "end":
                del content[start:]
    return bytes(content)


@pytest.mark.timeout(120 * TIMES)
@pytest.mark.parametrize("path", ["/events", "/recommend", "/similar"])
def test_bodies_made_of_right_ones(target, path):
    """Answered, or refused by a small problem that quotes nothing."""
    with httpx.Client(base_url=target.url) as client:

        @settings(max_examples=BODIES * TIMES, **GENERATED)
        @given(body=bodies())
        def send(body):
            response = client.post(path, content=body, headers=JSON)
            assert response.status_code in (200, 400, 404, 409, 422), response.text
            if response.status_code != 200:
                assert response.headers["content-type"] == "application/problem+json"
                assert len(response.content) <= 2048
                assert CANARY not in response.content
            assert json.loads(response.content)

        send()


SIZE = EVENTS_MAX_BYTES
"""Bytes of the bodies that are timed: the largest that every route takes."""
RIGHT_EVENT = {"user_id": "c4n4ry", "item_id": "c4n4ry" * 20, "timestamp": 1_763_719_498_123}
RIGHT = {
    "/events": json.dumps({"events": [RIGHT_EVENT | {"event_id": f"e-{number}"} for number in range(1000)]}),
    "/recommend": json.dumps({"items": ["c4n4ry" * 4] * 1000, "exclude_item_ids": ["c4n4ry" * 3] * 10_000}),
    "/recommend/batch": json.dumps({"requests": [{"items": ["c4n4ry"] * 100}] * 256}),
}
"""Bodies of about that size; all are answered with 200."""
MEMBERS = ('"{}":1', '"{}":[]', '"{}":{{}}', '"user_id":{}', '"items":[{}]')
"""Members of an object, to be repeated with numbers."""
FIELDS = ("", '"properties":', '"exclude_item_ids":', '"filter":', '"max_per":', '"boosts":')
"""Where the object lies in an entry."""
ENVELOPES = (("", 1), ("events", 1), ("events", 1000), ("requests", 256))
"""What array the entries are in, and how many."""


def swell(member, field, envelope):
    """A body of about SIZE bytes, full of such members."""
    name, entries = envelope
    room = SIZE // entries - len(field) - 16
    members: list[str] = []
    size = 0
    while size < room:
        members.append(member.format(len(members)))
        size += len(members[-1]) + 1
    entry = "{" + ",".join(members[:-1]) + "}"
    entry = f"{{{field}{entry}}}" if field else entry
    return (f'{{"{name}":[{",".join([entry] * entries)}]}}' if name else entry).encode()


@pytest.fixture
def _no_garbage_collector():
    """Its whims are many times what is measured."""
    gc.disable()
    yield
    gc.enable()


def measure(work):
    """Seconds of this process that some work takes at its least, and what came of it."""
    least_s, result = 60.0, None
    for _ in range(3):
        began_s = time.process_time()
        result = work()
        least_s = min(least_s, time.process_time() - began_s)
    return least_s, result


@pytest.mark.usefixtures("_no_garbage_collector")
@pytest.mark.parametrize("path", RIGHT)
def test_wrong_bodies_cost_what_right_ones_do(client, path):
    """Whatever fills a body: to refuse it takes no longer than to read it and answer a right one, some times over."""
    right_s, response = measure(lambda: client.post(path, content=RIGHT[path].encode(), headers=JSON))
    assert response.status_code == 200
    for shape in itertools.product(MEMBERS, FIELDS, ENVELOPES):
        body = swell(*shape)
        read_s, _ = measure(lambda body=body: orjson.loads(body))
        wrong_s, response = measure(lambda body=body: client.post(path, content=body, headers=JSON))
        assert response.status_code in (200, 422)
        assert wrong_s < 10 * (read_s + right_s), shape
