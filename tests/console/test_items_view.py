"""The view of items, acted in a browser: what is known of one, what is like it, and whether lists may have it."""

import json
import re
from pathlib import Path

import httpx
import pytest

from service.auth.key_file import create_key

expect = pytest.importorskip(
    "playwright.sync_api", reason="playwright is not installed: pip install -c constraints.txt '.[browser]'"
).expect
expect.set_options(timeout=20_000)  # machines may be busy

AUDIT = (Path(__file__).parent / "audit.js").read_text()


def test_items(view, url):
    """Metadata and rank of what is found; from there to what follows it."""
    page = view(url, "items")
    page.get_by_role("combobox").fill("wars")
    expect(page.get_by_role("option")).to_have_count(1)
    page.keyboard.press("Enter")
    facts = page.locator(".pairs")
    expect(facts).to_contain_text("%2F")
    expect(facts).to_contain_text(re.compile(r"rank \d+, 1 is the most popular"))
    expect(facts).to_contain_text("1970")
    page.get_by_role("button", name="Try what follows").click()
    expect(page.locator(".chosen li")).to_have_text(re.compile("Star Wars"))


def test_items_like_an_item(view, url):
    """Two lists: of items that are liked alike, and of what comes next; each leads on and says how it was asked for."""
    page = view(url, "items")
    page.get_by_role("combobox").fill("jaws")
    expect(page.get_by_role("option")).to_have_count(1)
    page.keyboard.press("Enter")
    for by in ("taste", "next"):
        section = page.locator(f"section:has(#by-{by})")
        expect(section.locator("ol.ranked > li")).to_have_count(10)
        assert "Jaws" not in section.locator(".pick").all_inner_texts()
        asked = json.loads(section.locator(".curl code").text_content().split("-d '")[1][:-1])
        answer = httpx.post(f"{url}/similar", json=asked).json()
        shown = [item["metadata"]["title"] for item in answer["items"]]
        assert (asked["by"], section.locator(".pick").all_inner_texts()) == (by, shown)
    first = page.locator("section:has(#by-taste) .pick").first
    title = first.inner_text()
    first.click()
    expect(page.locator("#item")).to_have_text(title)
    assert page.url == f"{url}/#items"


def test_items_like_an_item_that_a_bundle_lacks(open_console, service_url):
    """A bundle without rows of items says what it wants; what comes next is shown all the same."""
    page = open_console(service_url, fragment="#items", expected=("422",))
    page.get_by_role("combobox").fill("jaws")
    page.get_by_role("option").first.click()
    expect(page.locator("section:has(#by-taste)")).to_contain_text("publish it with --similar")
    expect(page.locator("section:has(#by-next) ol.ranked > li")).to_have_count(10)
    expect(page.get_by_role("alert")).to_have_count(0)


def test_an_item_is_taken_out_and_brought_back(view, url):
    """The switch asks first, by keyboard too; the next answer lacks the item, and the catalogue's version is shown."""
    page = view(url, "items")
    page.get_by_role("combobox").fill("heat")
    expect(page.get_by_role("option")).to_have_count(1)
    page.keyboard.press("Enter")
    switch = page.get_by_role("switch", name="Available")
    expect(switch).to_have_attribute("aria-checked", "true")
    [item_id] = {item["item_id"] for item in httpx.get(f"{url}/items", params={"query": "heat"}).json()["items"]}
    switch.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_contain_text("nobody is recommended it")
    page.keyboard.press("Escape")
    expect(switch).to_be_focused()
    assert httpx.get(f"{url}/items/{item_id}").json().get("available", True)
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Take it out", exact=True).click()
    expect(switch).to_have_attribute("aria-checked", "false")
    expect(page.get_by_role("dialog")).to_have_count(0)
    described = httpx.get(f"{url}/items/{item_id}").json()
    assert described["available"] is False
    expect(page.get_by_text(f"No list has it. Catalogue version {described['catalogue']['version']}")).to_be_visible()
    command = page.locator(".panel:has(#item) .curl code").text_content()
    assert command.startswith(f"curl -s -X PATCH '{url}/items/{item_id}'")
    assert '{"available":true}' in command
    body = {"items": [], "k": 20}
    assert item_id not in {item["item_id"] for item in httpx.post(f"{url}/recommend", json=body).json()["items"]}
    switch.click()
    page.get_by_role("button", name="Bring it back", exact=True).click()
    expect(switch).to_have_attribute("aria-checked", "true")
    assert httpx.get(f"{url}/items/{item_id}").json()["available"] is True


def test_an_item_that_is_new_since_the_model(view, url):
    """It is found and said to be new; nothing is asked of a model that does not know it."""
    known = {"metadata": {"title": "Brand New Film", "year": 2026}}
    httpx.put(f"{url}/items/new-1", json=known).raise_for_status()
    page = view(url, "items")
    page.get_by_role("combobox").fill("brand new")
    page.get_by_role("option").first.click()
    expect(page.locator("#item .badge")).to_have_text("new since the model")
    expect(page.get_by_text("The model does not know it yet")).to_be_visible()
    expect(page.locator(".pairs")).to_contain_text("2026")
    expect(page.locator("#by-taste")).to_have_count(0)
    assert page.evaluate(AUDIT) == []
    httpx.delete(f"{url}/items/new-1").raise_for_status()


def test_what_a_key_may_not_change_is_explained(open_console, serve, root, tmp_path):
    """Availability takes the scope catalogue: the question names it, and nothing is changed."""
    key = create_key(tmp_path / "keys.json", ["recommend"])
    url = serve(root, "--keys-file", str(tmp_path / "keys.json"))
    page = open_console(url, fragment="#items", expected=("401", "403"))
    page.get_by_role("combobox").fill("jaws")
    page.get_by_role("textbox", name="API key").fill(key)
    page.keyboard.press("Enter")
    page.get_by_role("combobox").fill("Jaws")
    page.get_by_role("option").first.click()
    page.get_by_role("switch", name="Available").click()
    page.get_by_role("button", name="Take it out", exact=True).click()
    expect(page.get_by_role("dialog").get_by_role("alert")).to_contain_text("a key with the scope catalogue")
    page.keyboard.press("Escape")
    expect(page.get_by_role("switch", name="Available")).to_have_attribute("aria-checked", "true")
