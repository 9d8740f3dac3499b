"""Scalar definitions the kernels are held against, and the data they are tried on: loops, one element at a time."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from refflow.numerics.bits import same_bits
from refflow.numerics.dtypes import bfloat16, cast
from refflow.numerics.profile import LEAF
from refflow.numerics.rounding import fma32

Array = NDArray[Any]
Term = tuple[Any, Any] | None  # two factors, or nothing where a tap is absent

TINY, SMALLEST_NORMAL, LARGEST = 2.0**-149, 2.0**-126, float(np.finfo(np.float32).max)
SPECIALS = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, TINY, -TINY, SMALLEST_NORMAL, LARGEST, -LARGEST]
ORDINARY = [0.5, -0.5, 1.5, 2.5, -2.5, 3.1415927, -7.25, 1e-5, 16777217.0, 1e20, 0.1, -0.3]
FLOATS: list[np.dtype[Any]] = [np.dtype(np.float32), np.dtype(np.float64), np.dtype(np.float16), bfloat16]
INTEGERS: list[np.dtype[Any]] = [np.dtype(t) for t in (np.int8, np.uint8, np.int32, np.int64)]


def assert_bits(found: Array, expected: Array) -> None:
    assert isinstance(found, np.ndarray)
    assert found.dtype == expected.dtype and found.shape == expected.shape
    assert same_bits(found, expected), f"found\n{found!r}\nexpected\n{expected!r}"


def values(dtype: np.dtype[Any]) -> Array:
    """Return the special and ordinary values as one array of `dtype`, rounded once."""
    return cast(np.array(SPECIALS + ORDINARY), dtype)


def draw(seed: int, shape: Sequence[int], dtype: Any = np.float32, special: float = 0.0) -> Array:
    """Return reproducible test data of many magnitudes; a share `special` of it is ±0, subnormal, infinite or NaN."""
    rng = np.random.default_rng(seed)
    dtype = np.dtype(dtype)
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(dtype)
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        return rng.integers(info.min, info.max, shape, dtype=dtype, endpoint=True)
    x = rng.standard_normal(shape) * 2.0 ** rng.integers(-6, 7, shape)
    return cast(np.asarray(np.where(rng.random(shape) < special, rng.choice(SPECIALS, shape), x)), dtype)


def positions(shape: Sequence[int]) -> Iterator[tuple[int, ...]]:
    return itertools.product(*map(range, shape))


def build(shape: Sequence[int], dtype: np.dtype[Any], element: Callable[..., Any]) -> Array:
    """Return the array whose element at each position is element(*position)."""
    out = np.empty(shape, dtype)
    for position in positions(shape):
        out[position] = element(*position)
    return out


def tree(terms: Sequence[Any], combine: Callable[[Any, Any], Any], empty: Any) -> Any:
    """Return node(first half, rounded up) combined with node(rest); one term is itself (NUM-TREE)."""
    if len(terms) <= 1:
        return terms[0] if terms else empty
    half = (len(terms) + 1) // 2
    return combine(tree(terms[:half], combine, empty), tree(terms[half:], combine, empty))


def add(a: Any, b: Any) -> Any:
    """Return the sum, where None is an absent term."""
    return b if a is None else a if b is None else a + b


def total(terms: Sequence[Any], zero: Any) -> Any:
    """Return the tree sum of terms of which some may be None, absent; `zero` when none is there."""
    out = tree(terms, add, None)
    return zero if out is None else out


def fma(a: Any, b: Any, c: Any) -> Any:
    """Return a * b + c: rounded once in float32, twice in float64."""
    if isinstance(c, np.float32):
        return fma32(*(np.full(1, x, np.float32) for x in (a, b, c)))[0]
    return a * b + c


def contraction(terms: Sequence[Term], dtype: np.dtype[Any]) -> Any:
    """Return the canonical contraction of products: ascending chains of LEAF at most from -0.0, then the tree."""
    if len(terms) > LEAF:
        half = (len(terms) + 1) // 2
        return contraction(terms[:half], dtype) + contraction(terms[half:], dtype)
    out = dtype.type(-0.0)
    for term in terms:
        out = out if term is None else fma(*term, out)
    return out


def maximum(a: Any, b: Any) -> Any:
    if np.isnan(a) or np.isnan(b):
        return type(a)(np.nan)
    return b if a < b or (a == b and np.signbit(a)) else a


def minimum(a: Any, b: Any) -> Any:
    if np.isnan(a) or np.isnan(b):
        return type(a)(np.nan)
    return b if b < a or (a == b and np.signbit(b)) else a


def cuts(n: int, parts: int) -> list[tuple[int, int]]:
    """Return the balanced split of range(n): the first n mod parts pieces get one more."""
    bounds = [r * (n // parts) + min(r, n % parts) for r in range(parts + 1)]
    return list(itertools.pairwise(bounds))


seeds = st.integers(0, 2**32 - 1)
shapes = st.lists(st.integers(0, 4), min_size=0, max_size=3).map(tuple)
