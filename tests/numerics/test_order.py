"""NUM-MAX and NUM-ORDER."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refflow.numerics import DTYPES, argmax, argmin, argsort, cast, maximum, minimum, same_bits

from .exact import patterns

FEW = [0.0, -0.0, 1.0, -1.0, 2.0, math.inf, -math.inf, math.nan]
columns = st.lists(st.sampled_from(FEW), min_size=1, max_size=12)


def larger(a: float, b: float) -> float:
    if math.isnan(a) or math.isnan(b):
        return math.nan
    if a == b == 0:
        return a if math.copysign(1, a) > 0 else b
    return a if a > b else b


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_maximum_and_minimum(dtype: Any) -> None:
    a, b = np.meshgrid(np.array(FEW), np.array(FEW))
    if dtype.kind in "biu":
        a, b = np.nan_to_num(a, nan=3), np.nan_to_num(b, nan=3)
    with np.errstate(all="ignore"):
        a, b = cast(a, dtype), cast(b, dtype)
        pairs = list(zip(a.astype(float).ravel(), b.astype(float).ravel()))
        big = np.array([larger(x, y) for x, y in pairs]).reshape(a.shape)
        small = np.array([-larger(-x, -y) for x, y in pairs]).reshape(a.shape)
        if dtype.kind not in "biu":
            assert same_bits(maximum(a, b), cast(big, dtype)) and same_bits(minimum(a, b), cast(small, dtype))
        else:
            assert same_bits(maximum(a, b), np.maximum(a, b)) and same_bits(minimum(a, b), np.minimum(a, b))
    assert maximum(a[:1], b[:, :1]).shape == a.shape and maximum(a[0, 0], b[0, 0]).shape == ()


def rank(v: float) -> tuple[bool, float]:
    return (math.isnan(v), 0.0 if math.isnan(v) else v)


def nan_or(values: list[float], other: int) -> int:
    """The first NaN, as the extremes propagate it; else `other`."""
    return next((i for i, value in enumerate(values) if math.isnan(value)), other)


@given(columns)
def test_argsort_is_stable_both_ways(values: list[float]) -> None:
    for dtype in ("float32", "float64", "float16", "bfloat16"):
        x = cast(np.array(values), next(d for d in DTYPES if d.name == dtype))
        order = range(len(values))
        up = sorted(order, key=lambda i: rank(values[i]))
        down = sorted(order, key=lambda i: (not math.isnan(values[i]), 0.0 if math.isnan(values[i]) else -values[i]))
        assert argsort(x).tolist() == up and argsort(x, descending=True).tolist() == down
        assert argmax(x).item() == down[0] and argmin(x).item() == nan_or(values, up[0])


def test_every_axis() -> None:
    x = patterns(0, 4, 5, 6)
    for axis in (0, 1, -1):
        for descending in (False, True):
            moved = np.moveaxis(x, axis, -1)
            each = np.array([argsort(row, -1, descending) for row in moved.reshape(-1, moved.shape[-1])])
            assert (argsort(x, axis, descending) == np.moveaxis(each.reshape(moved.shape), -1, axis)).all()
        assert (argmax(x, axis) == np.take(argsort(x, axis, True), 0, axis)).all()
        numbers = np.nan_to_num(x, nan=-np.inf)  # a NaN comes first
        expected = np.where(np.isnan(x).any(axis), np.argmax(np.isnan(x), axis), np.take(argsort(numbers, axis), 0, axis))
        assert (argmin(x, axis) == expected).all()
    assert argsort(x[:0]).shape == (0, 5, 6) and argsort(x).dtype == np.int64 == argmax(x).dtype


def test_integers_and_bools() -> None:
    x = np.array([3, -128, 127, 3], np.int8)
    assert argsort(x).tolist() == [1, 0, 3, 2] and argsort(x, descending=True).tolist() == [2, 0, 3, 1]
    assert argmax(x).item() == 2 and argmin(x).item() == 1
    assert argsort(np.array([True, False, True]), descending=True).tolist() == [0, 2, 1]
