"""The page: what a run holds and what was collected of its log, made ready for page.html, which escapes every text."""

import base64
import unicodedata
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from training.data.item_features import Metadata, find_title
from training.evaluation.metrics import LIST_LENGTH, PRIMARY_METRIC
from training.evaluation.protocol import PROTOCOLS
from training.evaluation.results import SHOWN, find_weakness, format_interval, format_verdict, note_treatment
from training.recipe_models import NetworkRecipe, TransformerRecipe
from training.report.charts import draw_bars, draw_intervals, draw_lines
from training.runs.run import Run

Document = dict[str, Any]

_LOG = "the log"
_GREY = 8
"""The last of the classes s0 to s8 of page.css."""
_LONGEST = 120
"""Letters of a name: beyond them nobody reads on."""
GIVE_DATA = "Give the run's log: nextitem-train report RUN --data FILE."


def render_page(run: Run, facts: Document, metadata: Metadata | None) -> str:
    """The page as HTML. `facts` are what `collect` gives, or nothing where there was no log to read."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_clean,
    )
    results = run.read_results() if run.is_finished else None
    epochs = run.read_epochs()
    names, colours = _Names(metadata or {}), _choose_colours(run, results, facts)
    return environment.get_template("page.html").render(
        name=run.path.resolve().name,
        model=run.recipe.name,
        made_at=f"{datetime.now(tz=UTC):%Y-%m-%d %H:%M} UTC",
        file=str(run.config["data"].get("file", "its log")),
        missing=_list_missing(run, facts),
        numbers=_count_data(run, facts.get("data")),
        data=_show_data(facts.get("data")),
        course=_show_course(run, epochs, results, facts.get("levels"), colours),
        verdict=_show_verdict(results, colours) if results else None,
        spread=_show_spread(facts.get("spread"), run.recipe.name, colours),
        colours=colours,
        attention=_show_attention(run),
        examples=[_show_example(example, names) for example in facts.get("examples", ())],
        parameters=facts.get("parameters"),
        tables=_list_keys(run),
        k=LIST_LENGTH,
    )


def _choose_colours(run: Run, results: Document | None, facts: Document) -> dict[str, int]:
    """One colour for each model on the whole page, the run's own first; the log is grey."""
    names = [run.recipe.name, run.recipe.model.name, *(results["models"] if results else ())]
    for part in ("levels", "spread"):
        names += (facts.get(part) or {}).get("models", ())
    return {**{name: place % _GREY for place, name in enumerate(dict.fromkeys(names))}, _LOG: _GREY}


class _Names:
    """What people call items: the title that an items file gives, or else the id."""

    def __init__(self, metadata: Metadata) -> None:
        self._metadata = metadata

    def show(self, item_id: str) -> Document:
        title = find_title(self._metadata.get(item_id, {}))
        return {"id": shorten(item_id), "name": shorten(title or item_id), "titled": title is not None}


def shorten(text: str) -> str:
    """A text of at most so many letters."""
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def _clean(value: object) -> object:
    """A text without control characters and halves of surrogate pairs, before it is escaped."""
    if type(value) is not str:  # what is Markup is ours
        return value
    return "".join("\ufffd" if unicodedata.category(letter) in {"Cc", "Cs"} else letter for letter in value)


def _list_missing(run: Run, facts: Document) -> list[str]:
    missing = []
    if not run.is_finished:
        missing.append(
            "The run is not finished: it has no test and no verdict. Continue it with nextitem-train fit ... --resume."
        )
    if "data" not in facts:
        missing.append(f"The pictures of the data, the lists and the users' examples are of the log. {GIVE_DATA}")
    elif "unranked" in facts:
        missing.append(f"There are no lists and no examples: {facts['unranked']}.")
    return missing


def _count_data(run: Run, data: Document | None) -> list[tuple[str, str]]:
    """What is told of the log in numbers: by the run alone, and more where the log was read."""
    known = run.config["data"]
    numbers = [(key, f"{known[key]:,}") for key in ("users", "items", "events") if key in known]
    if data is None:
        return numbers
    numbers += [
        ("events a user", f"{data['average_length']:,.1f}"),
        ("median of a user", f"{data['median_length']:,g}"),
        ("density", f"{data['density']:.2%}"),
        ("repeat an item of the same user", f"{data['repeated_share']:.1%}"),
    ]
    if data["tied_share"] is not None:
        numbers.append(("share their time with another of the same user", f"{data['tied_share']:.1%}"))
    return [
        *numbers,
        ("events that train", f"{data['training_events']:,}"),
        ("users that validate", f"{data['validation_users']:,}"),
        ("users that test", f"{data['test_users']:,}"),
    ]


def _show_data(data: Document | None) -> Document | None:
    if data is None:
        return None
    lengths, times = data["lengths"], data["times"]
    shown = {
        **data,
        "lengths": draw_bars(
            lengths["labels"], lengths["users"], label="Users by the length of their history", x="events", y="users"
        ),
        "times": None,
    }
    if times:
        bars = times["events"]
        width_ms = (times["until_ms"] - times["from_ms"]) / len(bars)
        days = [_tell_day(times["from_ms"] + place * width_ms) for place in range(len(bars))]
        shown["times"] = draw_bars(days, bars, label="Events by time", x="from this day on", y="events")
    return shown


def _tell_day(time_ms: float) -> str:
    return f"{datetime.fromtimestamp(time_ms / 1000, tz=UTC):%Y-%m-%d}"


def _show_course(
    run: Run, epochs: list[Document], results: Document | None, levels: Document | None, colours: Mapping[str, int]
) -> Document | None:
    """How a network learned; None for what counts."""
    if not isinstance(run.recipe.model, NetworkRecipe):
        return None
    shown: Document = {"epochs": len(epochs), "results": results, "levels": levels, "loss": None, "validation": None}
    shown["lines"] = [run.recipe.model.name, *(levels["models"] if levels else ())]
    if epochs:
        shown["seconds"] = sum(line["seconds"] for line in epochs)
        shown["best"] = max(epochs, key=lambda line: float(line["validation"][PRIMARY_METRIC]))
        shown["loss"] = draw_lines(
            {"loss": [(line["epoch"], line["loss"]) for line in epochs]},
            colours={"loss": _GREY},
            label="Training loss by epoch",
            x="epoch",
            y="loss, nats",
            from_zero=False,
        )
        shown["validation"] = draw_lines(
            {run.recipe.model.name: [(line["epoch"], line["validation"][PRIMARY_METRIC]) for line in epochs]},
            colours=colours,
            label=f"Validation {PRIMARY_METRIC} by epoch, beside simple counters",
            x="epoch",
            y=PRIMARY_METRIC,
            levels=levels["models"] if levels else None,
        )
    return shown


def _show_verdict(results: Document, colours: Mapping[str, int]) -> Document:
    models = sorted(results["models"].items(), key=lambda entry: float(entry[1][PRIMARY_METRIC]["value"]), reverse=True)
    columns = [f"popularity@{LIST_LENGTH}", f"coverage@{LIST_LENGTH}"]
    treatment = note_treatment(results)
    return {
        "sentence": format_verdict(results["comparison"], results["users"]) if "comparison" in results else None,
        "weakness": find_weakness(results),
        "protocol": PROTOCOLS[results["protocol"]].summary + (f", but {treatment}" if treatment else ""),
        "users": results["users"],
        "measured": results.get("measured"),
        "repeated": results.get("targets", {}).get("share"),
        "shown": SHOWN,
        "rows": [
            {
                "model": name,
                "cells": [format_interval(metrics[metric]) for metric in SHOWN],
                "lists": [f"{metrics[key]['value']:.3f}" if key in metrics else "" for key in columns],
            }
            for name, metrics in models
        ],
        "picture": draw_intervals(
            {name: metrics[PRIMARY_METRIC] for name, metrics in models},
            colours=colours,
            label=f"{PRIMARY_METRIC} of each model with its 95 % interval",
            x=f"{PRIMARY_METRIC}, 95 % interval",
        ),
    }


def _show_spread(spread: Document | None, own: str, colours: Mapping[str, int]) -> Document | None:
    if spread is None:
        return None
    V = spread["catalogue"]
    rows = {_LOG: spread["log"], own: spread["models"][own], **spread["models"]}
    return {
        **spread,
        "rows": rows,
        "picture": draw_lines(
            {
                name: [(100 * rank / V, 100 * share) for rank, share in zip(spread["items"], row["curve"], strict=True)]
                for name, row in rows.items()
            },
            colours=colours,
            label="Share of all recommendations that the most recommended items have, beside the log's",
            x="most frequent items, % of the catalogue",
            y="% of all",
            log=True,
        ),
    }


def _show_attention(run: Run) -> Markup | None:
    """The picture that `fit` left, as an address that holds it; None for what has none, or none of this training."""
    if not isinstance(run.recipe.model, TransformerRecipe) or not run.is_finished or not run.attention.is_file():
        return None
    return Markup("data:image/png;base64,{}").format(base64.b64encode(run.attention.read_bytes()).decode())


def _show_example(example: Document, names: _Names) -> Document:
    return {
        "user": shorten(example["user"]),
        "events": example["events"],
        "history": [names.show(item_id) for item_id in example["history"]],
        "list": [{**names.show(item_id), "hit": item_id == example["next"]} for item_id in example["list"]],
        "next": names.show(example["next"]) if example["next"] is not None else None,
        "place": example["place"],
    }


def _list_keys(run: Run) -> dict[str, list[tuple[str, object, bool]]]:
    """Each section of the recipe, and the environment: keys, values, and whether somebody chose them."""
    chosen = run.recipe.list_choices()
    tables = {
        f"[{section}]": [(key, value, key in chosen[section]) for key, value in keys.items()]
        for section, keys in run.recipe.to_dict().items()
    }
    known = dict(run.config.get("environment", {}))
    packages = known.pop("packages", {})
    found = {
        **known,
        **packages,
        "log": run.config["data"]["fingerprint"],
        "published as": ", ".join(run.read_versions()) or "not yet",
    }
    tables["environment"] = [(key, value, False) for key, value in found.items()]
    return tables
