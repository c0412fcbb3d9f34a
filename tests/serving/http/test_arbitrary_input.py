"""Input that nobody thought of: never 5xx, always a problem or an answer, and the input is not quoted."""

from urllib.parse import quote

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

JSON = {"content-type": "application/json"}
FIELDS = st.sampled_from(
    [
        "user_id",
        "items",
        "k",
        "exclude_seen",
        "exclude_item_ids",
        "candidate_item_ids",
        "min_history_version",
        "timeout_ms",
        "return_metadata",
        "filter",
        "all",
        "not",
        "field",
        "in",
        "gte",
        "pins",
        "rank",
        "diversity",
        "max_per",
        "boosts",
        "add",
        "scenario",
        "count",
        "item_ids",
        "by",
        "events",
        "item_id",
        "event_id",
        "type",
        "value",
        "timestamp",
        "recommendation_id",
        "properties",
        "other",
    ]
)
SCALARS = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text(max_size=20)
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(FIELDS, inner, max_size=4))
DOCUMENTS = st.dictionaries(FIELDS, VALUES, max_size=5)
# One client serves all examples: what they leave behind is part of the test.
MANY = settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.mark.parametrize("path", ["/events", "/recommend", "/similar"])
@MANY
@given(body=st.binary(max_size=200))
def test_arbitrary_bytes(client, path, body):
    """Bytes are answered by 400 or 422, or by 200 should they be a request."""
    response = client.post(path, content=body, headers=JSON)
    assert response.status_code in (200, 400, 404, 422)
    assert response.json()


@pytest.mark.parametrize("path", ["/events", "/recommend", "/similar"])
@MANY
@given(document=DOCUMENTS)
def test_arbitrary_documents(client, path, document):
    """Documents of the right fields and wrong values are answered likewise, or with 409."""
    response = client.post(path, content=orjson.dumps(document), headers=JSON)
    assert response.status_code in (200, 404, 409, 422), response.text
    assert len(response.content) < 20_000


@MANY
@given(query=st.text(max_size=40), limit=st.integers(-10, 100) | st.text(max_size=5))
def test_arbitrary_searches(client, query, limit):
    """Searches find something or nothing, or are refused."""
    response = client.get("/items", params={"query": query, "limit": limit})
    assert response.status_code in (200, 422), response.text


@MANY
@given(path=st.text(max_size=40))
def test_arbitrary_paths(client, path):
    """Paths lead nowhere, or where they should."""
    for prefix in ("/", "/items/", "/users/"):
        assert client.get(prefix + quote(path, safe="")).status_code in (200, 404, 405, 422)
