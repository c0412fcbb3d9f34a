"""auto.json: what `fit` without a recipe chose in its folder, what to go on with, and in the end which run won.

```
OUT/auto.json         this record
    network/          the run of the network
    rules/            for one: the run of the best counter that can be published
```
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from training.errors import RunError
from training.json_files import write_json
from training.runs.chosen import RECORD, WINNER
from training.runs.documents import parse

NETWORK = "network"
_SHAPE = {"end_seconds": float, "question_seconds": float, "test_users": int, "counters": list}


def write_record(out: Path, document: Mapping[str, Any]) -> None:
    """Write the record."""
    write_json(out / RECORD, document)


def read_record(out: Path) -> dict[str, Any] | None:
    """Read it, None where there is none. Raises RunError for what is no record."""
    path = out / RECORD
    if not path.is_file():
        return None
    try:
        return dict(parse(path.read_text(), _SHAPE))
    except (OSError, TypeError, ValueError) as error:
        raise RunError(f"{path} is not what fit writes: {error}") from error


def is_finished(record: Mapping[str, Any]) -> bool:
    """Whether a winner stands in it."""
    return WINNER in record
