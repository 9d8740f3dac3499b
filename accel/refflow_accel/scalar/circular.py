"""sin and cos of a float32, correctly rounded (NUM-ELEMENTARY), over the whole range.

x / 2 pi modulo 1 comes from 160 bits of 2^e / 2 pi in 32-bit words (Payne and Hanek 1983), exact in int64; then a
table of 256 angles and short series around them.
"""

from __future__ import annotations

from .dialect import F32, I64, INF64, NAN32, bits64, f64
from .pairs import product_error, round_pair
from .tables import SINH, SINL, TURN0, TURN1, TURN2, TURN3, TURN4, TWOPIH, TWOPIL

UNIT32, UNIT64, UNIT96, UNIT128 = 2.0**-32, 2.0**-64, 2.0**-96, 2.0**-128
WORD = 0xFFFFFFFF


def _wave(x32: F32, quarter: I64) -> F32:
    """Return sin(|x| + quarter * 2 pi / 256)."""
    x = f64(x32)
    ax = -x if x < 0.0 else x
    c = ax if ax < INF64 else 0.0
    small = c < 0.00390625
    b = bits64(c)
    e = 0 if small else (b >> 52) - 1015  # the exponent + 8
    m = ((b >> 29) & 0x7FFFFF) | 0x800000  # c = m * 2^(exponent - 23)
    p4 = m * TURN4[e]
    p3 = m * TURN3[e] + (p4 >> 32)
    p2 = m * TURN2[e] + (p3 >> 32)
    p1 = m * TURN1[e] + (p2 >> 32)
    f0 = (m * TURN0[e] + (p1 >> 32)) & WORD  # whole turns are dropped
    k = (f0 + 0x800000) >> 24  # nearest 1/256 turn
    a = f64(f0 - (k << 24)) * UNIT32
    d = f64(p1 & WORD) * UNIT64
    h = a + d
    low = (d - (h - a)) + (f64(p2 & WORD) * UNIT96 + f64(p3 & WORD) * UNIT128)
    t = h * TWOPIH
    tl = product_error(h, TWOPIH, t) + (h * TWOPIL + low * TWOPIH)
    t = c if small else t
    tl = 0.0 if small else tl
    k = 0 if small else k
    z = t * t
    sl = tl + t * z * (-1 / 6 + z * (1 / 120 + z * (-1 / 5040 + z * (1 / 362880))))  # sin(t) - t
    cm = z * (-0.5 + z * (1 / 24 + z * (-1 / 720 + z * (1 / 40320)))) - t * tl  # cos(t) - 1
    k = (k + quarter) & 255
    kc = (k + 64) & 255
    sine = SINH[k]
    cosine = SINH[kc]
    q = cosine * t
    qe = product_error(cosine, t, q)
    hi = sine + q  # sine is 0 or larger than q
    lo = (q - (hi - sine)) + (qe + (SINL[k] + (sine * cm + (cosine * sl + SINL[kc] * t))))
    return round_pair(hi, lo)


def sin(x32: F32) -> F32:
    """Return the sine; NaN of an infinity."""
    y = _wave(x32, 0)
    x = f64(x32)
    return (x32 if x == 0.0 else (-y if x < 0.0 else y)) if (x < INF64) & (x > -INF64) else NAN32


def cos(x32: F32) -> F32:
    """Return the cosine; NaN of an infinity."""
    y = _wave(x32, 64)
    x = f64(x32)
    return y if (x < INF64) & (x > -INF64) else NAN32
