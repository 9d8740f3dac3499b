"""The larger and the smaller of two floats (NUM-MAX, IEEE 754-2019): NaN if either is NaN, -0 < +0; relu and sign."""

from __future__ import annotations

from .dialect import F32, F64, ONE32, ZERO32, bits32, bits64, from32, from64


def maximum32(a: F32, b: F32) -> F32:
    """Return the larger; among equal numbers, which only zeros can be with unlike bits, AND keeps a sign both have."""
    same = from32(bits32(a) & bits32(b))
    return a if (a > b) | (a != a) else (same if a == b else b)


def minimum32(a: F32, b: F32) -> F32:
    """Return the smaller."""
    same = from32(bits32(a) | bits32(b))
    return a if (a < b) | (a != a) else (same if a == b else b)


def maximum64(a: F64, b: F64) -> F64:
    """Return the larger float64."""
    same = from64(bits64(a) & bits64(b))
    return a if (a > b) | (a != a) else (same if a == b else b)


def minimum64(a: F64, b: F64) -> F64:
    """Return the smaller float64."""
    same = from64(bits64(a) | bits64(b))
    return a if (a < b) | (a != a) else (same if a == b else b)


def relu32(x: F32) -> F32:
    """Return maximum(x, +0)."""
    return x if (x > ZERO32) | (x != x) else ZERO32


def sign32(x: F32) -> F32:
    """Return -1 or 1, a zero or NaN unchanged."""
    return x if (x == ZERO32) | (x != x) else (ONE32 if x > ZERO32 else -ONE32)


def relu64(x: F64) -> F64:
    """Return maximum(x, +0)."""
    return x if (x > 0.0) | (x != x) else 0.0


def sign64(x: F64) -> F64:
    """Return -1 or 1, a zero or NaN unchanged."""
    return x if (x == 0.0) | (x != x) else (1.0 if x > 0.0 else -1.0)
