"""Charts as SVG: bars, lines and intervals, coloured by the page's style sheet, so that dark and light need no code.

Sizes are those of a phone, on which a unit is nearly a pixel (docs/decisions/0041).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

WIDTH, HEIGHT = 380, 230
_LEFT, _RIGHT, _TOP, _BOTTOM = 60, 14, 12, 40
_TICKS = 5
_MOST_MARKED = 40
_LETTER = 6.3
"""Width of a letter, about."""

Points = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Scale:
    """Where a value lies between two ends of the picture; logarithmic where `log`, then `low` is above 0."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def place(self, value: float) -> float:
        """The coordinate of a value."""
        low, high, at = (math.log(number) if self.log else number for number in (self.low, self.high, value))
        return self.start + (self.end - self.start) * ((at - low) / (high - low) if high > low else 0.5)


def draw_bars(labels: Sequence[str], counts: Sequence[float], *, label: str, x: str, y: str) -> Markup:
    """A bar for each label; as many labels stand below as there is room for. `label` says what the picture shows."""
    across = Scale(0, max(1, len(counts)), _LEFT, WIDTH - _RIGHT)
    up, frame = _stand(max(counts, default=0), y=y, x=x)
    step = across.place(1) - across.place(0)
    bars = [
        Markup(
            '<rect class="bar" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}"><title>{}: {}</title></rect>'
        ).format(
            across.place(place) + step * 0.06,
            up.place(count),
            step * 0.88,
            up.start - up.place(count),
            text,
            f"{count:,}",
        )
        for place, (text, count) in enumerate(zip(labels, counts, strict=True))
    ]
    every = max(1, math.ceil((max(map(len, labels), default=0) + 1) * _LETTER / step))
    under = [
        _write(across.place(place + 0.5), HEIGHT - _BOTTOM + 15, text, "middle")
        for place, text in enumerate(labels)
        if text and place % every == 0
    ]
    return _picture(label, [*frame, *bars, *under])


def draw_lines(
    lines: Mapping[str, Points],
    *,
    colours: Mapping[str, int],
    label: str,
    x: str,
    y: str,
    levels: Mapping[str, float] | None = None,
    log: bool = False,
    tell_x: Callable[[float], str] = "{:g}".format,
    from_zero: bool = True,
) -> Markup:
    """Lines by name, and levels as dashed lines from side to side; `colours` are classes of page.css by name.

    `log` is of the axis across, whose values are then above 0.
    """
    points = [point for line in lines.values() for point in line]
    heights = [height for _, height in points] + list((levels or {}).values())
    along = [at for at, _ in points]
    across = Scale(min(along), max(along), _LEFT + 6, WIDTH - _RIGHT - 6, log)
    up, frame = _stand(max(heights), y=y, x=x, low=0 if from_zero else min(heights))
    for at in _choose_powers(across) if log else _choose_whole_steps(across):
        frame.append(_write(across.place(at), HEIGHT - _BOTTOM + 15, tell_x(at), "middle"))
    drawn = []
    for name, height in (levels or {}).items():
        at = up.place(height)
        drawn.append(
            Markup('<line class="level s{}" x1="{}" x2="{}" y1="{:.1f}" y2="{:.1f}"/>').format(
                colours[name], _LEFT, WIDTH - _RIGHT, at, at
            )
        )
    for name, line in lines.items():
        placed = [(across.place(at), up.place(height)) for at, height in line]
        path = " ".join(f"{at:.1f},{height:.1f}" for at, height in placed)
        drawn.append(Markup('<polyline class="line s{}" points="{}"/>').format(colours[name], path))
        if len(placed) <= _MOST_MARKED:
            drawn += [
                Markup('<circle class="dot s{}" cx="{:.1f}" cy="{:.1f}" r="3"/>').format(colours[name], *at)
                for at in placed
            ]
    return _picture(label, [*frame, *drawn])


def draw_intervals(
    rows: Mapping[str, Mapping[str, float]], *, colours: Mapping[str, int], label: str, x: str
) -> Markup:
    """A row for each name: `value` with its interval from `low` to `high`. `colours` as for lines."""
    height = _TOP + _BOTTOM + 30 * len(rows)
    left = 20 + _LETTER * max(map(len, rows))
    across = Scale(0, max(row["high"] for row in rows.values()) or 1, left, WIDTH - _RIGHT - 6)
    bottom = height - _BOTTOM
    drawn = []
    for at in _choose_ticks(across.low, across.high):
        drawn.append(_rule(across.place(at), across.place(at), _TOP, bottom))
        drawn.append(_write(across.place(at), bottom + 15, f"{at:g}", "middle"))
    drawn.append(_write((left + WIDTH) / 2, height - 6, x, "middle"))
    for place, (name, row) in enumerate(rows.items()):
        level = _TOP + 30 * place + 15
        low, middle, high = (across.place(row[key]) for key in ("low", "value", "high"))
        drawn.append(_write(left - 8, level + 4, name, "end"))
        drawn.append(
            Markup('<line class="reach s{}" x1="{:.1f}" x2="{:.1f}" y1="{}" y2="{}"/>').format(
                colours[name], low, high, level, level
            )
        )
        drawn.append(
            Markup('<circle class="dot s{}" cx="{:.1f}" cy="{}" r="4.5"/>').format(colours[name], middle, level)
        )
    return _picture(label, drawn, height)


def _stand(high: float, *, y: str, x: str, low: float = 0) -> tuple[Scale, list[Markup]]:
    """The upright scale, and what stands behind the data: rules, their values, the names of both axes."""
    up = Scale(low, high if high > low else low + 1, HEIGHT - _BOTTOM, _TOP)
    drawn = []
    for at in _choose_ticks(up.low, up.high):
        drawn.append(_rule(_LEFT, WIDTH - _RIGHT, up.place(at), up.place(at)))
        drawn.append(_write(_LEFT - 6, up.place(at) + 4, tell_short(at), "end"))
    drawn.append(_write((_LEFT + WIDTH) / 2, HEIGHT - 6, x, "middle"))
    middle = (HEIGHT - _BOTTOM + _TOP) / 2
    turned = Markup('<text x="11" y="{0}" text-anchor="middle" transform="rotate(-90 11 {0})">{1}</text>')
    drawn.append(turned.format(middle, y))
    return up, drawn


def tell_short(number: float) -> str:
    """A number in a few letters: 12,000 is 12k."""
    for least, size, letter in ((1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e4, 1e3, "k")):
        if abs(number) >= least:
            return f"{number / size:g}{letter}"
    return f"{number:,.0f}" if abs(number) >= 1000 else f"{number:g}"


def _choose_ticks(low: float, high: float) -> list[float]:
    """Round numbers from low to high, about _TICKS of them."""
    size = 10 ** math.floor(math.log10((high - low) / _TICKS))
    step = next(times * size for times in (1, 2, 2.5, 5, 10) if (high - low) / (times * size) <= _TICKS)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(number * step, 10) for number in range(first, last + 1)]


def _choose_whole_steps(across: Scale) -> list[float]:
    if across.high == across.low:
        return [across.low]
    return [at for at in _choose_ticks(across.low, across.high) if at == int(at)]


def _choose_powers(across: Scale) -> list[float]:
    first, last = math.ceil(math.log10(across.low) - 1e-9), math.floor(math.log10(across.high) + 1e-9)
    return [10.0**power for power in range(first, last + 1)]


def _rule(x1: float, x2: float, y1: float, y2: float) -> Markup:
    return Markup('<line class="rule" x1="{:.1f}" x2="{:.1f}" y1="{:.1f}" y2="{:.1f}"/>').format(x1, x2, y1, y2)


def _write(x: float, y: float, text: str, anchor: str) -> Markup:
    return Markup('<text x="{:.1f}" y="{:.1f}" text-anchor="{}">{}</text>').format(x, y, anchor, text)


def _picture(label: str, drawn: Sequence[Markup], height: float = HEIGHT) -> Markup:
    head = Markup('<svg viewBox="0 0 {} {}" role="img" aria-label="{}">').format(WIDTH, height, label)
    return head + Markup("").join(map(escape, drawn)) + Markup("</svg>")
