"""Traffic over two bundles without a common item: an answer that mixes them shows at once."""

import json
import shutil
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any, Final

from benchmarks.harness.bundles import rename_items
from benchmarks.harness.open_loop import Shot, encode_post
from model.contract.bundle import point_current

TINY: Final = Path("tests/serving/bundle")
ITEMS: Final = ("i01", "i02", "i03", "i04", "i05")
VERSIONS: Final = ("red", "blue")
"""Their item ids begin with the version's name: `red-i01`."""
USERS: Final = 50


def make_root(root: Path) -> Path:
    """A bundle folder with both versions, of which the first is the current one."""
    root.mkdir(parents=True)
    for version in VERSIONS:
        rename_items(TINY, root, version, prefix=f"{version}-")
    point_current(root, VERSIONS[0])
    return root


def copy_version(root: Path, version: str, name: str) -> Path:
    """A copy of a version under another name, whose manifest still has the old one: to be damaged."""
    return Path(shutil.copytree(root / version, root / name))


def mix(*, asks: float, sends: float) -> Iterator[Shot]:
    """So many questions and events a second, evenly, for as long as they are taken."""
    rate = asks + sends
    sent = 0
    for number in count():
        if sends and number * sends / rate >= sent:
            yield Shot(number / rate, _encode_event(sent), "send")
            sent += 1
        else:
            yield Shot(number / rate, _encode_question(number), "ask")


def find_mixture(content: bytes) -> str:
    """What is wrong with an answer of /recommend: an item of another catalogue than its version's, or fewer of them."""
    answer: Any = json.loads(content)
    if "model" not in answer:
        return ""  # of /events
    version, found = answer["model"]["version"], [item["item_id"] for item in answer["items"]]
    if not found:
        return "empty"
    return "" if all(item_id.startswith(f"{version}-") for item_id in found) else "mixed"


def _encode_question(number: int) -> bytes:
    version, item = VERSIONS[number % 2], ITEMS[number % len(ITEMS)]
    document: dict[str, Any] = {"k": 5, "timeout_ms": 2000}
    if number % 3:
        document["user_id"] = f"u{number % USERS}"
    if number % 3 != 1:
        document["items"] = [f"{version}-{item}"]
    return encode_post("/recommend", json.dumps(document).encode())


def _encode_event(number: int) -> bytes:
    event = {"user_id": f"u{number % USERS}", "item_id": f"{VERSIONS[number % 2]}-{ITEMS[number % len(ITEMS)]}"}
    return encode_post("/events", json.dumps(event | {"event_id": f"e{number}"}).encode())
