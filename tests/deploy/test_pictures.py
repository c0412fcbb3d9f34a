"""The drawing that docs show: its words stay in their boxes with the font that every Linux browser has."""

import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from matplotlib import font_manager
from PIL import ImageFont

DRAWING = Path(__file__).parents[2] / "docs" / "path.svg"
MARGIN = 6
SIZES = {name: float(size) for name, size in re.findall(r"\.(\w+)\{[^}]*font-size:([\d.]+)px", DRAWING.read_text())}
"""What the drawing's own style makes of classes; browsers drop a size without its unit."""
ROOT = ET.parse(DRAWING).getroot()  # noqa: S314 - a file of this repository
TEXTS = list(ROOT.iter("{http://www.w3.org/2000/svg}text"))


def measure(text: ET.Element) -> tuple[float, float, float]:
    """Left and right end of a line of text, and where it stands, in DejaVu Sans."""
    kind = text.get("class", "")
    size = SIZES.get(kind, float(text.get("font-size", ROOT.get("font-size", ""))))
    font = font_manager.FontProperties(family="DejaVu Sans", weight="bold" if kind == "t" else "normal")
    # Ten times as large: the widths of small letters are rounded to whole pixels.
    width = ImageFont.truetype(font_manager.findfont(font, fallback_to_default=False), size * 10).getlength(
        text.text or ""
    )
    x = float(text.get("x", ""))
    left = x - width / 20 if text.get("text-anchor") == "middle" else x
    return left, left + width / 10, float(text.get("y", ""))


@pytest.mark.parametrize("text", TEXTS, ids=lambda text: text.text)
def test_words_stay_in_their_boxes(text: ET.Element) -> None:
    """A line that stands in a box has room on both sides; any other has it in the picture."""
    left, right, y = measure(text)
    edges = (0.0, float(ROOT.get("viewBox", "").split()[2]))
    for box in ROOT.iter("{http://www.w3.org/2000/svg}rect"):
        if box.get("class") == "box":
            x, top, width, height = (float(box.get(name, "")) for name in ("x", "y", "width", "height"))
            if x < (left + right) / 2 < x + width and top < y < top + height:
                edges = (x, x + width)
    assert edges[0] + MARGIN <= left
    assert right <= edges[1] - MARGIN
