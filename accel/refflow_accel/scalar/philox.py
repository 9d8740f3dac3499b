"""Random numbers of a logical index (RNG-PHILOX, RNG-UNIFORM, RNG-NORMAL, RNG-INTEGER).

Philox4x32-10 (Salmon et al. 2011) on int64: products of 32-bit words wrap, and their high words are masked.
"""

from __future__ import annotations

from .circular import cos, sin
from .dialect import F32, I64, f32, sqrt32
from .logarithms import log

WORD = 0xFFFFFFFF
ULP = f32(2.0**-24)
TWO_PI = f32(6.2831855)
MINUS_TWO = f32(-2.0)


def philox4x32(c0: I64, c1: I64, c2: I64, c3: I64, k0: I64, k1: I64) -> tuple[I64, I64, I64, I64]:
    """Return ten rounds on four words with a key of two; all in [0, 2^32)."""
    for _ in range(10):
        p0 = 0xD2511F53 * c0
        p1 = 0xCD9E8D57 * c2
        c0 = ((p1 >> 32) & WORD) ^ c1 ^ k0
        c2 = ((p0 >> 32) & WORD) ^ c3 ^ k1
        c1 = p1 & WORD
        c3 = p0 & WORD
        k0 = (k0 + 0x9E3779B9) & WORD
        k1 = (k1 + 0xBB67AE85) & WORD
    return c0, c1, c2, c3


def philox_block(block: I64, seed: I64, stream: I64) -> tuple[I64, I64, I64, I64]:
    """Return the four words of a block number; seed and stream are 64 bits as int64."""
    return philox4x32(
        block & WORD, (block >> 32) & WORD, stream & WORD, (stream >> 32) & WORD, seed & WORD, (seed >> 32) & WORD
    )


def random_word(index: I64, seed: I64, stream: I64) -> I64:
    """Return the 32-bit word of a logical index: lane index & 3 of block index >> 2."""
    w0, w1, w2, w3 = philox_block(index >> 2, seed, stream)
    lane = index & 3
    return (w0 if lane == 0 else w1) if lane < 2 else (w2 if lane == 2 else w3)


def uniform(word: I64) -> F32:
    """Return the upper 24 bits of a word times 2^-24."""
    return f32(word >> 8) * ULP


def radius(word: I64) -> F32:
    """Return sqrt(-2 log(u)) of the first word of a pair, u in (0, 1]."""
    return sqrt32(MINUS_TWO * log(f32((word >> 8) + 1) * ULP))


def normal_even(first: I64, second: I64) -> F32:
    """Return the first of the two standard normal numbers of a pair of words (Box and Muller 1958)."""
    return radius(first) * cos(TWO_PI * uniform(second))


def normal_odd(first: I64, second: I64) -> F32:
    """Return the second of them."""
    return radius(first) * sin(TWO_PI * uniform(second))


def normal(index: I64, seed: I64, stream: I64) -> F32:
    """Return the standard normal number of a logical index."""
    w0, w1, w2, w3 = philox_block(index >> 2, seed, stream)
    first = w0 if (index & 2) == 0 else w2
    second = w1 if (index & 2) == 0 else w3
    return normal_even(first, second) if (index & 1) == 0 else normal_odd(first, second)


def bounded(word: I64, low: I64, span: I64) -> I64:
    """Return low + floor(word * span / 2^32), for 0 < span <= 2^32."""
    return low + (((word * span) >> 32) & WORD)
