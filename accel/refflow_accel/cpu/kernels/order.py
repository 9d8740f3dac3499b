"""Scan and order kernels: results along one dimension that depend on what comes before, or on rank.

Implements NUM-SCAN and NUM-ORDER for the back end "numba".  Sorting is by keys: unsigned integers in the order of the
elements (NaN largest, -0 equal to +0), sorted digit by digit, which keeps equals in their order.
"""

# ruff: noqa: F821  (names of the scope)

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np

from ...expressions import FLOATS
from ..abi import Entry, i64, i64s
from ..halves import bits_of, device
from ..registry import kernel
from . import elements
from .elements import (
    LOAD,
    NUMBA,
    READ,
    STORE,
    buffer,
    entry_of,
    get,
    name_of,
    put,
    wide,
    word_of,
)
from .movement import contiguous
from .nodes import BLOCK

Array = np.ndarray[Any, Any]
FEW = 24  # elements of a lane that are sorted by insertion
DIGITS = 256  # of a key: a byte at a time


# --- scans ------------------------------------------------------------------------------------------------------------


def scan_columns(words, lo, hi):
    """Task t: a block of the columns of a matrix, each from its first row down, one after the other (NUM-SCAN).

    Words: out, x, n, width (of a row of the matrix).
    """
    out, x = write(words, 0), read(words, 1)
    n, width = i64(words, 2), i64(words, 3)
    blocks = (width + BLOCK - 1) // BLOCK
    running = piles()
    for t in range(lo, hi):
        block = t % blocks * BLOCK
        count = min(width - block, BLOCK)
        at = t // blocks * n * width + block
        for c in range(count):
            value = load(x, at + c)
            put(running, c, value)
            store(out, at + c, value)
        for _ in range(1, n):
            at += width
            for c in range(count):
                value = combine(get(running, c), load(x, at + c))
                put(running, c, value)
                store(out, at + c, value)
    return 0


@cache
def scanning(kind: str, dtype: str) -> Entry:
    inner = wide(dtype)
    scope = {"read": READ[dtype], "write": READ[dtype], "load": LOAD[dtype], "store": STORE[dtype]}
    scope |= {"piles": buffer(NUMBA[inner], BLOCK), "combine": elements.combine(kind, inner)}
    return entry_of(scan_columns, f"{kind}_{dtype}", scope)


def scan(call: Any, x: Array, dim: int, kind: str) -> Any:
    if name_of(x.dtype) not in READ:
        return NotImplemented
    dim %= x.ndim
    n, width = x.shape[dim], math.prod(x.shape[dim + 1 :])
    out = call.empty(x.shape, x.dtype)
    tasks = math.prod(x.shape[:dim]) * -(-width // BLOCK) if n else 0
    cost = n * (1.0 + 0.2 * min(width, BLOCK))
    call.launch(scanning(kind, name_of(x.dtype)), out, contiguous(call, x), n, width, tasks=tasks, cost=cost)
    return out


@kernel
def cumsum(call: Any, x: Array, *, dim: int) -> Any:
    return scan(call, x, dim, "sum")


@kernel
def cumprod(call: Any, x: Array, *, dim: int) -> Any:
    return scan(call, x, dim, "prod")


# --- sorting ----------------------------------------------------------------------------------------------------------

# A key is an int64 taken as unsigned: digits are cut from it by arithmetic shifts and masks.

LEAST = -(2**63)


@device
def key_integer(value):
    """Signed order to unsigned."""
    return np.int64(value) ^ LEAST


@device
def key_small(value):
    """An integer of at most 32 bits, moved up so that none is negative: its key has four digits."""
    return np.int64(value) + (1 << 31)


@device
def key_float32(value):
    """The word of a number, its magnitude inverted below zero."""
    word = np.int64(bits_of(value))
    magnitude = word & 0x7FFFFFFF
    key = 0x80000000 - magnitude if word >= 0x80000000 else 0x80000000 + magnitude
    return key if value == value else 0xFFFFFFFF


@device
def key_float64(value):
    """Likewise, with the sign bit turned over at last: zeros are the middle of the unsigned numbers."""
    word = np.int64(word_of(value))
    key = word if word >= 0 else -(word & 0x7FFFFFFFFFFFFFFF)  # both zeros are 0
    return (key if value == value else 0x7FFFFFFFFFFFFFFF) ^ LEAST


def sort_lanes(words, lo, hi):
    """Task t: a lane: by insertion if it is short, else by counting bytes of keys, the lowest first.

    Both keep equals in their order (NUM-ORDER).  Words: out, x, n, step along the lane, descending?
    """
    out, x = i64s(words, 0), read(words, 1)
    n, step, descending = i64(words, 2), i64(words, 3), i64(words, 4)
    keys, places = np.empty(n, np.int64), np.empty(n, np.int64)
    other_keys, other_places = np.empty(n, np.int64), np.empty(n, np.int64)
    starts = digits()
    for t in range(lo, hi):
        base = t // step * n * step + t % step
        for i in range(n):
            word = key(load(x, base + i * step))
            keys[i], places[i] = ~word if descending else word, i
        if n <= FEW:
            for i in range(1, n):
                word, place, k = keys[i], places[i], i
                # as unsigned numbers: with the sign bit turned over, signed comparison is the right one
                while k > 0 and (keys[k - 1] ^ least) > (word ^ least):
                    keys[k], places[k] = keys[k - 1], places[k - 1]
                    k -= 1
                keys[k], places[k] = word, place
        else:
            for shift in range(0, bits, 8):
                for d in range(DIGITS):
                    put(starts, d, 0)
                for i in range(n):
                    d = (keys[i] >> shift) & 255
                    put(starts, d, get(starts, d) + 1)
                if get(starts, (keys[0] >> shift) & 255) == n:
                    continue
                total = 0
                for d in range(DIGITS):
                    size = get(starts, d)
                    put(starts, d, total)
                    total += size
                for i in range(n):
                    d = (keys[i] >> shift) & 255
                    to = get(starts, d)
                    put(starts, d, to + 1)
                    other_keys[to], other_places[to] = keys[i], places[i]
                keys, other_keys = other_keys, keys
                places, other_places = other_places, places
        for i in range(n):
            put(out, base + i * step, places[i])
    return 0


@cache
def sorting(dtype: str) -> Entry:
    inner = wide(dtype)
    turn = key_integer if dtype == "int64" else key_small
    if dtype in FLOATS:
        turn = key_float64 if inner == "float64" else key_float32
    scope = {"read": READ[dtype], "load": LOAD[dtype], "key": turn, "least": LEAST}
    scope |= {"digits": buffer(NUMBA["int64"], DIGITS), "bits": 64 if dtype in ("int64", "float64") else 32}
    return entry_of(sort_lanes, dtype, scope)


@kernel
def argsort(call: Any, x: Array, *, dim: int, descending: bool) -> Any:
    if name_of(x.dtype) not in READ:
        return NotImplemented
    dim %= x.ndim
    n, step = x.shape[dim], math.prod(x.shape[dim + 1 :])
    out = call.empty(x.shape, np.int64)
    tasks = x.size // n if n else 0
    words = (n, step, int(bool(descending)))
    call.launch(sorting(name_of(x.dtype)), out, contiguous(call, x), *words, tasks=tasks, cost=20.0 * n + 50)
    return out
