"""PIC-CURVE, CLI-PLOT: a run as a curve, and in words."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refflow.errors import AttributeValueError
from refflow.pictures.curve import draw_curve, ticks

FINITE = st.floats(-1e6, 1e6)


@given(st.lists(FINITE | st.sampled_from([math.inf, -math.inf, math.nan]), min_size=1, max_size=90), st.integers(1, 5))
def test_any_run_is_drawn(values: list[float], apart: int) -> None:
    """PIC-CURVE: the curve stays inside the picture, whatever the values; a bar each, sixty at most."""
    points = [(3 + i * apart, value) for i, value in enumerate(values)]
    picture = draw_curve(points, "a <run>")
    root = ET.fromstring(picture.svg)
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    for path in root.iter("{http://www.w3.org/2000/svg}path"):
        numbers = path.attrib["d"].replace("M", " ").replace("L", " ").split()
        assert all(0 <= float(x) <= width for x in numbers[::2]) and all(0 <= float(y) <= height for y in numbers[1::2])
    first, bars = picture.text.splitlines()
    assert first.startswith("a <run>: loss ") and len(bars) == min(len(values), 60)


def test_a_gap_is_left_where_there_is_no_number() -> None:
    """PIC-CURVE"""
    whole = draw_curve([(i, float(i)) for i in range(1, 7)], "run").svg
    broken = draw_curve([(i, math.nan if i == 3 else float(i)) for i in range(1, 7)], "run").svg
    assert broken.count("stroke-linejoin") == whole.count("stroke-linejoin") + 1 == 2


def test_steps_ascend() -> None:
    """PIC-CURVE"""
    for points in ([], [(1, 0.0), (1, 0.0)], [(2, 0.0), (1, 0.0)]):
        with pytest.raises(AttributeValueError, match="steps ascend"):
            draw_curve(points, "run")


@given(FINITE, st.floats(1e-3, 1e6))
def test_ticks_are_round_and_enclose(low: float, length: float) -> None:
    """PIC-CURVE"""
    high = low + length
    found = ticks(low, high, 6)
    assert found[0] <= low + 1e-6 * length and found[-1] >= high - 1e-6 * length and 2 <= len(found) <= 9
    assert ticks(low, low, 6) == [low]
