"""Scans and sorting against loops (NUM-SCAN, NUM-ORDER)."""

from __future__ import annotations

from functools import cmp_to_key
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refflow.kernels.reference import KERNELS
from refflow.numerics.dtypes import bfloat16, cast

from . import naive
from .naive import Array, assert_bits, seeds

SCANS = {"cumsum": lambda a, b: a + b, "cumprod": lambda a, b: a * b}


def naive_scan(name: str, line: Array) -> Array:
    out = line.copy()
    for i in range(1, len(line)):
        out[i] = SCANS[name](out[i - 1], line[i])
    return out


@pytest.mark.parametrize("name", SCANS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.int64], ids=lambda t: t.__name__)
@given(seed=seeds, n=st.integers(0, 9), dim=st.integers(0, 2), special=st.sampled_from([0.0, 0.2]))
def test_scans_ascend_from_the_first_element(
    name: str, dtype: type[Any], seed: int, n: int, dim: int, special: float
) -> None:
    x = naive.draw(seed, tuple(n if d == dim else 2 for d in range(3)), dtype, special)
    with np.errstate(all="ignore"):
        expected = np.apply_along_axis(lambda line: naive_scan(name, line), dim, x) if n else x
        assert_bits(KERNELS[name](x, dim=dim), expected)


def test_scans_keep_negative_zero_and_take_halves_in_float32() -> None:
    x = np.array([-0.0, -0.0, 1], np.float32)
    assert_bits(KERNELS["cumsum"](x, dim=0), x)
    x = naive.draw(1, (40,), bfloat16)
    for name in SCANS:
        wide = naive_scan(name, cast(x, np.dtype(np.float32)))
        assert_bits(KERNELS[name](x, dim=0), cast(wide, bfloat16))


def compare(a: float, b: float) -> int:
    """Return -1, 0, 1 with NaN largest and -0 equal to +0."""
    if np.isnan(a) or np.isnan(b):
        return int(np.isnan(a)) - int(np.isnan(b))
    return int(a > b) - int(a < b)


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("dtype", [np.dtype(np.float32), bfloat16, np.dtype(np.int8), np.dtype(np.bool_)], ids=str)
@given(seed=seeds, n=st.integers(0, 12))
def test_argsort_is_stable_both_ways(descending: bool, dtype: np.dtype[Any], seed: int, n: int) -> None:
    x = naive.draw(seed, (n,), dtype, 0.7)

    def before(i: int, j: int) -> int:
        return compare(x[j], x[i]) if descending else compare(x[i], x[j])

    expected = np.array(sorted(range(n), key=cmp_to_key(before)), np.int64)
    assert_bits(KERNELS["argsort"](x, dim=0, descending=descending), expected)


def test_argsort_along_a_dimension() -> None:
    x = np.array([[3, 1, 2], [0, 5, 5]], np.int32)
    assert_bits(KERNELS["argsort"](x, dim=1, descending=True), np.array([[0, 2, 1], [1, 2, 0]]))
    assert_bits(KERNELS["argsort"](x, dim=0, descending=False), np.array([[1, 0, 0], [0, 1, 1]]))
