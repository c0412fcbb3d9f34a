"""Bundle folders with several versions of one bundle, whose catalogues have nothing in common, and damaged ones."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from model.contract.bundle import GOLDEN, MANIFEST, VOCABULARY, describe_file, locate_bundle


def rename_items(source: Path, root: Path, version: str, *, prefix: str) -> Path:
    """Write a copy of a bundle as `root`/`version` whose item ids all begin with `prefix`. It answers alike."""
    folder = root / version
    aside = root / f".{version}.partial"
    shutil.copytree(locate_bundle(source), aside)
    vocabulary = (aside / VOCABULARY).read_text(encoding="utf-8").splitlines()
    (aside / VOCABULARY).write_text("".join(f"{prefix}{item_id}\n" for item_id in vocabulary), encoding="utf-8")
    golden = _rename(json.loads((aside / GOLDEN).read_text(encoding="utf-8")), set(vocabulary), prefix)
    (aside / GOLDEN).write_text(json.dumps(golden), encoding="utf-8")
    seal(aside, version=version)
    aside.rename(folder)
    return folder


def seal(folder: Path, **fields: object) -> None:
    """Make the manifest describe the files as they are, with other fields where they are given."""
    manifest = json.loads((folder / MANIFEST).read_bytes()) | fields
    for name in manifest["files"]:
        described = describe_file((folder / name).read_bytes())
        manifest["files"][name] = {"sha256": described.sha256, "bytes": described.bytes}
    aside = folder / f".{MANIFEST}"
    aside.write_text(json.dumps(manifest), encoding="utf-8")
    aside.replace(folder / MANIFEST)


def _rename(value: Any, items: set[str], prefix: str) -> Any:  # noqa: ANN401 - any part of a JSON document
    if isinstance(value, Mapping):
        return {name: _rename(part, items, prefix) for name, part in value.items()}
    if isinstance(value, list):
        return [_rename(part, items, prefix) for part in value]
    return f"{prefix}{value}" if isinstance(value, str) and value in items else value
