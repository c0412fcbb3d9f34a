"""Numbers as Grafana would write them."""

from collections.abc import Callable, Mapping
from typing import Final

_TIMES: Final = ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s"), (1e-3, "ms"), (1e-6, "µs"))
_BYTES: Final = ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"), (1, "B"))


def write_value(value: float, unit: str) -> str:
    """A value with its unit, in three digits."""
    return _WRITERS[unit](value)


def _scale(value: float, steps: tuple[tuple[float, str], ...]) -> str:
    for size, name in steps:
        if abs(value) >= size:
            return f"{value / size:.3g} {name}"
    return f"{value:.3g} {steps[-1][1]}" if value else "0"


def _count(value: float) -> str:
    return f"{value:.3g}" if abs(value) < 1000 else f"{value / 1000:.3g} K"


_WRITERS: Final[Mapping[str, Callable[[float], str]]] = {
    "s": lambda value: _scale(value, _TIMES),
    "bytes": lambda value: _scale(value, _BYTES),
    "percentunit": lambda value: f"{value * 100:.3g} %",
    "reqps": lambda value: f"{_count(value)} req/s",
    "cps": lambda value: f"{_count(value)} /s",
    "short": _count,
    "none": lambda value: f"{value:.0f}",
}
