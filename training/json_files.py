"""JSON documents that appear whole or not at all."""

import json
from pathlib import Path

from model.contract.atomic_files import write_whole


def write_json(path: Path, document: object) -> None:
    """Write a document as indented JSON, whole or not at all."""
    write_whole(path, (json.dumps(document, indent=2, allow_nan=False) + "\n").encode())
