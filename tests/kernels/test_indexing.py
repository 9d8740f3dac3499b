"""Indexing kernels against loops (IDX-RANGE, NUM-SCATTER), whole and over shards of the indexed dimension."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refflow.errors import DataError, IndexOutOfRange
from refflow.kernels.reference import KERNELS
from refflow.numerics.dtypes import bfloat16, cast, identity

from . import naive
from .naive import Array, assert_bits, seeds

DTYPES: list[np.dtype[Any]] = [np.dtype(np.float32), np.dtype(np.float64), np.dtype(np.int32)]
sizes = st.integers(1, 7)


def vocabulary(of: int, parts: int) -> list[dict[str, tuple[int, int, int]]]:
    return [{"v": (lo, hi, of)} for lo, hi in naive.cuts(of, parts)]


def indices(seed: int, shape: tuple[int, ...], of: int) -> Array:
    return np.random.default_rng(seed).integers(0, of, shape)


def check_shards(kernel: Callable[..., Array], x: Array, whole: Array, dim: int, parts: int) -> None:
    """Reading: each shard holds the whole's bits or the neutral element, and the tree over the shards is the whole."""
    shards = []
    for at in vocabulary(x.shape[dim], parts):
        lo, hi, _ = at["v"]
        shards.append(kernel(x[(slice(None),) * dim + (slice(lo, hi),)], at))
    assert_bits(KERNELS["fold"](*shards, kind="sum"), whole)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@given(seed=seeds, of=sizes, count=st.integers(0, 5), dim=st.integers(0, 1), parts=st.sampled_from([1, 2, 3, 4, 8]))
def test_index_select(dtype: np.dtype[Any], seed: int, of: int, count: int, dim: int, parts: int) -> None:
    x = naive.draw(seed, (of, 2) if dim == 0 else (2, of), dtype, 0.3)
    index = indices(seed, (2, count), of)

    def element(*at: int) -> Any:
        chosen = index[at[dim : dim + 2]]
        return x[(*at[:dim], chosen, *at[dim + 2 :])]

    with np.errstate(all="ignore"):
        whole = KERNELS["index_select"](x, index, dim=dim)
        assert_bits(whole, naive.build((*x.shape[:dim], 2, count, *x.shape[dim + 1 :]), dtype, element))
        check_shards(lambda part, at: KERNELS["index_select"](part, index, dim=dim, at=at), x, whole, dim, parts)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@given(seed=seeds, of=sizes, count=st.integers(0, 5), dim=st.integers(0, 1), parts=st.sampled_from([1, 2, 3, 4, 8]))
def test_gather(dtype: np.dtype[Any], seed: int, of: int, count: int, dim: int, parts: int) -> None:
    x = naive.draw(seed, (of, 3) if dim == 0 else (3, of), dtype, 0.3)
    index = indices(seed, (count, 2) if dim == 0 else (2, count), of)  # shorter than x in the other dimension

    def element(i: int, j: int) -> Any:
        return x[index[i, j], j] if dim == 0 else x[i, index[i, j]]

    with np.errstate(all="ignore"):
        whole = KERNELS["gather"](x, index, dim=dim)
        assert_bits(whole, naive.build(index.shape, dtype, element))
        check_shards(lambda part, at: KERNELS["gather"](part, index, dim=dim, at=at), x, whole, dim, parts)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@given(seed=seeds, of=sizes, count=st.integers(0, 9), dim=st.integers(0, 1), parts=st.sampled_from([1, 2, 3, 4, 8]))
def test_index_add(dtype: np.dtype[Any], seed: int, of: int, count: int, dim: int, parts: int) -> None:
    index = indices(seed, (2, count), of)
    src = naive.draw(seed, (2, count, 2) if dim == 0 else (2, 2, count), dtype, 0.1)

    def element(*at: int) -> Any:
        v, other = at[dim], at[1 - dim]
        terms = [
            (src[(*k, other)] if dim == 0 else src[(other, *k)]) if index[k] == v else None
            for k in naive.positions(index.shape)
        ]
        return naive.total(terms, identity("sum", dtype))

    with np.errstate(all="ignore"):
        whole = KERNELS["index_add"](index, src, dim=dim, size=of)
        assert_bits(whole, naive.build((of, 2) if dim == 0 else (2, of), dtype, element))
        shards = [KERNELS["index_add"](index, src, dim=dim, size=of, at=at) for at in vocabulary(of, parts)]
    assert_bits(np.concatenate(shards, axis=dim), whole)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@given(seed=seeds, of=sizes, count=st.integers(0, 9), dim=st.integers(0, 1), parts=st.sampled_from([1, 2, 3, 4, 8]))
def test_scatter_add(dtype: np.dtype[Any], seed: int, of: int, count: int, dim: int, parts: int) -> None:
    index = indices(seed, (count, 2) if dim == 0 else (2, count), of)
    src = naive.draw(seed, tuple(n + 1 for n in index.shape), dtype, 0.1)  # what lies beyond the index is not read

    def element(*at: int) -> Any:
        v, other = at[dim], at[1 - dim]
        places = [(k, other) if dim == 0 else (other, k) for k in range(count)]
        return naive.total([src[k] if index[k] == v else None for k in places], identity("sum", dtype))

    with np.errstate(all="ignore"):
        whole = KERNELS["scatter_add"](index, src, dim=dim, size=of)
        assert_bits(whole, naive.build((of, 2) if dim == 0 else (2, of), dtype, element))
        shards = [KERNELS["scatter_add"](index, src, dim=dim, size=of, at=at) for at in vocabulary(of, parts)]
    assert_bits(np.concatenate(shards, axis=dim), whole)


def test_halves_are_summed_in_float32_and_rounded_once() -> None:
    index, src = indices(1, (40,), 3), naive.draw(1, (40,), bfloat16)
    for name in ("index_add", "scatter_add"):
        wide = KERNELS[name](index, cast(src, DTYPES[0]), dim=0, size=3)
        assert_bits(KERNELS[name](index, src, dim=0, size=3), cast(wide, bfloat16))


def test_a_boolean_table_and_a_single_index() -> None:
    x = np.array([True, False, True])
    assert_bits(KERNELS["index_select"](x, np.array(2), dim=0), np.array(True))
    assert_bits(KERNELS["index_select"](x[:2], np.array([2, 0]), dim=0, at={"v": (0, 2, 3)}), np.array([False, True]))
    empty = KERNELS["index_select"](x[:0].astype(np.float32), np.array([2, 0]), dim=0, at={"v": (3, 3, 3)})
    assert_bits(empty, np.full(2, -0.0, np.float32))


@pytest.mark.parametrize("bad", [-1, 5])
@pytest.mark.parametrize("at", [{}, {"v": (0, 2, 5)}, {"v": (5, 5, 5)}], ids=["whole", "shard", "empty shard"])
def test_an_index_outside_the_whole_is_named_on_every_shard(bad: int, at: dict[str, tuple[int, int, int]]) -> None:
    lo, hi, _ = at.get("v", (0, 5, 5))
    x, index, src = np.ones((hi - lo, 2), np.float32), np.array([[0, 4], [bad, 9]]), np.ones((2, 2), np.float32)
    calls: list[Callable[[], Any]] = [
        lambda: KERNELS["index_select"](x, index, dim=0, at=at),
        lambda: KERNELS["gather"](x, index, dim=0, at=at),
        lambda: KERNELS["index_add"](index, src, dim=0, size=5, at=at),
        lambda: KERNELS["scatter_add"](index, src, dim=0, size=5, at=at),
        lambda: KERNELS["one_hot"](index, num_classes=5, at={"v": (lo, hi, 5)}),
    ]
    for call in calls:
        with pytest.raises(IndexOutOfRange, match=rf"index {bad} at position \(1, 0\) is outside \[0, 5\)") as raised:
            call()
        assert isinstance(raised.value, DataError) and isinstance(raised.value, IndexError)


@given(seed=seeds, of=sizes, parts=st.integers(1, 5))
def test_one_hot_shards_are_parts_of_the_whole(seed: int, of: int, parts: int) -> None:
    index = indices(seed, (2, 3), of)
    whole = KERNELS["one_hot"](index, num_classes=of)
    assert_bits(whole, naive.build((2, 3, of), np.dtype(np.int64), lambda i, j, v: int(index[i, j] == v)))
    assert_bits(
        np.concatenate([KERNELS["one_hot"](index, num_classes=of, at=at) for at in vocabulary(of, parts)], axis=-1),
        whole,
    )
