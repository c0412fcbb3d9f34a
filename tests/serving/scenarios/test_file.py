"""The scenarios file: what it may say, what is refused by a sentence that names it, and the digest of what it says."""

import re

import pytest

from service.errors import ScenariosUnusable
from service.scenarios.file import FIELDS, MAX_BYTES, MAX_SCENARIOS, read_scenarios

WHOLE = """
[home]
k = 20
exclude_seen = false
exclude_item_ids = ["i01"]
candidate_item_ids = ["i02", "i03"]
filter = {all = [{field = "year", gte = 1990, lt = 2e3}, {not = {field = "genres", in = ["War"]}}]}
diversity = 0.5
max_per = {field = "genres", count = 2}
return_metadata = ["title"]
explain = true
timeout_ms = 200

[[home.boosts]]
filter = {field = "new", in = [true]}
add = 1

[[home.boosts]]
filter = {field = "year", exists = false}
add = -0.5

[[home.pins]]
item_id = "i03"
rank = 2

["shop.window-2_b"]
"""


@pytest.fixture
def write(tmp_path):
    """A function: a file with this text."""

    def make(text, name="scenarios.toml"):
        file = tmp_path / name
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        return file

    return make


def test_every_field_is_read(write):
    """As JSON would have it; a scenario may be empty, and so may the file."""
    scenarios = read_scenarios(write(WHOLE))
    assert [*scenarios] == ["home", "shop.window-2_b"]
    assert {*scenarios["home"].fields} == {*FIELDS}
    assert scenarios["home"].fields["pins"] == [{"item_id": "i03", "rank": 2}]
    assert scenarios["shop.window-2_b"].fields == {}
    assert read_scenarios(write("# none yet")) == {}


def test_a_digest_is_of_what_is_said(write):
    """Whatever the order and the spelling; another value is another digest."""

    def digest(text):
        return read_scenarios(write(text))["home"].rules

    first = digest('[home]\nk = 3\nmax_per = {field = "genres", count = 2}\n')
    assert re.fullmatch("[0-9a-f]{8}", first)
    assert digest('[home]\nmax_per.count = 2\nmax_per.field = "genres"\nk = 0x3 # three\n[other]\n') == first
    assert digest('[home]\nk = 4\nmax_per = {field = "genres", count = 2}\n') != first


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[home", "is not TOML"),
        (b"[home]\nk = \xff", "is not TOML"),
        ("a = " + "[" * 20_000, "is not TOML"),
        ("#" * (MAX_BYTES + 1), "is larger than"),
        ("\n".join(f"[s{number}]" for number in range(MAX_SCENARIOS + 1)), "more than 64 scenarios"),
        ("home = 1", "home must be a table, [home]"),
        ("[[home]]\nk = 3", "home must be a table, [home]"),
        ('["ho me"]', "a scenario's name is"),
        ('[""]', "a scenario's name is"),
        (f"[{'a' * 65}]", "a scenario's name is"),
        ("[home]\nuser_id = 'ada'", "home has 'user_id'; a scenario may have k, exclude_seen"),
        ("[home]\nranker = 'popular'", "home has 'ranker'"),
        ("[home]\nvariant = 'candidate'", "home has 'variant'"),
        ("[home]\nscenario = 'home'", "home has 'scenario'"),
        ("[home]\nk = 0", "home: /k must be at least 1 (range)"),
        ("[home]\nk = 1979-05-27", "home: /k must be an integer (int_type)"),
        ("[home]\nk = 100000000000000000000", "home holds what JSON cannot"),
        ("[home]\ndiversity = nan", "home: /diversity must be a number (float_type)"),
        ("[home]\nk = 3\npins = [{item_id = 'i01', rank = 4}]", "home: /pins ranks must be at most k (range)"),
        ("[home]\nboosts = [{filter = {field = 'a', gt = 1}, add = 11}]", "home: /boosts/0/add must be at most 10"),
        ("[home]\nboosts = [{filter = {any = []}, add = 1}]", "home: /boosts/0/filter/any must have at least 1"),
        ("[fine]\nk = 3\n[home]\nfilter = {field = 'a'}", "home: /filter"),
    ],
)
def test_what_cannot_be_used_is_named(write, text, said):
    """By file, scenario and place, in one sentence."""
    file = write(text)
    with pytest.raises(ScenariosUnusable) as refused:
        read_scenarios(file)
    assert str(refused.value).startswith(str(file))
    assert said in str(refused.value)


def test_what_is_no_file_is_refused_at_once(tmp_path):
    """Nothing there, or a folder."""
    with pytest.raises(ScenariosUnusable, match="cannot be read: No such file"):
        read_scenarios(tmp_path / "nothing")
    with pytest.raises(ScenariosUnusable, match="cannot be read"):
        read_scenarios(tmp_path)
