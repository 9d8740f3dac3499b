"""Exact arithmetic to test against: rational numbers rounded once, and trees written down as the definition says."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, TypeVar

import numpy as np

T = TypeVar("T")

BINARY32 = (24, -149, 127)
BINARY64 = (53, -1074, 1023)
BFLOAT16 = (8, -133, 127)
BINARY16 = (11, -24, 15)


def round_once(v: Fraction, shape: tuple[int, int, int]) -> float:
    """`v` rounded to nearest even in a format of (digits, exponent of the least subnormal, largest exponent)."""
    digits, least, largest = shape
    if v == 0:
        return 0.0
    sign, v = (-1.0 if v < 0 else 1.0), abs(v)
    exponent = v.numerator.bit_length() - v.denominator.bit_length()
    exponent -= v < Fraction(2) ** exponent
    grid = max(exponent - digits + 1, least)
    whole = round(v / Fraction(2) ** grid)  # Python rounds halves to even
    if whole * Fraction(2) ** grid >= Fraction(2) ** (largest + 1):
        return sign * math.inf
    return sign * math.ldexp(whole, grid)


def node(terms: Sequence[T], leaf: int, chain: Callable[[Sequence[T]], Any], combine: Callable[[Any, Any], Any]) -> Any:
    """The canonical tree, word by word: a range longer than its leaf is node(first ceil(n/2)) + node(rest)."""
    if len(terms) <= leaf:
        return chain(terms)
    half = math.ceil(len(terms) / 2)
    return combine(node(terms[:half], leaf, chain, combine), node(terms[half:], leaf, chain, combine))


def patterns(seed: int, *shape: int) -> np.ndarray[Any, Any]:
    """float32 of any bit pattern: NaN, infinities, subnormals and signed zeros included."""
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 2**32, shape, dtype=np.uint32).view(np.float32)
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 2.0**-149, -(2.0**-149)], np.float32)
    return np.where(rng.random(shape) < 0.1, rng.choice(special, shape), x)


def ordinary(seed: int, *shape: int, dtype: Any = np.float32) -> np.ndarray[Any, Any]:
    """Normal numbers over many magnitudes, with some zeros of both signs."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(shape) * np.exp2(rng.integers(-12, 12, shape))
    return np.where(rng.random(shape) < 0.1, rng.choice([0.0, -0.0], shape), x).astype(dtype)
