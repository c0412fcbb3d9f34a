"""Input that is wrong gets a problem of the right kind, which never quotes it, and the service goes on."""

import orjson
import pytest

from service.telemetry.logs import JsonLines

CANARY = "c4n4ry"
PROBLEM = "urn:nextitem:problem:"
JSON = {"content-type": "application/json"}
EVENT = {"user_id": "u", "item_id": "i01"}
PIN = {"item_id": "i01", "rank": 1}
CAP = {"field": "year", "count": 1}
BOOST = {"filter": {"field": "year", "exists": True}, "add": 1}


@pytest.fixture(autouse=True)
def _silent_log(caplog):
    """At its most talkative, the log holds nothing of what was sent."""
    caplog.set_level("DEBUG")
    yield
    ours = [record for record in caplog.get_records("call") if not record.name.startswith(("httpx", "httpcore"))]
    assert CANARY not in "".join(map(JsonLines().format, ours))


def check(response, status, slug):
    """The response is that problem, complete, small and silent about what was sent."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    document = response.json()
    assert document["type"] == f"{PROBLEM}{slug}"
    assert document["status"] == status
    assert document["title"]
    assert document["detail"]
    assert document["request_id"] == response.headers["x-request-id"]
    assert ("errors" in document) == (status == 422)
    assert CANARY not in response.text
    assert CANARY not in str(response.headers)
    assert len(response.content) <= 2048


@pytest.mark.parametrize("path", ["/events", "/recommend", "/similar"])
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b'{"user_id":"c4n4ry',
        b"{}{}",
        b'{"user_id":"c4n4ry",}',
        b'{"value":NaN}',
        b'{"value":Infinity}',
        b'{"value":-Infinity}',
        b'{"value":1e999}',
        b'{"user_id":"\xff\xfe"}',
        b'\xef\xbb\xbf{"user_id":"c4n4ry"}',
        '{"user_id":"c4n4ry"}'.encode("utf-16"),
        b'{"user_id":"\\ud800"}',
        b"[" * 200_000,
        b'{"value":' + b"9" * 5000 + b"}",
        b'{"value":-}',
        b'{"value":+1}',
        b'{"value":01}',
        b'{"value":.5}',
        b'{"value":0x10}',
        b'{"value":1e99999999999}',
        b'{"user_id":"\xc0\xaf"}',
        b'{"user_id":"\xed\xa0\x80"}',
        b'{"user_id":"\xf4\x90\x80\x80"}',
        b'{"user_id":"\\udc00\\ud800"}',
        b'{"user_id":"a\nb"}',
        b'{"user_id":"\\x41"}',
        b'{"user_id":"c4n4ry" /* no */}',
        b'{"user_id":"c4n4ry"}\0',
        b'{"a":' * 2000 + b"1" + b"}" * 2000,
        b"c4n4ry",
        b"'c4n4ry'",
    ],
    ids=lambda body: body[:12].decode("latin-1"),
)
def test_what_is_no_json(client, path, body):
    """Whatever orjson refuses is 400 malformed-json."""
    check(client.post(path, content=body, headers=JSON), 400, "malformed-json")


@pytest.mark.parametrize("path", ["/events", "/recommend", "/similar"])
@pytest.mark.parametrize("document", [None, [], [1], "c4n4ry", 5, True], ids=repr)
def test_json_that_is_no_object(client, path, document):
    """Any other JSON document is 422."""
    response = client.post(path, content=orjson.dumps(document), headers=JSON)
    check(response, 422, "validation")
    assert response.json()["errors"] == [{"pointer": "", "code": "object_type", "detail": "must be an object"}]


NO_TIMES: tuple[object, ...] = (
    CANARY,
    "2026-01-02T03:04:05",
    "2026-01-02",
    "2026-13-02T03:04:05Z",
    "2026-01-02T25:04:05Z",
    "1763719498123",
    1763719498123.5,
    True,
    {},
    "",
)
EVENT_FAULTS = [
    ({"item_id": "i01"}, "/user_id", "missing"),
    ({"user_id": "u"}, "/item_id", "missing"),
    (EVENT | {"user_id": ""}, "/user_id", "too_short"),
    (EVENT | {"user_id": CANARY + "x" * 251}, "/user_id", "too_long"),
    *((EVENT | {"user_id": value}, "/user_id", "string_type") for value in (5, True, None, {CANARY: 1}, [CANARY])),
    (EVENT | {"user_id": f"{CANARY}\0b"}, "/user_id", "pattern"),
    (EVENT | {"user_id": f"{CANARY}\r\n*1\r\n$8\r\nFLUSHALL"}, "/user_id", "pattern"),
    (EVENT | {"user_id": f"{CANARY}\n"}, "/user_id", "pattern"),
    (EVENT | {"user_id": f"{CANARY} b"}, "/user_id", "pattern"),
    (EVENT | {"user_id": f"{CANARY}é"}, "/user_id", "pattern"),
    (EVENT | {"user_id": f"{CANARY}e\u0301"}, "/user_id", "pattern"),
    (EVENT | {"item_id": "x" * 257}, "/item_id", "too_long"),
    (EVENT | {"item_id": ""}, "/item_id", "too_short"),
    (EVENT | {"item_id": 5}, "/item_id", "string_type"),
    (EVENT | {"type": CANARY}, "/type", "enum"),
    (EVENT | {"type": None}, "/type", "string_type"),
    (EVENT | {"value": CANARY}, "/value", "float_type"),
    (EVENT | {"value": True}, "/value", "float_type"),
    (EVENT | {"event_id": "x" * 65}, "/event_id", "too_long"),
    (EVENT | {"event_id": f"{CANARY}/"}, "/event_id", "pattern"),
    (EVENT | {"recommendation_id": f"{CANARY} x"}, "/recommendation_id", "pattern"),
    *((EVENT | {"timestamp": value}, "/timestamp", "ts_range") for value in (0, -1, 946_684_799_999, 1_763_719_498)),
    (EVENT | {"timestamp": 1_763_719_498_123_000}, "/timestamp", "ts_range"),
    (EVENT | {"timestamp": "1969-12-31T23:59:59Z"}, "/timestamp", "ts_range"),
    (EVENT | {"timestamp": "9999-12-31T23:59:59-23:59"}, "/timestamp", "ts_range"),
    *((EVENT | {"timestamp": value}, "/timestamp", "timestamp") for value in NO_TIMES),
    (EVENT | {CANARY: 1}, "", "extra_forbidden"),
    (EVENT | {"timeout_ms": 300}, "", "extra_forbidden"),
    (EVENT | {"properties": [CANARY]}, "/properties", "object_type"),
    (EVENT | {"properties": None}, "/properties", "object_type"),
    (EVENT | {"properties": {CANARY: {"a": 1}}}, "/properties", "flat"),
    (EVENT | {"properties": {"a": [CANARY]}}, "/properties", "flat"),
    (EVENT | {"properties": {"a": CANARY * 200}}, "/properties", "too_long"),
    (EVENT | {"properties": {str(key): 1 for key in range(33)}}, "/properties", "too_long"),
]


@pytest.mark.parametrize(("event", "pointer", "code"), EVENT_FAULTS)
def test_wrong_fields_of_events(client, event, pointer, code):
    """Each is named by a pointer and a code, with the envelope and without."""
    response = client.post("/events", event)
    check(response, 422, "validation")
    assert [(fault["pointer"], fault["code"]) for fault in response.json()["errors"]] == [(pointer, code)]
    wrapped = client.post("/events", {"events": [event]})
    check(wrapped, 422, "validation")
    assert wrapped.json()["errors"][0]["pointer"] == f"/events/0{pointer}"


@pytest.mark.parametrize(
    ("document", "pointer", "code"),
    [
        ({"events": []}, "/events", "too_short"),
        ({"events": {CANARY: 1}}, "/events", "list_type"),
        ({"events": None}, "/events", "list_type"),
        ({"events": [EVENT], CANARY: 1}, "", "extra_forbidden"),
        ({"events": [CANARY]}, "/events/0", "object_type"),
        ({"events": [[]]}, "/events/0", "object_type"),
        ({"events": [None]}, "/events/0", "object_type"),
    ],
)
def test_wrong_envelopes(client, document, pointer, code):
    """The envelope is checked like the rest."""
    response = client.post("/events", document)
    check(response, 422, "validation")
    assert [(fault["pointer"], fault["code"]) for fault in response.json()["errors"]] == [(pointer, code)]


@pytest.mark.parametrize(
    ("document", "pointer", "code"),
    [
        ({}, "", "missing_history"),
        ({"user_id": None, "items": None}, "", "missing_history"),
        ({"items": ["i01"], "min_history_version": 1}, "", "missing_user"),
        ({"user_id": ""}, "/user_id", "too_short"),
        ({"user_id": 5}, "/user_id", "string_type"),
        ({"user_id": f"{CANARY}\n"}, "/user_id", "pattern"),
        *(({"items": [], "k": k}, "/k", "range") for k in (0, -1, 501, 10**9)),
        *(({"items": [], "k": k}, "/k", "int_type") for k in (1.5, 10.0, "5", True, None)),
        ({"items": [], "exclude_seen": 1}, "/exclude_seen", "bool_type"),
        *(({"items": [], "explain": value}, "/explain", "bool_type") for value in (CANARY, 1, None)),
        *(({"items": [], "explain": True, "k": k}, "/explain", "explain_k") for k in (51, 500)),
        ({"items": CANARY}, "/items", "list_type"),
        ({"items": ["i01", 5]}, "/items/1", "string_type"),
        ({"items": ["i01", f"{CANARY} "]}, "/items/1", "pattern"),
        ({"items": ["i01"] * 1001}, "/items", "too_long"),
        ({"items": [], "exclude_item_ids": ["i01"] * 10_001}, "/exclude_item_ids", "too_long"),
        ({"items": [], "exclude_item_ids": None}, "/exclude_item_ids", "list_type"),
        ({"items": [], "exclude_item_ids": [f"{CANARY} "] * 10_000}, "/exclude_item_ids/0", "pattern"),
        ({"items": [], "candidate_item_ids": []}, "/candidate_item_ids", "too_short"),
        ({"items": [], "candidate_item_ids": ["i01"] * 10_001}, "/candidate_item_ids", "too_long"),
        ({"user_id": "u", "min_history_version": -1}, "/min_history_version", "range"),
        ({"user_id": "u", "min_history_version": "1"}, "/min_history_version", "int_type"),
        *(
            ({"items": [], "return_metadata": value}, "/return_metadata", "fields_type")
            for value in (None, 1, CANARY, {CANARY: True}, 0.5)
        ),
        ({"items": [], "return_metadata": []}, "/return_metadata", "too_short"),
        ({"items": [], "return_metadata": [CANARY] * 17}, "/return_metadata", "too_long"),
        *(
            ({"items": [], "return_metadata": ["title", value]}, "/return_metadata", "field_name")
            for value in (None, 1, "", CANARY * 17, [CANARY], True)
        ),
        ({"items": [], "return_metadata": True, "k": 101}, "/return_metadata", "too_many"),
        *(({"items": [], "filter": value}, "/filter", "wrong_type") for value in (CANARY, 1, True, [CANARY])),
        ({"items": [], "filter": {}}, "/filter/field", "missing"),
        ({"items": [], "filter": {CANARY: 1}}, "/filter", "extra_forbidden"),
        ({"items": [], "filter": {"field": CANARY, "in": [CANARY, 5]}}, "/filter/in", "wrong_type"),
        ({"items": [], "filter": {"field": CANARY, "in": [CANARY] * 101}}, "/filter/in", "too_many"),
        ({"items": [], "filter": {"field": CANARY, "in": [CANARY * 700]}}, "/filter", "too_long"),
        ({"items": [], "filter": {"all": [{"field": CANARY, "exists": CANARY}]}}, "/filter/all/0/exists", "wrong_type"),
        ({"items": [], "filter": {"field": CANARY, "exists": True}}, "/filter/field", "unknown_field"),
        ({"items": [], "filter": {"not": {"not": {"not": {"not": {}}}}}}, "/filter/not/not/not", "too_deep"),
        *(({"items": [], "pins": value}, "/pins", "list_type") for value in (None, CANARY, {CANARY: 1}, 1)),
        ({"items": [], "pins": [CANARY]}, "/pins/0", "object_type"),
        ({"items": [], "pins": [PIN] * 11}, "/pins", "too_long"),
        ({"items": [], "pins": [{"rank": 1}]}, "/pins/0/item_id", "missing"),
        ({"items": [], "pins": [{"item_id": "i01"}]}, "/pins/0/rank", "missing"),
        ({"items": [], "pins": [PIN | {CANARY: 1}]}, "/pins/0", "extra_forbidden"),
        ({"items": [], "pins": [PIN | {"item_id": f"{CANARY} "}]}, "/pins/0/item_id", "pattern"),
        *(({"items": [], "pins": [PIN | {"rank": rank}]}, "/pins/0/rank", "range") for rank in (0, -1, 501, 10**9)),
        *(({"items": [], "pins": [PIN | {"rank": rank}]}, "/pins/0/rank", "int_type") for rank in (1.5, "1", True)),
        ({"items": [], "pins": [PIN | {"rank": 2}], "k": 1}, "/pins", "range"),
        ({"items": [], "pins": [PIN, PIN | {"item_id": "i02"}]}, "/pins", "repeated"),
        ({"items": [], "pins": [PIN, PIN | {"rank": 2}]}, "/pins", "repeated"),
        *(({"items": [], "diversity": value}, "/diversity", "range") for value in (-0.1, 1.1, 10**9, -1)),
        *(({"items": [], "diversity": value}, "/diversity", "float_type") for value in (CANARY, True, None, [CANARY])),
        *(({"items": [], "diversity": 0.5, "k": k}, "/diversity", "diversity_k") for k in (51, 500)),
        *(({"items": [], "max_per": value}, "/max_per", "object_type") for value in (CANARY, 1, [CANARY], True)),
        ({"items": [], "max_per": {"count": 1}}, "/max_per/field", "missing"),
        ({"items": [], "max_per": {"field": "year"}}, "/max_per/count", "missing"),
        ({"items": [], "max_per": CAP | {CANARY: 1}}, "/max_per", "extra_forbidden"),
        ({"items": [], "max_per": CAP | {"field": ""}}, "/max_per/field", "too_short"),
        ({"items": [], "max_per": CAP | {"field": CANARY * 17}}, "/max_per/field", "too_long"),
        ({"items": [], "max_per": CAP | {"field": 5}}, "/max_per/field", "string_type"),
        *(({"items": [], "max_per": CAP | {"count": count}}, "/max_per/count", "range") for count in (0, -1, 501)),
        *(({"items": [], "max_per": CAP | {"count": count}}, "/max_per/count", "int_type") for count in (1.5, True)),
        *(({"items": [], "boosts": value}, "/boosts", "list_type") for value in (None, CANARY, {CANARY: 1}, 1)),
        ({"items": [], "boosts": [CANARY]}, "/boosts/0", "object_type"),
        ({"items": [], "boosts": [BOOST] * 5}, "/boosts", "too_long"),
        ({"items": [], "boosts": [{"add": 1}]}, "/boosts/0/filter", "missing"),
        ({"items": [], "boosts": [{"filter": BOOST["filter"]}]}, "/boosts/0/add", "missing"),
        ({"items": [], "boosts": [BOOST | {CANARY: 1}]}, "/boosts/0", "extra_forbidden"),
        *(({"items": [], "boosts": [BOOST | {"add": add}]}, "/boosts/0/add", "range") for add in (-10.1, 11, 10**9)),
        *(
            ({"items": [], "boosts": [BOOST | {"add": add}]}, "/boosts/0/add", "float_type")
            for add in (None, "1", True)
        ),
        *(
            ({"items": [], "boosts": [BOOST | {"filter": value}]}, "/boosts/0/filter", "wrong_type")
            for value in (None, CANARY, [CANARY], True)
        ),
        (
            {"items": [], "boosts": [BOOST | {"filter": {"any": [{"field": CANARY, "in": [1, CANARY]}]}}]},
            "/boosts/0/filter/any/0/in",
            "wrong_type",
        ),
        (
            {"items": [], "boosts": [BOOST | {"filter": {"field": CANARY, "gt": 1}}]},
            "/boosts/0/filter/field",
            "unknown_field",
        ),
        *(({"items": [], "scenario": name}, "/scenario", "unknown_scenario") for name in (CANARY, "", f"{CANARY} ")),
        ({"items": [], "scenario": CANARY * 10_000}, "/scenario", "unknown_scenario"),
        *(({"items": [], "scenario": name}, "/scenario", "string_type") for name in (1, True, [CANARY], {CANARY: 1})),
        *(({"items": [], field: 1}, "", "extra_forbidden") for field in (CANARY, "boost")),
        *(({"items": [], "timeout_ms": value}, "/timeout_ms", "range") for value in (0, -5, 9, 2001, 10**9)),
        *(({"items": [], "timeout_ms": value}, "/timeout_ms", "int_type") for value in (CANARY, "300", True, 99.5)),
    ],
)
def test_wrong_fields_of_recommend(client, document, pointer, code):
    """Each is named by a pointer and a code; what is not built yet is as unknown as anything."""
    response = client.post("/recommend", document)
    check(response, 422, "validation")
    assert [(fault["pointer"], fault["code"]) for fault in response.json()["errors"]] == [(pointer, code)]


@pytest.mark.parametrize(
    ("document", "pointer", "code"),
    [
        ({}, "/item_ids", "missing"),
        ({"item_ids": []}, "/item_ids", "too_short"),
        ({"item_ids": ["i01"] * 11}, "/item_ids", "too_long"),
        *(({"item_ids": value}, "/item_ids", "list_type") for value in (None, CANARY, {CANARY: 1}, 5)),
        ({"item_ids": ["i01", 5]}, "/item_ids/1", "string_type"),
        ({"item_ids": [f"{CANARY} "]}, "/item_ids/0", "pattern"),
        *(({"item_ids": ["i01"], "k": k}, "/k", "range") for k in (0, -1, 501)),
        *(({"item_ids": ["i01"], "k": k}, "/k", "int_type") for k in (1.5, "5", True, None)),
        *(({"item_ids": ["i01"], "by": by}, "/by", "enum") for by in (CANARY, "", "Taste")),
        *(({"item_ids": ["i01"], "by": by}, "/by", "string_type") for by in (None, 5, [CANARY])),
        ({"item_ids": ["i01"], "exclude_item_ids": ["i01"] * 10_001}, "/exclude_item_ids", "too_long"),
        ({"item_ids": ["i01"], "exclude_item_ids": [f"{CANARY} "]}, "/exclude_item_ids/0", "pattern"),
        ({"item_ids": ["i01"], "return_metadata": [CANARY] * 17}, "/return_metadata", "too_long"),
        ({"item_ids": ["i01"], "return_metadata": True, "k": 101}, "/return_metadata", "too_many"),
        ({"item_ids": ["i01"], "filter": {"all": [{"field": CANARY, "in": []}]}}, "/filter/all/0/in", "too_short"),
        ({"item_ids": ["i01"], "by": "next", "filter": {"field": CANARY, "gt": 1}}, "/filter/field", "unknown_field"),
        *(({"item_ids": ["i01"], "timeout_ms": value}, "/timeout_ms", "range") for value in (9, 2001)),
        ({"item_ids": ["i01"], "min_catalogue_version": -1}, "/min_catalogue_version", "range"),
        ({"item_ids": ["i01"], "min_catalogue_version": CANARY}, "/min_catalogue_version", "int_type"),
        *(({"item_ids": ["i01"], field: 1}, "", "extra_forbidden") for field in (CANARY, "user_id", "pins")),
    ],
)
def test_wrong_fields_of_similar(client, document, pointer, code):
    """Each is named by a pointer and a code, whether or not the bundle can answer."""
    response = client.post("/similar", document)
    check(response, 422, "validation")
    assert [(fault["pointer"], fault["code"]) for fault in response.json()["errors"]] == [(pointer, code)]


@pytest.mark.parametrize(
    ("path", "envelope", "pointer"),
    [
        ("/recommend", "{}", ""),
        ("/recommend", '{{"items":[],"max_per":{}}}', "/max_per"),
        ("/recommend", '{{"items":[],"pins":[{}]}}', "/pins/0"),
        ("/recommend", '{{"items":[],"boosts":[{}]}}', "/boosts/0"),
        ("/similar", "{}", ""),
        ("/recommend/batch", "{}", ""),
        ("/recommend/batch", '{{"requests":[{}]}}', "/requests/0"),
        ("/events", "{}", ""),
        ("/events", '{{"events":[{}]}}', "/events/0"),
    ],
)
def test_more_members_than_there_are_fields(client, path, envelope, pointer):
    """They are one fault, however many they are, and are not looked at one by one."""
    entry = orjson.dumps({"user_id": 5} | {f"{CANARY}{number}": number for number in range(1000)}).decode()
    response = client.post(path, content=envelope.format(entry), headers=JSON)
    check(response, 422, "validation")
    assert {
        "pointer": pointer,
        "code": "extra_forbidden",
        "detail": "holds a field that is unknown",
    } in response.json()["errors"]
    assert len(response.json()["errors"]) <= 2


@pytest.mark.parametrize(
    ("body", "pointer", "code"),
    [
        (b'{"user_id":"u","item_id":"i01","user_id":5}', "/user_id", "string_type"),
        (b'{"user_id":"u","item_id":"i01","timestamp":-0}', "/timestamp", "ts_range"),
        (b'{"user_id":"u","item_id":"i01","timestamp":1e12}', "/timestamp", "timestamp"),
        (b'{"user_id":"u","item_id":"i01","timestamp":1e308}', "/timestamp", "timestamp"),
        (b'{"user_id":"u","item_id":"i01","timestamp":18446744073709551615}', "/timestamp", "ts_range"),
        (b'{"user_id":"u","item_id":"i01","value":"1"}', "/value", "float_type"),
        (b'{"user_id":"u","item_id":"i01","value":false}', "/value", "float_type"),
        (b'{"user_id":"u","item_id":"i01","value":[]}', "/value", "float_type"),
        (b'{"user_id":"\\u0000","item_id":"i01"}', "/user_id", "pattern"),
        (b'{"user_id":"\\u202e","item_id":"i01"}', "/user_id", "pattern"),
        (b'{"user_id":"u","item_id":"i01","\\u0000":1}', "", "extra_forbidden"),
        (b'{"user_id":"u","item_id":"i01","":1}', "", "extra_forbidden"),
        (
            b'{"user_id":"u","item_id":"i01","properties":' + b'{"a":' * 500 + b"1" + b"}" * 500 + b"}",
            "/properties",
            "flat",
        ),
        (b'{"events":[' + b",".join([b'{"user_id":"u","item_id":"i01"}'] * 1001) + b"]}", "/events", "too_long"),
    ],
    ids=lambda part: part[:60].decode("latin-1") if isinstance(part, bytes) else None,
)
def test_json_that_is_odd(client, body, pointer, code):
    """The last of two fields of one name counts; numbers, text and depth are what the field allows."""
    response = client.post("/events", content=body, headers=JSON)
    check(response, 422, "validation")
    assert [(fault["pointer"], fault["code"]) for fault in response.json()["errors"]] == [(pointer, code)]


@pytest.mark.parametrize("value", [b"-0", b"-0.0", b"1e308", b"5e-324", b"1E+2", b"18446744073709551615"])
def test_numbers_at_their_ends(client, user, value):
    """What a float can hold is stored."""
    body = b'{"user_id":"%s","item_id":"i01","value":%s}' % (user.encode(), value)
    assert client.post("/events", content=body, headers=JSON).json()["accepted"] == 1


@pytest.mark.parametrize(
    "user_id", ["__proto__", "constructor", "../..", "a:b", "{a}b", "%s%n", "*", "$(c4n4ry)", "';--"]
)
def test_ids_that_mean_something_elsewhere(client, user, user_id):
    """They are ids like all others, and no two of them are one."""
    for given in (user_id + user, user + user_id):
        client.send({"user_id": given, "item_id": "i02"})
        assert client.recommend(user_id=given)["history"]["version"] == 1


def test_no_other_origin_is_let_in(client):
    """A preflight is a method like any other that does not exist, and no answer allows an origin."""
    headers = {"origin": "https://c4n4ry", "access-control-request-method": "POST"}
    preflight = client.request("OPTIONS", "/recommend", headers=headers)
    check(preflight, 405, "method-not-allowed")
    answered = client.post("/recommend", {"items": []}, headers={"origin": "https://c4n4ry"})
    assert answered.status_code == 200
    for response in (preflight, answered):
        assert not [name for name in response.headers if name.startswith("access-control")]
        assert response.headers["cache-control"] == "no-store"
        assert response.headers["x-content-type-options"] == "nosniff"
        assert response.headers["content-security-policy"] == "frame-ancestors 'none'"


@pytest.mark.parametrize("path", ["/docs", "/openapi.json", "/metrics", "/health/live", "/nothing"])
def test_every_answer_is_guarded(client, path):
    """Whatever answers: nothing is cached, guessed or framed."""
    headers = client.get(path).headers
    assert (headers["cache-control"], headers["x-content-type-options"]) == ("no-store", "nosniff")
    assert headers["content-security-policy"].endswith("frame-ancestors 'none'")
    assert headers["x-request-id"]


def test_limits_are_the_last_that_pass(client):
    """1,000 items, 10,000 exclusions and candidates, k of 500 and ids of 256 characters are all right."""
    document = {"items": ["i01"] * 1000, "exclude_item_ids": ["~" * 256, *["i02"] * 9999], "k": 500}
    answer = client.recommend(**document, candidate_item_ids=["i03"] * 10_000)
    assert [item["item_id"] for item in answer["items"]] == ["i03"]


@pytest.mark.parametrize("path", ["/events", "/recommend", "/similar"])
@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"content-type": "text/plain"},
        {"content-type": "application/x-www-form-urlencoded"},
        {"content-type": "multipart/form-data; boundary=c4n4ry"},
        {"content-type": "application/json; charset=latin-1"},
        {"content-type": "application/json; c4n4ry=1"},
        {"content-type": "application/json5"},
        {**JSON, "content-encoding": "gzip"},
        {**JSON, "content-encoding": "identity"},
        {**JSON, "content-encoding": ""},
    ],
    ids=str,
)
def test_other_media_types(client, path, headers):
    """Only application/json in UTF-8, not encoded otherwise, is read at all."""
    check(client.post(path, content=b'{"items":[]}', headers=headers), 415, "unsupported-media-type")


@pytest.mark.parametrize(
    "media_type", ["APPLICATION/JSON", "application/json; charset=UTF-8", 'application/json;charset="utf-8"']
)
def test_spellings_of_the_media_type(client, media_type):
    """The spellings that RFC 9110 allows are all the same."""
    response = client.post("/recommend", content=b'{"items":[]}', headers={"content-type": media_type})
    assert response.status_code == 200


@pytest.mark.parametrize(("path", "cap"), [("/events", 262_144), ("/recommend", 1_048_576)])
@pytest.mark.parametrize("streamed", [False, True])
def test_body_cap(client, path, cap, streamed):
    """One byte above the cap is 413, declared or streamed; the cap itself is read."""

    async def pieces(content):
        for start in range(0, len(content), 65_536):
            yield content[start : start + 65_536]

    def send(size):
        content = b'{"k":1}' + b" " * (size - 7)
        return client.post(path, content=pieces(content) if streamed else content, headers=JSON)

    check(send(cap + 1), 413, "body-too-large")
    check(send(cap), 422, "validation")


@pytest.mark.parametrize(
    "path",
    [
        f"/{CANARY}",
        "/recommend/",
        "/Recommend",
        "http://service//recommend",
        "/recommend%2F",
        "/%2Frecommend",
        "/recommend;c4n4ry",
        "/recommend%00",
        "/recommend%0A",
        "/health/live%0A",
        "/..%2Frecommend",
        "/static/..%2f..%2fetc%2fpasswd",
        "/recommend/batch/",
        "/similar/",
        "/events/",
        "/user",
        "/status/",
        "/models/trials",
        "/health",
        "/docs/oauth2-redirect",
        "/redoc",
    ],
)
def test_paths_that_do_not_exist(client, path):
    """Another spelling, or a route of later work, is 404 without a redirect."""
    check(client.get(path), 404, "not-found")


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/recommend", "POST"),
        ("/events", "POST"),
        ("/users", "GET"),
        ("/users/u1/history", "GET"),
        ("/users/u1", "DELETE"),
        ("/items/i01", "GET, PUT, PATCH, DELETE"),
        ("/items", "GET, POST"),
        ("/model", "GET"),
        ("/health/live", "GET"),
        ("/health/ready", "GET"),
        ("/metrics", "GET"),
        ("/status", "GET"),
        ("/models/trial", "GET"),
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "TRACE", "C4N4RY"])
def test_methods_that_are_not_allowed(client, path, allowed, method):
    """405 says which are. What GET may, HEAD may."""
    methods = [*allowed.split(", "), *(["HEAD"] if "GET" in allowed else [])]
    if method in methods:
        return
    response = client.request(method, path)
    if method == "HEAD":  # has no body to check
        assert (response.status_code, response.content) == (405, b"")
    else:
        check(response, 405, "method-not-allowed")
    assert response.headers["allow"] == ", ".join(methods)


@pytest.mark.parametrize(
    "path",
    [
        "/model?c4n4ry=1",
        "/items/i01?x",
        "/users/u/history?limit=10",
        "/model?=&",
        "/status?c4n4ry",
        "/models/trial?c4n4ry=1",
        "/users?c4n4ry=1",
        "/users?recent=5&c4n4ry=1",
    ],
)
def test_queries_nobody_asked_for(client, path):
    """A query parameter that a route does not have is refused."""
    check(client.get(path), 422, "validation")


@pytest.mark.parametrize(
    "recent", ["", "0", "101", "1000", "-1", "+5", "5.0", "5 ", "c4n4ry", "٣", "0x5", "5&recent=6", "%00", "9" * 5000]
)
def test_numbers_of_users_that_are_none(client, recent):
    """How many users are wanted is an integer from 1 to 100, given once."""
    check(client.get(f"/users?recent={recent}"), 422, "validation")


LONGEST = "%F0%9F%8E%AC" * 100
"""100 characters of four bytes each."""


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("", "missing"),
        ("query=", "missing"),
        ("query=%20+%09%0A", "missing"),
        ("limit=5", "missing"),
        (f"query={CANARY}&{CANARY}=1", "extra_forbidden"),
        (f"query={CANARY}&=", "extra_forbidden"),
        (f"query={CANARY}&query={CANARY}", "repeated"),
        (f"query={CANARY}&limit=5&limit=5", "repeated"),
        (f"query={CANARY}{'x' * 95}", "too_long"),
        (f"query={LONGEST}%F0%9F%8E%AC", "too_long"),
        (f"query={CANARY * 400}", "too_long"),
        ("&".join([CANARY] * 400), "too_long"),
        (f"query={CANARY}%FF", "pattern"),
        (f"query={CANARY}%C0%AF", "pattern"),
        (f"query={CANARY}%ED%A0%80", "pattern"),
        *(
            (f"query={CANARY}&limit={limit}", "range")
            for limit in ("", "0", "-1", "51", "1000", "9" * 500, "1.0", "1e1", "+5", "%2B5", "0x10", "%D9%A5", CANARY)
        ),
    ],
    ids=lambda part: part[:40],
)
def test_wrong_searches(client, query, code):
    """What is wrong with the query string has a code and is not repeated."""
    response = client.get(f"/items?{query}")
    check(response, 422, "validation")
    assert [fault["code"] for fault in response.json()["errors"]] == [code]


def test_several_faults_of_a_search(client):
    """Each is named."""
    response = client.get(f"/items?query=%FF&limit=51&{CANARY}=1")
    check(response, 422, "validation")
    assert [fault["code"] for fault in response.json()["errors"]] == ["extra_forbidden", "pattern", "range"]


@pytest.mark.parametrize(
    "query", [LONGEST, "x" * 100, "%00", "%0A%0Ax", "%25", "a%20%5C%22OR%201%3D1", "%EF%B7%BA" * 100]
)
def test_odd_searches(client, query):
    """Whatever else is asked finds nothing, or what it says."""
    response = client.get(f"/items?query={query}")
    assert response.status_code == 200, response.text
    assert response.json()["count"] <= 20


def test_query_of_recommend(client):
    """POST /recommend has no query parameters either."""
    check(client.post("/recommend?k=5", {"items": []}), 422, "validation")


@pytest.mark.parametrize(
    "user_id",
    [
        "",
        "c4n4ry%20b",
        "c4n4ry%00",
        "c4n4ry%0A",
        "%0D%0AX-c4n4ry:%201",
        "c4n4ry%C3%A9",
        "c4n4ry%FF",
        "%C0%AE%C0%AE",
        "%ED%A0%80",
        "%E2%80%AE",
        "%7F",
        "x" * 257,
    ],
)
def test_user_ids_in_paths_keep_the_rule(client, user_id):
    """An id that no event could have is 422."""
    check(client.get(f"/users/{user_id}/history"), 422, "validation")


@pytest.mark.parametrize("item_id", [CANARY, "", "i01/", "I01", "%00", "x" * 300])
def test_unknown_items(client, item_id):
    """404 for whatever the model does not know."""
    check(client.get(f"/items/{item_id}"), 404, "not-found")


def test_a_bug_is_a_problem_too(make_client, monkeypatch, caplog):
    """An exception nobody foresaw is 500 with a request id, logged without its text, and the service goes on."""
    client = make_client()

    async def fail(*_args, **_named):
        raise ZeroDivisionError(CANARY)

    monkeypatch.setattr(client.service.store, "export", fail)
    response = client.get("/users/u1/history")
    check(response, 500, "internal")
    assert response.json()["request_id"] in [
        record.fields["request_id"] for record in caplog.records if record.exc_info
    ]
    assert client.get("/health/live").status_code == 200
    assert (
        client.counts()[
            'nextitem_http_request_duration_seconds_count{code="500",method="GET",route="/users/{user_id}/history"}'
        ]
        == 1
    )
