"""The plain export behind BentoML, which gathers batches by itself: `bentoml serve` with this module's Recommender.

Run in an environment of its own. The client sends the items: there is no store here.
"""

from typing import Any

import bentoml

from benchmarks.serving.contestants.plain import PlainModel

BATCH = 16


@bentoml.service(workers=1, logging={"access": {"enabled": False}}, metrics={"enabled": False})
class Recommender:
    """Items in, items out; all requests of one k."""

    def __init__(self) -> None:
        self.model = PlainModel.from_environment()

    @bentoml.api(batchable=True, max_batch_size=BATCH)  # type: ignore[untyped-decorator] # not installed here
    def recommend(self, items: list[list[str]]) -> list[dict[str, Any]]:
        """One run for the whole batch; a client sends a list of one."""
        return [
            {"items": [{"item_id": item_id, "score": score} for item_id, score in ranked]}
            for ranked in self.model.rank(items, 10)
        ]
