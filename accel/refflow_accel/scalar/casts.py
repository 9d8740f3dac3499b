"""Between floats and integers (NUM-CAST): floats truncate and saturate, NaN gives 0; integers round once."""

from __future__ import annotations

from .dialect import F32, F64, I64, f32, f64, i64


def _saturated(x: F64, least: F64, beyond: F64, low: I64, high: I64) -> I64:
    """Return x towards zero, `high` from `beyond` on and `low` down from `least`."""
    inside = (x < beyond) & (x > least)
    return i64(x if inside else 0.0) if inside | (x != x) else (high if x > 0.0 else low)


def to_int64(x: F64) -> I64:
    """Return a float64 (or a widened float32) as an int64."""
    return _saturated(x, -9223372036854775808.0, 9223372036854775808.0, -0x8000000000000000, 0x7FFFFFFFFFFFFFFF)


def to_int32(x: F64) -> I64:
    """Return a float64 as the value of an int32."""
    return _saturated(x, -2147483648.0, 2147483648.0, -0x80000000, 0x7FFFFFFF)


def to_int8(x: F64) -> I64:
    """Return a float64 as the value of an int8."""
    return _saturated(x, -128.0, 128.0, -128, 127)


def to_uint8(x: F64) -> I64:
    """Return a float64 as the value of a uint8."""
    return _saturated(x, 0.0, 256.0, 0, 255)


def int_to32(i: I64) -> F32:
    """Return the float32 nearest to an int64: one rounding, not one to float64 first."""
    return f32(i)


def int_to64(i: I64) -> F64:
    """Return the float64 nearest to an int64."""
    return f64(i)
