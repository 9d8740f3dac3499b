"""Unevaluated sums of two float64 numbers, and the one rounding of such a pair to float32.

The errors of sums and products are exact (Knuth 1969, Dekker 1971); rounding to odd makes the later rounding to
float32 as if it were the only one (Boldo and Melquiond 2008).
"""

from __future__ import annotations

from .dialect import F32, F64, bits64, f32, from64


def round_odd64(hi: F64, lo: F64) -> F64:
    """Return hi + lo, |lo| <= |hi|, rounded to odd: where the last bit is 0, one step of the pattern towards the error."""
    s = hi + lo
    e = lo - (s - hi)
    i = bits64(s)
    step = 1 if (e > 0.0) == (s > 0.0) else -1
    odd = i + step if (e != 0.0) & ((i & 1) == 0) else i
    return from64(odd)


def round_pair(hi: F64, lo: F64) -> F32:
    """Return hi + lo rounded to the nearest float32, once."""
    return f32(round_odd64(hi, lo))


def sum_error(a: F64, b: F64, s: F64) -> F64:
    """Return a + b - s exactly, for s the float64 sum."""
    t = s - a
    return (a - (s - t)) + (b - t)


def product_error(a: F64, b: F64, p: F64) -> F64:
    """Return a * b - p exactly, for p the float64 product."""
    t = a * 134217729.0
    ah = t - (t - a)
    al = a - ah
    u = b * 134217729.0
    bh = u - (u - b)
    bl = b - bh
    return ((ah * bh - p) + ah * bl + al * bh) + al * bl


def quotient(nh: F64, nl: F64, dh: F64, dl: F64) -> F32:
    """Return (nh + nl) / (dh + dl), good to about 2^-100, rounded once."""
    q = nh / dh
    p = q * dh
    r = ((nh - p) - product_error(q, dh, p)) + nl - q * dl
    return round_pair(q, r / dh)
