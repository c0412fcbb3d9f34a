"""The systems under test: how each one starts, how to query it, and what its answer holds."""

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.harness.open_loop import encode_post
from benchmarks.serving.servers import Setting
from benchmarks.serving.systems.orders import Orders

K = 10
_BENTO = "benchmarks.serving.systems.bento:Recommender"
OURS = "nextitem"
TEXTBOOK = "textbook"
PEERS = ("litserve", "bentoml")
EMPTY_FASTAPI, EMPTY_ASGI = "empty FastAPI", "empty ASGI"
ONNX_RUNTIME = "ONNX Runtime"
"""The service's graph in the generator's own process: a ceiling, and no server."""


@dataclass(frozen=True)
class System:
    """One row of the table. `command` starts it, unless it is no server."""

    kind: str
    workers: int
    command: Callable[[Setting], Sequence[str]] | None
    body: Callable[[str, list[str]], object]
    """A user and a history -> the JSON that is sent."""
    mark: bytes
    """What every good answer holds."""
    read: Callable[[Any], list[str]] | None
    """An answer's JSON -> item ids, best first; None where they mean nothing."""
    polls: bool = False
    """Whether it works while there is nothing to do: then it is frozen while others have their turns."""

    @property
    def name(self) -> str:
        """Kind and workers."""
        return f"{self.kind}, {self.workers} worker{'s' * (self.workers > 1)}" if self.command else self.kind

    def encode(self, user_id: str, items: list[str]) -> bytes:
        """A request as it is sent."""
        return encode_json("/recommend", self.body(user_id, items))


def _serve_ours(setting: Setting, *, workers: int) -> list[str]:
    return [
        *(sys.executable, "-m", "service.cli", "--bundle", str(setting.model), "--port", str(setting.port)),
        *("--redis-url", setting.store, "--workers", str(workers), "--provider", "cpu", "--drain-delay-s", "0"),
    ]


def _serve_asgi(setting: Setting, *, workers: int, app: str) -> list[str]:
    return [
        *(sys.executable, "-m", "uvicorn", f"benchmarks.serving.systems.{app}", "--port", str(setting.port)),
        *("--workers", str(workers), "--loop", "uvloop", "--http", "httptools"),
        *("--no-access-log", "--log-level", "warning"),
    ]


def _serve_peer(setting: Setting, *, workers: int, name: str) -> list[str]:
    assert setting.batching is not None  # noqa: S101 - who starts a framework says how it gathers
    port = str(setting.port)
    words = {
        "litserve": ["benchmarks.serving.systems.lit", port],
        "bentoml": ["bentoml", "serve", _BENTO, "--host", "127.0.0.1", "--port", port],
    }
    orders = Orders(workers, setting.batching)
    return [*orders.to_words(), find_python(setting.environments, name), "-m", *words[name]]


def encode_json(path: str, document: object) -> bytes:
    """A POST of a document, without spaces."""
    return encode_post(path, json.dumps(document, separators=(",", ":")).encode())


def find_python(environments: Path, name: str) -> str:
    """The interpreter of a peer's environment."""
    return str((environments / name / "bin" / "python").absolute())


def _ask_user(user_id: str, _items: list[str]) -> object:
    return {"user_id": user_id, "k": K}


def _read_items(answer: Any) -> list[str]:  # noqa: ANN401 - JSON
    return [item["item_id"] for item in answer["items"]]


_ANSWER = b'"item_id"'
_OF_THE_MODEL = b'"source":"model","degraded":null'


def list_systems() -> list[System]:
    """Everybody, the service first."""
    roster = []
    for workers in (1, 2):
        ours = partial(_serve_ours, workers=workers)
        roster.append(System(OURS, workers, ours, _ask_user, _OF_THE_MODEL, _read_items))
    for kind, app, read in (
        (TEXTBOOK, "textbook:app", _read_items),
        (EMPTY_FASTAPI, "empty:fastapi_app", None),
        (EMPTY_ASGI, "empty:asgi_app", None),
    ):
        for workers in (1, 2):
            command = partial(_serve_asgi, workers=workers, app=app)
            roster.append(System(kind, workers, command, _ask_user, _ANSWER, read))
    for workers in (1, 2):
        lit, bento = (partial(_serve_peer, workers=workers, name=name) for name in PEERS)
        roster += [
            System("litserve", workers, lit, lambda _, items: {"items": items}, _ANSWER, _read_items, polls=True),
            System(
                *("bentoml", workers, bento, lambda _, items: {"items": [items]}, _ANSWER),
                lambda answer: _read_items(answer[0]),
                polls=True,
            ),
        ]
    roster.append(System(ONNX_RUNTIME, 1, None, _ask_user, b"", None))
    return roster
