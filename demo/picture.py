"""The second day as an SVG: live NDCG@10 over time, and the evidence of the trial below it."""

import math
from collections.abc import Sequence
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


def draw_day(parts: Sequence[Part], enough: float) -> str:
    """The picture. `enough` is the e-value that promotes."""
    last_s = max(at_s for at_s, _, _ in parts)
    shapes = [*_draw_phases(parts, last_s), *_draw_quality(parts, last_s), *_draw_evidence(parts, last_s, enough)]
    body = "\n  ".join(shapes)
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} 380" \
font-family="system-ui, 'DejaVu Sans', sans-serif" font-size="13">
  <rect width="{_WIDTH}" height="380" fill="#ffffff"/>
  {body}
</svg>
"""


def _draw_phases(parts: Sequence[Part], last_s: float) -> list[str]:
    shapes, begin_s = [], 0.0
    for phase, group in groupby(parts, key=lambda part: part[1]):
        end_s = max(at_s for at_s, _, _ in group)
        left, right = _place(begin_s, last_s), _place(end_s, last_s)
        shapes.append(
            f'<rect x="{left:.0f}" y="{_TOP - 26}" width="{right - left:.0f}" height="{_E_BOTTOM - _TOP + 26}" '
            f'fill="{_FILLS.get(phase, "#ffffff")}" fill-opacity="0.55"/>'
        )
        shapes.append(_write(phase, (left + right) / 2, _TOP - 9, weight=600))
        begin_s = end_s
    shapes.append(_write(f"seconds, 0 to {last_s:.0f}", (_LEFT + _RIGHT) / 2, _E_BOTTOM + 24, fill="#475569"))
    return shapes


def _draw_quality(parts: Sequence[Part], last_s: float) -> list[str]:
    told = [(at_s, new.ndcg) for at_s, _, new in parts if new.trials >= _LEAST_TRIALS]
    highest = math.ceil(max((ndcg for _, ndcg in told), default=0.01) * 20) / 20
    shapes = [_write("live NDCG@10", 8, 22, anchor="start", weight=600)]
    for tick in range(round(highest * 20) + 1):
        y = _BOTTOM - tick / 20 / highest * (_BOTTOM - _TOP)
        shapes += [_rule(y), _write(f"{tick / 20:.2f}", _LEFT - 8, y + 4, anchor="end", fill="#475569")]
    points = [(_place(at_s, last_s), _BOTTOM - ndcg / highest * (_BOTTOM - _TOP)) for at_s, ndcg in told]
    return [*shapes, *_join(points, "#0072B2")]


def _draw_evidence(parts: Sequence[Part], last_s: float, enough: float) -> list[str]:
    told = [(at_s, new.better) for at_s, phase, new in parts if phase == "on trial"]
    if not told:
        return []
    lowest = min(1.0, *(value for _, value in told)) if len(told) > 1 else 1.0
    reach = math.log(max(enough, *(value for _, value in told), enough) / lowest)

    def rise(value: float) -> float:
        return _E_BOTTOM - math.log(max(value, lowest) / lowest) / reach * (_E_BOTTOM - _E_TOP)

    shapes = [_write("evidence (e-value)", 8, _E_TOP - 16, anchor="start", weight=600)]
    for value in (1.0, enough):
        y = rise(value)
        shapes += [
            _rule(y, dashed=value == enough),
            _write(f"{value:g}", _LEFT - 8, y + 4, anchor="end", fill="#475569"),
        ]
    return [*shapes, *_join([(_place(at_s, last_s), rise(value)) for at_s, value in told], "#D55E00")]


def _place(at_s: float, last_s: float) -> float:
    return _LEFT + at_s / last_s * (_RIGHT - _LEFT)


def _join(points: Sequence[tuple[float, float]], colour: str) -> list[str]:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    dots = [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"/>' for x, y in points]
    return [f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>', *dots]


def _rule(y: float, *, dashed: bool = False) -> str:
    dash = ' stroke-dasharray="5 4"' if dashed else ""
    return f'<line x1="{_LEFT}" y1="{y:.1f}" x2="{_RIGHT}" y2="{y:.1f}" stroke="#94a3b8" stroke-width="0.7"{dash}/>'


def _write(text: str, x: float, y: float, *, anchor: str = "middle", fill: str = "#0f172a", weight: int = 400) -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}" fill="{fill}" font-weight="{weight}">{text}</text>'
