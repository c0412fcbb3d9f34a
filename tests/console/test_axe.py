"""What axe-core finds in each view, light and dark, on a desk and on a phone, with all of it opened: nothing."""

import pytest

expect = pytest.importorskip(
    "playwright.sync_api", reason="playwright is not installed: pip install -c constraints.txt '.[browser]'"
).expect
Axe = pytest.importorskip(
    "axe_playwright_python.sync_playwright",
    reason="axe-playwright-python is not installed: pip install -c constraints.txt '.[browser]'",
).Axe
expect.set_options(timeout=20_000)  # machines may be busy

SETTLE = "() => Promise.allSettled(document.getAnimations().map(animation => animation.finished))"
"""Waits until nothing moves or fades in any more: axe would measure the contrast of what is half there."""
DESK, PHONE = {"width": 1280, "height": 900}, {"width": 360, "height": 740}


def open_rules(page):
    """Filter and rules, with a condition."""
    page.locator(".refine summary").click()
    page.locator(".condition input[list]").fill("Drama")
    page.locator(".condition button").click()
    expect(page.locator(".chips li")).to_have_count(1)
    expect(page.locator("[aria-busy=true]")).to_have_count(0)


def open_why(page):
    """The reasons of an item, and the request."""
    page.locator(".why summary").first.click()
    page.locator(".curl summary").first.click()


def open_user(page):
    """What is stored of a user, and the question before it is erased."""
    page.get_by_role("button", name="405").click()
    expect(page.locator("ol.ranked > li")).to_have_count(10)
    page.get_by_role("button", name="Erase…").click()


def open_item(page):
    """An item, what is like it, and the options of the search."""
    page.get_by_role("combobox").fill("star w")
    page.get_by_role("option").first.click()
    expect(page.locator("ol.ranked > li")).to_have_count(20)
    page.get_by_role("combobox").fill("star")
    expect(page.get_by_role("option")).to_have_count(3)


def open_question(page):
    """The question before a change of the deployment."""
    page.get_by_role("button", name="Promote…").click()


def open_table(page):
    """A chart as a table."""
    page.locator(".chart header button").first.click()


def open_key(page):
    """The form for a key."""
    page.get_by_role("button", name="API key").click()


OPEN = {
    "try": open_rules,
    "compare": open_why,
    "users": open_user,
    "items": open_item,
    "models": open_question,
    "live": open_table,
    "health": open_key,
}


@pytest.mark.usefixtures("traffic", "trial")
@pytest.mark.parametrize("name", OPEN)
def test_axe_finds_nothing(view, url, name, keep_picture):
    """No violation of any of its rules, as the view is opened and with what opens in it."""
    page = view(url, name)
    check(page, [(scheme, size) for scheme in ("light", "dark") for size in (DESK, PHONE)])
    OPEN[name](page)
    check(page, [("light", PHONE), ("dark", DESK)])
    keep_picture(page, f"{name}-opened")


def check(page, combinations):
    """Run axe on the page in some schemes and sizes."""
    for scheme, size in combinations:
        page.emulate_media(color_scheme=scheme)
        page.set_viewport_size(size)
        page.evaluate(SETTLE)
        found = Axe().run(page)
        assert found.violations_count == 0, f"{scheme} {size}\n{found.generate_report()}"
