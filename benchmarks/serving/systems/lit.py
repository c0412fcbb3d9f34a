"""The plain export behind LitServe, which gathers batches by itself: `python -m` and this module's name, and a port.

Run in an environment of its own. The client sends the items: there is no store here.
"""

import sys
from typing import Any

import litserve

from benchmarks.serving.systems.orders import Orders
from benchmarks.serving.systems.plain import PlainModel, Ranking


class Recommender(litserve.LitAPI):  # type: ignore[misc] # installed in its own environment alone
    """Items in, items out; all requests of one k."""

    model: PlainModel

    def setup(self, device: str) -> None:  # noqa: ARG002 - LitServe's signature
        self.model = PlainModel.from_environment()

    def decode_request(self, request: dict[str, Any], **_: object) -> list[str]:
        return list(request["items"])

    def encode_response(self, ranked: Ranking, **_: object) -> dict[str, Any]:
        return {"items": [{"item_id": item_id, "score": score} for item_id, score in ranked]}


class Single(Recommender):
    """Each request by itself."""

    def predict(self, history: list[str], **_: object) -> Ranking:
        """A run of one row."""
        return self.model.rank([history], 10)[0]


class Gathered(Recommender):
    """As many requests at once as there are."""

    def predict(self, histories: list[list[str]], **_: object) -> list[Ranking]:
        """One run for the whole batch."""
        return self.model.rank(histories, 10)


if __name__ == "__main__":
    orders = Orders.from_environment()
    rows, wait_s = orders.batching
    api = (Gathered if rows > 1 else Single)(max_batch_size=rows, batch_timeout=wait_s, api_path="/recommend")
    server = litserve.LitServer(api, accelerator="cpu", workers_per_device=orders.workers, fast_queue=True)
    server.run(
        host="127.0.0.1",
        port=int(sys.argv[1]),
        num_api_servers=1,
        generate_client_file=False,
        log_level="warning",
        access_log=False,
    )
