"""A loss curve: a number for each step of a run, drawn against the step.

Implements PIC-CURVE of spec/text/pictures.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby, pairwise

from ..errors import AttributeValueError
from .ink import FAINT, RULE, Drawing, colour, width_of
from .picture import Picture

_LEFT, _TOP, _WIDTH, _HEIGHT = 64.0, 62.0, 640.0, 300.0
_BARS = "▁▂▃▄▅▆▇█"
_BARS_WIDE = 60

Points = Sequence[tuple[int, float]]  # (step, value), steps ascending


def draw_curve(points: Points, title: str, what: str = "loss") -> Picture:
    """The values against their steps; those that are no finite numbers leave a gap.

    Errors: `AttributeValueError` for no points or steps that do not ascend.  Source: PIC-CURVE.
    """
    steps = [step for step, _ in points]
    if not points or any(after <= before for before, after in pairwise(steps)):
        raise AttributeValueError(f"draw_curve: needs points whose steps ascend, found {len(points)} points")
    words = _text(points, title, what)
    return Picture(_svg(points, title, what, words), words)


def _text(points: Points, title: str, what: str) -> str:
    """The same in words: first, least and last, and a row of bars."""
    (first, begin), (last, end) = points[0], points[-1]
    said = f"{title}: {what} {begin:.4f} at step {first}"
    finite = [(value, step) for step, value in points if math.isfinite(value)]
    if len(points) > 1:
        least = f", least {min(finite)[0]:.4f} at step {min(finite)[1]}" if finite else ""
        said += f"{least}, {end:.4f} at step {last}"
    return f"{said}\n{_bars([value for _, value in points])}"


def _bars(values: Sequence[float]) -> str:
    """A bar for every value, or for every so many their mean; a blank for what is not finite."""
    count = min(len(values), _BARS_WIDE)
    cuts = [i * len(values) // count for i in range(count + 1)]
    means = [math.fsum(values[a:b]) / (b - a) if all(map(math.isfinite, values[a:b])) else math.nan for a, b in pairwise(cuts)]
    finite = [mean for mean in means if math.isfinite(mean)]
    low, high = (min(finite), max(finite)) if finite else (0.0, 0.0)
    scale = (len(_BARS) - 1) / (high - low) if high > low else 0.0
    return "".join(_BARS[round((mean - low) * scale)] if math.isfinite(mean) else " " for mean in means)


def _svg(points: Points, title: str, what: str, words: str) -> str:
    drawing = Drawing()
    drawing.rect((_LEFT, _TOP, _WIDTH, _HEIGHT), "none")  # room for the curve
    drawing.text(16, 26, title, 14, bold=True)
    drawing.text(16, 45, f"{what} of each step", 11, fill=FAINT)
    finite = [value for _, value in points if math.isfinite(value)]
    low, high = (min(finite), max(finite)) if finite else (0.0, 1.0)
    rows = ticks(low, high, 6)
    low, high = min(low, rows[0]), max(high, rows[-1])
    first, last = points[0][0], points[-1][0]
    right = max(last, first + 1)

    def at(step: float, value: float) -> tuple[float, float]:
        across = (step - first) / (right - first)
        up = (value - low) / (high - low) if high > low else 0.5
        return _LEFT + across * _WIDTH, _TOP + (1 - up) * _HEIGHT

    for row in rows:
        x, y = at(first, row)
        drawing.line((x, y), (x + _WIDTH, y), RULE)
        drawing.text(x - 8, y + 4, f"{row:g}", 11, fill=FAINT, at="end")
    for column in ticks(first, right, 8):
        if column == int(column) and first <= column <= last:
            x, _ = at(column, low)
            drawing.line((x, _TOP + _HEIGHT), (x, _TOP + _HEIGHT + 5), FAINT)
            drawing.text(x, _TOP + _HEIGHT + 19, f"{int(column)}", 11, fill=FAINT, at="middle")
    drawing.line((_LEFT, _TOP + _HEIGHT), (_LEFT + _WIDTH, _TOP + _HEIGHT), FAINT)
    drawing.text(_LEFT + _WIDTH / 2, _TOP + _HEIGHT + 38, "step", 11, fill=FAINT, at="middle")
    for unbroken, stretch in groupby(points, lambda point: math.isfinite(point[1])):
        if unbroken:
            drawing.curve([at(*point) for point in stretch], colour(4))
    step, value = points[-1]
    if math.isfinite(value):
        x, y = at(step, value)
        drawing.rect((x - 2.5, y - 2.5, 5, 5), colour(4))
        label = f"{value:.4f}"
        drawing.text(x + 8, y + 4, label, 11, bold=True)
        drawing.rect((x, y, 14 + width_of(label, 11), 0), "none")  # room for the label
    return drawing.document(title, words)


def ticks(low: float, high: float, most: int) -> list[float]:
    """Round numbers (1, 2 or 5 times a power of ten apart), at most about `most`, that enclose [low, high]."""
    if not high > low:
        return [low]
    rough = (high - low) / most
    power = 10.0 ** math.floor(math.log10(rough))
    apart = next(step * power for step in (1, 2, 5, 10) if step * power >= rough * (1 - 1e-9))
    return [round(i * apart, 12) for i in range(math.floor(low / apart), math.ceil(high / apart) + 1)]
