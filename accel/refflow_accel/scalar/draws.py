"""Runs of random numbers on the CPU: out[:n] for the logical indices start .. start + n - 1 (RNG-*).

Implements ACC-BLOCK of spec/text/acceleration.md.  Words are made PART at a time into a buffer that begins at a whole
Philox block, and what falls into the run is copied; the normal numbers go through the block forms of log, cos and sin.
Every form has the arguments (start, seed, stream, low, span, out, n); `low` and `span` count for integers only.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from .blocks import cos_block, log_block, sin_block
from .dialect import f32
from .philox import MINUS_TWO, TWO_PI, ULP
from .target_cpu import OPTIONS, Cpu, cpu

PART = 512  # numbers at a time
HALF = PART // 2

_SCALAR = cpu()
philox_block, uniform, bounded = _SCALAR["philox_block"], _SCALAR["uniform"], _SCALAR["bounded"]
sqrt32 = Cpu.primitives["sqrt32"]


@numba.njit(**OPTIONS)
def _words(block: int, seed: int, stream: int, words: Any) -> None:
    """Fill the PART int64 `words` from block number `block` on (a constant count, so that LLVM makes vectors of it)."""
    for b in range(PART >> 2):
        w0, w1, w2, w3 = philox_block(block + b, seed, stream)
        words[4 * b] = w0
        words[4 * b + 1] = w1
        words[4 * b + 2] = w2
        words[4 * b + 3] = w3


@numba.njit(**OPTIONS)
def bits_block(start: int, seed: int, stream: int, low: int, span: int, out: Any, n: int) -> None:
    """The words themselves, as int64."""
    words = np.empty(PART, np.int64)
    done = 0
    while done < n:
        skip = (start + done) & 3
        take = min(PART - skip, n - done)
        _words((start + done) >> 2, seed, stream, words)
        out[done : done + take] = words[skip : skip + take]
        done += take


@numba.njit(**OPTIONS)
def uniform_block(start: int, seed: int, stream: int, low: int, span: int, out: Any, n: int) -> None:
    """float32 in [0, 1)."""
    words = np.empty(PART, np.int64)
    done = 0
    while done < n:
        skip = (start + done) & 3
        take = min(PART - skip, n - done)
        _words((start + done) >> 2, seed, stream, words)
        source = words[skip : skip + take]
        target = out[done : done + take]
        for i in range(take):
            target[i] = uniform(source[i])
        done += take


@numba.njit(**OPTIONS)
def integers_block(start: int, seed: int, stream: int, low: int, span: int, out: Any, n: int) -> None:
    """int64 in [low, low + span)."""
    words = np.empty(PART, np.int64)
    done = 0
    while done < n:
        skip = (start + done) & 3
        take = min(PART - skip, n - done)
        _words((start + done) >> 2, seed, stream, words)
        source = words[skip : skip + take]
        target = out[done : done + take]
        for i in range(take):
            target[i] = bounded(source[i], low, span)
        done += take


@numba.njit(**OPTIONS)
def normal_block(start: int, seed: int, stream: int, low: int, span: int, out: Any, n: int) -> None:
    """Standard normal float32."""
    words = np.empty(PART, np.int64)
    made = np.empty(PART, np.float32)
    u = np.empty(HALF, np.float32)
    r = np.empty(HALF, np.float32)
    angle = np.empty(HALF, np.float32)
    c = np.empty(HALF, np.float32)
    s = np.empty(HALF, np.float32)
    done = 0
    while done < n:
        skip = (start + done) & 3
        take = min(PART - skip, n - done)
        pairs = (skip + take + 1) >> 1
        _words((start + done) >> 2, seed, stream, words)
        for i in range(HALF):
            u[i] = f32((words[2 * i] >> 8) + 1) * ULP
            angle[i] = TWO_PI * uniform(words[2 * i + 1])
        log_block(u, r, pairs)
        cos_block(angle, c, pairs)
        sin_block(angle, s, pairs)
        for i in range(pairs):
            radius = sqrt32(MINUS_TWO * r[i])
            made[2 * i] = radius * c[i]
            made[2 * i + 1] = radius * s[i]
        out[done : done + take] = made[skip : skip + take]
        done += take
