"""Does a contestant answer as the plain export does? Asked about many users before anything is timed."""

import json
from collections.abc import Mapping, Sequence

import numpy as np

from benchmarks.serving.contestants.plain import PlainModel
from benchmarks.serving.field import Contestant, K
from benchmarks.serving.generator import ask_once, judge_http
from benchmarks.serving.servers import Server

TOLERANCE = 1e-4
"""Items whose scores differ by less may change places: graphs add up in different orders."""


class AnswersDiffer(Exception):
    """A contestant answers otherwise than the plain export."""


def prove(contestant: Contestant, server: Server, model: PlainModel, histories: Mapping[str, list[str]]) -> None:
    """Ask about every user. Raises AnswersDiffer when the best items are others, or their order."""
    if contestant.read is None:
        return
    for user_id, items in histories.items():
        good, answer = ask_once(server.connect, contestant.encode(user_id, items), judge_http(contestant.mark))
        content = answer.partition(b"\r\n\r\n")[2]
        if not good:
            raise AnswersDiffer(f"{contestant.name}: {user_id} was answered {content[:200].decode(errors='replace')!r}")
        if (apart := measure_distance(model, items, contestant.read(json.loads(content)))) > TOLERANCE:
            raise AnswersDiffer(f"{contestant.name}: the scores of what {user_id} was answered are {apart:.1e} off")


def measure_distance(model: PlainModel, items: Sequence[str], answered: Sequence[str]) -> float:
    """How far the scores of what was answered lie from the best ones, place by place; infinite for other mistakes."""
    scores, indexes = model.score([items])
    if len(set(answered)) != K or not indexes.keys() >= set(answered):
        return float("inf")
    best = -np.sort(np.partition(-scores[0], K)[:K])
    return float(np.abs(scores[0][[indexes[item_id] for item_id in answered]] - best).max())
