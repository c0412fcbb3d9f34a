"""What an operator does with the console, acted in a browser: users, items, models; for every reader; and its keys."""

import json
import re
from pathlib import Path

import httpx
import pytest

from model.contract.deployment.changes import hold
from model.contract.deployment.document import read_deployment
from model.contract.deployment.writer import change_deployment
from service.auth.key_file import create_key

expect = pytest.importorskip(
    "playwright.sync_api", reason="playwright is not installed: pip install -c constraints.txt '.[browser]'"
).expect
expect.set_options(timeout=20_000)  # machines may be busy

AUDIT = (Path(__file__).parent / "audit.js").read_text()
VIEWS = ("try", "compare", "users", "items", "models", "live", "health")
CHAMPION, CANDIDATE = "20261101T074200-bert4rec", "20261121T101500-bert4rec"
DESK, PHONE = {"width": 1280, "height": 900}, {"width": 360, "height": 740}


@pytest.mark.usefixtures("traffic", "trial")
@pytest.mark.parametrize("name", VIEWS)
def test_every_view_for_every_reader(view, url, name, keep_picture):
    """Names, landmarks, contrast and targets, in both schemes, on a desk and on a phone, where nothing is too wide."""
    page = view(url, name)
    if name == "users":
        page.get_by_role("button", name="405").click()
        expect(page.locator("ol.ranked > li")).to_have_count(10)
    if name == "items":
        page.get_by_role("combobox").fill("star w")
        page.get_by_role("option").first.click()
        expect(page.locator(".pairs")).to_contain_text("rank")
    if name == "live":
        expect(page.locator(".chart .line").first).to_have_attribute("d", re.compile("L"))  # two points make a line
    assert page.get_by_role("link", name=name.title(), exact=True).get_attribute("aria-current") == "page"
    grounds = {}
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        grounds[scheme] = page.evaluate("getComputedStyle(document.body).backgroundColor")
        for size in (DESK, PHONE):
            page.set_viewport_size(size)
            assert page.evaluate("document.documentElement.scrollWidth") == size["width"]
            assert page.evaluate(AUDIT) == [], (scheme, size)
            keep_picture(page, f"{name}-{scheme}-{size['width']}")
    assert grounds["light"] != grounds["dark"]


def test_views_are_fetched_when_they_are_opened(open_console, url):
    """The first view asks for no other's files; the others come by a click, and by keyboard alone."""
    page = open_console(url)
    expect(page.locator("ol.ranked > li")).to_have_count(10)
    asked = []
    page.on("request", lambda request: asked.append(request.url.rpartition("/")[2]))
    for name in VIEWS[1:]:
        page.get_by_role("link", name=name.title(), exact=True).focus()
        page.keyboard.press("Enter")
        expect(page.locator(f"main.{name}")).to_be_visible()
        expect(page.locator("main :is(.panel, .column)").first).to_be_visible()
        assert asked.count(f"{name}.js") == 1
    names = page.evaluate("performance.getEntriesByType('resource').map((entry) => entry.name.split('/').pop())")
    assert names.index("health.js") > names.index("try.js")


def test_a_view_that_is_gone_says_so(open_console, url):
    """After an update the page's files have other addresses: it asks to be loaded anew."""
    page = open_console(url, expected=("404",))
    page.route("**/health.js", lambda route: route.fulfill(status=404))
    page.get_by_role("link", name="Health").click()
    expect(page.get_by_role("alert")).to_contain_text("Load the page again")


@pytest.mark.usefixtures("traffic")
def test_users(view, url):
    """Recent users, what is stored of one beside what the model makes of it; export; an item of it."""
    page = view(url, "users")
    assert {"405", "13", "655"} <= set(page.locator(".people bdi").all_inner_texts())
    page.get_by_role("button", name="405").click()
    expect(page.locator("section:has(#history) tbody tr")).to_have_count(6)
    first = page.locator("section:has(#history) tbody tr").first
    expect(first).to_contain_text("Rear Window")  # i06, the newest
    expect(page.locator("ol.ranked > li")).to_have_count(10)
    assert '"user_id":"405"' in page.locator(".curl code").text_content()
    with page.expect_download() as download:
        page.get_by_role("button", name="Export").click()
    assert download.value.suggested_filename == "history.json"
    assert json.loads(Path(download.value.path()).read_text()) == httpx.get(f"{url}/users/405/history").json()
    assert "405" not in page.url + page.title()
    first.get_by_role("button").click()
    expect(page.get_by_role("heading", name="Rear Window")).to_be_visible()
    assert page.url == f"{url}/#items"


@pytest.mark.usefixtures("traffic")
def test_erasing_takes_the_id_in_words(view, url):
    """The button waits until the id is typed; Escape changes nothing; then the user is gone, here and in the store."""
    events = [{"user_id": "to-forget", "item_id": "i01"}]
    httpx.post(f"{url}/events", json={"events": events}).raise_for_status()
    page = view(url, "users")
    page.get_by_label("A user's id").fill("to-forget")
    page.keyboard.press("Enter")
    erase = page.get_by_role("button", name="Erase…")
    erase.focus()
    page.keyboard.press("Enter")
    confirm = page.get_by_role("button", name="Erase for good")
    expect(page.get_by_role("dialog")).to_be_visible()
    expect(confirm).to_be_disabled()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(erase).to_be_focused()
    assert httpx.get(f"{url}/users/to-forget/history").json()["version"] == 1
    page.keyboard.press("Enter")
    typed = page.get_by_role("dialog").get_by_role("textbox")
    typed.fill("to-forge")
    expect(confirm).to_be_disabled()
    typed.fill("to-forget")
    page.keyboard.press("Enter")
    expect(page.get_by_text("The user is erased.")).to_be_visible()
    expect(page.get_by_label("A user's id")).to_be_focused()
    assert httpx.get(f"{url}/users/to-forget/history").json()["events"] == []
    expect(page.locator(".people bdi", has_text="to-forget")).to_have_count(0)


@pytest.mark.usefixtures("trial")
def test_models(view, url, root, keep_picture):
    """Versions, scores and evidence; a change asks first, by keyboard too, and the journal says why."""
    page = view(url, "models")
    rows = page.locator("section:has(#versions) tbody tr")
    expect(rows).to_have_count(3)
    expect(rows.nth(0)).to_contain_text(CANDIDATE)
    expect(rows.nth(0)).to_contain_text("0.0671")
    expect(rows.nth(0)).to_contain_text("as candidate, n = 5,210")
    expect(rows.nth(1)).to_contain_text("champion")
    who = page.locator("section:has(#deployment)")
    expect(who).to_contain_text("answers 5 % of users")
    expect(who).to_contain_text("7.41 of 20.0 needed")
    expect(who).to_contain_text("0.0071, between -0.0004 and 0.0146")
    expect(page.locator("section:has(#journal) tbody tr").first).to_contain_text("nothing against it in shadow")
    keep_picture(page, "models")
    promote = page.get_by_role("button", name="Promote…")
    promote.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_contain_text("It becomes the champion")
    page.keyboard.press("Escape")
    expect(promote).to_be_focused()
    assert read_deployment(root).champion == CHAMPION
    page.keyboard.press("Enter")
    page.get_by_label("Why, for the journal").fill("<b>clearly better</b>")
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(who).to_contain_text("Nobody is on trial")
    deployment = read_deployment(root)
    assert (deployment.champion, deployment.history[-1].why) == (CANDIDATE, "<b>clearly better</b>")
    expect(page.locator("section:has(#journal) tbody tr").first).to_contain_text("<b>clearly better</b>")
    page.get_by_role("button", name="Roll back…").click()
    page.get_by_role("button", name="Roll back", exact=True).click()
    expect(who).to_contain_text("held: only people promote and return")
    assert read_deployment(root).champion == CHAMPION
    page.get_by_role("button", name="Resume…").click()
    page.get_by_role("button", name="Resume", exact=True).click()
    expect(page.get_by_role("button", name="Hold…")).to_be_visible()
    rows.nth(0).get_by_role("button", name="Put on trial…").click()
    page.get_by_role("button", name="Put on trial", exact=True).click()
    expect(who).to_contain_text("in shadow: it answers nobody")
    page.get_by_role("button", name="Change share…").click()
    page.get_by_label("Share of users in %").fill("12.5")
    page.get_by_role("button", name="Change share", exact=True).click()
    expect(who).to_contain_text("answers 12.5 % of users")
    assert read_deployment(root).share == 0.125


@pytest.mark.usefixtures("trial")
def test_models_changed_by_somebody_else(view, url, root):
    """A change is for the deployment on screen: of another one it changes nothing and says so."""
    page = view(url, "models", expected=("409",))
    page.get_by_role("button", name="Promote…").click()
    change_deployment(root, hold(), action="hold", by="cli")
    page.get_by_role("button", name="Promote", exact=True).click()
    expect(page.get_by_role("dialog").get_by_role("alert")).to_contain_text("has changed meanwhile")
    assert read_deployment(root).champion == CHAMPION
    httpx.post(f"{url}/models/resume", json={}).raise_for_status()


@pytest.mark.usefixtures("trial")
def test_models_that_cannot_be_changed_here(view, open_console, url, service_url):
    """Where the folder cannot be written the buttons give way to the reason; a single bundle offers nothing."""
    page = view(url, "models", expected=("409",))
    problem = {
        "type": "urn:nextitem:problem:read-only",
        "title": "The service cannot write to the bundle folder",
        "status": 409,
        "detail": "Run `nextitem-serve models` elsewhere.",
        "request_id": "r-1",
    }
    page.route("**/models/hold", lambda route: route.fulfill(status=409, body=json.dumps(problem)))
    page.get_by_role("button", name="Hold…").click()
    page.get_by_role("button", name="Hold", exact=True).click()
    expect(page.get_by_role("dialog").get_by_role("alert")).to_contain_text("nextitem-serve models")
    page.keyboard.press("Escape")
    expect(page.get_by_role("alert")).to_contain_text("cannot write to the bundle folder")
    expect(page.locator("main button", has_text="…")).to_have_count(0)
    single = open_console(f"{service_url}", fragment="#models", expected=("404",))
    expect(single.get_by_text("This service serves one bundle")).to_be_visible()
    expect(single.locator("main button")).to_have_count(0)


@pytest.fixture(scope="module")
def keyed(serve, root, tmp_path_factory):
    """A service with keys: its address, and a key for each scope."""
    file = tmp_path_factory.mktemp("keys") / "keys.json"
    keys = {scope: create_key(file, [scope]) for scope in ("recommend", "admin", "models", "metrics")}
    keys["all"] = create_key(file, ["recommend", "admin", "models", "metrics", "events"])
    return serve(root, "--keys-file", str(file)), keys


def test_a_key_is_kept_for_the_tab_when_that_is_ticked(open_console, keyed):
    """Without the tick it is gone with the page; with it, it lasts for the tab alone, until it is forgotten."""
    url, keys = keyed
    page = open_console(url, expected=("401",))
    field, keep = page.get_by_role("textbox", name="API key"), page.get_by_label("Keep it until this tab is closed")
    field.fill(keys["all"])
    page.keyboard.press("Enter")
    expect(page.locator("ol.ranked > li")).to_have_count(10)
    page.reload()
    field.fill(keys["all"])
    keep.check()
    page.keyboard.press("Tab")
    page.get_by_role("button", name="Use").click()
    expect(page.locator("ol.ranked > li")).to_have_count(10)
    page.reload()
    expect(page.locator("ol.ranked > li")).to_have_count(10)
    kept = page.evaluate("[Object.values(sessionStorage), Object.values(localStorage), document.cookie, location.href]")
    assert kept == [[keys["all"]], [], "", f"{url}/"]
    page.get_by_role("button", name="API key").click()
    page.get_by_role("button", name="Forget").click()
    expect(field).to_be_visible()
    assert page.evaluate("sessionStorage.length") == 0


@pytest.mark.parametrize(
    ("name", "scope"), [("users", "admin"), ("models", "models"), ("live", "metrics"), ("health", "metrics")]
)
def test_what_a_key_may_not_do_is_explained(open_console, keyed, name, scope):
    """The scope is named, nothing is offered that would fail, and the right key opens the view where it stands."""
    url, keys = keyed
    page = open_console(url, fragment=f"#{name}", expected=("401", "403"))
    field = page.get_by_role("textbox", name="API key")
    field.fill(keys["recommend"])
    page.keyboard.press("Enter")
    expect(page.locator("main").get_by_role("alert")).to_contain_text(f"a key with the scope {scope}")
    expect(page.locator("main button", has_text="…")).to_have_count(0)
    assert page.evaluate(AUDIT) == []
    page.get_by_role("link", name="Try", exact=True).click()
    expect(page.locator("ol.ranked > li")).to_have_count(10)
    expect(page.locator("form.key")).to_have_count(0)
    page.get_by_role("link", name=name.title(), exact=True).click()
    field.fill(keys[scope])
    page.keyboard.press("Enter")
    expect(page.locator("main").get_by_role("alert")).to_have_count(0)
    expect(page.locator("main .panel").first).to_be_visible()
