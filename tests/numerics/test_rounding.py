"""NUM-FMA: fma32 is a * b + c rounded once, whatever the operands."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from refflow.numerics import fma32, same_bits

from .exact import BINARY32, patterns, round_once

floats = st.floats(width=32)
SPECIALS = [
    0.0, -0.0, math.inf, -math.inf, math.nan, 1.0, -1.0, 2.0**-149, -(2.0**-149), 2.0**-126, 3.4028234663852886e38,
    2.0**-75, 1.5 * 2.0**-75, 2.0**64, 4097.0,
]  # fmt: skip


def exact_fma(a: float, b: float, c: float) -> float:
    if not all(map(math.isfinite, (a, b, c))):
        return float(np.float64(a) * np.float64(b) + np.float64(c))  # NaN or infinite: nothing is rounded
    v = Fraction(a) * Fraction(b) + Fraction(c)
    if v == 0:
        product = math.copysign(1, a) * math.copysign(1, b) if a == 0 or b == 0 else 0.0
        # An exact zero is -0 only if both addends are negative zeros.
        return -0.0 if product < 0 and c == 0 and math.copysign(1, c) < 0 else 0.0
    return math.copysign(round_once(v, BINARY32), v)


def check(a: Any, b: Any, c: Any) -> None:
    a, b, c = np.broadcast_arrays(*(np.asarray(v, np.float32) for v in (a, b, c)))
    with np.errstate(all="ignore"):
        wanted = [exact_fma(*map(float, t)) for t in zip(a.ravel(), b.ravel(), c.ravel())]
    found = fma32(a, b, c)
    bad = [i for i, w in enumerate(wanted) if not same_bits(found.ravel()[i : i + 1], np.array([w], np.float32))]
    assert not bad, [(float(a.flat[i]), float(b.flat[i]), float(c.flat[i]), found.flat[i], wanted[i]) for i in bad[:3]]


@given(floats, floats, floats)
@example(4097.0, 4097.0, 2.0**-149)
@example(4097.0, 4097.0, -(2.0**-149))
@example(2.0**-75, 2.0**-75, 0.0)
def test_any_three_floats(a: float, b: float, c: float) -> None:
    check(a, b, c)


def test_special_values() -> None:
    check(*np.array(list(itertools.product(SPECIALS, repeat=3)), np.float32).T)


def test_any_bit_patterns() -> None:
    check(*patterns(1, 3, 4000))


def test_products_at_a_midpoint_with_a_tiny_addend() -> None:
    rng = np.random.default_rng(2)
    n = 3000
    a = rng.integers(1, 2**12, n) * 2 + 1  # an odd 25-bit product is a midpoint
    b = rng.integers(2**11, 2**12, n) * 2 + 1
    c = rng.choice([-1.0, 0.0, 1.0], n) * np.exp2(rng.integers(-149, -20, n))
    check(a, b, c)
    e = rng.integers(-149 - 24, -126, n)  # the same among subnormal results, and at the overflow threshold
    check(
        np.ldexp(a.astype(float), e // 2), np.ldexp(b.astype(float), e - e // 2), rng.choice([-1, 0, 1], n) * 2.0**-149
    )
    top = np.float32(2.0**104 - 2.0**80)
    check(top, 2.0**24 - 1, [2.0**103, -(2.0**103), 2.0**79, 0.0])


def test_cancellation() -> None:
    rng = np.random.default_rng(3)
    a, b = rng.standard_normal((2, 2000)).astype(np.float32)
    check(a, b, -(a * b))
    check(a, b, np.nextafter(-(a * b), np.float32(np.inf)))


def test_half_way_subnormals() -> None:
    k = np.arange(1, 300, dtype=np.float32)
    check(k * np.float32(2.0**-75), np.float32(2.0**-75), 0.0)
    check(k * np.float32(2.0**-75), np.float32(2.0**-75), -k * np.float32(2.0**-149))


def test_shapes_broadcast() -> None:
    a, b, c = patterns(4, 5, 1), patterns(5, 1, 7), patterns(6, 3, 1, 1)
    found = fma32(a, b, c)
    assert found.shape == (3, 5, 7) and found.dtype == np.float32
    assert same_bits(found[1, 2, 3], fma32(a[2, 0], b[0, 3], c[1, 0, 0]))
