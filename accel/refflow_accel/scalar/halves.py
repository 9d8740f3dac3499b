"""float16 and bfloat16 as bit patterns: widened exactly, narrowed to nearest even (NUM-HALF), by integer operations.

Patterns are int64 in [0, 65536).  A float64 or an int64 is first rounded to odd, so that it is rounded once in effect.
"""

from __future__ import annotations

from .dialect import F32, F64, I64, INF64, bits32, f32, f64, from32

UNIT16 = f32(2.0**-24)  # the smallest float16


def f16_decode(h: I64) -> F32:
    """Return the float32 that a float16 pattern stands for."""
    magnitude = h & 0x7FFF
    exponent = h & 0x7C00
    subnormal = bits32(f32(magnitude) * UNIT16)
    normal = (magnitude << 13) + (0x38000000 if exponent < 0x7C00 else 0x70000000)
    return from32(((h & 0x8000) << 16) | (subnormal if exponent == 0 else normal))


def f16_encode(x: F32) -> I64:
    """Return the float16 pattern nearest to a float32; NaN gives 0x7e00 with its sign."""
    u = bits32(x)
    a = u & 0x7FFFFFFF
    normal = (a + 0xFFF + ((a >> 13) & 1) - 0x38000000) >> 13
    normal = normal if normal < 0x7C00 else 0x7C00
    m = (a & 0x7FFFFF) | 0x800000
    shift = 126 - (a >> 23)
    shift = shift if shift < 26 else 26  # nothing is left from there on
    shift = shift if shift > 14 else 14
    subnormal = (m + ((1 << (shift - 1)) - 1) + ((m >> shift) & 1)) >> shift
    q = normal if a >= 0x38800000 else subnormal
    return ((u >> 16) & 0x8000) | (0x7E00 if a > 0x7F800000 else q)


def bf16_decode(h: I64) -> F32:
    """Return the float32 that a bfloat16 pattern stands for."""
    return from32(h << 16)


def bf16_encode(x: F32) -> I64:
    """Return the bfloat16 pattern nearest to a float32; NaN gives 0x7fc0 with its sign."""
    u = bits32(x)
    near = (u + 0x7FFF + ((u >> 16) & 1)) >> 16
    return ((u >> 16) & 0x8000) | 0x7FC0 if (u & 0x7FFFFFFF) > 0x7F800000 else near


def odd32(x: F64) -> F32:
    """Return a float64 rounded to a float32 by odd: a later rounding to 16 bits is as if it were the only one."""
    near = f32(x)
    back = f64(near)
    u = bits32(near)
    size = -x if x < 0.0 else x
    reach = -back if back < 0.0 else back
    down = u - (1 if reach > size else 0)
    return from32((down | 1) if (back != x) & (size < INF64) else u)


def odd64(i: I64) -> F64:
    """Return an int64 as a float64 rounded by odd: exact below 2^53."""
    large = (i >= 9007199254740992) | (i <= -9007199254740992)
    sticky = ((i >> 11) | (1 if (i & 2047) != 0 else 0)) << 11
    return f64(sticky if large else i)


def f16_from64(x: F64) -> I64:
    """Return the float16 pattern nearest to a float64."""
    return f16_encode(odd32(x))


def bf16_from64(x: F64) -> I64:
    """Return the bfloat16 pattern nearest to a float64."""
    return bf16_encode(odd32(x))


def f16_from_int(i: I64) -> I64:
    """Return the float16 pattern nearest to an int64."""
    return f16_encode(odd32(odd64(i)))


def bf16_from_int(i: I64) -> I64:
    """Return the bfloat16 pattern nearest to an int64."""
    return bf16_encode(odd32(odd64(i)))
