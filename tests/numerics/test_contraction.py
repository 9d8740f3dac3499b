"""NUM-CONTRACT: chains of fused multiply-adds in the canonical tree, blocked any way, split any aligned way."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refflow.errors import DtypeError, ShapeError
from refflow.numerics import LEAF, aligned, bfloat16, contract, fma32, fold_parts, same_bits
from refflow.numerics import contraction as module

from .exact import node, ordinary, patterns


def plain(a: Any, b: Any, present: Any = None) -> Any:
    """The definition for two matrices, term by term."""
    present = np.ones(b.shape, bool) if present is None else present

    def chain(terms: Any) -> Any:
        total = np.full((a.shape[0], b.shape[1]), -0.0, a.dtype)
        for t in terms:
            x, y = a[:, t, None], b[None, t]
            step = fma32(x, y, total) if a.dtype == np.float32 else total + x * y
            total = np.where(present[t], step, total)
        return total

    with np.errstate(all="ignore"):
        return node(range(a.shape[1]), LEAF, chain, np.add)


SHAPES = [
    (1, 1, 1), (3, 5, 7), (7, 5, 3), (8, 16, 8), (5, 17, 9), (4, 33, 2), (40, 100, 3), (2, 4097, 3), (130, 40, 90),
    (1, 0, 3), (0, 4, 2), (2, 4, 0), (1, 9000, 1), (1, 9000, 3),
]  # fmt: skip


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", SHAPES)
def test_contract_is_the_definition(shape: tuple[int, int, int], dtype: Any) -> None:
    m, k, n = shape
    a, b = ordinary(k, m, k, dtype=dtype), ordinary(k + 1, k, n, dtype=dtype)
    assert same_bits(contract(a, b), plain(a, b))


def test_every_length() -> None:
    for k in range(1, 140):
        a, b = ordinary(k, 3, k), ordinary(k + 1, k, 2)
        assert same_bits(contract(a, b), plain(a, b)), k


@given(st.integers(0, 50), st.integers(0, 2**32 - 1))
def test_any_bit_patterns_and_absent_taps(k: int, seed: int) -> None:
    a, b = patterns(seed, 3, k), patterns(seed + 1, k, 4)
    present = np.random.default_rng(seed).random((k, 4)) < 0.6
    assert same_bits(contract(a, b), plain(a, b))
    assert same_bits(contract(a, b, present), plain(a, b, present))
    assert same_bits(contract(b.T, a.T), plain(b.T, a.T))
    tall = contract(np.concatenate([a, a]), b, present)
    assert same_bits(tall[3:], plain(a, b, present))


def test_integers_in_disguise() -> None:
    """Exact sums are where every binary64 total has its low bits zero: the repair must not touch them."""
    rng = np.random.default_rng(0)
    a, b = rng.integers(-9, 9, (20, 50)).astype(np.float32), rng.integers(-9, 9, (50, 30)).astype(np.float32)
    assert (contract(a, b) == np.matmul(a.astype(np.int64), b.astype(np.int64))).all()


def test_double_rounding_is_repaired() -> None:
    """4097 * 4097 is a binary32 midpoint; the first term decides which way it goes."""
    a = np.array([[2.0**-60, 4097.0], [-(2.0**-60), 4097.0], [0.0, 4097.0]], np.float32)
    b = np.array([[1.0], [4097.0]], np.float32)
    assert contract(a, b)[:, 0].tolist() == [16785410.0, 16785408.0, 16785408.0]


def test_batches_broadcast() -> None:
    a, b = ordinary(0, 2, 1, 4, 20), ordinary(1, 3, 20, 5)
    present = np.random.default_rng(2).random((3, 20, 1)) < 0.5
    found, masked = contract(a, b), contract(a, b, present)
    assert found.shape == (2, 3, 4, 5)
    for i, j in itertools.product(range(2), range(3)):
        assert same_bits(found[i, j], plain(a[i, 0], b[j]))
        assert same_bits(masked[i, j], plain(a[i, 0], b[j], np.broadcast_to(present[j], (20, 5))))
    assert same_bits(contract(a[0, 0], b)[1], plain(a[0, 0], b[1]))
    assert contract(a[:, :0], b[:0]).shape == (2, 0, 4, 5)


@pytest.mark.parametrize("block", [16, 64, 1000])
def test_blocking_changes_nothing(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = ordinary(3, 3, 9, 300), ordinary(4, 3, 300, 11)
    present = np.random.default_rng(5).random((300, 11)) < 0.8
    whole, masked = contract(a, b), contract(a, b, np.broadcast_to(present, b.shape))
    monkeypatch.setattr(module, "_BLOCK", block)
    assert same_bits(contract(a, b), whole)
    assert same_bits(contract(a, b, present), masked)


def test_integer_products_wrap() -> None:
    a, b = np.full((1, 3), 100, np.int8), np.full((3, 1), 100, np.int8)
    assert contract(a, b).item() == np.int64(30000).astype(np.int8) and contract(a, b).dtype == np.int8
    assert contract(a, b, np.array([[True], [False], [False]])).item() == np.int64(10000).astype(np.int8)
    assert same_bits(contract(a[:, :0], b[:0]), np.zeros((1, 1), np.int8))


@given(st.integers(1, 200), st.sampled_from([1, 2, 3, 4, 8]), st.integers(0, 2**32 - 1))
def test_aligned_splits_keep_every_bit(k: int, p: int, seed: int) -> None:
    k = k * p if seed % 2 else k
    bounds = [0, *itertools.accumulate(k // p + (i < k % p) for i in range(p))]
    a, b = ordinary(seed, 3, k), ordinary(seed + 1, k, 4)
    parts = [contract(a[:, lo:hi], b[lo:hi]) for lo, hi in itertools.pairwise(bounds)]
    if aligned(bounds, LEAF):
        assert same_bits(fold_parts(parts, "sum"), contract(a, b))


def test_contract_refuses() -> None:
    one = np.ones((2, 2), np.float32)
    with pytest.raises(ShapeError):
        contract(one, one[:1])
    with pytest.raises(ShapeError):
        contract(one[0], one)
    with pytest.raises(DtypeError):
        contract(one, one.astype(np.float64))
    with pytest.raises(DtypeError):
        contract(one.astype(bfloat16), one.astype(bfloat16))
