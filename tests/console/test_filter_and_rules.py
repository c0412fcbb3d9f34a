"""Filter and rules of the view Try, acted in a browser: what they change, and what is said of it."""

import json
import re

import pytest

from tests.console.films import FILMS

expect = pytest.importorskip(
    "playwright.sync_api", reason="playwright is not installed: pip install -c constraints.txt '.[browser]'"
).expect
expect.set_options(timeout=20_000)  # machines may be busy

RANKED = "ol.ranked > li"
VALUE = ".condition input[list]"
DRAMAS = {film["title"] for film in FILMS if "Drama" in film["genres"]}
LATE = {film["title"] for film in FILMS if film["year"] >= 1980}


@pytest.fixture
def open_rules(open_console):
    """The view Try with filter and rules opened, by keyboard."""

    def open_page(url, **options):
        page = open_console(url, **options)
        expect(page.locator(RANKED)).to_have_count(10)
        page.locator(".refine summary").focus()
        page.keyboard.press("Enter")
        expect(choice(page, "Field")).to_be_visible()
        return page

    return open_page


def choice(page, name):
    """A choice of the rules by its name."""
    return page.locator(".rules").get_by_role("combobox", name=name, exact=True)


def read_question(page):
    """What the list was asked with, by its curl."""
    return json.loads(page.locator(".curl code").text_content().split("-d '")[1][:-1])


def read_titles(page):
    """The titles on screen once the list is the one that was asked for last."""
    expect(page.locator("[aria-busy=true]")).to_have_count(0)
    return set(page.locator(f"{RANKED} .pick").all_inner_texts())


def test_conditions_by_keyboard_alone(open_rules, service_url):
    """Each condition narrows the list, and the row says how many items are allowed, until it is taken away."""
    page = open_rules(service_url)
    assert choice(page, "Field").locator("option").all_inner_texts() == ["genres", "title", "year"]
    choice(page, "Field").select_option("genres")
    assert choice(page, "Condition").locator("option").all_inner_texts() == ["is", "is not", "has a value"]
    assert "Sci-Fi" in page.locator("#values option").evaluate_all("all => all.map((one) => one.value)")
    page.locator(VALUE).focus()
    page.keyboard.type("Drama")
    page.keyboard.press("Enter")
    expect(page.locator(".refine summary")).to_have_text(f"Filter and rules: genres is Drama · {len(DRAMAS)} allowed")
    assert read_titles(page) <= DRAMAS
    choice(page, "Field").select_option("year")
    choice(page, "Condition").select_option("≥")
    page.locator(VALUE).focus()
    page.keyboard.type("1980")
    page.keyboard.press("Enter")
    expect(page.locator(".refine summary")).to_contain_text(f"· {len(DRAMAS & LATE)} allowed")
    assert read_titles(page) == DRAMAS & LATE
    expect(page.get_by_role("status").filter(has_text=f"{len(DRAMAS & LATE)} allowed")).to_have_count(1)
    leaves = [{"field": "genres", "in": ["Drama"]}, {"field": "year", "gte": 1980}]
    assert read_question(page)["filter"] == {"all": leaves}
    page.get_by_role("button", name="Remove genres is Drama").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Remove year ≥ 1980")).to_be_focused()
    expect(page.locator(".refine summary")).to_contain_text(f"· {len(LATE)} allowed")
    page.keyboard.press("Enter")
    expect(choice(page, "Field")).to_be_focused()
    expect(page.locator(".refine summary")).to_have_text("Filter and rules")
    assert "filter" not in read_question(page)


@pytest.mark.parametrize(
    ("condition", "node"),
    [
        (("title", "is not", "Jaws"), {"not": {"field": "title", "in": ["Jaws"]}}),
        (("year", "is", "1975"), {"field": "year", "in": [1975]}),
        (("year", "≤", "1975.5"), {"field": "year", "lte": 1975.5}),
        (("genres", "has a value", ""), {"field": "genres", "exists": True}),
        (("title", "is", "no such title"), {"field": "title", "in": ["no such title"]}),
    ],
)
def test_each_condition_is_the_filter_that_it_says(open_rules, service_url, condition, node):
    """Each sign makes its node, of a number or a string as the field is; where nothing is left, the page says so."""
    field, sign, value = condition
    page = open_rules(service_url)
    choice(page, "Field").select_option(field)
    choice(page, "Condition").select_option(sign)
    if value:
        page.locator(VALUE).fill(value)
    page.get_by_role("button", name="Add", exact=True).click()
    expect(page.locator(".chips li")).to_have_text(re.compile(re.escape(" ".join(condition).strip())))
    expect(page.locator(".refine summary")).to_contain_text(re.compile(r"\d+ allowed"))
    assert read_question(page)["filter"] == {"all": [node]}
    nothing = page.get_by_text("No item is left: take a condition away.")
    expect(nothing).to_have_count(1 if value == "no such title" else 0)


def test_rules_outlive_the_view(open_rules, service_url):
    """Who comes back from another view finds the list as it was ruled."""
    page = open_rules(service_url)
    choice(page, "Field").select_option("genres")
    page.locator(VALUE).fill("Drama")
    page.get_by_role("button", name="Add", exact=True).click()
    expect(page.locator(".refine summary")).to_contain_text("allowed")
    page.get_by_role("link", name="Compare").click()
    expect(page.locator(".column")).to_have_count(3)
    page.get_by_role("link", name="Try", exact=True).click()
    expect(page.locator(".refine summary")).to_contain_text(f"genres is Drama · {len(DRAMAS)} allowed")


def test_at_most_so_many_of_each(open_rules, service_url):
    """The list holds no more of any value, and its curl says so."""
    page = open_rules(service_url)
    page.get_by_label("At most").fill("1")
    choice(page, "of each").select_option("year")
    expect(page.locator(".refine summary")).to_have_text("Filter and rules: at most 1 of each year")
    assert len(read_titles(page)) == 10
    choice(page, "of each").select_option("genres")
    expect(page.locator(".refine summary")).to_have_text("Filter and rules: at most 1 of each genres")
    assert len(read_titles(page) & DRAMAS) == 1
    assert read_question(page)["max_per"] == {"field": "genres", "count": 1}


def test_diversity(open_rules, url):
    """The slider moves by keyboard, and the list is asked for anew."""
    page = open_rules(url)
    slider = page.get_by_role("slider", name="Diversity")
    slider.focus()
    for _ in range(7):
        page.keyboard.press("ArrowRight")
    expect(page.locator(".refine summary")).to_have_text("Filter and rules: diversity 0.7")
    assert slider.get_attribute("aria-valuetext") == "0.7"
    assert len(read_titles(page)) == 10
    assert read_question(page)["diversity"] == 0.7
    expect(page.get_by_role("alert")).to_have_count(0)


def test_diversity_that_a_bundle_lacks(open_rules, service_url):
    """A bundle without rows of items says what it wants; the list stays, and no error does."""
    page = open_rules(service_url, expected=("422",))
    slider = page.get_by_role("slider", name="Diversity")
    slider.focus()
    page.keyboard.press("ArrowRight")
    expect(page.get_by_text("--similar")).to_be_visible()
    expect(slider).to_be_disabled()
    expect(page.get_by_role("alert")).to_have_count(0)
    assert len(read_titles(page)) == 10
    assert "diversity" not in read_question(page)
    expect(page.locator(".refine summary")).to_have_text("Filter and rules")
