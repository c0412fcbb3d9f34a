"""Does the transformer beat the best baseline on this log? One sentence, paired over the same users.

Rules may be added to a transformer and to no baseline: where the best one has them, the sentence says so.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from training.benchmark.cells import HYBRID, TRANSFORMERS, Cell, Document, name_kind
from training.errors import InputError
from training.evaluation.metrics import PRIMARY_METRIC
from training.evaluation.protocol import SEED
from training.evaluation.results import describe_values, format_interval, is_beyond_chance
from training.json_files import write_json
from training.runs.documents import METRIC, parse

VERDICT = {"transformer": str, "baseline": str, "users": int, "lead": METRIC}


def judge(documents: Sequence[Document], *, out: Path, runs: Path) -> Document | None:
    """Write what the cells of one log and protocol say, seeds averaged user by user. Returns None where they cannot.

    They cannot without a transformer and a baseline, or when ranks by user are not there any more.
    """
    cells = [Cell.of(document, out=out, runs=runs) for document in documents]
    values: dict[str, list[NDArray[np.float64]]] = {}
    kinds = {cell.model: name_kind(cell.recipe) for cell in cells}
    for cell in cells:
        found = cell.read_values()
        if found is None:
            return None
        values.setdefault(cell.model, []).append(found[PRIMARY_METRIC])
    means = {model: np.mean(each, axis=0) for model, each in values.items()}
    ranking = sorted(means, key=lambda model: float(means[model].mean()), reverse=True)
    best = {kind: [model for model in ranking if (kinds[model] in TRANSFORMERS) is kind] for kind in (True, False)}
    if not (best[True] and best[False]):
        return None
    transformer, baseline = best[True][0], best[False][0]
    lead = describe_values({"lead": means[transformer] - means[baseline]}, SEED)["lead"]
    verdict = {
        "transformer": transformer,
        "baseline": baseline,
        "users": len(means[transformer]),
        "cells": _name_cells(documents),
        "lead": lead,
    }
    write_json(_find_verdict(cells[0].path.parent), verdict)
    return verdict


def read_verdict(documents: Sequence[Document], *, out: Path) -> Document | None:
    """What was said of the cells of one log and protocol, if it holds for these. Raises InputError."""
    path = _find_verdict(Cell.of(documents[0], out=out, runs=out).path.parent)
    if not path.is_file():
        return None
    try:
        verdict = dict(parse(path.read_text(), VERDICT))
    except (OSError, TypeError, ValueError) as error:
        raise InputError(f"{path} is not a valid verdict: {error}; delete it") from error
    return verdict if _holds(verdict, documents) else None


def _holds(verdict: Mapping[str, Any], documents: Sequence[Document]) -> bool:
    """Whether the two models are of the very cells that it was said of, and the best of their sides here, too."""
    two = (verdict["transformer"], verdict["baseline"])
    told = [name for name in verdict.get("cells", ()) if name.rpartition("-s")[0] in two]
    if sorted(told) != _name_cells([cell for cell in documents if cell["model"] in two]):
        return False
    values: dict[tuple[bool, str], list[float]] = {}
    for cell in documents:
        side = cell["kind"] in TRANSFORMERS
        values.setdefault((side, cell["model"]), []).append(cell["metrics"][PRIMARY_METRIC]["value"])
    best = sorted(values, key=lambda key: fmean(values[key]))
    return two == tuple(next(model for is_one, model in reversed(best) if is_one is side) for side in (True, False))


def format_verdict(data: str, protocol: str, verdict: Mapping[str, Any], kinds: Mapping[str, str]) -> str:
    """The sentence; `kinds` are those of the models by name."""
    counts = ", with counts in its score" if kinds.get(verdict["transformer"]) == HYBRID else ""
    lead = verdict["lead"]
    clear = is_beyond_chance(lead, verdict["users"])
    says = ("beats" if lead["low"] > 0 else "loses to") if clear else "is not told apart from"
    return (
        f"On {data} under {protocol} the best transformer, {verdict['transformer']}{counts}, {says} the best baseline, "
        f"{verdict['baseline']}: its {PRIMARY_METRIC} is {format_interval(lead, '+')} beside it (95 % over the same "
        f"{verdict['users']:,} users)."
    )


def _name_cells(documents: Sequence[Document]) -> list[str]:
    return sorted(f"{cell['model']}-s{cell['seed']} {cell['measured_at']}" for cell in documents)


def _find_verdict(folder: Path) -> Path:
    return folder / "verdict.json"
