"""Creation kernels: values from the logical index alone, so shards are parts of the whole (RNG-INDEX)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refflow.kernels.reference import KERNELS
from refflow.numerics import philox
from refflow.numerics.dtypes import bfloat16, cast, float16, float32, float64, int8, int64

from . import naive
from .naive import Array, assert_bits

DRAWS: dict[str, dict[str, Any]] = {"rand": {}, "randn": {}, "random_bits": {}, "randint": {"low": -5, "high": 12}}


@pytest.mark.parametrize("dtype", [float32, float64, float16, bfloat16, int64, np.dtype(bool)], ids=str)
@pytest.mark.parametrize("value", [0, 1, -0.0, 0.1, float("inf"), float("nan"), True])
def test_full_rounds_its_value_once(value: float, dtype: np.dtype[Any]) -> None:
    expected = cast(np.array(value), dtype)
    assert_bits(KERNELS["full"](shape=(2, 3), value=value, dtype=dtype), np.broadcast_to(expected, (2, 3)).copy())
    assert_bits(KERNELS["full"](shape=(), value=value, dtype=dtype), expected)
    assert KERNELS["full"](shape=(0, 3), value=value, dtype=dtype).shape == (0, 3)


def test_full_takes_large_integers() -> None:
    assert KERNELS["full"](shape=(1,), value=2**62 + 1, dtype=int64).tolist() == [2**62 + 1]


@pytest.mark.parametrize("dtype", [float32, float64], ids=str)
@given(start=st.floats(-100, 100), step=st.floats(-3, 3), n=st.integers(0, 40), parts=st.integers(1, 6))
def test_arange_rounds_index_product_and_sum(
    dtype: np.dtype[Any], start: float, step: float, n: int, parts: int
) -> None:
    whole = KERNELS["arange"](start=start, step=step, length=n, dtype=dtype)
    first, by = (cast(np.array(a), dtype)[()] for a in (start, step))
    assert_bits(whole, np.array([first + dtype.type(i) * by for i in range(n)], dtype))
    shards = [
        KERNELS["arange"](start=start, step=step, length=n, dtype=dtype, at={"d0": (lo, hi, n)})
        for lo, hi in naive.cuts(n, parts)
    ]
    assert_bits(np.concatenate(shards), whole)


def test_arange_of_integers_and_halves() -> None:
    at = {"d0": (2, 6, 9)}
    assert_bits(KERNELS["arange"](start=3, step=-2, length=9, dtype=int64, at=at), np.array([-1, -3, -5, -7]))
    assert_bits(
        KERNELS["arange"](start=126, step=1, length=9, dtype=int8, at=at), np.array([-128, -127, -126, -125], np.int8)
    )
    start, step = (np.float32(cast(np.array(a), bfloat16)) for a in (0.1, 0.3))
    expected = cast(np.array([start + np.float32(i) * step for i in range(2, 60)], np.float32), bfloat16)
    assert_bits(KERNELS["arange"](start=0.1, step=0.3, length=60, dtype=bfloat16, at={"d0": (2, 60, 60)}), expected)


@pytest.mark.parametrize("dtype", [float32, bfloat16, int64, np.dtype(bool)], ids=str)
@pytest.mark.parametrize("parts", [(1, 1), (2, 3), (8, 2)])
def test_eye_shards_are_parts_of_the_whole(dtype: np.dtype[Any], parts: tuple[int, int]) -> None:
    whole = naive.build((5, 7), dtype, lambda r, c: r == c)
    for top, bottom in naive.cuts(5, parts[0]):
        for left, right in naive.cuts(7, parts[1]):
            at = {"d0": (top, bottom, 5), "d1": (left, right, 7)}
            assert_bits(KERNELS["eye"](dims=(5, 7), dtype=dtype, at=at), whole[top:bottom, left:right].copy())


def shards_of(name: str, dims: tuple[int, ...], parts: tuple[int, ...], **attributes: Any) -> Array:
    """Return the whole put together from the shards of a grid."""
    out = np.empty(dims, KERNELS[name](dims=dims, **attributes).dtype)
    cuts = [naive.cuts(n, p) for n, p in zip(dims, parts, strict=True)]
    for place in naive.positions([len(c) for c in cuts]):
        ranges = [c[k] for c, k in zip(cuts, place, strict=True)]
        at = {f"d{d}": (*bounds, dims[d]) for d, bounds in enumerate(ranges)}
        shard = KERNELS[name](dims=dims, at=at, **attributes)
        assert shard.shape == tuple(hi - lo for lo, hi in ranges)
        out[tuple(slice(*bounds) for bounds in ranges)] = shard
    return out


@pytest.mark.parametrize("name", DRAWS)
@given(
    dims=st.lists(st.integers(0, 5), max_size=3).map(tuple),
    parts=st.lists(st.integers(1, 4), min_size=3, max_size=3),
    seed=st.integers(0, 2**64 - 1),
    stream=st.integers(0, 2**64 - 1),
)
def test_random_shards_are_parts_of_the_whole(
    name: str, dims: tuple[int, ...], parts: list[int], seed: int, stream: int
) -> None:
    attributes = {"seed": seed, "stream": stream, **DRAWS[name]}
    whole = KERNELS[name](dims=dims, **attributes)
    assert_bits(shards_of(name, dims, tuple(parts[: len(dims)]), **attributes), whole)


def test_random_counter_is_the_row_major_logical_index() -> None:
    index = np.arange(24, dtype=np.uint64).reshape(2, 3, 4)
    common: dict[str, Any] = {"dims": (2, 3, 4), "seed": 7, "stream": 3}
    assert_bits(KERNELS["random_bits"](**common), philox.random_bits(index, 7, 3).astype(np.int64))
    assert_bits(KERNELS["rand"](**common), philox.uniform(index, 7, 3))
    assert_bits(KERNELS["randn"](**common), philox.normal(index, 7, 3))
    assert_bits(KERNELS["randint"](low=2, high=9, **common), philox.integers(index, 2, 9, 7, 3))
    far = {"d0": (2**33, 2**33 + 1, 2**34), "d1": (1, 4, 5)}  # more than 32 bits of index
    expected = philox.random_bits(np.arange(1, 4, dtype=np.uint64) + np.uint64(5 * 2**33), 7, 3).astype(np.int64)
    found = KERNELS["random_bits"](dims=(2**34, 5), at=far, seed=7, stream=3)
    assert_bits(found, expected[None])
