"""DELETE /users/{user_id}."""

from urllib.parse import quote

import pytest


def test_erased_user_is_a_stranger(client, user):
    """204 without a body; no history, popular items, and old events are rejected as `erased`."""
    old = {"event_id": "e", "user_id": user, "item_id": "i01", "timestamp": 1_700_000_000_000}
    client.send(old)
    response = client.request("DELETE", f"/users/{user}")
    assert (response.status_code, response.content) == (204, b"")
    assert client.get(f"/users/{user}/history").json() == {"user_id": user, "version": 0, "events": []}
    assert client.recommend(user_id=user)["source"] == "popular"
    receipt = client.send(old)
    assert (receipt["accepted"], receipt["duplicates"]) == (0, 0)
    [rejection] = receipt["rejected"]
    assert (rejection["index"], rejection["pointer"], rejection["code"]) == (0, "/timestamp", "erased")
    assert client.request("DELETE", f"/users/{user}").status_code == 204


@pytest.mark.parametrize("name", ["a/b", "a/history", "100%", "?"])
def test_odd_ids_are_erased_by_their_own_name(client, user, name):
    """Percent-encoded, a slash and all; written out, a slash is another path, and nobody is erased by mistake."""
    odd = f"{user}{name}"
    for user_id in (odd, user):
        client.send({"user_id": user_id, "item_id": "i01"})
    assert client.request("DELETE", f"/users/{quote(odd, safe='')}").status_code == 204
    assert client.get(f"/users/{quote(odd, safe='')}/history").json()["version"] == 0
    assert client.request("DELETE", f"/users/{user}/history").status_code == 405
    assert client.request("DELETE", f"/users/{user}/b").status_code == 404
    assert client.get(f"/users/{user}/history").json()["version"] == 1


def test_wrong_requests(client):
    """No such id, a query, and other methods are refused."""
    assert client.request("DELETE", "/users/a%20b").status_code == 422
    assert client.request("DELETE", "/users/a?b=c").status_code == 422
    response = client.get("/users/a")
    assert (response.status_code, response.headers["allow"]) == (405, "DELETE")
