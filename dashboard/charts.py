"""Charts as inline SVG. Only presentation attributes and classes: the pages forbid styles inside of elements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

WIDTH: Final = 600
HEIGHT: Final = 120
MOST_POINTS: Final = 360


def thinned(points: Sequence[float], most: int = MOST_POINTS) -> list[float]:
    """Return at most `most` points: of each run of neighbours the largest, so that no peak is lost."""
    run = math.ceil(len(points) / most) if points else 1
    return [max(points[at : at + run]) for at in range(0, len(points), run)]


def ceiling(top: float) -> float:
    """Return the end of an axis: 1, 2 or 5 times a power of ten that is not below `top`."""
    if top <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(top))
    return next((step * power for step in (1, 2, 5, 10) if step * power >= top), 10 * power)


def line(points: Sequence[float], most: int = MOST_POINTS) -> dict[str, object]:
    """Return what a template draws: the line, the area below it, and the end of the axis; and what the script
    needs to show the value under the pointer. The newest point is at the right; a short past leaves the left empty, and
    a single point is no line."""
    shown = thinned(points, most)
    top = ceiling(max(shown, default=0.0))
    step = WIDTH / max(1, most - 1)
    begin = WIDTH - step * (len(shown) - 1)
    if len(shown) < 2:
        shown = []
    places = [f"{begin + number * step:.1f},{HEIGHT - value / top * HEIGHT:.1f}" for number, value in enumerate(shown)]
    area = [f"{begin:.1f},{HEIGHT}", *places, f"{WIDTH},{HEIGHT}"] if places else []
    return {
        "line": " ".join(places),
        "area": " ".join(area),
        "points": [round(value, 4) for value in shown],
        "begin": round(begin, 1),
        "step": round(step, 4),
        "top": top,
        "most": max(shown, default=None),
        "width": WIDTH,
        "height": HEIGHT,
    }
