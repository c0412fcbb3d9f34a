"""The pages that a browser is shown: complete without any other server, and their examples succeed."""

import re

import httpx
import pytest

ELSEWHERE = {"host": "192.0.2.1", "allow_anonymous": True}


def list_references(page: str) -> list[str]:
    """Everything that a page loads or leads to."""
    return re.findall(r"""(?:src|href)=["']([^"']*)["']""", page)


def parse_policy(response: httpx.Response) -> dict[str, str]:
    """The page's own Content-Security-Policy by directive; the one that every answer has comes after it."""
    policy = response.headers.get_list("content-security-policy")[0]
    return dict(directive.strip().split(" ", 1) for directive in policy.split(";"))


@pytest.mark.parametrize(("path", "root"), [("/", ""), ("/docs", "/")])
def test_pages_load_nothing_from_elsewhere(client, path, root):
    """Each reference is a path of this service that answers 200, or carries its data; the policy allows no other.

    Those of the console are relative to its page, so that it works below the prefix of a proxy.
    """
    response = client.get(path)
    assert (response.status_code, response.headers["content-type"]) == (200, "text/html; charset=utf-8")
    references = list_references(response.text)
    assert len(references) >= 3
    for reference in references:
        inside = reference.startswith(root) and not reference.startswith("/" if not root else "//")
        assert reference == "data:," or (inside and client.get(f"/{reference.lstrip('/')}").status_code == 200)
    policy = parse_policy(response)
    assert policy["default-src"] == "'none'"
    assert {word for words in policy.values() for word in words.split()} <= {
        "'none'",
        "'self'",
        "data:",
        "'unsafe-inline'",
        "'script'",  # for Trusted Types, which allows less
    }
    assert "'unsafe-inline'" not in policy.get("script-src", "")


def test_docs_page_is_swagger_ui_over_our_description(client):
    """The script that starts it names our OpenAPI document, and no validator elsewhere."""
    start = client.get("/docs/start.js")
    assert start.headers["content-type"] == "text/javascript; charset=utf-8"
    assert 'url: "/openapi.json"' in start.text
    assert "validatorUrl: null" in start.text
    assert len(client.get("/docs/swagger-ui-bundle.js").content) > 1_000_000
    assert client.get("/docs/swagger-ui.css").headers["content-type"] == "text/css; charset=utf-8"


def test_front_page_names_the_documentation_only_where_it_is_served(client, make_client):
    """On other addresses, without --docs, `/` is there and /docs with all its files is not."""
    assert "docs" in list_references(client.get("/").text)
    elsewhere = make_client(**ELSEWHERE)
    assert 'href="docs' not in elsewhere.get("/").text
    for path in ("/docs", "/docs/start.js", "/docs/swagger-ui-bundle.js", "/docs/swagger-ui.css", "/openapi.json"):
        assert elsewhere.get(path).status_code == 404


def test_every_example_of_the_documentation_succeeds(client):
    """What /docs fills in, sent as it stands, is answered with 200, and the model answers where it is given items.

    Whether a deployment can be changed so depends on the one that stands, and the catalogue is that of all tests: what
    changes them has no example.
    """
    described = client.get("/openapi.json").json()["paths"]
    paths = {path: operations for path, operations in described.items() if not path.startswith("/models/")}
    sent = 0
    for path, operations in paths.items():
        for method, operation in operations.items():
            if operation["security"] == [{"key": ["catalogue"]}]:
                continue
            filled = path
            asked = {}
            for parameter in operation.get("parameters", []):
                if parameter["in"] == "query" and parameter.get("required"):
                    asked[parameter["name"]] = parameter["example"]
                if parameter["in"] == "path":
                    filled = filled.replace(f"{{{parameter['name']}}}", parameter["example"])
            if "requestBody" in operation:
                for example in operation["requestBody"]["content"]["application/json"]["examples"].values():
                    response = client.request(method, filled, json=example["value"])
                    assert response.status_code == 200, (path, response.text)
                    assert not response.json().get("rejected")
                    sent += 1
            else:
                assert client.request(method, filled, params=asked).status_code in (200, 204), path
    assert sent == 6


def test_operations_have_short_names_and_tags(client):
    """A client that is generated from the document gets `recommend`, not `recommend_recommend_post`."""
    operations = [op for ops in client.get("/openapi.json").json()["paths"].values() for op in ops.values()]
    assert {operation["operationId"] for operation in operations} >= {"recommend", "post_events", "get_model"}
    assert all(len(operation["tags"]) == 1 for operation in operations)
