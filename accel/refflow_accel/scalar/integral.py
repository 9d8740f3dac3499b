"""Rounding to integral values, division with an integral quotient, and powers of integers (NUM-DIVISION).

Adding and taking away 2^23 (2^52 in float64) rounds a magnitude below it to an integer, ties to even.
"""

from __future__ import annotations

from .dialect import F32, F64, I64, INF64, NAN32, ONE32, ZERO32, bits32, bits64, f32, f64, from32, from64, i64

HALF32 = f32(0.5)
WHOLE32 = f32(8388608.0)
WHOLE64 = 4503599627370496.0
SIGN64 = -0x8000000000000000


def _signed32(size: F32, like: F32) -> F32:
    """Return |size| with the sign of `like`."""
    return from32((bits32(size) & 0x7FFFFFFF) | (bits32(like) & 0x80000000))


def _signed64(size: F64, like: F64) -> F64:
    return from64((bits64(size) & 0x7FFFFFFFFFFFFFFF) | (bits64(like) & SIGN64))


def round32(x: F32) -> F32:
    """Return the nearest integral value, ties to even."""
    a = from32(bits32(x) & 0x7FFFFFFF)
    return _signed32((a + WHOLE32) - WHOLE32, x) if a < WHOLE32 else x


def floor32(x: F32) -> F32:
    """Return the greatest integral value not above x."""
    r = round32(x)
    return _signed32(r - ONE32, x) if r > x else r


def ceil32(x: F32) -> F32:
    """Return the least integral value not below x."""
    r = round32(x)
    return _signed32(r + ONE32, x) if r < x else r


def trunc32(x: F32) -> F32:
    """Return x without its fraction."""
    a = from32(bits32(x) & 0x7FFFFFFF)
    return _signed32(floor32(a), x) if a == a else x


def round64(x: F64) -> F64:
    """Return the nearest integral float64, ties to even."""
    a = from64(bits64(x) & 0x7FFFFFFFFFFFFFFF)
    return _signed64((a + WHOLE64) - WHOLE64, x) if a < WHOLE64 else x


def floor64(x: F64) -> F64:
    """Return the greatest integral float64 not above x."""
    r = round64(x)
    return _signed64(r - 1.0, x) if r > x else r


def ceil64(x: F64) -> F64:
    """Return the least integral float64 not below x."""
    r = round64(x)
    return _signed64(r + 1.0, x) if r < x else r


def trunc64(x: F64) -> F64:
    """Return x without its fraction."""
    a = from64(bits64(x) & 0x7FFFFFFFFFFFFFFF)
    return _signed64(floor64(a), x) if a == a else x


def fmod32(x32: F32, y32: F32) -> F32:
    """Return x - y trunc(x / y), exactly, with the sign of x; NaN if x is infinite or y is 0.

    Each step takes off a multiple of y 2^k with a quotient of at most 29 bits: product and difference are exact in
    float64, and an estimate off by one is put right.
    """
    x = f64(x32)
    y = f64(y32)
    a = -x if x < 0.0 else x
    b = -y if y < 0.0 else y
    if (x != x) | (y != y) | (a == INF64) | (b == 0.0):
        return NAN32
    if b == INF64:
        return x32
    while a >= b:
        apart = (bits64(a) >> 52) - (bits64(b) >> 52)
        step = b * from64(((apart - 28 if apart > 28 else 0) + 1023) << 52)
        q = f64(i64(a / step))
        a = a - q * step
        a = a + step if a < 0.0 else (a - step if a >= step else a)
    return _signed32(f32(a), x32)


def floor_divide32(x: F32, y: F32) -> F32:
    """Return the floor of x / y from the exact remainder; x / y if y is 0."""
    rest = fmod32(x, y)
    q = (x - rest) / y  # near an integer: off by its rounding only
    q = q - ONE32 if (rest != ZERO32) & ((rest < ZERO32) != (y < ZERO32)) else q
    below = floor32(q)
    near = below + ONE32 if q - below > HALF32 else below
    return x / y if y == ZERO32 else (_signed32(near, x / y) if q == ZERO32 else near)


def remainder32(x: F32, y: F32) -> F32:
    """Return x - y floor(x / y), with the sign of y."""
    rest = fmod32(x, y)
    wrong = (rest != ZERO32) & ((rest < ZERO32) != (y < ZERO32))
    return rest + y if wrong else (_signed32(rest, y) if rest == ZERO32 else rest)


def whole_quotient(x: I64, y: I64) -> I64:
    """Return floor(x / y), wrapping where y is -1, which the processor's division would not; any number where y is 0."""
    d = 1 if (y == 0) | (y == -1) else y
    return -x if y == -1 else x // d


def whole_remainder(x: I64, y: I64) -> I64:
    """Return x - y floor(x / y); any number where y is 0."""
    d = 1 if (y == 0) | (y == -1) else y
    return x - (x // d) * d


def whole_power(x: I64, y: I64) -> I64:
    """Return x to the power y >= 0, wrapping in 64 bits and so in fewer: by squaring, for products wrap in any order."""
    made = i64(1)
    while y > 0:
        made = made * x if (y & 1) == 1 else made
        x = x * x
        y = y >> 1
    return made
