"""Reductions against loops in the stated order (NUM-TREE, NUM-EMPTY, NUM-FOLD), and over shards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refflow.kernels.reference import KERNELS
from refflow.numerics.dtypes import bfloat16, cast, identity

from . import naive
from .naive import Array, assert_bits, seeds

COMBINE = {
    "sum": ("sum", lambda a, b: a + b),
    "prod": ("prod", lambda a, b: a * b),
    "amax": ("max", naive.maximum),
    "amin": ("min", naive.minimum),
}


def naive_reduce(name: str, x: Array, dims: Sequence[int]) -> Array:
    kind, combine = COMBINE[name]
    kept = [d for d in range(x.ndim) if d not in dims]

    def element(*at: int) -> Any:
        terms = []
        for inner in naive.positions([x.shape[d] for d in dims]):  # row-major over dims as they are given
            where = dict(zip(kept, at, strict=True)) | dict(zip(dims, inner, strict=True))
            terms.append(x[tuple(where[d] for d in range(x.ndim))])
        return naive.tree(terms, combine, identity(kind, x.dtype))

    return naive.build([x.shape[d] for d in kept], x.dtype, element)


@pytest.mark.parametrize("name", COMBINE)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.uint8], ids=lambda t: t.__name__)
@given(data=st.data(), shape=naive.shapes, seed=seeds, special=st.sampled_from([0.0, 0.2]))
def test_reductions_are_trees(
    name: str, dtype: type[Any], data: st.DataObject, shape: tuple[int, ...], seed: int, special: float
) -> None:
    dims = data.draw(st.permutations(range(len(shape))).flatmap(lambda p: st.integers(0, len(p)).map(lambda k: p[:k])))
    x = naive.draw(seed, shape, dtype, special)
    with np.errstate(all="ignore"):
        assert_bits(KERNELS[name](x, dims=tuple(dims)), naive_reduce(name, x, dims))


@pytest.mark.parametrize("n", [7, 33, 100])
def test_order_of_dims_is_the_order_of_the_tree(n: int) -> None:
    x = naive.draw(n, (3, n, 2))
    by_order = [KERNELS["sum"](x, dims=dims) for dims in ((0, 1), (1, 0))]
    assert_bits(by_order[0], naive_reduce("sum", x, (0, 1)))
    assert_bits(by_order[1], naive_reduce("sum", x, (1, 0)))


def test_empty_reductions_give_the_neutral_element() -> None:
    x = np.empty((0, 2), np.float32)
    for name, neutral in {"sum": -0.0, "prod": 1, "amax": -np.inf, "amin": np.inf}.items():
        assert_bits(KERNELS[name](x, dims=(0,)), np.full(2, neutral, np.float32))
    assert_bits(KERNELS["any"](x, dims=(0,)), np.zeros(2, bool))
    assert_bits(KERNELS["all"](x, dims=(0, 1)), np.array(True))


@pytest.mark.parametrize("name", COMBINE)
@pytest.mark.parametrize("dtype", [np.dtype(np.float16), bfloat16], ids=str)
def test_half_reductions_round_once(name: str, dtype: np.dtype[Any]) -> None:
    x = naive.draw(5, (13, 3), dtype)
    wide = cast(x, np.dtype(np.float32))
    assert_bits(KERNELS[name](x, dims=(0,)), cast(naive_reduce(name, wide, (0,)), dtype))


@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.bool_], ids=lambda t: t.__name__)
def test_any_and_all(dtype: type[Any]) -> None:
    x = np.array([[0, 1, 0], [0, 2, 3]]).astype(dtype)
    assert_bits(KERNELS["any"](x, dims=(0,)), np.array([False, True, True]))
    assert_bits(KERNELS["all"](x, dims=(0,)), np.array([False, True, False]))
    assert_bits(KERNELS["any"](x, dims=(1, 0)), np.array(True))
    nan = np.array([np.nan, -0.0], np.float32)
    assert_bits(KERNELS["any"](nan, dims=()), np.array([True, False]))


@given(seeds, st.integers(1, 9), st.sampled_from(list(COMBINE)))
def test_fold_is_the_tree_over_positions(seed: int, ranks: int, name: str) -> None:
    kind, combine = COMBINE[name]
    parts = list(naive.draw(seed, (ranks, 2, 3), np.float32, 0.2))
    expected = naive.build((2, 3), np.dtype(np.float32), lambda *at: naive.tree([p[at] for p in parts], combine, None))
    with np.errstate(all="ignore"):
        assert_bits(KERNELS["fold"](*parts, kind=kind), expected)


@pytest.mark.parametrize("parts", [2, 4, 8])
def test_equal_shards_summed_and_folded_are_the_whole(parts: int) -> None:
    x = naive.draw(3, (32, 5), np.float32)
    shards = [KERNELS["sum"](x[lo:hi], dims=(0,)) for lo, hi in naive.cuts(32, parts)]
    assert_bits(KERNELS["fold"](*shards, kind="sum"), KERNELS["sum"](x, dims=(0,)))


@given(seeds, st.sampled_from([0, 1, -1]))
def test_argmax_is_the_first_of_the_greatest(seed: int, dim: int) -> None:
    x = naive.draw(seed, (5, 4), np.float32, 0.6)
    lines = np.moveaxis(x, dim, -1)

    def first(line: Array, beats: Any) -> int:
        best = 0
        for i, value in enumerate(line):
            best = i if beats(value, line[best]) else best
        return best

    above = [first(line, lambda a, b: a > b or (np.isnan(a) and not np.isnan(b))) for line in lines]
    below = [first(line, lambda a, b: a < b or (np.isnan(a) and not np.isnan(b))) for line in lines]
    assert_bits(KERNELS["argmax"](x, dim=dim), np.array(above))
    assert_bits(KERNELS["argmin"](x, dim=dim), np.array(below))
