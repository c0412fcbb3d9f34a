"""What a stranger does with the console, acted in a browser: clicks, keys, keys of the API."""

import re
import time

import pytest

from service.auth.key_file import create_key

expect = pytest.importorskip(
    "playwright.sync_api", reason="playwright is not installed: pip install -c constraints.txt '.[browser]'"
).expect

RANKED = "ol.ranked > li"
expect.set_options(timeout=20_000)  # machines may be busy


def read_list(page):
    """The titles on screen, in order."""
    return page.locator(f"{RANKED} .pick").all_inner_texts()


def await_count(page, count):
    """Wait for a list of so many items that nothing will change any more."""
    expect(page.locator(RANKED)).to_have_count(count)
    expect(page.locator("[aria-busy=true]")).to_have_count(0)


def test_three_letters_two_items_ten_titles(open_console, service_url):
    """A stranger types, adds, reads why, and clicks on; each click changes the list, in words too."""
    page = open_console(service_url)
    await_count(page, 10)
    expect(page.get_by_text("these are the most popular items")).to_be_visible()
    began_s = time.monotonic()
    search = page.get_by_role("combobox")
    for place in range(2):
        search.press_sequentially("sta")
        page.get_by_role("option").nth(place).click()
    await_count(page, 10)
    expect(page.locator(".facts")).to_have_text(re.compile(r"^[\d.]+ ms by model$"))
    took_s = time.monotonic() - began_s
    titles = read_list(page)
    assert len(set(titles)) == 10
    assert not {"Star Wars", "Star Trek"} & set(titles)
    assert page.locator(f"{RANKED} details.why").count() == 10
    reasons = page.locator(f"{RANKED} summary").all_inner_texts()
    assert any(reason.startswith("because of Star ") for reason in reasons), reasons
    assert took_s < 30  # 3 s on a machine of one's own

    page.locator(f"{RANKED} .pick").nth(1).click()
    chosen = titles[1]
    expect(page.locator(".chosen li")).to_have_count(3)
    expect(page.locator(".chosen li").nth(2)).to_contain_text(chosen)
    expect(page.get_by_role("status").filter(has_text=re.compile(r"^\d+ new, \d+ moved, [\d.]+ ms$"))).to_have_count(1)
    assert chosen not in read_list(page)
    assert page.locator(".change.new").count() >= 1
    assert page.evaluate("window.seen.animations") > 0


def test_first_view_is_light_and_asks_little(open_console, service_url):
    """The budget as a browser counts it, with a second visit that asks for the page and the list alone."""
    page = open_console(service_url)
    await_count(page, 10)
    entries = page.evaluate("performance.getEntries().map((entry) => [entry.entryType, entry.transferSize])")
    loaded = [size for kind, size in entries if kind in ("navigation", "resource")]
    assert len(loaded) <= 12
    assert sum(loaded) <= 40_000 + 12 * 700  # a browser counts heads, too
    page.reload()
    await_count(page, 10)
    entries = page.evaluate("performance.getEntriesByType('resource').map((entry) => [entry.name, entry.transferSize])")
    assert [name for name, size in entries if size and "/console/" in name] == []


def test_usable_soon_on_a_slow_machine(open_console, service_url):
    """The list is on screen beside the search while the processor runs at a quarter of its speed."""
    page = open_console(service_url)
    session = page.context.new_cdp_session(page)
    session.send("Network.enable")
    session.send("Network.setCacheDisabled", {"cacheDisabled": True})
    session.send("Emulation.setCPUThrottlingRate", {"rate": 4})
    page.goto(f"{service_url}/?slow", wait_until="commit")
    usable_ms = page.evaluate(
        """() => new Promise((resolve) => {
          const look = () => document.querySelector("ol.ranked > li") && document.querySelector("#search")
            ? resolve(performance.now()) : setTimeout(look, 5);
          look();
        })"""
    )
    assert usable_ms < 10_000  # docs/how-to/console.md has what it takes on a machine of one's own


def test_by_keyboard_alone(open_console, service_url):
    """`/` goes to the search, arrows choose, Enter adds, Escape closes; lists and removal keep the focus in reach."""
    page = open_console(service_url)
    await_count(page, 10)
    search = page.get_by_role("combobox")
    page.keyboard.press("/")
    expect(search).to_be_focused()
    expect(search).to_have_value("")
    page.keyboard.type("star")
    expect(page.get_by_role("option")).to_have_count(3)
    assert search.get_attribute("aria-activedescendant") == page.get_by_role("option", selected=True).get_attribute(
        "id"
    )
    page.keyboard.press("Escape")
    expect(page.get_by_role("option")).to_have_count(0)
    assert search.get_attribute("aria-expanded") == "false"
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    second = page.get_by_role("option", selected=True).inner_text()
    page.keyboard.press("Enter")
    expect(page.locator(".chosen li")).to_have_count(1)
    assert page.locator(".chosen li .title").inner_text() in second
    await_count(page, 10)
    for _ in range(12):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.className") == "pick":
            break
    page.keyboard.press("Enter")
    expect(page.locator(".chosen li")).to_have_count(2)
    await_count(page, 10)
    expect(page.locator(f"{RANKED} .pick").first).to_be_focused()
    page.locator(".remove").first.focus()
    page.keyboard.press("Enter")
    expect(page.locator(".chosen li")).to_have_count(1)
    expect(page.locator(".remove").first).to_be_focused()
    page.keyboard.press("Enter")
    expect(search).to_be_focused()


def test_stored_user(open_console, service_url, remember):
    """A user's stored history in place of one made here; what is clicked follows it and is not stored."""
    remember("405", "i01", "i02", "i03")
    page = open_console(service_url)
    page.get_by_label("stored history").fill("405")
    page.get_by_role("button", name="Show").click()
    expect(page.locator(".stored li")).to_have_count(3)
    await_count(page, 10)
    expect(page.locator(".stored h2")).to_contain_text("405")
    page.locator(f"{RANKED} .pick").first.click()
    expect(page.locator(".chosen li")).to_have_count(1)
    await_count(page, 10)
    assert '"user_id":"405"' in page.locator(".curl code").text_content()
    assert page.request.get(f"{service_url}/users/405/history").json()["version"] == 3
    assert "405" not in page.url
    page.get_by_role("button", name="Leave").click()
    expect(page.locator(".stored")).to_have_count(0)


def test_the_same_by_curl(open_console, service_url):
    """Each list names the request that made it; the button takes it to the clipboard."""
    page = open_console(service_url, permissions=["clipboard-read", "clipboard-write"])
    await_count(page, 10)
    page.get_by_text("request as curl").click()
    page.get_by_role("button", name="Copy").click()
    expect(page.get_by_text("Copied")).to_be_visible()
    command = page.evaluate("navigator.clipboard.readText()")
    assert command.startswith(f"curl -s '{service_url}/recommend' -H 'content-type: application/json'")
    assert '"items":[]' in command


def test_compare_shows_each_ranker(open_console, service_url):
    """Three columns for one history; what each shares with the model is said in words."""
    page = open_console(service_url, fragment="#compare")
    page.get_by_role("combobox").press_sequentially("sta")
    page.get_by_role("option").first.click()
    expect(page.locator(".column h2")).to_have_text(["model", "neighbours", "popular"])
    expect(page.locator(RANKED)).to_have_count(30)
    expect(page.locator("[aria-busy=true]")).to_have_count(0)
    shared = page.locator(".column .facts").all_inner_texts()[1:]
    notes = [column.locator(".note").all_inner_texts() for column in page.locator(".column").all()[1:]]
    for fact, words in zip(shared, notes, strict=True):
        assert int(re.findall(r"(\d+) of 10 shared", fact)[0]) == words.count("shared")
        assert set(words) <= {"shared", "only here"}
    commands = page.locator(".curl code").all_text_contents()
    assert [re.findall(r'"ranker":"(\w+)"', command) for command in commands] == [
        ["model"],
        ["neighbours"],
        ["popular"],
    ]


def test_compare_offers_what_the_service_lists(open_console, service_url):
    """Columns come and go by their ticks; what is not loaded says so politely; the champion's version is `model`."""
    other = "20260101T000000-other"

    def list_rankers(route):
        response = route.fetch()
        rankers = ["auto", "model", "neighbours", "popular", response.json()["version"], other]
        route.fulfill(response=response, json=response.json() | {"rankers": rankers})

    page = open_console(service_url, expected=("422",))
    await_count(page, 10)
    page.route("**/model", list_rankers)
    page.get_by_role("link", name="Compare").click()
    expect(page.locator(".side label")).to_have_text(["model", "neighbours", "popular", other])
    expect(page.locator(".column h2")).to_have_text(["model", "neighbours", "popular"])
    page.get_by_role("checkbox", name="neighbours").focus()
    page.keyboard.press("Space")
    page.get_by_role("checkbox", name=other).check()
    expect(page.locator(".column h2")).to_have_text(["model", "popular", other])
    expect(page.locator(".column").nth(2)).to_contain_text("not loaded any more")
    expect(page.get_by_role("alert")).to_have_count(0)

    def answer(route):
        route.continue_(post_data=route.request.post_data.replace(other, "model"))

    page.route("**/recommend", answer)
    page.locator(f"{RANKED} .pick").first.click()
    expect(page.locator(".column").nth(2).locator(".facts")).to_contain_text("10 of 10 shared")
    expect(page.locator(".column").nth(2).locator("p.hint").first).to_have_text("This version")


def test_key_is_asked_for_and_left_nowhere(open_console, serve, make_bundle, tmp_path):
    """401 asks for a key; it opens the list, stays in memory, and a new page knows nothing of it."""
    file = tmp_path / "keys.json"
    key, other = create_key(file, ["recommend"]), create_key(file, ["metrics"])
    url = serve(make_bundle([{"title": f"Film {number}"} for number in range(20)]), "--keys-file", str(file))
    page = open_console(url, expected=("401", "403"))
    field = page.get_by_role("textbox", name="API key")
    expect(field).to_be_focused()
    field.fill(other)
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert").filter(has_text="recommend").first).to_be_visible()
    field.fill(key)
    page.keyboard.press("Enter")
    await_count(page, 10)
    expect(page.locator("form.key")).to_have_count(0)
    page.get_by_text("request as curl").click()
    left = page.evaluate(
        "JSON.stringify([{...localStorage}, {...sessionStorage}, document.cookie, location.href, history.state])"
    )
    for secret in (key, other):
        assert secret not in left + page.content()
    page.reload()
    expect(page.get_by_role("textbox", name="API key")).to_be_visible()


def test_problem_is_shown_as_what_it_is(open_console, service_url):
    """A service that is gone, or answers with a problem, says so beside the last list."""
    page = open_console(service_url, expected=("ERR_", "503"))
    await_count(page, 10)
    problem = '{"title": "The service is overloaded", "status": 503, "detail": "Again later.", "request_id": "r-1"}'
    page.route("**/recommend", lambda route: route.fulfill(status=503, body=problem))
    page.locator(f"{RANKED} .pick").first.click()
    expect(page.get_by_role("alert")).to_contain_text("The service is overloaded")
    expect(page.get_by_role("alert")).to_contain_text("r-1")
    assert page.locator(RANKED).count() == 10
    page.unroute("**/recommend")
    page.route("**/recommend", lambda route: route.abort())
    page.locator(f"{RANKED} .pick").nth(1).click()
    expect(page.get_by_role("alert")).to_contain_text("The service does not answer")
    page.unroute("**/recommend")
    page.locator(f"{RANKED} .pick").nth(2).click()
    expect(page.get_by_role("alert")).to_have_count(0)


def test_no_motion_for_who_wants_none(open_console, service_url):
    """The list changes without moving."""
    page = open_console(service_url, reduced_motion="reduce")
    await_count(page, 10)
    page.locator(f"{RANKED} .pick").first.click()
    expect(page.locator(".change.new, .change.up, .change.down").first).to_be_visible()
    assert page.evaluate("window.seen.animations") == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("fragment", ["", "#compare"])
def test_phone(open_console, service_url, scheme, fragment):
    """Nothing is wider than a small screen; targets are 24 pixels high at least; the scheme is the system's."""
    page = open_console(
        service_url, fragment=fragment, viewport={"width": 360, "height": 740}, color_scheme=scheme, has_touch=True
    )
    expect(page.locator(RANKED).first).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") == 360
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", ground)[:3])) > 384) == (scheme == "light")
    heights = page.locator(":is(button, input, summary):visible").evaluate_all(
        "targets => targets.map((target) => target.getBoundingClientRect().height)"
    )
    assert min(heights) >= 24


def test_below_a_prefix(open_console, service_url):
    """Behind a proxy that serves it as /recs/: every address is relative."""
    prefixed = f"{service_url}/recs"

    def strip(route):
        route.fulfill(response=route.fetch(url=route.request.url.replace("/recs/", "/")))

    page = open_console(service_url)
    page.context.route(f"{prefixed}/**", strip)
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(f"{prefixed}/")
    await_count(page, 10)
    assert len(asked) >= 10
    assert all(url.startswith((f"{prefixed}/", "data:")) for url in asked)
