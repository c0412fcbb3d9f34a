"""The second day as an SVG: live NDCG@10 by event, and the evidence of the trial below it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from demo.live import Live

_WIDTH, _LEFT, _RIGHT = 960, 60, 945
_TOP, _BOTTOM = 60, 230
_E_TOP, _E_BOTTOM = 275, 345
_FILLS = {
    "before": "#dcfce7",
    "new films": "#fee2e2",
    "overnight": "#e2e8f0",
    "on trial": "#fef3c7",
    "promoted": "#dcfce7",
}
_LEAST_TRIALS = 100
"""Fewer say nothing."""

Part = tuple[float, str, Live]
"""When, in which phase, and what came since the part before."""


@dataclass(frozen=True)
class _Place:
    """A part of the day, and where it lies: its sides, and the events that had been scored by then."""

    phase: str
    new: Live
    left: float
    right: float


def draw_day(parts: Sequence[Part], enough: float) -> str:
    """The picture. `enough` is the e-value that promotes."""
    total = sum(new.trials for _, _, new in parts) or 1.0
    places, scored = [], 0.0
    for _, phase, new in parts:
        left, right = (_LEFT + events / total * (_RIGHT - _LEFT) for events in (scored, scored + new.trials))
        places.append(_Place(phase, new, left, right))
        scored += new.trials
    shapes = [*_draw_phases(places, scored), *_draw_quality(places), *_draw_evidence(places, enough)]
    body = "\n  ".join(shapes)
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} 380" \
font-family="system-ui, 'DejaVu Sans', sans-serif" font-size="13">
  <rect width="{_WIDTH}" height="380" fill="#ffffff"/>
  {body}
</svg>
"""


def _draw_phases(places: Sequence[_Place], scored: float) -> list[str]:
    shapes = []
    for phase, group in groupby(places, key=lambda place: place.phase):
        of_phase = list(group)
        left, right = of_phase[0].left, of_phase[-1].right
        shapes.append(
            f'<rect x="{left:.0f}" y="{_TOP - 26}" width="{right - left:.0f}" height="{_E_BOTTOM - _TOP + 26}" '
            f'fill="{_FILLS.get(phase, "#ffffff")}" fill-opacity="0.55"/>'
        )
        shapes.append(_write(phase, (left + right) / 2, _TOP - 9, weight=600))
    axis = f"live events that the judge scored, 0 to {scored:,.0f}"
    return [*shapes, _write(axis, (_LEFT + _RIGHT) / 2, _E_BOTTOM + 24, fill="#475569")]


def _draw_quality(places: Sequence[_Place]) -> list[str]:
    told = [place for place in places if place.new.trials >= _LEAST_TRIALS]
    highest = math.ceil(max((place.new.ndcg for place in told), default=0.01) * 20) / 20
    shapes = [_write("live NDCG@10", 8, 22, anchor="start", weight=600)]
    for tick in range(round(highest * 20) + 1):
        y = _BOTTOM - tick / 20 / highest * (_BOTTOM - _TOP)
        shapes += [_rule(y), _write(f"{tick / 20:.2f}", _LEFT - 8, y + 4, anchor="end", fill="#475569")]
    for place in told:
        y = _BOTTOM - place.new.ndcg / highest * (_BOTTOM - _TOP)
        shapes.append(_rule(y, place.left, place.right, colour="#0072B2", width=4.0))
    return shapes


def _draw_evidence(places: Sequence[_Place], enough: float) -> list[str]:
    told = [(place.right, place.new.better) for place in places if place.phase == "on trial"]
    if not told:
        return []
    begin = next(place.left for place in places if place.phase == "on trial")
    points = [(begin, 1.0), *told]
    lowest, highest = min(value for _, value in points), max(enough, *(value for _, value in points))

    def rise(value: float) -> float:
        return _E_BOTTOM - math.log(value / lowest) / math.log(highest / lowest) * (_E_BOTTOM - _E_TOP)

    shapes = [_write("evidence (e-value)", 8, _E_TOP - 16, anchor="start", weight=600)]
    for value in (1.0, enough):
        y = rise(value)
        shapes += [_rule(y, dash="5 4"), _write(f"{value:g}", _LEFT - 8, y + 4, anchor="end", fill="#475569")]
    path = " ".join(f"{x:.1f},{rise(value):.1f}" for x, value in points)
    x, value = points[-1]
    shapes.append(f'<polyline points="{path}" fill="none" stroke="#D55E00" stroke-width="2.5"/>')
    shapes += [f'<circle cx="{at:.1f}" cy="{rise(point):.1f}" r="4" fill="#D55E00"/>' for at, point in told]
    return [*shapes, _write(f"{float(f'{value:.2g}'):,.0f}", x + 8, rise(value) + 12, anchor="start", fill="#D55E00")]


def _rule(
    y: float, left: float = _LEFT, right: float = _RIGHT, *, colour: str = "#94a3b8", width: float = 0.7, dash: str = ""
) -> str:
    dashes = f' stroke-dasharray="{dash}"' if dash else ""
    return (
        f'<line x1="{left:.1f}" y1="{y:.1f}" x2="{right:.1f}" y2="{y:.1f}" stroke="{colour}" stroke-width="{width}"'
        f"{dashes}/>"
    )


def _write(text: str, x: float, y: float, *, anchor: str = "middle", fill: str = "#0f172a", weight: int = 400) -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}" fill="{fill}" font-weight="{weight}">{text}</text>'
