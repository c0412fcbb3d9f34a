"""The plain export behind BentoML, which gathers batches by itself: `bentoml serve` with this module's Recommender.

Run in an environment of its own. The client sends the items: there is no store here.
"""

from typing import Any

import bentoml

from benchmarks.serving.systems.orders import Orders
from benchmarks.serving.systems.plain import PlainModel

_orders = Orders.from_environment()
_rows, _wait_s = _orders.batching
_gathering: dict[str, Any] = (
    {"batchable": True, "max_batch_size": _rows, "max_latency_ms": round(1e3 * _wait_s)} if _rows > 1 else {}
)


@bentoml.service(workers=_orders.workers, logging={"access": {"enabled": False}}, metrics={"enabled": False})
class Recommender:
    """Items in, items out; all requests of one k."""

    def __init__(self) -> None:
        self.model = PlainModel.from_environment()

    @bentoml.api(**_gathering)  # type: ignore[untyped-decorator] # not installed here
    def recommend(self, items: list[list[str]]) -> list[dict[str, Any]]:
        """One run for the whole batch; a client sends a list of one."""
        return [
            {"items": [{"item_id": item_id, "score": score} for item_id, score in ranked]}
            for ranked in self.model.rank(items, 10)
        ]
