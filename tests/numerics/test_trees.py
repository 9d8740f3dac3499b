"""NUM-TREE, NUM-FOLD, NUM-SCATTER, NUM-ALIGN: one order of adding, whatever splits the terms."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refflow.errors import DtypeError, NumericsError, ShapeError
from refflow.numerics import (
    aligned,
    bfloat16,
    cast,
    fold_parts,
    identity,
    maximum,
    minimum,
    same_bits,
    scatter_tree,
    tree_fold,
    tree_sum,
)
from refflow.numerics.trees import slots

from .exact import node, ordinary, patterns

COMBINE: dict[str, Any] = {"sum": np.add, "prod": np.multiply, "max": maximum, "min": minimum}


def plain(x: np.ndarray[Any, Any], kind: str) -> Any:
    """The tree of leaf 1 over axis 0, recursively."""
    if len(x) == 0:
        return np.full(x.shape[1:], identity(kind, x.dtype), x.dtype)
    with np.errstate(all="ignore"):
        return np.asarray(node(list(x), 1, lambda t: t[0], COMBINE[kind]))


@pytest.mark.parametrize("kind", ["sum", "prod", "max", "min"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int8, np.int64])
def test_tree_fold_is_the_recursion(kind: str, dtype: Any) -> None:
    for n in range(71):
        x = patterns(n, n, 3) if dtype == np.float32 else ordinary(n, n, 3, dtype=np.float64)
        x = x if dtype == np.float32 else cast(x, dtype)
        assert same_bits(tree_fold(x, 0, kind), plain(x, kind)), n


def test_tree_fold_of_bools() -> None:
    x = np.random.default_rng(0).random((9, 40)) < 0.1
    assert (tree_fold(x, 0, "max") == x.any(0)).all() and (tree_fold(x, 0, "min") == x.all(0)).all()
    assert tree_fold(x[:0], 0, "min").all() and not tree_fold(x[:0], 0, "max").any()


def test_sum_keeps_minus_zero() -> None:
    for n in range(71):
        assert same_bits(tree_sum(np.full(n, -0.0, np.float32), 0), np.array(-0.0, np.float32))
        if n:
            one = np.full(n, -0.0, np.float32)
            one[n // 2] = 0.0
            assert same_bits(tree_sum(one, 0), np.array(0.0, np.float32))


def test_long_ranges_and_every_axis() -> None:
    x = ordinary(1, 40001)
    assert same_bits(tree_sum(x, 0), plain(x, "sum"))
    y = ordinary(2, 4, 37, 5)
    for axis in (-3, -2, -1, 0, 1, 2):
        assert same_bits(tree_sum(y, axis), plain(np.moveaxis(y, axis, 0), "sum"))


def test_halves_are_folded_in_float32_and_rounded_once() -> None:
    x = ordinary(3, 50, 4).astype(bfloat16)
    assert same_bits(tree_sum(x, 0), plain(x.astype(np.float32), "sum").astype(bfloat16))
    assert same_bits(fold_parts(list(x), "sum"), tree_sum(x, 0))
    assert same_bits(tree_fold(x, 0, "max"), plain(x, "max"))


@pytest.mark.parametrize("leaf", [1, 2, 3, 8, 16, 32])
def test_slots_are_the_tree(leaf: int) -> None:
    def expand(depth: int, leaves: dict[int, Any], index: int = 0, size: int | None = None) -> Any:
        size = 1 << depth if size is None else size
        if size == 1:
            return leaves.get(index)
        first, rest = expand(0, leaves, index, size // 2), expand(0, leaves, index + size // 2, size // 2)
        return first if rest is None else (first, rest)

    for n in range(1, 200):
        plan = slots(n, leaf)
        spans = {
            int(p): (int(s), int(s) + length) for p, s, length in zip(plan.place, plan.start, plan.lengths, strict=True)
        }
        assert expand(plan.depth, spans) == symbolic(0, n, leaf)
        assert plan.active == tuple(sum(length > t for length in plan.lengths) for t in range(plan.lengths[0]))


def test_fold_parts_is_the_tree_over_positions() -> None:
    for p in range(1, 18):
        x = patterns(p, p, 6)
        for kind in COMBINE:
            assert same_bits(fold_parts(list(x), kind), plain(x, kind))


def test_fold_parts_refuses() -> None:
    one = np.zeros(2, np.float32)
    with pytest.raises(NumericsError):
        fold_parts([], "sum")
    with pytest.raises(NumericsError):
        fold_parts([one], "mean")
    with pytest.raises(ShapeError):
        fold_parts([one, one[:1]], "sum")
    with pytest.raises(DtypeError):
        fold_parts([one, one.astype(np.float64)], "sum")
    with pytest.raises(NumericsError):
        tree_fold(one, 0, "mean")


# --- scatter


def dense_scatter(values: Any, target: Any, size: int, extent: int, source: Any) -> Any:
    full = np.full((extent, size, *values.shape[1:]), identity("sum", values.dtype), values.dtype)
    for v, t, s in zip(values, target, source):
        if 0 <= t < size:
            full[s, t] = v
    return plain(full, "sum")


@given(
    st.integers(0, 40), st.integers(1, 6), st.integers(0, 2**32 - 1), st.sampled_from([np.float32, np.int64, bfloat16])
)
def test_scatter_tree_is_the_dense_tree(n: int, size: int, seed: int, dtype: Any) -> None:
    rng = np.random.default_rng(seed)
    values = cast(ordinary(seed, n, 3), dtype)
    target = rng.integers(-1, size + 1, n)  # some outside
    wide = values.astype(np.float32) if dtype == bfloat16 else values
    wanted = cast(dense_scatter(wide, target, size, max(n, 1), np.arange(n)), dtype)
    assert same_bits(scatter_tree(values, target, size, n), wanted)


@given(st.integers(1, 5), st.integers(1, 30), st.integers(0, 2**32 - 1))
def test_scatter_tree_with_sources(size: int, extent: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    pairs = rng.permutation(size * extent)[: rng.integers(0, size * extent + 1)]
    target, source = np.divmod(pairs, extent)
    values = patterns(seed, len(pairs), 2)
    wanted = dense_scatter(values, target, size, extent, source)
    assert same_bits(scatter_tree(values, target, size, extent, source), wanted)


def test_scatter_tree_leaves_its_input_alone_and_refuses() -> None:
    values = np.ones((4, 2), np.float32)
    kept = values.copy()
    scatter_tree(values, np.zeros(4, int), 1, 4)
    assert same_bits(values, kept)
    with pytest.raises(ShapeError):
        scatter_tree(values, np.zeros(3, int), 1, 4)
    with pytest.raises(ShapeError):
        scatter_tree(values, np.zeros(4, int), 1, 3)


# --- alignment


def symbolic(lo: int, hi: int, leaf: int) -> Any:
    """The tree over [lo, hi) as nested pairs of leaves; None if empty."""
    if hi == lo:
        return None
    return node(range(lo, hi), leaf, lambda r: (r[0], r[-1] + 1), lambda a, b: (a, b))


def folded(bounds: Sequence[int], leaf: int) -> Any:
    """The tree over positions of the shards' trees, absent ones dropped."""

    def join(a: Any, b: Any) -> Any:
        return b if a is None else a if b is None else (a, b)

    return node(list(itertools.pairwise(bounds)), 1, lambda s: symbolic(*s[0], leaf), join)


def balanced(n: int, p: int) -> list[int]:
    return [0, *itertools.accumulate(n // p + (i < n % p) for i in range(p))]


def candidates(n: int, p: int, leaf: int) -> Iterator[list[int]]:
    yield balanced(n, p)
    yield [0] * p + [n]
    yield [0] + [n] * p
    yield [0] * (p // 2) + [n] * (p + 1 - p // 2)
    tree = [0, n]  # the tree's own cuts: repeatedly halve every piece longer than the leaf
    while len(tree) <= p:
        cuts = [lo + math.ceil((hi - lo) / 2) if hi - lo > leaf else hi for lo, hi in itertools.pairwise(tree)]
        tree = sorted([*tree, *cuts])
    yield tree[:p] + [n]
    rng = np.random.default_rng(n * 17 + p)
    yield [0, *np.sort(rng.integers(0, n + 1, p - 1)).tolist(), n]


@pytest.mark.parametrize("leaf", [1, 16])
def test_aligned_says_exactly_when_the_trees_are_one(leaf: int) -> None:
    yes = no = 0
    for p, n in itertools.product(range(2, 17), range(65)):
        for bounds in candidates(n, p, leaf):
            same = folded(bounds, leaf) == symbolic(0, n, leaf)
            assert aligned(bounds, leaf) == same, bounds
            yes, no = yes + same, no + (not same)
    assert yes > 1000 and no > 1000


def test_aligned_on_every_small_split() -> None:
    for p, n in itertools.product(range(1, 6), range(8)):
        for cuts in itertools.combinations_with_replacement(range(n + 1), p - 1):
            for leaf in (1, 2):
                bounds = [0, *cuts, n]
                assert aligned(bounds, leaf) == (folded(bounds, leaf) == symbolic(0, n, leaf)), bounds
                assert aligned([b + 100 for b in bounds], leaf) == aligned(bounds, leaf)


@given(st.integers(0, 64), st.integers(1, 16), st.integers(0, 2**32 - 1))
def test_aligned_splits_keep_every_bit(n: int, p: int, seed: int) -> None:
    bounds = balanced(n, p)
    x = ordinary(seed, n, 8)
    parts = [tree_sum(x[lo:hi], 0) for lo, hi in itertools.pairwise(bounds)]
    if aligned(bounds, 1):
        assert same_bits(fold_parts(parts, "sum"), tree_sum(x, 0))
