"""What a filter reads of changed items: row for row what it says of their metadata, whatever came before."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model.contract.allowed import Allowed
from service.filters import changed_columns
from service.filters.changed_columns import ChangedColumns, Seen
from service.filters.parser import parse_filter
from tests.serving.filters.plain import matches

ITEMS = 5
KINDS = {"genres": False, "price": True}
cells = st.sampled_from(
    [None, "", "Drama", "War", ["Drama", "War"], 3, 4.5, [3, 9], ["Drama", 3], True, {"a": 1}, [[3]]]
)
described = st.fixed_dictionaries({}, optional={"genres": cells, "price": cells, "other": cells})
changes = st.lists(st.lists(st.tuples(st.integers(1, ITEMS), described), max_size=4), max_size=8)
conditions = st.sampled_from(
    [
        {"field": "genres", "in": ["Drama"]},
        {"field": "genres", "in": ["War", True, "nothing"]},
        {"field": "genres", "exists": True},
        {"field": "price", "in": [3, 7]},
        {"field": "price", "gte": 3, "lt": 9},
        {"field": "price", "gt": 3},
        {"field": "price", "exists": False},
    ]
)
documents = (
    conditions
    | conditions.map(lambda part: {"not": part})
    | st.lists(conditions, min_size=1, max_size=3).map(lambda parts: {"all": parts})
    | st.lists(conditions, min_size=1, max_size=3).map(lambda parts: {"any": parts})
)


@pytest.mark.parametrize("spare", [0, 2, 100])
@settings(max_examples=150, deadline=None)
@given(batches=changes, document=documents, looks=st.sets(st.integers(0, 8)))
def test_rows_and_metadata_agree(spare, batches, document, looks):
    """After each batch that is looked at, and in what was looked at before: old rows are given up in between."""
    wanted = parse_filter(document)
    columns, seen = ChangedColumns(KINDS, item_count=ITEMS), Seen()
    now: dict[int, dict[str, Any]] = {}
    allowed = Allowed(np.zeros(ITEMS + 2, dtype=bool))
    held = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(changed_columns, "SPARE_ROWS", spare)
        for number, batch in enumerate([*batches, []]):
            columns.extend(batch)
            now |= dict(batch)
            assert columns.items.tolist() == sorted(now)
            assert [columns.has(index) for index in range(ITEMS + 2)] == [index in now for index in range(ITEMS + 2)]
            if number in looks or number == len(batches):
                found = columns.since(seen, wanted.fields)
                assert not found.item_count or wanted.estimate_work(found) > 0
                held.append((found, allowed, allowed := wanted.allow_anew(allowed, found)))
                seen = columns.end
                expected = [index in now and matches(document, now[index]) for index in range(1, ITEMS + 1)]
                assert allowed.mask[1:-1].tolist() == expected
    for found, before, after in held:
        assert wanted.allow_anew(before, found).mask.tolist() == after.mask.tolist()


def test_rows_that_count_no_more_are_given_up(monkeypatch):
    """However often an item changes, and however many values it has had."""
    monkeypatch.setattr(changed_columns, "SPARE_ROWS", 10)
    columns = ChangedColumns(KINDS, item_count=ITEMS)
    for number in range(100):
        columns.extend([(2, {"genres": f"genre-{number}", "price": number})])
        assert columns.end.rows <= 12
    found = columns.since(Seen(), KINDS)
    assert found.item_count == columns.end.rows
    assert len(found.columns["genres"].codes) == columns.end.rows
    last = parse_filter({"all": [{"field": "genres", "in": ["genre-99"]}, {"field": "price", "in": [99]}]})
    assert last.allow_anew(Allowed(np.zeros(ITEMS + 2, dtype=bool)), found).indexes.tolist() == [2]


def test_who_has_seen_all_finds_nothing_new():
    """And after one more change that one alone."""
    columns = ChangedColumns(KINDS, item_count=ITEMS)
    columns.extend([(1, {"price": 1}), (2, {"price": 2})])
    seen = columns.end
    assert columns.since(seen, KINDS).item_count == 0
    columns.extend([(3, {})])
    assert columns.since(seen, KINDS).indexes.tolist() == [3]
    assert columns.since(Seen(), KINDS).indexes.tolist() == [1, 2, 3]
