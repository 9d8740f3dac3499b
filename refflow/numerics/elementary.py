"""Elementary functions, correctly rounded: the exact value rounded once, so that no algorithm is part of the meaning.

Implements NUM-ELEMENTARY of spec/text/numerics.md for exp log log1p expm1 tanh sigmoid softplus gelu erf sin cos rsqrt
pow.  float32: a binary64 value is trusted to a relative error of 2^-45 (a good library's is 2^-52); where every number
within that error rounds alike, that is the answer, and elsewhere (one input in a million) mpmath decides.  float64:
mpmath decides every element, so it is slow and meant for checks.  float16 and bfloat16: as float32, rounded once more.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import DtypeError, NumericsError
from .dtypes import float32, float64, is_half

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Function:
    """One function twice: on binary64 arrays to a relative `error`, and on mpmath numbers to any precision."""

    wide: Callable[..., Array]
    exact: Callable[..., Any]
    error: float = 2.0**-45
    zero: bool = True  # the binary64 library is right, to the bit, where an argument is zero


def apply(name: str, *arrays: npt.ArrayLike) -> Array:
    """The function `name` of equally typed float arrays (broadcast), each element rounded once.

    Raises NumericsError for an unknown name or number of arguments, DtypeError for a dtype that is not a float.
    Source: NUM-ELEMENTARY.
    """
    function = FUNCTIONS.get(name)
    if function is None or len(arrays) != (2 if name == "pow" else 1):
        raise NumericsError(f"apply: {name}{len(arrays) * ' _'} is none of {', '.join(FUNCTIONS)} (two for pow)")
    args = [np.asarray(a) for a in arrays]
    dtype = args[0].dtype
    if any(a.dtype != dtype for a in args):
        raise DtypeError(f"{name}: dtypes {', '.join(a.dtype.name for a in args)}; cast them to one first")
    if dtype == float32:
        return _binary32(function, args)
    if dtype == float64:
        return _binary64(function, args)
    if is_half(dtype):
        with np.errstate(all="ignore"):
            return _binary32(function, [a.astype(float32) for a in args]).astype(dtype)
    raise DtypeError(f"{name}: is not defined on {dtype.name}; cast to a float first")


def _binary32(function: Function, args: list[Array]) -> Array:
    with np.errstate(all="ignore"):
        value = np.asarray(function.wide(*[a.astype(np.float64) for a in args]))
        # Products, not sums, keep the sign of zeros and infinities.
        low = np.atleast_1d(value * (1 - function.error)).astype(np.float32)
        high = np.atleast_1d(value * (1 + function.error)).astype(np.float32)
    doubtful = np.flatnonzero((low.view(np.int32) != high.view(np.int32)) & (low == low))
    if doubtful.size:
        spread = [np.broadcast_to(a, value.shape) for a in args]
        for i in doubtful:
            low.flat[i] = decide(function, [float(a.flat[i]) for a in spread], digits=24, least=-149)
    return low.reshape(value.shape)


def _binary64(function: Function, args: list[Array]) -> Array:
    spread = np.broadcast_arrays(*args)
    with np.errstate(all="ignore"):
        value = np.atleast_1d(np.array(function.wide(*spread), np.float64))
    settled = np.isnan(value)
    for a in spread:
        flat = np.atleast_1d(a)
        settled = settled | ~np.isfinite(flat) | ((flat == 0) & function.zero)
    for i in np.flatnonzero(~settled):
        value.flat[i] = decide(function, [float(a.flat[i]) for a in spread], digits=53, least=-1074)
    return value.reshape(spread[0].shape)


def decide(function: Function, args: list[float], digits: int, least: int) -> float:
    """The exact value rounded to `digits` bits and no finer than 2^least: ever more precision until it is certain.

    A value still undecided at 3200 bits is taken to be exactly a midpoint, which only pow and gelu reach (Ziv 1991).
    """
    import mpmath  # late: only here and in the table below, and it takes longer to import than all the rest

    for precision in (200, 800, 3200):
        with mpmath.workprec(precision):
            value = function.exact(*[mpmath.mpf(a) for a in args])
            if value == 0 or not mpmath.isfinite(value):
                return float(value)
            slack = mpmath.ldexp(1, 20 - precision)
            ends = {_nearest(value * (1 + side * slack), digits, least) for side in (-1, 0, 1)}
            if len(ends) == 1:
                break
    with mpmath.workprec(3200):
        return _nearest(value, digits, least)


def _nearest(value: Any, digits: int, least: int) -> float:
    """Nearest number of `digits` bits to the mpmath number `value`, ties to even, subnormals and overflow included."""
    import mpmath

    grid = max(mpmath.mag(value) - digits, least)  # 2^grid is the spacing of the numbers around value
    whole = int(mpmath.nint(mpmath.ldexp(value, -grid)))
    try:
        near = math.ldexp(whole, grid)
    except OverflowError:
        near = math.inf
    near = math.inf if digits == 24 and abs(near) >= 2.0**128 else near
    return math.copysign(near, mpmath.sign(value))


# The binary64 forms.


def _sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


def _softplus(x: Array) -> Array:
    return np.asarray(np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))))


def _rsqrt(x: Array) -> Array:
    return np.asarray(1 / np.sqrt(x))


_STEP, _REACH, _TERMS = 8, 11, 14


@lru_cache(maxsize=1)
def _erfcx_table() -> Array:
    """Taylor coefficients (term, centre) of exp(t*t) * erfc(t) around the multiples of 1/8 in [0, 11].

    f' = 2 t f - 2/sqrt(pi) gives each coefficient from the two before it; the first is mpmath's.
    """
    import mpmath

    table = np.empty((_TERMS, _STEP * _REACH + 1))
    with mpmath.workprec(200):
        for centre in range(table.shape[1]):
            t = mpmath.mpf(centre) / _STEP
            c = [mpmath.exp(t * t) * mpmath.erfc(t)]
            c.append(2 * t * c[0] - 2 / mpmath.sqrt(mpmath.pi))
            for k in range(1, _TERMS - 1):
                c.append(2 * (t * c[k] + c[k - 1]) / (k + 1))
            table[:, centre] = [float(v) for v in c]
    return table


def _erfcx(t: Array) -> Array:
    """exp(t*t) * erfc(t) for 0 <= t <= 11 (NaN allowed)."""
    table = _erfcx_table()
    centre = np.rint(np.where(t == t, t, 0.0) * _STEP)
    d = t - centre / _STEP
    at = centre.astype(np.int64)
    value = table[_TERMS - 1][at]
    for k in range(_TERMS - 2, -1, -1):
        value *= d
        value += table[k][at]
    return np.asarray(value)


_ERF_SERIES = [(-1.0) ** k / (math.factorial(k) * (2 * k + 1)) for k in range(14)]


def _erf(x: Array) -> Array:
    t = np.minimum(np.abs(x), 6.0)  # erf(6) is 1 to 2^-54
    square = t * t
    small = np.full(np.shape(x), _ERF_SERIES[-1])
    for c in _ERF_SERIES[-2::-1]:
        small = small * np.minimum(square, 0.25) + c
    large = 1 - np.exp(-square) * _erfcx(t)
    return np.asarray(np.where(t <= 0.5, x * small * (2 / math.sqrt(math.pi)), np.copysign(large, x)))


def _gelu(x: Array) -> Array:
    """x * Phi(x); below -15 binary32 has only -0, which is also the answer at -inf, by definition (it is -inf * 0)."""
    t = np.minimum(np.abs(x), 15.0)
    tail = 0.5 * np.exp(-0.5 * t * t) * _erfcx(t * math.sqrt(0.5))  # Phi(-t)
    value = np.maximum(x, -15.0) * np.where(x < 0, tail, 1 - tail)
    return np.asarray(np.where(x == -np.inf, -0.0, value))


# The mpmath forms.


def _mp(name: str) -> Callable[..., Any]:
    def call(*args: Any) -> Any:
        import mpmath

        return getattr(mpmath, name)(*args)

    return call


def _exact_softplus(x: Any) -> Any:
    import mpmath

    return mpmath.log1p(mpmath.exp(x)) if x < 0 else x + mpmath.log1p(mpmath.exp(-x))


def _exact_gelu(x: Any) -> Any:
    import mpmath

    if abs(x) > 1000:  # Phi is 1 or 0 to more than 2^-700000, and mpmath's erfc has a limit
        return x if x > 0 else -mpmath.ldexp(1, -700000)
    return x * mpmath.erfc(-x / mpmath.sqrt(2)) / 2


def _exact_pow(x: Any, y: Any) -> Any:
    """x ** y, exact where it can be a midpoint: then y is n / 2^k, and square roots and integer powers are exact."""
    import mpmath

    if abs(y) <= 1100 and y * 1024 == mpmath.floor(y * 1024):
        while y != mpmath.floor(y):
            x, y = mpmath.sqrt(x), 2 * y
        return x ** int(y)
    if x < 0:  # y is an integer here, or binary64 had said NaN
        return mpmath.exp(y * mpmath.log(-x)) * (-1 if int(y) % 2 else 1)
    return mpmath.exp(y * mpmath.log(x))


FUNCTIONS: dict[str, Function] = {
    "exp": Function(np.exp, _mp("exp")),
    "log": Function(np.log, _mp("log")),
    "log1p": Function(np.log1p, _mp("log1p")),
    "expm1": Function(np.expm1, _mp("expm1")),
    "tanh": Function(np.tanh, _mp("tanh")),
    "sigmoid": Function(_sigmoid, lambda x: 1 / (1 + _mp("exp")(-x))),
    "softplus": Function(_softplus, _exact_softplus, zero=False),
    "gelu": Function(_gelu, _exact_gelu),
    "erf": Function(_erf, _mp("erf")),
    "sin": Function(np.sin, _mp("sin")),
    "cos": Function(np.cos, _mp("cos")),
    "rsqrt": Function(_rsqrt, lambda x: 1 / _mp("sqrt")(x)),
    "pow": Function(np.power, _exact_pow),
}
