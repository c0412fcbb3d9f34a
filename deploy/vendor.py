"""Fetches the console's JavaScript libraries: `python deploy/vendor.py`, which `make vendor` runs. Needs npm.

vendor/packages.json pins each package by version and by the registry's integrity of its archive, and names the files
that are taken. They are as published, but for the replacements it lists: browsers know paths, not package names, and
the source maps are not here. Standard library only.
"""

import base64
import hashlib
import json
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

VENDOR = Path(__file__).parents[1] / "service" / "http" / "pages" / "console" / "vendor"
SUMS = "SHA256SUMS"


class VendorFailed(Exception):
    """A package is not what was pinned; the message says what."""


def read_packages() -> Mapping[str, Any]:
    """The pinned packages by name."""
    packages: Mapping[str, Any] = json.loads((VENDOR / "packages.json").read_text())
    return packages


def read_archive(content: bytes, name: str, pinned: Mapping[str, Any]) -> dict[str, bytes]:
    """The files wanted of a package's archive, by the names that they get. Raises VendorFailed."""
    integrity = "sha512-" + base64.b64encode(hashlib.sha512(content).digest()).decode()
    if integrity != pinned["integrity"]:
        raise VendorFailed(f"{name} {pinned['version']} has the integrity {integrity}, not the one in packages.json")
    found: dict[str, bytes] = {}
    with tempfile.TemporaryFile() as file:
        file.write(content)
        file.seek(0)
        with tarfile.open(fileobj=file) as archive:
            for source, target in pinned["files"].items():
                member = archive.extractfile(f"package/{source}")
                if member is None:
                    raise VendorFailed(f"{name} has no file {source}")
                found[target] = member.read()
    for target, replacements in pinned.get("replace", {}).items():
        for old, new in replacements.items():
            if found[target].count(old.encode()) != 1:
                raise VendorFailed(f"{target} has not exactly one {old!r}")
            found[target] = found[target].replace(old.encode(), new.encode())
    return found


def describe_sums(files: Mapping[str, bytes]) -> str:
    """The list that `sha256sum --check` reads."""
    return "".join(f"{hashlib.sha256(content).hexdigest()}  {name}\n" for name, content in sorted(files.items()))


def main() -> int:
    """Fetch all packages and write their files with the list of their sums; 1 and a sentence where one is another."""
    files: dict[str, bytes] = {}
    try:
        for name, pinned in read_packages().items():
            with tempfile.TemporaryDirectory() as folder:
                command = ["npm", "pack", "--silent", "--pack-destination", folder, f"{name}@{pinned['version']}"]
                subprocess.run(command, check=True, stdout=subprocess.DEVNULL)  # noqa: S603 - versions of ours
                [archive] = Path(folder).iterdir()
                files |= read_archive(archive.read_bytes(), name, pinned)
    except (VendorFailed, OSError, subprocess.CalledProcessError) as error:
        sys.stderr.write(f"vendor: {error}\n")
        return 1
    for name, content in files.items():
        (VENDOR / name).write_bytes(content)
    (VENDOR / SUMS).write_text(describe_sums(files))
    return 0


if __name__ == "__main__":
    sys.exit(main())
