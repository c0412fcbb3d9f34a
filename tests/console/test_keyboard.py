"""The whole path by keyboard alone: Tab, Shift+Tab, Enter, arrows and letters. Nothing is clicked, nothing focused."""

import pytest

expect = pytest.importorskip(
    "playwright.sync_api", reason="playwright is not installed: pip install -c constraints.txt '.[browser]'"
).expect
expect.set_options(timeout=20_000)  # machines may be busy

RANKED = "ol.ranked > li"
MOST_STOPS = 120
FAULT = """() => {
  const at = document.activeElement;
  const { outlineStyle, outlineWidth } = getComputedStyle(at);
  const { top, right, bottom, left } = at.getBoundingClientRect();
  const seen = bottom > 0 && right > 0 && top < innerHeight && left < innerWidth;
  const ringed = at.matches(":focus-visible") && outlineStyle !== "none" && parseFloat(outlineWidth) >= 2;
  if (at !== document.body && seen && ringed) return "";
  return `seen: ${seen}, ringed: ${ringed}: ${at.outerHTML.slice(0, 200)}`;
}"""
"""What is wrong with the place of the focus: off the screen, without a ring around it, or nowhere."""


class Walk:
    """Keys pressed in a page, and where they lead."""

    def __init__(self, page):
        self.page = page

    def press(self, key):
        """One key, after which the focus can still be seen."""
        self.page.keyboard.press(key)
        assert self.page.evaluate(FAULT) == "", key

    def go(self, target, key="Tab"):
        """Press a key until the target has the focus, which can be seen at each stop of the way."""
        expect(target).to_be_visible()
        for _ in range(MOST_STOPS):
            self.press(key)
            if target.evaluate("target => target === document.activeElement"):
                return
        raise AssertionError(f"{MOST_STOPS} times {key}, and not at {target}")

    def open_view(self, name):
        """Back to the links of the views, and to one of them; the view is there, and waits for nothing."""
        self.go(self.page.get_by_role("link", name=name, exact=True), "Shift+Tab")
        self.press("Enter")
        expect(self.page.locator(f"main.{name.lower()}")).to_be_visible()
        expect(self.page.locator("main :is(.panel, .column, .next)").first).to_be_visible()
        self.await_lists()

    def await_lists(self):
        """Nothing is being asked any more."""
        expect(self.page.locator("[aria-busy=true]")).to_have_count(0)


@pytest.fixture
def walk(open_console, url):
    """The first view, before any key is pressed."""
    page = open_console(url)
    expect(page.locator(RANKED)).to_have_count(10)
    return Walk(page)


@pytest.mark.usefixtures("traffic", "trial")
def test_from_the_first_view_through_all_others_and_back(walk):
    """Search, add two items, reasons, filter, compare, a user, similar items, availability, models, charts, health."""
    try_it(walk)
    compare(walk)
    look_at_a_user_and_an_item(walk)
    switch_availability(walk)
    operate(walk)
    walk.open_view("Try")
    expect(walk.page.locator(".chosen li")).to_have_count(2)
    expect(walk.page.locator(".refine summary")).to_contain_text("year ≥ 1980 · diversity 0.3")


def try_it(walk):
    """Two items, why the next ones are there, and which ones may be."""
    page = walk.page
    walk.go(page.get_by_role("combobox", name="Find an item"))
    for number, (letters, found) in enumerate([("star", 3), ("toy", 1)], start=1):
        page.keyboard.type(letters)
        expect(page.get_by_role("option")).to_have_count(found)
        walk.press("ArrowDown")
        walk.press("Enter")
        expect(page.locator(".chosen li")).to_have_count(number)
    walk.await_lists()
    walk.go(page.locator(".why summary", has_text="because of").first)
    walk.press("Enter")
    expect(page.locator(".why[open] table")).to_be_visible()
    walk.go(page.locator(".refine summary"), "Shift+Tab")
    walk.press("Enter")
    rules = page.locator(".rules")
    walk.go(rules.get_by_role("combobox", name="Field"))
    walk.press("ArrowDown")
    walk.press("ArrowDown")
    walk.go(rules.get_by_role("combobox", name="Condition"))
    walk.press("ArrowDown")
    walk.go(rules.get_by_role("spinbutton", name="Value"))
    page.keyboard.type("1980")
    walk.press("Enter")
    expect(page.locator(".refine summary")).to_contain_text("year ≥ 1980 · 10 allowed")
    walk.go(rules.get_by_role("slider", name="Diversity"))
    for _ in range(3):
        walk.press("ArrowRight")
    expect(page.locator(".refine summary")).to_contain_text("diversity 0.3")
    walk.await_lists()


def compare(walk):
    """The same history by three rankers, and why the first one ranked so."""
    walk.open_view("Compare")
    expect(walk.page.locator(RANKED)).to_have_count(30)
    walk.go(walk.page.locator(".column .why summary").first)
    walk.press("Enter")
    expect(walk.page.locator(".column .why[open]")).to_have_count(1)


def look_at_a_user_and_an_item(walk):
    """A recent user, an item of the history, and one like it: where a button has gone, the focus is not lost."""
    page = walk.page
    walk.open_view("Users")
    walk.go(page.get_by_role("button", name="405"))
    walk.press("Enter")
    walk.go(page.locator("section:has(#history) tbody .pick").first)
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()
    expect(page.locator("#item")).to_have_text("Rear Window")  # the newest
    similar = page.locator("section:has(#by-taste) .pick").first
    walk.go(similar)
    title = similar.inner_text()
    page.keyboard.press("Enter")
    expect(page.locator("#item")).to_have_text(title)
    expect(page.locator("#item")).to_be_focused()


def switch_availability(walk):
    """Out of every list and back, with a question each time."""
    page = walk.page
    switch = page.get_by_role("switch", name="Available")
    walk.go(switch)
    for button, available in (("Take it out", "false"), ("Bring it back", "true")):
        walk.press("Enter")
        walk.go(page.get_by_role("dialog").get_by_role("button", name=button))
        page.keyboard.press("Enter")
        expect(switch).to_have_attribute("aria-checked", available)
        expect(switch).to_be_focused()


def operate(walk):
    """A question about the deployment that is left alone, a chart as a table, and what workers serve."""
    page = walk.page
    walk.open_view("Models")
    promote = page.get_by_role("button", name="Promote…")
    walk.go(promote)
    walk.press("Enter")
    walk.go(page.get_by_role("dialog").get_by_role("button", name="Cancel"))
    page.keyboard.press("Enter")
    expect(promote).to_be_focused()
    walk.open_view("Live")
    table = page.locator(".chart header button").first
    walk.go(table)
    walk.press("Enter")
    expect(table).to_have_attribute("aria-pressed", "true")
    walk.open_view("Health")
    walk.go(page.get_by_role("region", name="What each worker serves"))


def test_the_focus_stays_where_somebody_works(walk):
    """Clear goes to the search; a stored user's history to the button that leaves it, and back; a key to the view."""
    page = walk.page
    walk.go(page.locator(f"{RANKED} .pick").first)
    walk.press("Enter")
    walk.go(page.get_by_role("button", name="Clear"), "Shift+Tab")
    page.keyboard.press("Enter")
    expect(page.get_by_role("combobox", name="Find an item")).to_be_focused()
    walk.go(page.get_by_label("stored history"))
    page.keyboard.type("405")
    page.keyboard.press("Enter")
    leave = page.get_by_role("button", name="Leave")
    expect(leave).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_label("stored history")).to_be_focused()
    walk.go(page.get_by_role("button", name="API key"), "Shift+Tab")
    page.keyboard.press("Enter")
    expect(page.get_by_role("textbox", name="API key")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("form.key")).to_have_count(0)
    expect(page.locator("main")).to_be_focused()
