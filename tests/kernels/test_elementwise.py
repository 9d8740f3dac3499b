"""Elementwise kernels against Python's scalar arithmetic (NUM-RNE, NUM-MAX, NUM-ELEMENTARY, NUM-CAST)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from refflow.errors import DataError
from refflow.kernels.reference import KERNELS
from refflow.numerics.dtypes import bfloat16, cast

from . import naive
from .naive import FLOATS, INTEGERS, Array, assert_bits


def quotient(a: float, b: float) -> float:
    if b != 0:
        return a / b
    return math.nan if a == 0 or math.isnan(a) else math.copysign(math.inf, a) * math.copysign(1, b)


def integral(function: Callable[[float], float]) -> Callable[[float], float]:
    """Return the rounding on Python floats: large, infinite and NaN values are integral already; zeros keep signs."""
    return lambda a: math.copysign(float(function(a)), a) if abs(a) < 2**52 else a


def sign(a: float) -> float:
    return a if a == 0 or math.isnan(a) else math.copysign(1.0, a)


UNARY: dict[str, Callable[[float], float]] = {
    "neg": lambda a: -a,
    "abs": abs,
    "sign": sign,
    "floor": integral(math.floor),
    "ceil": integral(math.ceil),
    "trunc": integral(math.trunc),
    "round": integral(round),
    "sqrt": lambda a: math.sqrt(a) if a >= 0 else a if a == 0 else math.nan,
    "relu": lambda a: a if a > 0 or math.isnan(a) else 0.0,
}
TESTS: dict[str, Callable[[float], bool]] = {
    "isnan": math.isnan,
    "isinf": math.isinf,
    "isfinite": math.isfinite,
    "logical_not": lambda a: not a,
}
ARITHMETIC: dict[str, Callable[[float, float], float]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": quotient,
}
COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "logical_and": lambda a, b: bool(a) and bool(b),
    "logical_or": lambda a, b: bool(a) or bool(b),
    "logical_xor": lambda a, b: bool(a) != bool(b),
}
EXACT = {
    "rsqrt": lambda a: 1 / mpmath.sqrt(a),
    "exp": mpmath.exp,
    "log": mpmath.log,
    "log1p": lambda a: mpmath.log(1 + a),
    "expm1": mpmath.expm1,
    "tanh": mpmath.tanh,
    "sigmoid": lambda a: 1 / (1 + mpmath.exp(-a)),
    "softplus": lambda a: mpmath.log(1 + mpmath.exp(a)),
    "gelu": lambda a: a * mpmath.erfc(-a / mpmath.sqrt(2)) / 2,
    "erf": mpmath.erf,
    "sin": mpmath.sin,
    "cos": mpmath.cos,
}


def rounded(results: list[float], dtype: np.dtype[Any]) -> Array:
    """Return exact (binary64) results rounded once: binary64 is wide enough to hide nothing from + - * / sqrt."""
    return cast(np.array(results), dtype)


def pairs(dtype: np.dtype[Any]) -> tuple[Array, Array]:
    x = naive.values(dtype)
    return np.repeat(x, x.size), np.tile(x, x.size)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", UNARY)
def test_unary_is_the_scalar_definition(name: str, dtype: np.dtype[Any]) -> None:
    x = naive.values(dtype)
    expected = rounded([UNARY[name](float(a)) for a in x], dtype)
    assert_bits(KERNELS[name](x), expected)
    assert_bits(KERNELS[name](x[:0].reshape(3, 0)), expected[:0].reshape(3, 0))
    assert_bits(KERNELS[name](x[3].reshape(())), expected[3].reshape(()))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", TESTS)
def test_predicates(name: str, dtype: np.dtype[Any]) -> None:
    x = naive.values(dtype)
    assert_bits(KERNELS[name](x), np.array([TESTS[name](float(a)) for a in x]))
    assert_bits(KERNELS[name](x[6].reshape(())), np.array(TESTS[name](float(x[6]))))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", ARITHMETIC)
def test_arithmetic_rounds_once(name: str, dtype: np.dtype[Any]) -> None:
    x, y = pairs(dtype)
    expected = rounded([ARITHMETIC[name](float(a), float(b)) for a, b in zip(x, y, strict=True)], dtype)
    assert_bits(KERNELS[name](x, y), expected)
    assert_bits(KERNELS[name](x[5].reshape(()), y[7].reshape(())), KERNELS[name](x[5:6], y[7:8]).reshape(()))


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS, np.dtype(bool)], ids=str)
@pytest.mark.parametrize("name", COMPARISONS)
def test_comparisons(name: str, dtype: np.dtype[Any]) -> None:
    x, y = pairs(dtype)
    expected = [COMPARISONS[name](a, b) for a, b in zip(x.tolist(), y.tolist(), strict=True)]
    assert_bits(KERNELS[name](x, y), np.array(expected))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", ["maximum", "minimum"])
def test_maximum_propagates_nan_and_orders_zeros(name: str, dtype: np.dtype[Any]) -> None:
    x, y = pairs(dtype)
    pick = getattr(naive, name)
    assert_bits(KERNELS[name](x, y), np.array([pick(a, b) for a, b in zip(x, y, strict=True)], dtype))


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integer_arithmetic_wraps(dtype: np.dtype[Any]) -> None:
    x, y = naive.draw(1, (200,), dtype), naive.draw(2, (200,), dtype)
    whole = [(int(a), int(b)) for a, b in zip(x, y, strict=True)]

    def wrapped(results: list[int]) -> Array:
        return np.array([r % 2 ** (8 * dtype.itemsize) for r in results], f"u{dtype.itemsize}").view(dtype)

    assert_bits(KERNELS["add"](x, y), wrapped([a + b for a, b in whole]))
    assert_bits(KERNELS["sub"](x, y), wrapped([a - b for a, b in whole]))
    assert_bits(KERNELS["mul"](x, y), wrapped([a * b for a, b in whole]))
    assert_bits(KERNELS["neg"](x), wrapped([-a for a, _ in whole]))
    assert_bits(KERNELS["abs"](x), wrapped([abs(a) for a, _ in whole]))
    assert_bits(KERNELS["sign"](x), wrapped([(a > 0) - (a < 0) for a, _ in whole]))
    assert_bits(KERNELS["relu"](x), wrapped([max(a, 0) for a, _ in whole]))
    assert_bits(KERNELS["maximum"](x, y), wrapped([max(pair) for pair in whole]))
    for name in ("floor", "ceil", "trunc", "round"):
        assert_bits(KERNELS[name](x), x)
    exponent = cast(np.arange(200) % 70, dtype)
    assert_bits(KERNELS["pow"](x, exponent), wrapped([a ** int(e) for (a, _), e in zip(whole, exponent, strict=True)]))
    divisor = np.where(y == 0, y.dtype.type(3), y)
    both = [divmod(a, int(b)) for (a, _), b in zip(whole, divisor, strict=True)]
    assert_bits(KERNELS["floor_divide"](x, divisor), wrapped([q for q, _ in both]))
    assert_bits(KERNELS["remainder"](x, divisor), wrapped([r for _, r in both]))


@pytest.mark.parametrize("name", ["floor_divide", "remainder"])
def test_integer_division_by_zero_is_named(name: str) -> None:
    with pytest.raises(DataError, match=r"divisor 0 at position \(1, 0\)"):
        KERNELS[name](np.ones((2, 2), np.int32), np.array([[1, 2], [0, 0]], np.int32))
    with pytest.raises(DataError, match=r"exponent -2 at position \(1,\)"):
        KERNELS["pow"](np.ones(2, np.int64), np.array([1, -2]))


floats32 = arrays(np.float32, 8, elements=st.floats(width=32))
floats64 = arrays(np.float64, 8, elements=st.floats())


@given(floats32, floats32)
def test_float_division_is_numpys_in_float32(x: Array, y: Array) -> None:
    with np.errstate(all="ignore"):
        assert_bits(KERNELS["floor_divide"](x, y), np.floor_divide(x, y))
        assert_bits(KERNELS["remainder"](x, y), np.remainder(x, y))


@given(floats64, floats64)
def test_float_division_is_pythons_in_float64(x: Array, y: Array) -> None:
    x, y = (np.where(np.isfinite(a) & (a != 0), a, 1.0) for a in (x, y))
    with np.errstate(all="ignore"):
        quotients, rests = KERNELS["floor_divide"](x, y), KERNELS["remainder"](x, y)
    for a, b, found in zip(x.tolist(), y.tolist(), quotients, strict=True):
        if math.isfinite(a / b):
            assert_bits(np.array(found), np.array(a // b))
    assert_bits(rests, np.array([a % b for a, b in zip(x.tolist(), y.tolist(), strict=True)]))


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=lambda t: t.__name__)
def test_float_division_where_the_quotient_itself_is_rounded(dtype: type[Any]) -> None:
    rng = np.random.default_rng(1)
    bits = np.finfo(dtype).nmant + 1
    x, y = rng.integers(-(2**bits), 2**bits, 2000).astype(dtype), (rng.standard_normal(2000) * 100).astype(dtype)
    close = (x - np.fmod(x, y)) / y
    assert (close - np.floor(close) > 0.5).any()  # the case that has to be rounded up
    assert_bits(KERNELS["floor_divide"](x, y), np.floor_divide(x, y))
    assert_bits(KERNELS["remainder"](x, y), np.remainder(x, y))


@pytest.mark.parametrize("name", EXACT)
def test_elementary_functions_round_the_exact_value_once(name: str) -> None:
    x = np.array([0.5, 1.0, 1.5, 0.1, 3.1415927, 7.25, 0.001, 2.75, 12.5], np.float32)
    with mpmath.workprec(300):
        exact = [EXACT[name](mpmath.mpf(float(a))) for a in x]
    with mpmath.workprec(24):
        expected = np.array([float(+value) for value in exact], np.float32)
    assert_bits(KERNELS[name](x), expected)
    assert_bits(KERNELS[name](x[2].reshape(())), expected[2].reshape(()))
    assert_bits(KERNELS[name](x[:0]), expected[:0])
    half = cast(x, bfloat16)
    assert_bits(KERNELS[name](half), cast(KERNELS[name](cast(half, x.dtype)), bfloat16))


def test_float_pow_rounds_the_exact_value_once() -> None:
    x, y = np.array([2.0, 0.1, 3.3, 10.0], np.float32)[:, None], np.array([0.5, -1.5, 3.0, 0.0], np.float32)
    with mpmath.workprec(300):
        exact = [[mpmath.mpf(float(a)) ** mpmath.mpf(float(b)) for b in y] for a in x[:, 0]]
    with mpmath.workprec(24):
        expected = np.array([[float(+value) for value in row] for row in exact], np.float32)
    assert_bits(KERNELS["pow"](x, y), expected)


def test_where_and_broadcasting() -> None:
    c, x, y = np.array([[True], [False]]), np.array([1, np.nan, -0.0], np.float32), np.array(np.float32(0.0))
    assert_bits(KERNELS["where"](c, x, y), np.array([[1, np.nan, -0.0], [0, 0, 0]], np.float32))
    assert_bits(KERNELS["add"](x[:, None], x), np.array([[a + b for b in x] for a in x], np.float32))


def test_cast_is_the_numerics_conversion() -> None:
    x = naive.values(np.dtype(np.float64))
    for dtype in [*FLOATS, *INTEGERS, np.dtype(bool)]:
        assert_bits(KERNELS["cast"](x, dtype=dtype), cast(x, dtype))
    assert_bits(
        KERNELS["cast"](np.array([2.9, -2.9, np.nan, 300]), dtype=INTEGERS[0]), np.array([2, -2, 0, 127], np.int8)
    )
