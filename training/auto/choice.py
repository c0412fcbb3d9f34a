"""What `fit` without a recipe chooses for a log, and why in plain words. Where the numbers come from: decision 0034."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from training.auto.traits import Traits
from training.baselines.rules import MOST_RULES
from training.errors import DataError

COUNTERS = ("pop", "recent-pop", "markov", "rules", "item-knn", "session-knn")
"""The cheap models that stand beside the network, the cheapest to ask first."""
LEAST_QUESTIONS = 300
"""Fewer users that a split by time could ask tell too little: the last event of every user asks more."""
HELD_OUT_USERS = 2048
"""Of twice as many users no more validate: the others' event before the last trains, too."""
WHOLE_SOFTMAX = 10_000
"""Up to so many items all of them are the loss's negatives; of more, a draw, since V products a place cost too much."""
LARGE_LOG = 300_000
"""Events from which on batches are larger and the learning rate is higher."""
RECENT_DAYS = 7.0
"""What was popular in so many days before the question is counted beside the network, where the log has times."""
_LONGEST_WINDOW, _RULES = 50, 200

Document = dict[str, dict[str, Any]]


@dataclass(frozen=True, kw_only=True)
class Choice:
    """What was chosen: a recipe's sections, the counters, and the sentences that say why."""

    recipe: Document
    counters: tuple[str, ...]
    tested_on: str
    trained: str
    beside: str


def choose_split(traits: Traits, wanted: str | None) -> tuple[str, str]:
    """The split that decides, and why; `wanted` is what the user asked for. Raises DataError where there is none."""
    if wanted is not None:
        return wanted, f"Tested by data.split = {wanted}, as you say."
    if traits.asked_by_time >= LEAST_QUESTIONS:
        return "time", (
            f"Tested by time, as a service meets its users: what {traits.asked_by_time:,} users did next after one "
            "moment; everything before it trains."
        )
    if not traits.asked_last:
        raise DataError(
            f"{traits.name} has no user with three events, so nothing that is trained on it could be tested: "
            "collect more events"
        )
    if traits.last_day is None:
        why = "the log has no times"
    else:
        why = f"by time only {traits.asked_by_time:,} users could be asked"
    return "leave-one-out", f"Tested on the last event of each of {traits.asked_last:,} users, since {why}."


def choose(traits: Traits, split: str, tested_on: str, named: Collection[str]) -> Choice:
    """Choose for a log that is split so. `named` are the keys that the user sets himself, which go over all this."""
    window = 1 + min(_LONGEST_WINDOW, max(10, traits.ninetieth_length))
    large = traits.events >= LARGE_LOG
    model: dict[str, Any] = {
        "name": "sasrec",
        "max_length": window,
        "width": 64,
        "layers": 2,
        "heads": 2,
        "dropout": 0.2 if traits.median_length >= 10 else 0.3,
        "rules_per_item": min(_RULES, traits.items, MOST_RULES // (traits.items + 2)),
    }
    if split == "time":
        model["recent_days"] = RECENT_DAYS
    train: dict[str, Any] = {
        "item_init": "ppmi",
        "epochs": choose_epochs(traits.events),
        "batch_size": 128 if large else 32,
        "learning_rate": 2e-3 if large else 1e-3,
        "warmup_steps": 100,
        "weight_decay": 0.0,
    }
    train["patience"] = max(3, train["epochs"] // 5)
    if traits.items > WHOLE_SOFTMAX:
        train |= {"loss": "sampled_softmax", "negatives": 1024 if traits.items > 10 * WHOLE_SOFTMAX else 512}
    data: dict[str, Any] = {"split": split}
    if split == "leave-one-out" and traits.asked_last >= 2 * HELD_OUT_USERS:
        data["held_out_users"] = HELD_OUT_USERS
    if "model.name" in named:  # another model has other keys: its own defaults, and what the log says of its size
        model = {"max_length": window}
    counters = tuple(name for name in COUNTERS if name != "recent-pop" or traits.last_day is not None)
    return Choice(
        recipe={"data": data, "model": model, "train": train},
        counters=counters,
        tested_on=tested_on,
        trained=describe_network(traits, model, train),
        beside=f"Beside it, counted in seconds: {', '.join(counters)}. Whichever wins can be published.",
    )


def choose_epochs(events: int) -> int:
    """So many at most: 30 for a million events, more where an epoch has few steps, fewer where it has many."""
    return int(min(100, max(10, round(30 * (1_000_000 / max(events, 1)) ** 0.5))))


def describe_network(traits: Traits, model: dict[str, Any], train: dict[str, Any]) -> str:
    """Which network, in a sentence."""
    if "name" not in model:
        return "Trained: the model that you name, on windows as long as nine of ten histories."
    recent = f" and what was popular in the last {model['recent_days']:g} days" if "recent_days" in model else ""
    loss = "all items" if "negatives" not in train else f"{train['negatives']:,} drawn of {traits.items:,} items"
    return (
        f"Trained: sasrec over the newest {model['max_length'] - 1} items of a history, begun with which items occur "
        f"together, its loss over {loss}; then mixed with sequential rules{recent} as validation says."
    )


def describe_log_shortly(traits: Traits) -> str:
    """The log in a sentence or two."""
    days = "no times" if traits.last_day is None else f"{traits.first_day} to {traits.last_day}"
    words = [
        f"{traits.name}: {traits.events:,} events of {traits.users:,} users and {traits.items:,} items, {days}; "
        f"{traits.shortest:,} to {traits.longest:,} events a user, half of the users at most {traits.median_length:g}."
    ]
    if traits.repeated_share >= 0.01:
        words.append(
            f"{traits.repeated_share:.0%} of the events repeat an item of the same user: lists leave out "
            "what was seen, so that such a next event counts as missed."
        )
    if len(traits.event_types) > 1:
        kinds = ", ".join(list(traits.event_types)[:5])
        words.append(f"Its types of events ({kinds}) all train; --set 'data.event_types=[\"...\"]' keeps some.")
    if traits.item_columns:
        columns = ", ".join(traits.item_columns[:5])
        words.append(
            f"What is known of items ({columns}) is for answers and filters; to train on it gained little on most logs "
            "(recipe nova)."
        )
    return " ".join(words)
