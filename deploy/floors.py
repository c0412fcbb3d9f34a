"""Versions below which a known hole is open, against what is pinned and what is installed: `python -m deploy.floors`.

Kept by hand from the advisories named, since tools that ask a registry find nothing where it cannot be reached. `make
check-security` asks one, and fails where there is none.
"""

import sys
from collections.abc import Mapping
from importlib.metadata import distributions
from pathlib import Path

from packaging.utils import canonicalize_name
from packaging.version import Version

CONSTRAINTS = Path(__file__).parents[1] / "constraints.txt"

FLOORS = {
    "fastapi": ("0.109.1", "CVE-2024-24762: forms that take forever"),
    "h11": ("0.16.0", "CVE-2025-43859: request smuggling by chunks"),
    "httptools": ("0.8.0", "what tests/serving/http/test_wire.py expects of it is refused"),
    "onnx": ("1.21.0", "CVE-2026-34446 and before it: files read through external data"),
    "orjson": ("3.9.15", "CVE-2024-27454: deep nesting ends the process"),
    "redis": ("4.5.4", "CVE-2023-28858, -28859: answers of one user to another"),
    "starlette": ("1.3.1", "CVE-2026-54283, -48710, CVE-2025-62727: denial of service, routes hidden by Host"),
    "torch": ("2.10.0", "CVE-2026-24747, CVE-2025-32434: code run by weights"),
    "uvicorn": ("0.51.0", "the protocol that service/http/protocol.py extends"),
}
"""The least version of each, and why."""

BANNED = {"python-multipart": "CVE-2026-40347, -53540: this service takes JSON only and must not parse forms"}


def find_faults(versions: Mapping[str, str], where: str) -> list[str]:
    """A sentence for each package that is below its floor or should not be there. Names are as PyPI normalizes them."""
    faults = [
        f"{where}: {name} {versions[name]} is below {floor} ({why})"
        for name, (floor, why) in FLOORS.items()
        if name in versions and Version(versions[name]) < Version(floor)
    ]
    return faults + [f"{where}: {name} must not be there ({why})" for name, why in BANNED.items() if name in versions]


def read_constraints(text: str) -> dict[str, str]:
    """The pinned version of each package."""
    pins = (line.split("==") for line in text.splitlines() if line and not line.startswith("#"))
    return {canonicalize_name(name): version for name, version in pins}


def main() -> int:
    """Say what is wrong; 1 then."""
    pinned = read_constraints(CONSTRAINTS.read_text(encoding="utf-8"))
    installed: dict[str, str] = {canonicalize_name(found.name): found.version for found in distributions()}
    faults = find_faults(pinned, "constraints.txt") + find_faults(installed, "installed")
    # A floor that nothing is measured by protects nobody.
    faults += [f"constraints.txt: {name} is not pinned" for name in FLOORS if name not in pinned]
    print("\n".join(faults) or f"{len(FLOORS)} floors, all kept")  # noqa: T201 - what it is for
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
