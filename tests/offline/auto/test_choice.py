"""What is chosen for which log, and what is said about it."""

from dataclasses import replace

import pytest

from training.auto.choice import COUNTERS, RECENT_DAYS, choose, choose_epochs, choose_split, describe_log_shortly
from training.auto.traits import Traits
from training.errors import DataError
from training.recipe import make_recipe

TRAITS = Traits(
    name="shop.csv",
    users=40_000,
    items=3_000,
    events=1_000_000,
    shortest=1,
    median_length=12.0,
    ninetieth_length=60,
    longest=900,
    repeated_share=0.0,
    first_day="2026-01-01",
    last_day="2026-06-30",
    asked_by_time=9_000,
    asked_last=38_000,
    event_types={},
    item_columns=(),
)


def test_time_decides_where_enough_users_can_be_asked():
    """Otherwise the last event of each user does, and the sentence says why."""
    assert choose_split(TRAITS, None)[0] == "time"
    few = replace(TRAITS, asked_by_time=87)
    assert choose_split(few, None) == (
        "leave-one-out",
        "Tested on the last event of each of 38,000 users, since by time only 87 users could be asked.",
    )
    assert "has no times" in choose_split(replace(few, last_day=None), None)[1]
    assert choose_split(few, "time") == ("time", "Tested by data.split = time, as you say.")
    with pytest.raises(DataError, match="no user with three events"):
        choose_split(replace(few, asked_last=0), None)


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, {"model.max_length": 51, "model.rules_per_item": 200, "train.loss": "softmax", "train.batch_size": 128}),
        ({"items": 120_000}, {"train.loss": "sampled_softmax", "train.negatives": 1024, "model.rules_per_item": 200}),
        ({"items": 20_000}, {"train.loss": "sampled_softmax", "train.negatives": 512}),
        ({"events": 50_000, "ninetieth_length": 4}, {"model.max_length": 11, "train.batch_size": 32}),
        ({"median_length": 2.0}, {"model.dropout": 0.3}),
        ({"items": 12}, {"model.rules_per_item": 12}),
    ],
)
def test_sizes_follow_the_log(changed, expected):
    """Windows as long as most histories, a drawn loss for many items, small batches for small logs."""
    recipe = make_recipe(choose(replace(TRAITS, **changed), "time", "", ()).recipe).to_dict()
    found = {key: recipe[key.partition(".")[0]][key.partition(".")[2]] for key in expected}
    assert found == expected


def test_only_so_many_users_are_held_out():
    """Where twice as many could be: on a smaller log `held_out_users` would mean all."""
    assert choose(TRAITS, "leave-one-out", "", ()).recipe["data"]["held_out_users"] == 2048
    small = replace(TRAITS, asked_last=1_090)
    assert choose(small, "leave-one-out", "", ()).recipe["data"] == {"split": "leave-one-out"}


def test_counters_that_want_times_need_times():
    """Without times recent-pop is not among them."""
    assert choose(TRAITS, "time", "", ()).counters == COUNTERS
    assert choose(TRAITS, "time", "", ()).recipe["model"]["recent_days"] == RECENT_DAYS
    assert "recent_days" not in choose(TRAITS, "leave-one-out", "", ()).recipe["model"]
    assert "recent-pop" not in choose(replace(TRAITS, last_day=None), "leave-one-out", "", ()).counters


def test_another_model_has_its_own_keys():
    """With model.name set, nothing that only sasrec knows is chosen."""
    document = choose(TRAITS, "time", "", {"model.name"}).recipe
    assert make_recipe(document, ["model.name=gru4rec"]).model.name == "gru4rec"


def test_small_logs_have_more_epochs():
    """As an epoch of theirs has fewer steps."""
    assert [choose_epochs(events) for events in (1_000, 100_000, 1_000_000, 20_000_000)] == [100, 95, 30, 10]


def test_the_log_is_described():
    """Repeats, types of events and what is known of items are mentioned where there are any."""
    assert "repeat" not in describe_log_shortly(TRAITS)
    text = describe_log_shortly(
        replace(TRAITS, repeated_share=0.31, event_types={"view": 9, "buy": 1}, item_columns=("title", "genres"))
    )
    for part in ("31% of the events repeat", "(view, buy) all train", "(title, genres)", "1,000,000 events"):
        assert part in text
