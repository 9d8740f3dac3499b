"""Compiled creation against the reference's, to the bit (ACC-KERNELS, RNG-INDEX)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.accel.kernels_alike import BY_NAME, assert_alike, shapes
from tests.strategies import examples


@pytest.mark.parametrize("dtype", BY_NAME)
def test_constants_and_ranges(dtype: str) -> None:  # ACC-KERNELS
    kind = BY_NAME[dtype]
    for value in (0, 1, -0.0, 1.7, float("nan"), 1e30) if kind.kind in "fV" else (0, 1, 7):
        for shape in ((), (0,), (3, 5), (5000,)):
            assert_alike("full", shape=shape, value=value, dtype=kind)
    start, step = (0.3, -1.7) if kind.kind in "fV" else (-3, 7)
    for at in ({}, {"d0": (3, 5000, 6000)}):
        assert_alike("arange", start=start, step=step, length=6000, dtype=kind, at=at, served=dtype != "bool")
    for at in ({}, {"d0": (2, 5, 7), "d1": (1, 4, 6)}, {"d0": (5, 7, 7), "d1": (0, 1, 6)}):
        assert_alike("eye", dims=(7, 6), dtype=kind, at=at)


@examples(25)
@given(st.data(), shapes(0, 3), st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
def test_random_numbers_of_shards(data: Any, dims: tuple[int, ...], seed: int, stream: int) -> None:  # RNG-INDEX
    at = {}
    for d, n in enumerate(dims):
        lo = data.draw(st.integers(0, n))
        if data.draw(st.booleans()):
            at[f"d{d}"] = (lo, data.draw(st.integers(lo, n)), n)
    for name in ("rand", "randn", "random_bits"):
        assert_alike(name, dims=dims, seed=seed, stream=stream, at=at)
    low, span = data.draw(st.integers(-9, 9)), data.draw(st.sampled_from([1, 7, 2**31, 2**32]))
    assert_alike("randint", dims=dims, seed=seed, stream=stream, at=at, low=low, high=low + span)


def test_many_random_numbers() -> None:  # RNG-INDEX
    for name in ("rand", "randn"):
        assert_alike(name, dims=(101, 203), seed=2**63 + 5, stream=9)
        assert_alike(name, dims=(101, 203), seed=5, stream=2**63, at={"d1": (3, 202, 203)})
