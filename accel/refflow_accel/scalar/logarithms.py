"""log, log1p and softplus of a float32, correctly rounded (NUM-ELEMENTARY).

log(x) = e ln 2 - log(1/c) + log(1 + r), 1/c from a table in 20 bits, so that r = m/c - 1 is exact (Tang 1990).
"""

from __future__ import annotations

from .dialect import F32, F64, INF32, INF64, NAN32, ZERO32, Truth, bits64, f64, from64
from .exponentials import exp_pair
from .pairs import product_error, round_pair, sum_error
from .tables import INVC, LN2H, LN2L, LOGH, LOGL, SPLIT


def log(x32: F32) -> F32:
    """Return the natural logarithm; log(±0) = -inf, NaN below zero."""
    x = f64(x32)  # a subnormal float32 is a normal float64
    ok = (x > 0.0) & (x < INF64)
    c = x if ok else 1.0
    b = bits64(c)
    j = (b >> 45) & 127
    e = f64((b >> 52) - 1023 + (1 if j >= SPLIT else 0))
    m = from64((b & 0xFFFFFFFFFFFFF) | 0x3FF0000000000000) * (0.5 if j >= SPLIT else 1.0)
    r = m * INVC[j] - 1.0  # exact
    h = e * LN2H + LOGH[j]  # exact
    q = -0.5 + r * (1 / 3 + r * (-0.25 + r * (0.2 + r * (-1 / 6 + r * (1 / 7 + r * (-0.125 + r * (1 / 9)))))))
    lo = r * r * q + (e * LN2L + LOGL[j])
    s = h + r
    t = 0.0 if h == 0.0 else r - (s - h)  # exact: h is 0 or larger than r
    y = round_pair(s, t + lo)
    y = ZERO32 if x == 1.0 else y
    return y if ok else (-INF32 if x == 0.0 else (INF32 if x > 0.0 else (NAN32 if x < 0.0 else x32)))


def log_pair(s: F64, e: F64, d: F64, dl: F64, near1: Truth) -> tuple[F64, F64]:
    """Return log(s + e) as a pair, to a relative 2^-67; where near1, s + e is 1 + d + dl with |d| < 2^-7."""
    b = bits64(s)
    j = (b >> 45) & 127
    ex = f64((b >> 52) - 1023 + (1 if j >= SPLIT else 0))
    m = from64((b & 0xFFFFFFFFFFFFF) | 0x3FF0000000000000) * (0.5 if j >= SPLIT else 1.0)
    t = m * 134217729.0
    mh = t - (t - m)
    a = mh * INVC[j] - 1.0  # exact
    c = (m - mh) * INVC[j]  # exact
    r = a + c
    rl = sum_error(a, c, r) + e / s
    r = d if near1 else r
    rl = dl if near1 else rl
    h0 = 0.0 if near1 else ex * LN2H + LOGH[j]  # exact
    l0 = 0.0 if near1 else ex * LN2L + LOGL[j]
    z = r * r
    ze = product_error(r, r, z)
    q = 1 / 7 + r * (-0.125 + r * (1 / 9 + r * (-0.1 + r * (1 / 11))))
    p = r * z * (1 / 3 + r * (-0.25 + r * (0.2 + r * (-1 / 6 + r * q))))
    s1 = h0 + r
    e1 = r - (s1 - h0)  # h0 is 0 or larger than r
    g = -0.5 * z
    s2 = s1 + g
    e2 = g - (s2 - s1)
    lo = (e1 + e2) + (l0 + (p + ((rl - r * rl) - 0.5 * ze)))
    hi = s2 + lo
    return hi, lo - (hi - s2)


def log1p(x32: F32) -> F32:
    """Return log(1 + x); log1p(-1) = -inf, NaN below."""
    x = f64(x32)
    ok = (x > -1.0) & (x < INF64)
    c = x if ok else 0.0
    s = 1.0 + c
    e = sum_error(1.0, c, s)
    hi, lo = log_pair(s, e, c, 0.0, (c < 0.0078125) & (c > -0.0078125))
    y = x32 if x == 0.0 else round_pair(hi, lo)
    return y if ok else (-INF32 if x == -1.0 else (INF32 if x > 0.0 else (NAN32 if x < -1.0 else x32)))


def softplus(x32: F32) -> F32:
    """Return log(1 + exp(x)) = max(x, 0) + log1p(exp(-|x|))."""
    x = f64(x32)
    ax = -x if x < 0.0 else x
    th, tl = exp_pair(-ax if ax < 105.0 else (-105.0 if x == x else 0.0), 0.0)
    s = 1.0 + th
    e = (th - (s - 1.0)) + tl
    lh, ll = log_pair(s, e, th, tl, th < 0.0078125)
    m = x if (x > 0.0) & (x < INF64) else 0.0
    hi = m + lh
    y = round_pair(hi, sum_error(m, lh, hi) + ll)
    return y if x < INF64 else x32
