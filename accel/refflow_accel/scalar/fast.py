"""Fast forms for the CPU's vector units: a float64 value of each function to a relative error far below 2^-35.

No tables, no branches, no conversions between integers and floats: LLVM turns a loop of them into vector code, and
`muladd` into one or two roundings as the processor likes.  A NaN
means "ask the accurate function", which is right everywhere.  `blocks` accepts a value only where all numbers within
its error round alike, so none of this is part of a definition.  Polynomials: polynomials.py, by make_tables.py.
"""

from __future__ import annotations

from .dialect import F32, F64, INF64, NAN64, Truth, bits64, f64, from64, muladd, sqrt64
from .polynomials import COS, ERF, ERF_NEAR, EXP, EXPM1, LOG, LOG_THIRD, SIN, TAIL, TAIL_SCALE, TANH
from .tables import MAGIC

PER_LN2 = 1.4426950408889634
LN2 = 0.6931471805599453
HALF_BITS = 0x3FE6A09E667F3BCD  # of sqrt(1/2)
SQRT_HALF = 0.7071067811865476
SQRT2 = 1.4142135623730951
TWICE_DENSITY = 0.7978845608028654  # sqrt(2 / pi)
CLOSE = 2.0**-21  # a few roundings of float32
BIASED = 1023 << 52
FRACTION = 0xFFFFFFFFFFFFF
WHOLE = 4503599627370496.0  # 2^52
WHOLE_BITS = 0x4330000000000000
PER_QUARTER = 0.6366197723675814  # 2 / pi
# pi/2 in parts: the first two have 33 bits, so that a multiple of up to 2^20 is exact
QUARTER1, QUARTER2, QUARTER3 = 1.57079632673412561417e00, 6.07710050630396597660e-11, 2.02226624879595063154e-21
REACH = 1000000.0  # |x| up to which three parts are enough


def _exp(c: F64) -> F64:
    """Return exp(c) for -744 < c < 709 or NaN."""
    t = muladd(c, PER_LN2, MAGIC)
    r = muladd(t - MAGIC, -LN2, c)
    s = r * r
    p = muladd(
        r,
        muladd(s, muladd(s, muladd(s, muladd(s, EXP[9], EXP[7]), EXP[5]), EXP[3]), EXP[1]),
        muladd(s, muladd(s, muladd(s, muladd(s, EXP[8], EXP[6]), EXP[4]), EXP[2]), EXP[0]),
    )
    return from64(bits64(p) + (bits64(t) << 52))


def exp(x32: F32) -> F64:
    """exp: 2^n exp(r), |r| <= ln(2)/2."""
    x = f64(x32)
    c = 90.0 if x > 90.0 else x
    return _exp(-105.0 if c < -105.0 else c)


def sigmoid(x32: F32) -> F64:
    """1 / (1 + exp(-x))."""
    x = f64(x32)
    c = 105.0 if x > 105.0 else x
    return 1.0 / (1.0 + _exp(-(-105.0 if c < -105.0 else c)))


def expm1(x32: F32) -> F64:
    """2^n (exp(r) - 1) + (2^n - 1)."""
    x = f64(x32)
    c = 90.0 if x > 90.0 else x
    c = -105.0 if c < -105.0 else c
    t = muladd(c, PER_LN2, MAGIC)
    r = muladd(t - MAGIC, -LN2, c)
    s = r * r
    p = muladd(
        r,
        muladd(s, muladd(s, muladd(s, EXPM1[7], EXPM1[5]), EXPM1[3]), EXPM1[1]),
        muladd(s, muladd(s, muladd(s, muladd(s, EXPM1[8], EXPM1[6]), EXPM1[4]), EXPM1[2]), EXPM1[0]),
    )
    scale = from64((bits64(t) << 52) + BIASED)
    return (p * r) * scale + (-0.0 if scale == 1.0 else scale - 1.0)  # x + -0.0 is x, of -0 too


def tanh(x32: F32) -> F64:
    """1 - 2 / (exp(2|x|) + 1); below 0.35 an odd polynomial."""
    x = f64(x32)
    a = -x if x < 0.0 else x
    a = 10.0 if a > 10.0 else a
    large = 1.0 - 2.0 / (_exp(2.0 * a) + 1.0)
    z = x * x
    s = z * z
    small = x * (
        muladd(
            z,
            muladd(s, muladd(s, TANH[5], TANH[3]), TANH[1]),
            muladd(s, muladd(s, muladd(s, TANH[6], TANH[4]), TANH[2]), TANH[0]),
        )
    )
    return small if a < 0.35 else (-large if x < 0.0 else large)


def _log(c: F64) -> F64:
    """Return the logarithm of a positive normal float64: e ln 2 + 2 atanh(s), s = (m - 1)/(m + 1), m near 1."""
    shifted = bits64(c) - HALF_BITS + BIASED
    e = from64(((shifted >> 52) & 0xFFF) | WHOLE_BITS) - (WHOLE + 1023.0)
    m = from64((shifted & FRACTION) + HALF_BITS)
    s = (m - 1.0) / (m + 1.0)
    z = s * s
    return muladd(e, LN2, s * muladd(z, _atanh(z), 2.0))


def _atanh(z: F64) -> F64:
    """Return (atanh(s)/s - 1) 2/z, z = s^2 <= 0.0294."""
    q = z * z
    return muladd(z, muladd(q, LOG[3], LOG[1]), muladd(q, muladd(q, LOG[4], LOG[2]), LOG[0]))


def log(x32: F32) -> F64:
    """log of positive finite numbers, NaN otherwise."""
    x = f64(x32)
    return _log(x) if (x > 0.0) & (x < INF64) else NAN64


def log1p(x32: F32) -> F64:
    """log(1 + x): as log, but where 1 + x lies in [sqrt(1/2), sqrt(2)), m - 1 is x itself."""
    x = f64(x32)
    c = 1.0 + x
    shifted = bits64(c) - HALF_BITS + BIASED
    e = from64(((shifted >> 52) & 0xFFF) | WHOLE_BITS) - (WHOLE + 1023.0)
    m = from64((shifted & FRACTION) + HALF_BITS)
    d = x if e == 0.0 else m - 1.0
    s = d / (2.0 + d)
    z = s * s
    v = (-0.0 if e == 0.0 else e * LN2) + s * muladd(z, _atanh(z), 2.0)
    return v if (x > -1.0) & (x < INF64) else NAN64


def softplus(x32: F32) -> F64:
    """max(x, 0) + log1p(t), t = exp(-|x|) in (0, 1]."""
    x = f64(x32)
    a = -x if x < 0.0 else x
    t = _exp(-(110.0 if a > 110.0 else a))
    s = t / (2.0 + t)
    z = s * s
    q = z * z
    p = muladd(
        z,
        muladd(q, muladd(q, LOG_THIRD[5], LOG_THIRD[3]), LOG_THIRD[1]),
        muladd(q, muladd(q, muladd(q, LOG_THIRD[6], LOG_THIRD[4]), LOG_THIRD[2]), LOG_THIRD[0]),
    )
    return (x if x > 0.0 else 0.0) + s * muladd(z, p, 2.0)


def erf(x32: F32) -> F64:
    """x P(x^2/8 - 1), a polynomial of degree 21 in four interleaved chains, clamped at 4 where the answer is 1."""
    x = f64(x32)
    c = 4.0 if x > 4.0 else x
    c = -4.0 if c < -4.0 else c
    w = c * c * 0.125 - 1.0
    q = w * w
    u = q * q
    p0 = muladd(u, muladd(u, muladd(u, muladd(u, muladd(u, ERF[20], ERF[16]), ERF[12]), ERF[8]), ERF[4]), ERF[0])
    p1 = muladd(u, muladd(u, muladd(u, muladd(u, muladd(u, ERF[21], ERF[17]), ERF[13]), ERF[9]), ERF[5]), ERF[1])
    p2 = muladd(u, muladd(u, muladd(u, muladd(u, ERF[18], ERF[14]), ERF[10]), ERF[6]), ERF[2])
    p3 = muladd(u, muladd(u, muladd(u, muladd(u, ERF[19], ERF[15]), ERF[11]), ERF[7]), ERF[3])
    return c * muladd(q, muladd(w, p3, p2), muladd(w, p1, p0))


def _tail(t: F64) -> tuple[F64, F64]:
    """Return exp(-t^2/2) and Phi(-t) = exp(-t^2/2) P(u) / (t + 4), u = (t - 4)/(t + 4), for 0 <= t <= 15."""
    inverse = 1.0 / (t + TAIL_SCALE)
    u = (t - TAIL_SCALE) * inverse
    q = u * u
    w = q * q
    p0 = muladd(w, muladd(w, muladd(w, TAIL[12], TAIL[8]), TAIL[4]), TAIL[0])
    p1 = muladd(w, muladd(w, muladd(w, TAIL[13], TAIL[9]), TAIL[5]), TAIL[1])
    p2 = muladd(w, muladd(w, muladd(w, TAIL[14], TAIL[10]), TAIL[6]), TAIL[2])
    p3 = muladd(w, muladd(w, TAIL[11], TAIL[7]), TAIL[3])
    e = _exp(-0.5 * (t * t))
    return e, e * (muladd(q, muladd(u, p3, p2), muladd(u, p1, p0)) * inverse)


def gelu(x32: F32) -> F64:
    """x Phi(x) by the tail of the normal distribution."""
    x = f64(x32)
    a = -x if x < 0.0 else x
    tail = _tail(15.0 if a > 15.0 else a)[1]
    return (-15.0 if x < -15.0 else x) * (tail if x < 0.0 else 1.0 - tail)


def gelu_terms(x32: F32, y32: F32, z32: F32) -> tuple[F64, F64, F64]:
    """gelu(x), erf(y) and exp(z), the last two by their distance from x / sqrt(2) and -x^2/2 where that is small.

    With h = |y| sqrt(2) - t, Phi(-t - h) = Phi(-t) - phi(t) h to 2^-44; below 1/2, erf(y) is an odd polynomial.
    """
    x = f64(x32)
    y = f64(y32)
    z = f64(z32)
    a = -x if x < 0.0 else x
    t = 15.0 if a > 15.0 else a
    e, tail = _tail(t)
    b = -y if y < 0.0 else y
    b = 15.0 * SQRT_HALF if b > 15.0 * SQRT_HALF else b
    h = muladd(b, SQRT2, -t)
    s = b * b
    q = s * s
    near = b * muladd(
        s,
        muladd(q, muladd(q, ERF_NEAR[5], ERF_NEAR[3]), ERF_NEAR[1]),
        muladd(q, muladd(q, muladd(q, ERF_NEAR[6], ERF_NEAR[4]), ERF_NEAR[2]), ERF_NEAR[0]),
    )
    far = muladd(TWICE_DENSITY * e, h, 1.0 - 2.0 * tail)
    far = far if (h if h > 0.0 else -h) <= t * CLOSE else NAN64
    r = near if b < 0.5 else far
    d = (-112.5 if z < -112.5 else z) + 0.5 * (t * t)
    d = d if (d if d > 0.0 else -d) < 32.0 * CLOSE else NAN64
    power = e * muladd(d, muladd(d, 0.5, 1.0), 1.0)
    g = (-15.0 if x < -15.0 else x) * (tail if x < 0.0 else 1.0 - tail)
    return g, -r if y < 0.0 else r, power


def rsqrt(x32: F32) -> F64:
    """1 / sqrt(x)."""
    return 1.0 / sqrt64(f64(x32))


def _quarter(x: F64) -> F64:
    """Return x 2/pi + MAGIC, whose low bits are the number of quarter turns; NaN beyond REACH."""
    return (x if (x < REACH) & (x > -REACH) else NAN64) * PER_QUARTER + MAGIC


def _rest(x: F64, t: F64) -> F64:
    n = t - MAGIC
    return ((x - n * QUARTER1) - n * QUARTER2) - n * QUARTER3


def _sine(r: F64) -> F64:
    z = r * r
    q = z * z
    return r * (1.0 + z * muladd(z, muladd(q, SIN[3], SIN[1]), muladd(q, muladd(q, SIN[4], SIN[2]), SIN[0])))


def _cosine(r: F64) -> F64:
    z = r * r
    q = z * z
    return 1.0 + z * muladd(z, muladd(q, COS[3], COS[1]), muladd(q, muladd(q, COS[4], COS[2]), COS[0]))


def _turned(y: F64, half: Truth) -> F64:
    return -y if half else y


def sin(x32: F32) -> F64:
    """sin by quarter turns."""
    x = f64(x32)
    t = _quarter(x)
    r = _rest(x, t)
    k = bits64(t)
    return _turned(_sine(r) if (k & 1) == 0 else _cosine(r), (k & 2) != 0)


def cos(x32: F32) -> F64:
    """cos by quarter turns."""
    x = f64(x32)
    t = _quarter(x)
    r = _rest(x, t)
    k = bits64(t)
    return _turned(_cosine(r) if (k & 1) == 0 else _sine(r), ((k + 1) & 2) != 0)


def pow(x32: F32, y32: F32) -> F64:
    """exp(y log |x|), the sign of x for an odd y; NaN for zeros, infinities and fractional powers of negatives."""
    x = f64(x32)
    y = f64(y32)
    a = -x if x < 0.0 else x
    b = -y if y < 0.0 else y
    e = y * _log(a) if (a > 0.0) & (a < INF64) & (b < 8388608.0) else NAN64
    e = 105.0 if e > 105.0 else e
    p = _exp(-120.0 if e < -120.0 else e)
    half = 0.5 * b
    whole = (b + WHOLE) - WHOLE == b
    odd = (half + WHOLE) - WHOLE != half
    return p if x > 0.0 else ((-p if odd else p) if whole else NAN64)
