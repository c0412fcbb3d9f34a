"""Text of strangers in every view of the console: it stays text."""

import shutil

import httpx
import pytest

from model.contract.deployment.document import read_deployment

expect = pytest.importorskip(
    "playwright.sync_api", reason="playwright is not installed: pip install -c constraints.txt '.[browser]'"
).expect
expect.set_options(timeout=20_000)  # machines may be busy

VERSION = "20260901T081500-bert4rec"
PHONE = {"width": 360, "height": 740}
VIEWS = ("try", "compare", "users", "items", "models", "live", "health")
TAGS = (
    "header h1 h2 nav a button main div label input kbd ul li section p b bdi small span ol details summary pre code "
    "table thead tbody tr th td dl dt dd time form dialog i svg path strong select option datalist"
)
"""The elements that the page itself makes."""
BASES = (
    "<script>window.pwned=1</script>",
    "</script><script>window.pwned=1</script>",
    "<img src=x onerror=window.pwned=1>",
    "<svg/onload=window.pwned=1>",
    "<svg><script href=data:,window.pwned=1 />",
    "<iframe srcdoc='<script>parent.pwned=1</script>'></iframe>",
    "<body onload=window.pwned=1>",
    "<input autofocus onfocus=window.pwned=1>",
    "<details open ontoggle=window.pwned=1>",
    "<a href=javascript:window.pwned=1>x</a>",
    "<math><mtext><style><img src onerror=window.pwned=1></style></mtext></math>",
    "<template><img src=x onerror=window.pwned=1></template>",
    "<object data=javascript:window.pwned=1></object>",
    "<form action=javascript:window.pwned=1><button>x</button></form>",
    "<style>*{display:none}</style>",
    "<link rel=stylesheet href=//evil.example/x.css>",
    "<base href=//evil.example/>",
    "<meta http-equiv=refresh content='0;url=//evil.example/'>",
    "javascript:window.pwned=1",
    "data:text/html,<script>parent.pwned=1</script>",
    '" onmouseover="window.pwned=1',
    "' autofocus onfocus='window.pwned=1",
    "`${window.pwned=1}`",
    "{{constructor.constructor('window.pwned=1')()}}",
    "${{window.pwned=1}}",
    "\u202egnp.exe \u2066 right to left \u202d",
    "e\u0301\u0302\u0303\u0304" * 5,
    "\u200b\ufeff\u00ad zero width",
    "--><!-- <img src=x onerror=window.pwned=1>",
    "]]><img src=x onerror=window.pwned=1>",
    "__proto__",
    "constructor",
    "&lt;img src=x onerror=window.pwned=1&gt;",
    "%3Cscript%3Ewindow.pwned=1%3C/script%3E",
    "x" * 2000,
)
WRAPS = (
    *("{}", "a {}", "{} b", "'{}", '"{}', ">{}", "'>{}", '">{}', "</title>{}", "</textarea>{}"),
    *("\n{}", "\t{}", "\x01{}", "é{}", "{}\\", "0{}"),
)
HOSTILE = [wrap.replace("{}", base) for wrap in WRAPS for base in BASES]


def test_nothing_hostile_becomes_part_of_the_page(open_console, serve, make_bundle, tmp_path_factory, await_archiver):
    """Over 500 strings as titles, names and values of metadata, ids of users and items, and reasons of changes."""
    assert len(set(HOSTILE)) == len(HOSTILE) >= 500
    titles, pairs = HOSTILE[:20], HOSTILE[20:]
    share = len(pairs) // 20
    metadata = [
        {"title": title, **{pairs[at * share + n]: pairs[at * share + (n + 1) % share] for n in range(share)}}
        for at, title in enumerate(titles)
    ]
    folder = tmp_path_factory.mktemp("hostile")
    shutil.copytree(make_bundle(metadata, similar=True), folder / VERSION)
    (folder / "current").write_text(VERSION)
    url = serve(folder)
    page = open_console(url, fragment="#items", viewport=PHONE, expected=("404",))  # items that no model knows
    item_ids = (folder / VERSION / "vocabulary.txt").read_text().split("\n")[:20]
    seen = set()
    for item_id in item_ids:
        page.get_by_role("combobox").fill(item_id)
        page.get_by_role("option").first.click()
        expect(page.locator(".whole")).to_have_text(item_id)
        seen |= set(page.locator(":is(.pairs, #item) bdi").evaluate_all("all => all.map((one) => one.textContent)"))
        check_elements(page)
    assert len(seen & set(HOSTILE)) >= 500
    expect(page.locator("ol.ranked > li")).to_have_count(20)
    page.get_by_role("switch").click()
    check_elements(page)
    page.keyboard.press("Escape")

    user = "<img/src=x/onerror=window.pwned=1>"
    bad_items = ["<svg/onload=window.pwned=1>", "javascript:window.pwned=1", "</script><script>window.pwned=1</script>"]
    events = [{"user_id": user, "item_id": item_id} for item_id in [*bad_items, *item_ids[:10]]]
    await_archiver(url)
    httpx.post(f"{url}/events", json={"events": events}).raise_for_status()
    for why in HOSTILE[:40]:
        action = "hold" if read_deployment(folder).trial.auto else "resume"
        httpx.post(f"{url}/models/{action}", json={"why": why[:200]}).raise_for_status()
    page.goto(f"{url}/#users")
    page.locator(".people button").first.click()
    expect(page.locator("#history bdi")).to_have_text(user)
    expect(page.locator("section:has(#history) tbody tr")).to_have_count(13)
    expect(page.locator("ol.ranked > li").first).to_be_visible()
    check_elements(page)
    page.get_by_role("button", name="Erase…").click()
    check_elements(page)
    page.keyboard.press("Escape")
    page.goto(f"{url}/#models")
    expect(page.locator("section:has(#journal) tbody tr")).to_have_count(40)
    check_elements(page)
    page.goto(f"{url}/#try")
    check_try(page)
    for name, sign in (("live", ".legend"), ("health", "#store"), ("compare", ".column")):
        page.goto(f"{url}/#{name}")
        expect(page.locator(sign).first).to_be_visible()
        check_elements(page)


def check_try(page):
    """What is found, picked and recommended stays text, and so do fields and values of a filter."""
    page.get_by_role("combobox").fill("img")
    expect(page.get_by_role("option").first).to_be_visible()
    check_elements(page)
    page.keyboard.press("Enter")
    for count in (2, 3):
        page.locator("ol.ranked .pick").first.click()
        expect(page.locator(".chosen li")).to_have_count(count)
        expect(page.locator("[aria-busy=true]")).to_have_count(0)
    check_elements(page)
    page.locator(".refine summary").click()
    for place in range(3):
        page.locator(".condition select").first.select_option(index=place)
        page.locator(".condition select").nth(1).select_option("is not")
        page.locator(".condition input[list]").fill(HOSTILE[place][:256])
        page.get_by_role("button", name="Add", exact=True).click()
        expect(page.locator(".chips li")).to_have_count(place + 1)
        expect(page.locator("[aria-busy=true]")).to_have_count(0)
        check_elements(page)


def check_elements(page):
    """The page holds elements of its own alone, no script ran, and nothing is wider than the screen."""
    tags, attributes, links = page.evaluate(
        """() => {
          const all = [...document.querySelectorAll("#console *")];
          return [all.map((one) => one.localName), all.flatMap((one) => one.getAttributeNames()),
                  [...document.querySelectorAll("#console [href]")].map((one) => one.getAttribute("href"))];
        }"""
    )
    assert set(tags) <= set(TAGS.split())
    assert [name for name in attributes if name.startswith("on") or name in ("src", "srcdoc", "action")] == []
    assert set(links) == {f"#{name}" for name in VIEWS}
    assert page.evaluate("[window.pwned, Object.prototype.title]") == [None, None]
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
