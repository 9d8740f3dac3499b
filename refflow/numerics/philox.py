"""Random numbers that depend on nothing but seed, stream and logical index.

Implements RNG-PHILOX, RNG-UNIFORM, RNG-NORMAL and RNG-INTEGER of spec/text/random.md.
The generator is Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011).
Which logical index an element has is left to `layout`, which stream a call has to refflow/random.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import NumericsError
from . import elementary

Array = npt.NDArray[Any]

_MASK = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_M0, _M1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_W0, _W1 = 0x9E3779B9, 0xBB67AE85
_TWO_PI = np.float32(6.2831855)
_ULP = np.float32(2.0**-24)


def philox4x32(counter: tuple[Array, Array, Array, Array], key: tuple[int, int]) -> tuple[Array, Array, Array, Array]:
    """Ten rounds of Philox on four arrays of 32-bit words held in uint64; the same four shapes come back."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        p0, p1 = _M0 * c0, _M1 * c2
        c0, c1, c2, c3 = (p1 >> _HALF) ^ c1 ^ np.uint64(k0), p1 & _MASK, (p0 >> _HALF) ^ c3 ^ np.uint64(k1), p0 & _MASK
        k0, k1 = (k0 + _W0) & 0xFFFFFFFF, (k1 + _W1) & 0xFFFFFFFF
    return c0, c1, c2, c3


def _lanes(block: Array, seed: int, stream: int) -> Array:
    """uint32 (blocks, 4): the four words of each block number (uint64)."""
    key = (seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF)
    words = (np.uint64(stream & 0xFFFFFFFF), np.uint64(stream >> 32 & 0xFFFFFFFF))
    counter = (block & _MASK, block >> _HALF, np.full_like(block, words[0]), np.full_like(block, words[1]))
    return np.stack(philox4x32(counter, key), axis=-1).astype(np.uint32)


def random_bits(index: npt.ArrayLike, seed: int, stream: int) -> Array:
    """The uint32 word of each logical `index` (uint64, any shape): lane index & 3 of block index >> 2.

    Key = the 64 bits of `seed`, counter = (block low, block high, stream low, stream high).  Source: RNG-PHILOX.
    """
    index = np.asarray(index, np.uint64)
    if index.size == 0:
        return np.zeros(index.shape, np.uint32)
    block = index >> np.uint64(2)
    first, last = int(block.min()), int(block.max())
    if last - first < index.size:  # nearly contiguous: every block once, without sorting
        row = (block - np.uint64(first)).astype(np.int64)
        needed = np.uint64(first) + np.arange(last - first + 1, dtype=np.uint64)
    else:
        needed, inverse = np.unique(block, return_inverse=True)
        row = inverse.reshape(index.shape)
    return _lanes(needed, seed, stream)[row, (index & np.uint64(3)).astype(np.int64)]


def _unit(bits: Array) -> Array:
    """float32 multiples of 2^-24 in [0, 1): exact."""
    return (bits >> np.uint32(8)).astype(np.float32) * _ULP


def uniform(index: npt.ArrayLike, seed: int, stream: int) -> Array:
    """float32 in [0, 1): the upper 24 bits of the word, times 2^-24 (exact).  Source: RNG-UNIFORM."""
    return _unit(random_bits(index, seed, stream))


def normal(index: npt.ArrayLike, seed: int, stream: int) -> Array:
    """Standard normal float32 by Box and Muller; lanes (0, 1) of a block give elements 0, 1, lanes (2, 3) the rest.

    u1 = ((first >> 8) + 1) * 2^-24, u2 = (second >> 8) * 2^-24, r = sqrt(-2 * log(u1)), t = fl(2 pi) * u2; the even
    element is r * cos(t), the odd one r * sin(t); each step is float32, correctly rounded.  Source: RNG-NORMAL.
    """
    index = np.asarray(index, np.uint64)
    first = random_bits(index & ~np.uint64(1), seed, stream)
    second = random_bits(index | np.uint64(1), seed, stream)
    u1 = ((first >> np.uint32(8)) + np.uint32(1)).astype(np.float32) * _ULP
    radius = np.sqrt(np.float32(-2) * elementary.apply("log", u1))
    angle = np.asarray(_TWO_PI * _unit(second))
    wave = np.empty(index.shape, np.float32)
    odd = (index & np.uint64(1)).astype(np.bool_)
    wave[~odd] = elementary.apply("cos", angle[~odd])
    wave[odd] = elementary.apply("sin", angle[odd])
    return np.asarray(radius * wave)


def integers(index: npt.ArrayLike, low: int, high: int, seed: int, stream: int) -> Array:
    """int64 in [low, high): low + ((word * (high - low)) >> 32).

    Raises NumericsError unless 0 < high - low <= 2^32.  Source: RNG-INTEGER.
    """
    span = high - low
    if not 0 < span <= 1 << 32:
        raise NumericsError(f"integers: [{low}, {high}) has {span} values; there must be 1 to 2^32 of them")
    word = random_bits(index, seed, stream).astype(np.uint64)
    return np.asarray((word * np.uint64(span) >> _HALF).astype(np.int64) + np.int64(low))
