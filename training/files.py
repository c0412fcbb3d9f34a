"""Files that appear whole or not at all."""

import json
import os
from pathlib import Path


def write_whole(path: Path, content: bytes) -> None:
    """Write aside, sync, rename: a reader sees the old content or the new one, a crash leaves either."""
    aside = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with aside.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def write_json(path: Path, document: object) -> None:
    """Write a document as indented JSON, whole or not at all."""
    write_whole(path, (json.dumps(document, indent=2, allow_nan=False) + "\n").encode())
