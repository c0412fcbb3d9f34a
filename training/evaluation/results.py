"""Test metrics as JSON documents: a network and the baselines, with confidence intervals."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from training.evaluation.bootstrap import estimate_intervals
from training.evaluation.metrics import LIST_LENGTH, PRIMARY_METRIC
from training.evaluation.protocol import PROTOCOLS, EvaluationTask
from training.evaluation.ranking import Scores

SHOWN = ("HR@10", PRIMARY_METRIC, "MRR")
OVER_POPULARITY = "over_popularity"
"""The key of a model's lead over popularity, in results of a test that popularity was part of."""

EVALUATION = 2
"""Which evaluation results are of, as they name it: 1, of results that name none, kept repeated targets as candidates
while other seen items were removed, and counted a user's own history in the rules that answered him."""
BY_TIME = 3
"""The same of results under `time`, where until then nothing counted what came between training and test."""
LEAST_USERS = 6
"""Fewer prove nothing: when five users out of five agree, chance does as much once in sixteen (sign test, both sides),
and an interval that is resampled from one user has no width at all."""

Document = dict[str, Any]
Values = Mapping[str, NDArray[np.float64]]


def describe_values(values: Mapping[str, NDArray[np.float64]], seed: int) -> dict[str, dict[str, float]]:
    """Each metric's mean over users with its 95 % interval by bootstrap."""
    lows, highs = estimate_intervals(np.stack(list(values.values()), axis=1), seed)
    return {
        name: {"value": float(value.mean()), "low": float(low), "high": float(high)}
        for (name, value), low, high in zip(values.items(), lows, highs, strict=True)
    }


def describe_scores(scores: Scores, seed: int) -> dict[str, dict[str, float]]:
    """All metrics of one scorer. Coverage is of the lists that were made, no mean over users: it has no interval."""
    coverage = {"value": scores.coverage, "low": scores.coverage, "high": scores.coverage}
    return {**describe_values(scores.values, seed), f"coverage@{LIST_LENGTH}": coverage}


def describe_evaluation(scores: Scores, task: EvaluationTask) -> Document:
    """What `evaluate --json` prints; the seed is that of negatives and intervals."""
    return {
        **describe_task(task),
        "seed": task.seed,
        "metrics": describe_scores(scores, task.seed),
        "targets": describe_targets(task, {"metrics": scores.values}, {}),
    }


def describe_test(task: EvaluationTask, scores: Mapping[str, Scores], *, tested: str, popularity: str) -> Document:
    """What results of a test say of several models: `tested` is the one that was to be, `popularity` one beside it.

    `leads` are by how much the tested one's NDCG@10 is above each other's, over the same users.
    """
    with_popularity = popularity in scores and tested != popularity
    lead = measure_lead(scores[tested], scores[popularity], task.seed) if with_popularity else None
    return {
        **describe_task(task),
        "models": {name: describe_scores(found, task.seed) for name, found in scores.items()},
        "targets": describe_targets(task, {}, {name: found.values for name, found in scores.items()}),
        **({"comparison": compare_models(scores, task.seed)} if len(scores) > 1 else {}),
        **({OVER_POPULARITY: lead} if lead else {}),
        "leads": {
            name: measure_lead(scores[tested], found, task.seed) for name, found in scores.items() if name != tested
        },
    }


def describe_task(task: EvaluationTask) -> Document:
    """What was asked, and of whom."""
    return {
        "protocol": task.protocol.name,
        "evaluation": number_evaluation(task.protocol.name),
        "seen_items": task.protocol.seen_items,
        "repeated_targets": task.protocol.repeated_targets,
        "held_out_users": task.held_out_users,
        "users": len(task.questions),
    }


def number_evaluation(protocol: str) -> int:
    """Which evaluation today's results under a protocol are of."""
    return BY_TIME if PROTOCOLS[protocol].split == "time" else EVALUATION


def describe_targets(task: EvaluationTask, alone: Mapping[str, Values], by_model: Mapping[str, Values]) -> Document:
    """New and repeated targets apart: how many there are, and the metrics of each kind, None where there are none.

    Those of `alone` stand under its keys, those of `by_model` under "models". `share` is the repeated ones' of all
    that could have been asked.
    """
    repeated = task.questions.repeated
    found: Document = {"share": (int(repeated.sum()) + task.dropped) / max(1, len(repeated) + task.dropped)}
    for name, rows in (("new", ~repeated), ("repeated", repeated)):
        parts: Document = {key: _describe_part(values, rows, task.seed) for key, values in alone.items()}
        if by_model:
            parts["models"] = {model: _describe_part(values, rows, task.seed) for model, values in by_model.items()}
        found[name] = {"users": int(rows.sum()), **parts}
    return found


def _describe_part(values: Values, rows: NDArray[np.bool_], seed: int) -> dict[str, dict[str, float]] | None:
    return describe_values({name: value[rows] for name, value in values.items()}, seed) if rows.any() else None


def compare_models(scores: Mapping[str, Scores], seed: int) -> Document:
    """The winner by NDCG@10, its lead over the second, and the 95 % interval of the lead over the same users."""
    ranking = sorted(scores, key=lambda name: float(scores[name].values[PRIMARY_METRIC].mean()), reverse=True)
    lead = measure_lead(scores[ranking[0]], scores[ranking[1]], seed)
    return {"winner": ranking[0], "second": ranking[1], "metric": PRIMARY_METRIC, "lead": lead}


def measure_lead(first: Scores, second: Scores, seed: int) -> dict[str, float]:
    """By how much the first one's NDCG@10 is above the second's, with its 95 % interval over the same users."""
    return describe_values({"lead": first.values[PRIMARY_METRIC] - second.values[PRIMARY_METRIC]}, seed)["lead"]


def format_results(results: Mapping[str, Any], models: Mapping[str, Mapping[str, Mapping[str, float]]]) -> str:
    """A small table, a line a model, and new and repeated targets apart where there are both.

    `results` are what `describe_evaluation` gives, or results of `fit`, of today or older.
    """
    width = max(10, *(len(model) + 2 for model in models))
    lines = head_table(results["protocol"], results["users"], width, note_treatment(results))
    lines += [format_row(model, metrics, width) for model, metrics in models.items()]
    targets = results.get("targets")
    if targets and targets["share"]:
        lines += ["", _explain_targets(results)]
        for kind in ("new", "repeated"):
            part = targets[kind]
            apart = part.get("models") or dict.fromkeys(models, part.get("metrics"))
            lines += [f"{kind} targets, {part['users']} users"] if part["users"] else []
            lines += [format_row(model, metrics, width) for model, metrics in apart.items() if metrics]
    return "\n".join(lines)


def note_treatment(results: Mapping[str, Any]) -> str:
    """What these results do with seen items and repeated targets where that is not their protocol's own, else ""."""
    protocol = PROTOCOLS[results["protocol"]]
    keys = ("seen_items", "repeated_targets")
    other = [key for key in keys if key in results and results[key] != getattr(protocol, key)]
    return ", ".join(f"{key.replace('_', ' ')} {results[key]}" for key in other)


def _explain_targets(results: Mapping[str, Any]) -> str:
    share, treatment = results["targets"]["share"], results["repeated_targets"]
    what = {
        "kept": "kept as candidates",
        "missed": "missed by every model, since seen items are removed",
        "dropped": "not asked",
    }
    return f"{share:.1%} of the targets are items that their user had met before: {what[treatment]}"


def format_weights(results: Mapping[str, Any]) -> list[str]:
    """A sentence about the weight of each thing that was counted beside the network."""
    return [
        f"{name} weight {results[key][weight]:g}: validation {PRIMARY_METRIC} "
        f"{max(results[key][PRIMARY_METRIC].values()):.4f}, {results[key][PRIMARY_METRIC]['0']:.4f} without {key}."
        for name, key, weight in (("Rule", "rules", "strength"), ("Recency", "recency", "weight"))
        if key in results
    ]


def head_table(protocol: str, users: int, width: int, but: str = "") -> list[str]:
    """The head of a table: protocol, what else is done than it says, column names. `width`: of the first column."""
    but = f", but {but}" if but else ""
    return [
        f"{protocol}: {PROTOCOLS[protocol].summary}{but}; {users} users, 95 % intervals",
        " " * width + "".join(f"{name:>28}" for name in SHOWN),
    ]


def format_row(name: str, metrics: Mapping[str, Mapping[str, float]], width: int, *, sign: str = "") -> str:
    """A line of that table, with `sign` "+" for differences."""
    return f"{name:<{width}}" + "".join(f"{format_interval(metrics[metric], sign):>28}" for metric in SHOWN)


def format_interval(metric: Mapping[str, float], sign: str = "") -> str:
    """A value with its interval."""
    value, low, high = (f"{metric[key]:{sign}.4f}" for key in ("value", "low", "high"))
    return f"{value} [{low}, {high}]"


def is_ahead(lead: Mapping[str, float], users: int) -> bool:
    """Whether a lead over so many users is more than chance can explain."""
    return lead["low"] > 0 and is_beyond_chance(lead, users)


def is_beyond_chance(difference: Mapping[str, float], users: int) -> bool:
    """Whether a difference over so many users, to either side, is more than chance can explain."""
    return users >= LEAST_USERS and (difference["low"] > 0 or difference["high"] < 0)


def format_verdict(comparison: Mapping[str, Any], users: int) -> str:
    """One sentence that names the winner, if there is one: a difference that chance can explain is no win."""
    winner, second, metric, lead = (comparison[key] for key in ("winner", "second", "metric", "lead"))
    if lead["low"] == lead["high"] == 0:
        return f"No winner: {winner} and {second} have the same {metric}."
    if users < LEAST_USERS:
        return f"No winner: {users} of the {LEAST_USERS} users that it takes at least were asked."
    if is_ahead(lead, users):
        return (
            f"{winner} wins: its {metric} is {format_interval(lead)} above that of {second} (95 % over the same users)."
        )
    return (
        f"No winner: the {metric} of {winner} is {format_interval(lead)} above that of {second} "
        "(95 % over the same users), which chance can explain."
    )


def find_weakness(results: Mapping[str, Any]) -> str | None:
    """A sentence when finished results say that the model does not beat popularity beyond chance, else None."""
    lead = results.get(OVER_POPULARITY)
    if lead is None or is_ahead(lead, results["users"]):
        return None
    if results["users"] < LEAST_USERS:
        return f"{results['users']} users were asked, of whom nobody can tell whether the model beats popularity"
    lead_text = format_interval(lead, "+")
    return (
        f"the model does not beat popularity beyond chance: its {PRIMARY_METRIC} is {lead_text} relative to the "
        "most popular items (95 % over the same users)"
    )
