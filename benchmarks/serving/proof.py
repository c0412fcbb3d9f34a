"""Check that a system answers as the plain export does, for many users, before anything is timed."""

import json
from collections.abc import Mapping, Sequence

import numpy as np

from benchmarks.harness.closed_loop import ask_once, judge_http
from benchmarks.serving.roster import K, System
from benchmarks.serving.servers import Server
from benchmarks.serving.systems.plain import PlainModel

TOLERANCE = 1e-4
"""Items whose scores differ by less may change places: graphs add up in different orders."""


class AnswersDiffer(Exception):
    """A system answers otherwise than the plain export."""


def prove(system: System, server: Server, model: PlainModel, histories: Mapping[str, list[str]]) -> None:
    """Ask about every user. Raises AnswersDiffer when the best items are others, or their order."""
    if system.read is None:
        return
    for user_id, items in histories.items():
        good, answer = ask_once(server.connect, system.encode(user_id, items), judge_http(system.mark))
        content = answer.partition(b"\r\n\r\n")[2]
        if not good:
            raise AnswersDiffer(f"{system.name}: {user_id} was answered {content[:200].decode(errors='replace')!r}")
        if (apart := measure_distance(model, items, system.read(json.loads(content)))) > TOLERANCE:
            raise AnswersDiffer(f"{system.name}: the scores of what {user_id} was answered are {apart:.1e} off")


def measure_distance(model: PlainModel, items: Sequence[str], answered: Sequence[str]) -> float:
    """How far the scores of what was answered lie from the best ones, place by place; infinite for other mistakes."""
    scores, indexes = model.score([items])
    if len(set(answered)) != K or not indexes.keys() >= set(answered):
        return float("inf")
    best = -np.sort(np.partition(-scores[0], K)[:K])
    return float(np.abs(scores[0][[indexes[item_id] for item_id in answered]] - best).max())
