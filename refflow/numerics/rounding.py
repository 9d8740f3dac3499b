"""One rounding: the exact binary32 fused multiply-add, built from binary64 additions.

Implements NUM-FMA of spec/text/numerics.md.  `add_rounded` is the inner step of every contraction of the reference.

Why this is exact.  The product p of two binary32 numbers has at most 48 bits and fits binary64.  Let v = p + c be the
exact value, s = RN64(v) and suppose RN32(s) differs from RN32(v).  Rounding is monotonic, so a binary32 midpoint lies
between v and s, ends included.  A midpoint is a binary64 number, and no binary64 number lies strictly between v and its
nearest one, so the midpoint is s itself (were it v, then s = v).  A midpoint has at most 25 significant bits, fewer
when it is subnormal in binary32, so the low 28 of the 52 fraction bits of s are zero; and s is no binary32 number.
Those elements, one in 2^28 of ordinary data, are moved one binary64 step towards v, which leaves them strictly on v's
side of the midpoint (round to odd: Boldo and Melquiond 2008).  p is a multiple of 2^-298, so nothing is subnormal here.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

_LOW28 = np.int64((1 << 28) - 1)


def fma32(a: npt.ArrayLike, b: npt.ArrayLike, c: npt.ArrayLike) -> Array:
    """a * b + c in float32 with one rounding, to nearest even (broadcast; every special value as IEEE 754 says).

    Arguments are float32 arrays or scalars.  Source: NUM-FMA.
    """
    with np.errstate(all="ignore"):
        p = np.multiply(np.asarray(a, np.float32), np.asarray(b, np.float32), dtype=np.float64)
        wide = np.asarray(c, np.float32).astype(np.float64)
        p, wide = np.broadcast_arrays(p, wide)
        shape, p, wide = p.shape, p.reshape(-1), wide.reshape(-1)
        s = np.empty(p.shape, np.float64)
        out = np.empty(p.shape, np.float32)
        add_rounded(p, wide, s, s.view(np.int64), np.empty(p.shape, np.int64), out, np.empty(p.shape, np.float64))
        return out.reshape(shape)


def add_rounded(p: Array, c: Array, s: Array, s_bits: Array, low: Array, narrow: Array, back: Array) -> None:
    """narrow = RN32(p + c), and back = the same in binary64; the rest is work space.

    Flat arrays of one length: p, c, s, back float64, s_bits the int64 view of s, low int64, narrow float32.
    p + c must be a multiple of 2^-298 (an exact product of float32 numbers plus a float32 number).
    """
    np.add(p, c, out=s)
    narrow[...] = s
    back[...] = narrow
    np.bitwise_and(s_bits, _LOW28, out=low)
    zero = low.size - np.count_nonzero(low)
    if zero and zero != np.count_nonzero(back == s):  # a binary32 number has a zero there too, and needs no repair
        _repair(p, c, s, low, narrow, back)


def _repair(p: Array, c: Array, s: Array, low: Array, narrow: Array, back: Array) -> None:
    """Round again, once, the elements whose binary64 sum is a binary32 midpoint."""
    at = np.flatnonzero((low == 0) & (back != s) & (s == s))
    if at.size == 0:
        return
    p, c, s = p[at], c[at], s[at]
    t = s - p
    error = (p - (s - t)) + (c - t)  # TwoSum (Knuth): s + error is p + c exactly
    away = np.where((error > 0) == (s > 0), 1, -1)  # one step in the bit pattern, away from or towards zero
    odd = (s.view(np.int64) + np.where(error != 0, away, 0)).view(np.float64)
    narrow[at] = odd.astype(np.float32)
    back[at] = narrow[at]
