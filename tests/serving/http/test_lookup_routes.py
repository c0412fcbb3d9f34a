"""The GET routes: what is there, under whatever id, and what the service says of itself."""

import uuid

import pytest

from model.contract.bundle import read_bundle


@pytest.mark.parametrize(
    ("user_suffix", "encoded"),
    [
        ("a/b", "a%2Fb"),
        ("/history", "%2Fhistory"),
        ("100%", "100%25"),
        ("%2F", "%252F"),
        ("?q=#x", "%3Fq%3D%23x"),
        ("{07}:*", "%7B07%7D%3A%2A"),
        ("__proto__", "__proto__"),
        ("..", ".."),
        ("+", "+"),
    ],
)
def test_user_ids_with_punctuation(client, user, user_suffix, encoded):
    """Percent-encoded ids come through as they were stored."""
    client.send({"user_id": user + user_suffix, "item_id": "i01", "event_id": "e-1", "value": 0.5, "timestamp": 10**12})
    export = client.get(f"/users/{user}{encoded}/history").json()
    assert export == {
        "user_id": user + user_suffix,
        "version": 1,
        "events": [{"event_id": "e-1", "item_id": "i01", "type": "view", "value": 0.5, "timestamp": 10**12}],
    }
    assert client.get(f"/users/{user}/history").json()["version"] == 0


def test_history_of_nobody_is_empty(client, user):
    """A user who was never heard of has version 0 and no events."""
    assert client.get(f"/users/{user}/history").json() == {"user_id": user, "version": 0, "events": []}


@pytest.mark.parametrize(
    ("encoded", "item_id"),
    [("i01", "i01"), ("a%2Fb", "a/b"), ("100%25", "100%"), ("%252F", "%2F"), ("x%2Fhistory", "x/history")],
)
def test_items_have_their_metadata(client, encoded, item_id):
    """An item's metadata is the bundle's."""
    document = client.get(f"/items/{encoded}").json()
    assert document == {"item_id": item_id, "metadata": {"title": f"Title of {item_id}", "year": 2000 + len(item_id)}}


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("POST", "/%65vents", 404),
        ("GET", "/model%", 404),
        ("GET", "/m%6Fdel", 404),
        ("GET", "/%64ocs", 404),
        ("GET", "/health%2Flive", 404),
        ("GET", "/users%2Fu%2Fhistory", 404),
        ("GET", "/%75sers/u/history", 404),
        ("GET", "/items%2Fi01", 404),
        ("DELETE", "/users%2Fu", 404),
        ("GET", "/users/u%2Fhistory", 405),
        ("GET", "/users/u/h%69story", 405),
    ],
)
def test_only_ids_are_encoded(client, method, path, status):
    """Another spelling of a path leads nowhere; what could be an id is one."""
    assert client.request(method, path).status_code == status


@pytest.mark.parametrize("path", ["/health/live", "/health/ready", "/metrics", "/model", "/items/i01", "/docs"])
def test_head_is_answered_like_get(client, path):
    """For who asks by HEAD whether it is there; it counts under the route's name."""
    head, get = client.request("HEAD", path), client.get(path)
    assert (head.status_code, head.headers["content-type"]) == (200, get.headers["content-type"])
    template = "/items/{item_id}" if path.startswith("/items") else path
    name = f'nextitem_http_request_duration_seconds_count{{code="200",method="HEAD",route="{template}"}}'
    assert client.counts()[name] >= 1


def test_item_without_metadata_has_none(client):
    """An item of which the bundle knows only the id is found all the same."""
    assert client.get("/items/%3Cscript%3E%22%26").json() == {"item_id": '<script>"&', "metadata": {}}


def test_bundle_without_metadata(make_client, broken_bundle, bundle_path):
    """A bundle need not have metadata at all."""
    files = {
        name: vars(file) for name, file in read_bundle(bundle_path).manifest.files.items() if name != "metadata.jsonl"
    }
    client = make_client(bundle=broken_bundle("", b"", files=files))
    assert client.get("/items/i01").json() == {"item_id": "i01", "metadata": {}}


def test_model_describes_itself(client, bundle_path):
    """GET /model repeats the manifest, with its digest and the provider in use."""
    bundle = read_bundle(bundle_path)
    assert client.get("/model").json() == {
        "name": "tiny",
        "version": bundle.manifest.version,
        "digest": bundle.digest,
        "trained_at": "2026-11-21T10:15:00Z",
        "last_event_at": "2026-11-20T23:59:59Z",
        "provider": "CPUExecutionProvider",
        "item_count": 20,
        "max_length": 8,
        "metrics": {"ndcg@10": 0.5},
        "generation": 0,
        "follows": True,
        "variant": "champion",
        "candidate": None,
        "refused": None,
        "rankers": ["auto", "model", "popular", bundle.manifest.version],
        "filter_fields": {},
    }


def test_model_names_what_filters_may_name(filtering):
    """GET /model has each field that a filter may name, and each of them can be filtered by as what it is."""
    fields = filtering.get("/model").json()["filter_fields"]
    assert fields == {"title": "string", "genres": "string", "new": "string", "year": "number", "sizes": "number"}
    for name, kind in fields.items():
        right, wrong = (["a"], [1]) if kind == "string" else ([1], ["a"])
        for values, code in ((right, 200), (wrong, 422)):
            body = {"items": ["i01"], "filter": {"field": name, "in": values}}
            assert filtering.post("/recommend", body).status_code == code


def test_health(client):
    """Live and ready, with a store that answers."""
    assert client.get("/health/live").json() == {"status": "ok"}
    ready = client.get("/health/ready")
    assert (ready.status_code, ready.json()) == (200, {"status": "ok", "reasons": []})


@pytest.mark.parametrize("given", ["mine", "018f3c1e-7b5d-7c3a-9e1a-2f6d1c0b9a88", "Root=1-67891233-abcdef", "a" * 128])
def test_request_id_of_the_caller_is_kept(client, given):
    """In the answer's header, and in a problem, so that a trace does not break here."""
    assert client.get("/health/live", headers={"X-Request-Id": given}).headers["x-request-id"] == given
    problem = client.get("/nothing", headers={"X-Request-Id": given})
    assert problem.json()["request_id"] == problem.headers["x-request-id"] == given


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [("X-Request-Id", "")],
        [("X-Request-Id", "a" * 129)],
        [("X-Request-Id", "two words")],
        [("X-Request-Id", '"><script>')],
        [("X-Request-Id", "one"), ("X-Request-Id", "two")],
    ],
)
def test_request_ids_are_ours_and_unique_otherwise(client, headers):
    """Without one, with several, or with one that is not plain, the id is of version 7 and new."""
    first, second = (client.get("/health/live", headers=headers).headers["x-request-id"] for _ in "ab")
    assert first != second
    assert uuid.UUID(first).version == 7


CHANGES = ("use", "candidate", "share", "promote", "return", "rollback", "hold", "resume")


@pytest.fixture(scope="module")
def openapi(client):
    """The service's own description."""
    return client.get("/openapi.json").json()


def test_openapi_lists_what_is_built_and_nothing_else(openapi):
    """Routes, methods and statuses are those of the contract."""
    described = {
        (path, method): set(operation["responses"])
        for path, operations in openapi["paths"].items()
        for method, operation in operations.items()
    }
    let_in = {"200", "401", "403", "503"}
    read = {"400", "408", "413", "415", "422"}
    assert described == {
        ("/recommend", "post"): let_in | read | {"409"},
        ("/recommend/batch", "post"): let_in | read | {"409"},
        ("/similar", "post"): let_in | read | {"404", "409"},
        ("/events", "post"): let_in | read,
        ("/users", "get"): let_in | {"422"},
        ("/users/{user_id}/history", "get"): let_in | {"422"},
        ("/users/{user_id}", "delete"): {"204", "401", "403", "404", "422", "503"},
        ("/items", "get"): let_in | {"404", "422"},
        ("/items/{item_id}", "get"): let_in | {"404", "422"},
        ("/items/{item_id}", "put"): let_in | read,
        ("/items/{item_id}", "patch"): let_in | read | {"404"},
        ("/items/{item_id}", "delete"): let_in | {"404", "422"},
        ("/items", "post"): let_in | read,
        ("/model", "get"): let_in | {"422"},
        ("/health/live", "get"): {"200"},
        ("/health/ready", "get"): {"200", "503"},
        ("/metrics", "get"): {"200", "401", "403"},
        ("/status", "get"): {"200", "401", "403", "422"},
        ("/models", "get"): let_in | {"404", "409", "422"},
        ("/models/trial", "get"): let_in | {"404", "409", "422"},
        ("/models/refresh", "post"): let_in | {"404", "422"},
        **dict.fromkeys(((f"/models/{action}", "post") for action in CHANGES), let_in | read | {"404", "409"}),
    }


def test_openapi_describes_real_bodies(openapi, client, user):
    """Requests, answers and problems have the fields that really come and go; every reference leads somewhere."""
    schemas = openapi["components"]["schemas"]
    assert set(schemas["RecommendRequest"]["properties"]) == {
        "user_id",
        "items",
        "k",
        "exclude_seen",
        "exclude_item_ids",
        "candidate_item_ids",
        "filter",
        "min_history_version",
        "min_catalogue_version",
        "timeout_ms",
        "variant",
        "return_metadata",
        "explain",
        "ranker",
        "pins",
        "diversity",
        "max_per",
        "boosts",
        "scenario",
    }
    answer = client.recommend(user_id=user, explain=True)  # `catalogue` comes with the first change
    assert set(schemas["Recommendation"]["properties"]) == {*answer, "allowed", "catalogue", "scenario"}
    pins = [{"item_id": "i02", "rank": 1}]
    [item] = client.recommend(user_id=user, k=1, return_metadata=True, explain=True, pins=pins)["items"]
    assert set(schemas["RankedItem"]["properties"]) == {*item, "boost"}  # which no pinned one has
    similar = client.post("/similar", {"item_ids": ["i01"], "by": "next"}).json()
    assert set(schemas["SimilarItems"]["properties"]) == {*similar, "allowed", "catalogue"}
    assert set(schemas["SimilarRequest"]["properties"]) == {
        "item_ids",
        "k",
        "by",
        "exclude_item_ids",
        "filter",
        "min_catalogue_version",
        "timeout_ms",
        "return_metadata",
    }
    found = client.get("/items?query=i01").json()
    assert set(schemas["FoundItems"]["properties"]) == {*found, "catalogue"}
    assert set(schemas["FoundItem"]["properties"]) == {*found["items"][0], "available", "recommendable"}
    receipt = client.send({"user_id": user, "item_id": "i01"}, {})
    assert set(schemas["Receipt"]["properties"]) == set(receipt)
    assert set(schemas["Rejection"]["properties"]) == set(receipt["rejected"][0])
    assert set(schemas["ProblemDescription"]["properties"]) == set(client.post("/recommend", {}).json())
    assert schemas["RecommendRequest"]["additionalProperties"] is False
    referred = {part.split('"')[0] for part in client.get("/openapi.json").text.split("#/components/schemas/")[1:]}
    assert referred <= set(schemas)


def test_openapi_problems_are_problem_json(openapi):
    """Every 4xx and 5xx of a route, readiness aside, is application/problem+json."""
    for path, operations in openapi["paths"].items():
        for operation in operations.values():
            for status, response in operation["responses"].items():
                if status >= "400" and path != "/health/ready":
                    assert list(response["content"]) == ["application/problem+json"]
