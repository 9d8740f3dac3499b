"""exp, expm1, sigmoid and tanh of a float32, correctly rounded (NUM-ELEMENTARY).

exp(x) = 2^(n/64) exp(r) with a table of 2^(j/64) in pairs and |r| <= ln(2)/128 (Tang 1989).
"""

from __future__ import annotations

from .dialect import F32, F64, I64, f64, from64, i64
from .pairs import product_error, quotient, round_pair, sum_error
from .tables import EXPH, EXPL, LN64H, LN64L, MAGIC, PER_LN2


def _sixtyfourths(x: F64) -> F64:
    """Return x * 64 / ln 2 rounded to an integral float64."""
    return (x * PER_LN2 + MAGIC) - MAGIC


def _power(k: I64) -> F64:
    """Return 2^floor(k / 64)."""
    return from64(((k >> 6) + 1023) << 52)


def _exp_high(x: F64) -> F64:
    k = i64(_sixtyfourths(x))
    return EXPH[k & 63] * _power(k)


def _exp_low(x: F64) -> F64:
    n = _sixtyfourths(x)
    k = i64(n)
    j = k & 63
    r = (x - n * LN64H) - n * LN64L
    p = r + r * r * (0.5 + r * (1 / 6 + r * (1 / 24 + r * (1 / 120 + r * (1 / 720 + r * (1 / 5040))))))
    return (EXPL[j] + EXPH[j] * p) * _power(k)


def exp_pair(x: F64, xl: F64) -> tuple[F64, F64]:
    """Return exp(x + xl) as a pair, to a relative 2^-67; |x| <= 120."""
    n = _sixtyfourths(x)
    k = i64(n)
    j = k & 63
    scale = _power(k)
    a = x - n * LN64H  # exact
    t = -(n * LN64L)
    r = a + t
    rl = sum_error(a, t, r) + xl
    z = r * r * (0.5 + r * (1 / 6 + r * (1 / 24 + r * (1 / 120 + r * (1 / 720 + r * (1 / 5040 + r * (1 / 40320)))))))
    q = z + rl * (1.0 + (r + z))
    high = EXPH[j]
    p = high * r
    pe = product_error(high, r, p)
    s = high + p
    e = p - (s - high)
    lo = e + (pe + (EXPL[j] + (high * q + EXPL[j] * r)))
    hi = s + lo
    return hi * scale, (lo - (hi - s)) * scale


def exp(x32: F32) -> F32:
    """Return e to the power x."""
    x = f64(x32)
    c = 89.0 if x > 89.0 else (-104.0 if x < -104.0 else (x if x == x else 0.0))
    y = round_pair(_exp_high(c), _exp_low(c))
    return y if x == x else x32


def expm1(x32: F32) -> F32:
    """Return exp(x) - 1."""
    x = f64(x32)
    c = 89.0 if x > 89.0 else (-104.0 if x < -104.0 else (x if x == x else 0.0))
    eh, el = exp_pair(c, 0.0)
    s = eh - 1.0
    e = sum_error(eh, -1.0, s) + el
    g = 0.5 * (c * c)  # exact
    d = c + g
    de = g - (d - c)
    q = 1 / 5040 + c * (1 / 40320 + c * (1 / 362880 + c * (1 / 3628800)))
    q = 1 / 6 + c * (1 / 24 + c * (1 / 120 + c * (1 / 720 + c * q)))
    p = de + c * (c * c) * q
    near = (c < 0.03125) & (c > -0.03125)
    y = round_pair(d if near else s, p if near else e)
    return (x32 if x == 0.0 else y) if x == x else x32


def sigmoid(x32: F32) -> F32:
    """Return 1 / (1 + exp(-x)) = t / (1 + t) or 1 / (1 + t) with t = exp(-|x|)."""
    x = f64(x32)
    ax = -x if x < 0.0 else x
    c = ax if ax < 104.5 else (104.5 if x == x else 0.0)
    h = _exp_high(-c)
    low = _exp_low(-c)
    eh = h + low
    el = low - (eh - h)
    dh = 1.0 + eh
    dl = (eh - (dh - 1.0)) + el
    y = quotient(eh if x < 0.0 else 1.0, el if x < 0.0 else 0.0, dh, dl)
    return y if x == x else x32


def tanh(x32: F32) -> F32:
    """Return (exp(2x) - 1) / (exp(2x) + 1); below 1/8 the Taylor series."""
    x = f64(x32)
    ax = -x if x < 0.0 else x
    c = ax if ax < 10.0 else (10.0 if x == x else 0.0)
    d = 2.0 * (0.125 if c < 0.125 else c)
    h = _exp_high(d)
    low = _exp_low(d)
    eh = h + low
    el = low - (eh - h)
    nh = eh - 1.0
    nl = ((eh - nh) - 1.0) + el
    dh = eh + 1.0
    dl = ((eh - dh) + 1.0) + el
    y = quotient(nh, nl, dh, dl)
    s = c if c < 0.125 else 0.125
    z = s * s
    q = -1382 / 155925 + z * (21844 / 6081075 + z * (-929569 / 638512875 + z * (6404582 / 10854718875)))
    q = -1 / 3 + z * (2 / 15 + z * (-17 / 315 + z * (62 / 2835 + z * q)))
    p = s * z * q
    y = round_pair(s, p) if c < 0.125 else y
    return (-y if x < 0.0 else (x32 if x == 0.0 else y)) if x == x else x32
