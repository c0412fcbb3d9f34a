"""What `return_metadata` costs an answer, and what an answer without it does: microseconds of CPU a request.

`python -m benchmarks.micro.answer_metadata BUNDLE --k 10` reads a request, makes its answer of popular items and writes
it, without the field, with all metadata and with the named fields; the best of several turns, taken in turns.
"""

import argparse
import time
import timeit
from functools import partial
from pathlib import Path

import orjson

from benchmarks.harness.console import say
from model.contract.query import encode_question
from service.api.requests import RecommendRequest
from service.api.validation import Validator
from service.inference.model import LiveModel, load_model
from service.ranking.pending import PendingRequest
from service.ranking.recommendation_id import RecommendationIds
from service.ranking.response import make_response
from service.ranking.role import Role
from service.telemetry.stage_timer import StageTimer

TURNS = 60
REQUESTS = 200


def answer(model: LiveModel, validate: Validator[RecommendRequest], role: Role, document: dict[str, object]) -> bytes:
    """The answer as it is sent."""
    pending = PendingRequest(validate(document), StageTimer())
    pending.question = encode_question(model.vocabulary, history=(), exclude=(), candidates=None, k=pending.request.k)
    return orjson.dumps(make_response(model, pending, role))


def main(bundle: Path, k: int, fields: list[str]) -> None:
    """Measure and print."""
    model = load_model(bundle, provider="cpu", threads=1, max_batch=1)
    validate, role = Validator(RecommendRequest), Role("champion", 0, RecommendationIds(""))
    plain: dict[str, object] = {"user_id": "u1", "k": k}
    documents = {"without": plain, "fields": plain | {"return_metadata": fields}}
    if k <= 100:
        documents["all"] = plain | {"return_metadata": True}
    least_us = dict.fromkeys(documents, float("inf"))
    for _ in range(TURNS):
        for name, document in documents.items():
            timer = timeit.Timer(partial(answer, model, validate, role, document), timer=time.process_time)
            taken_s = timer.timeit(REQUESTS)
            least_us[name] = min(least_us[name], 1e6 * taken_s / REQUESTS)
    say(", ".join(f"{name}: {us:.2f} us" for name, us in least_us.items()) + f" an answer of {k} items")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.micro.answer_metadata", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("bundle", type=Path, help="a bundle, or a folder of them")
    parser.add_argument("--k", type=int, default=10, help="items of an answer (default: %(default)s)")
    parser.add_argument("--fields", nargs="+", default=["title"], help="named fields (default: %(default)s)")
    given = parser.parse_args()
    main(given.bundle, given.k, given.fields)
