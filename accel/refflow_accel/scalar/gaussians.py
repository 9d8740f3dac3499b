"""erf and gelu of a float32, correctly rounded (NUM-ELEMENTARY): Taylor tables around the multiples of 1/16."""

from __future__ import annotations

from .dialect import F32, f64, i64
from .exponentials import exp_pair
from .pairs import product_error, round_pair
from .tables import (
    ERF0H,
    ERF0L,
    ERF1H,
    ERF1L,
    ERF2,
    ERF3,
    ERF4,
    ERF5,
    ERF6,
    ERF7,
    ERF8,
    ERF9,
    ERF10,
    ERF11,
    ERF12,
    MAGIC,
    TAIL0H,
    TAIL0L,
    TAIL1H,
    TAIL1L,
    TAIL2,
    TAIL3,
    TAIL4,
    TAIL5,
    TAIL6,
    TAIL7,
    TAIL8,
    TAIL9,
    TAIL10,
    TAIL11,
    TAIL12,
    TAIL13,
    TAIL14,
)


def erf(x32: F32) -> F32:
    """Return the error function; from 4 on it rounds to 1."""
    x = f64(x32)
    ax = -x if x < 0.0 else x
    c = ax if ax < 4.0 else (4.0 if x == x else 0.0)
    n = (c * 16.0 + MAGIC) - MAGIC
    j = i64(n)
    r = c - n * 0.0625
    t = ERF12[j]
    t = ERF11[j] + r * t
    t = ERF10[j] + r * t
    t = ERF9[j] + r * t
    t = ERF8[j] + r * t
    t = ERF7[j] + r * t
    t = ERF6[j] + r * t
    t = ERF5[j] + r * t
    t = ERF4[j] + r * t
    t = ERF3[j] + r * t
    t = r * r * (ERF2[j] + r * t)
    slope = ERF1H[j]
    p = r * slope
    pe = product_error(r, slope, p)
    high = ERF0H[j]
    s = high + p
    e = 0.0 if high == 0.0 else p - (s - high)
    y = round_pair(s, e + ((t + (pe + r * ERF1L[j])) + ERF0L[j]))
    return (-y if x < 0.0 else (x32 if x == 0.0 else y)) if x == x else x32


def gelu(x32: F32) -> F32:
    """Return x Phi(x), where Phi(-t) = exp(-t^2/2) G(t) and x Phi(x) = x - x Phi(-x); gelu(-inf) = -0."""
    x = f64(x32)
    ax = -x if x < 0.0 else x
    t = ax if ax < 15.0 else (15.0 if x == x else 0.0)
    eh, el = exp_pair(-0.5 * (t * t), 0.0)  # the argument is exact
    n = (t * 16.0 + MAGIC) - MAGIC
    j = i64(n)
    r = t - n * 0.0625
    q = TAIL14[j]
    q = TAIL13[j] + r * q
    q = TAIL12[j] + r * q
    q = TAIL11[j] + r * q
    q = TAIL10[j] + r * q
    q = TAIL9[j] + r * q
    q = TAIL8[j] + r * q
    q = TAIL7[j] + r * q
    q = TAIL6[j] + r * q
    q = TAIL5[j] + r * q
    q = TAIL4[j] + r * q
    q = TAIL3[j] + r * q
    q = r * r * (TAIL2[j] + r * q)
    high = TAIL0H[j]
    slope = TAIL1H[j]
    p = r * slope
    pe = product_error(r, slope, p)
    mh = high + p
    ml = (p - (mh - high)) + (q + (pe + (TAIL0L[j] + r * TAIL1L[j])))
    u = eh * mh
    ul = product_error(eh, mh, u) + (eh * ml + el * mh)
    g = t * u
    gl = product_error(t, u, g) + t * ul
    s = t - g
    e = ((t - s) - g) - gl
    y = round_pair(-g, -gl) if x < 0.0 else round_pair(s, e)
    return x32 if (x >= 15.0) | (x == 0.0) else (y if x == x else x32)
