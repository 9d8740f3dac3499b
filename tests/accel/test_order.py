"""Compiled scans and sorting against the reference's, to the bit (ACC-KERNELS, NUM-SCAN, NUM-ORDER)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.accel.kernels_alike import BY_NAME, assert_alike, operands, shapes
from tests.strategies import arbitrary, examples


@examples(30)
@given(st.data(), shapes(1, 3))
def test_scans(data: Any, shape: tuple[int, ...]) -> None:  # NUM-SCAN
    dim = data.draw(st.integers(-len(shape), len(shape) - 1))
    assert_alike(data.draw(st.sampled_from(("cumsum", "cumprod"))), data.draw(operands(shape)), dim=dim)


@pytest.mark.parametrize("dtype", BY_NAME)
@pytest.mark.parametrize("descending", [False, True])
def test_sorting_is_stable(dtype: str, descending: bool) -> None:  # NUM-ORDER
    for shape, dim in [((0,), 0), ((1,), 0), ((24, 3), 0), ((3, 25), -1), ((2, 300, 2), 1), ((2000,), 0)]:
        x = arbitrary(np.random.default_rng(shape[0]), shape, BY_NAME[dtype], 0.2)
        assert_alike("argsort", x, dim=dim, descending=descending)
    ends = np.array([1, 0, -1, -(2**63), 2**63 - 1, 3, -3]) if dtype == "int64" else np.zeros(7)
    assert_alike("argsort", np.tile(ends, 5).astype(BY_NAME[dtype]), dim=0, descending=descending)


@examples(20)
@given(st.data(), shapes(1, 3), st.booleans())
def test_sorting_any_layout(data: Any, shape: tuple[int, ...], descending: bool) -> None:  # NUM-ORDER
    dim = data.draw(st.integers(-len(shape), len(shape) - 1))
    assert_alike("argsort", data.draw(operands(shape)), dim=dim, descending=descending)
