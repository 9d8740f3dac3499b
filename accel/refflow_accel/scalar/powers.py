"""pow, sqrt and rsqrt of float32 numbers, correctly rounded (NUM-ELEMENTARY); pow's special values are C's Annex F."""

from __future__ import annotations

from .dialect import F32, F64, INF32, INF64, NAN32, ONE32, ZERO32, Truth, bits64, f32, f64, from64, i64, sqrt32, sqrt64
from .exponentials import exp_pair
from .logarithms import log_pair
from .pairs import product_error, round_pair


def sqrt(x: F32) -> F32:
    """Return the square root (IEEE 754)."""
    return sqrt32(x)


def rsqrt(x: F32) -> F32:
    """Return 1 / sqrt(x) by way of float64.

    No result lies so close to a midpoint of float32 that the second rounding errs: every input was checked.
    """
    return f32(1.0 / sqrt64(f64(x)))


def _integral(x: F64) -> Truth:
    return f64(i64(x)) == x


def _may_tie(c: F64, v: F64, ay: F64) -> Truth:
    """Tell whether c^v can be exactly a midpoint of float32.

    Only if c = 2^e with e v an integer, or v = n / 2^k with n <= 15, k <= 3: m^n < 2^25 for an odd m >= 3 that is a
    2^k-th power below 2^24.
    """
    b = bits64(c)
    t = f64((b >> 52) - 1023) * v
    t = t if (t < 200.0) & (t > -200.0) else 0.5
    q = v if ay < 16.0 else 0.3
    root = (
        (_integral(q) & (q <= 15.0))
        | (_integral(2.0 * q) & (q <= 7.5))
        | (_integral(4.0 * q) & (q <= 3.75))
        | (_integral(8.0 * q) & (q <= 1.875))
    )
    return (((b & 0xFFFFFFFFFFFFF) == 0) & _integral(t)) | ((q > 0.0) & root)


def _pow_finite(c: F64, y: F64, ay: F64) -> F32:
    """Return c^y for finite c > 0 and finite y."""
    v = (-1e12 if y < 0.0 else 1e12) if ay > 1e12 else y  # |log c| >= 2^-24.1: 1e12 over- or underflows, unless c = 1
    lh, ll = log_pair(c, 0.0, c - 1.0, 0.0, (c < 1.0078125) & (c > 0.9921875))
    p = v * lh
    pl = product_error(v, lh, p) + v * ll
    beyond = (p > 89.0) | (p < -104.0)
    p = (89.0 if p > 0.0 else -104.0) if beyond else p
    pl = 0.0 if beyond else pl
    hi, lo = exp_pair(p, pl)
    near = from64((bits64(hi) + 0x4000000) & -0x8000000)  # hi to 26 bits: a tie, where there can be one
    d = (hi - near) + lo
    snap = _may_tie(c, v, ay) & (d < hi * 2.0**-64) & (d > hi * -(2.0**-64))
    return round_pair(near if snap else hi, 0.0 if snap else lo)


def pow(x32: F32, y32: F32) -> F32:
    """Return x to the power y; pow(x, ±0) = pow(1, y) = 1 even of NaN; x < 0 needs an integral y."""
    x = f64(x32)
    y = f64(y32)
    ax = -x if x < 0.0 else x
    ay = -y if y < 0.0 else y
    ok = (ax > 0.0) & (ax < INF64) & (ay < INF64)
    w = _pow_finite(ax if ok else 1.0, y if ok else 0.0, ay if ok else 0.0)
    yi = y if ay < 16777216.0 else 0.0  # from 2^24 on an even integer
    k = i64(yi)
    whole = (f64(k) == yi) & (ay < INF64)
    odd = whole & ((k & 1) == 1)
    r = ((-w if odd else w) if whole else NAN32) if (x < 0.0) & ok else w
    end = INF32 if (ax == 0.0) == (y < 0.0) else ZERO32
    r = (-end if odd & (bits64(x) < 0) else end) if (ax == 0.0) | (ax == INF64) else r
    far = ONE32 if ax == 1.0 else (INF32 if (ax > 1.0) == (y > 0.0) else ZERO32)
    r = far if ay == INF64 else r
    r = NAN32 if (x != x) | (y != y) else r
    return ONE32 if (x == 1.0) | (y == 0.0) else r
