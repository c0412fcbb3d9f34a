"""The plain export behind LitServe, which gathers batches by itself: `python -m` and this module's name, and a port.

Run in an environment of its own. The client sends the items: there is no store here.
"""

import sys
from typing import Any

import litserve

from benchmarks.serving.contestants.plain import PlainModel

BATCH = 16
WAIT_S = 0.001
"""How long a batch waits to be filled: longer costs latency, shorter batches."""


class Recommender(litserve.LitAPI):  # type: ignore[misc] # installed in its own environment alone
    """Items in, items out; all requests of one k."""

    model: PlainModel

    def setup(self, device: str) -> None:  # noqa: ARG002 - LitServe's signature
        """Load the model, once for each worker."""
        self.model = PlainModel.from_environment()

    def decode_request(self, request: dict[str, Any], **_: object) -> list[str]:
        """The history of one request."""
        return list(request["items"])

    def predict(self, histories: list[list[str]], **_: object) -> list[list[tuple[str, float]]]:
        """One run for the whole batch."""
        return self.model.rank(histories, 10)

    def encode_response(self, ranked: list[tuple[str, float]], **_: object) -> dict[str, Any]:
        """One answer."""
        return {"items": [{"item_id": item_id, "score": score} for item_id, score in ranked]}


if __name__ == "__main__":
    api = Recommender(max_batch_size=BATCH, batch_timeout=WAIT_S, api_path="/recommend")
    server = litserve.LitServer(api, accelerator="cpu", workers_per_device=1, fast_queue=True)
    server.run(
        host="127.0.0.1",
        port=int(sys.argv[1]),
        num_api_servers=1,
        generate_client_file=False,
        log_level="warning",
        access_log=False,
    )
