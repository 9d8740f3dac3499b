"""Indexing kernels: reading at positions held in an integer array.

Implements IDX-RANGE for the back end "numba": an index outside the logical extent is refused, one that another shard
holds reads what a sum leaves alone.  Adding at such positions is `scatter`'s.
"""

# ruff: noqa: F821  (names of the scope)

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np

from refflow.kernels.reference.registry import WHOLE, extent

from ...expressions import INTEGERS
from ..abi import Entry, i64, i64s
from ..registry import kernel
from .elements import READ, WORDS, entry_of, get, itemstrides, name_of, put
from .movement import contiguous
from .reduction import Array, identity_word

# --- indices ----------------------------------------------------------------------------------------------------------


def locate_indices(words, lo, hi):
    """Task t: an index.  Words: here, index, lo, hi and of of its dimension, step.

    here = (index - lo) * step, or -1 where another shard holds it; refuses one outside [0, of).
    """
    here, index = i64s(words, 0), read(words, 1)
    first, last, of = i64(words, 2), i64(words, 3), i64(words, 4)
    bad = 0
    for t in range(lo, hi):
        i = np.int64(get(index, t))
        bad |= (i < 0) | (i >= of)
        put(here, t, i - first if (i >= first) & (i < last) else -1)
    return 1 if bad else 0


@cache
def locating(dtype: str) -> Entry:
    return entry_of(locate_indices, dtype, {"read": READ[dtype]})


def located(call: Any, index: Array, span: tuple[int, int, int]) -> Array:
    """Where in this shard each index is, int64 in row-major order; -1 if in another."""
    here: Array = call.scratch((index.size,), np.int64)
    call.launch(locating(name_of(index.dtype)), here, contiguous(call, index), *span, tasks=index.size, cost=0.5)
    return here


# --- reading ----------------------------------------------------------------------------------------------------------


def select_rows(words, lo, hi):
    """Task t: one index of one slice before the dimension.

    Words: out, x, here, number of indices, size of the dimension, of a row, the word of what is absent.
    """
    out, x, here = read(words, 0), read(words, 1), i64s(words, 2)
    count, size, row, absent = i64(words, 3), i64(words, 4), i64(words, 5), i64(words, 6)
    for t in range(lo, hi):
        i, to = get(here, t % count), t * row
        if i < 0:
            for c in range(row):
                put(out, to + c, absent)
        else:
            at = (t // count * size + i) * row
            for c in range(row):
                put(out, to + c, get(x, at + c))
    return 0


@cache
def selecting(itemsize: int) -> Entry:
    return entry_of(select_rows, str(itemsize), {"read": WORDS[itemsize]})


@kernel
def index_select(call: Any, x: Array, index: Array, *, dim: int, at: Any = WHOLE) -> Any:
    span = extent(at, "v", x.shape[dim])
    if name_of(index.dtype) not in INTEGERS or span[1] - span[0] != x.shape[dim] or name_of(x.dtype) not in READ:
        return NotImplemented
    dim %= x.ndim
    here = located(call, index, span)
    out = call.empty((*x.shape[:dim], *index.shape, *x.shape[dim + 1 :]), x.dtype)
    row = math.prod(x.shape[dim + 1 :])
    words = (index.size, x.shape[dim], row, identity_word("sum", name_of(x.dtype)))
    tasks = math.prod(x.shape[:dim]) * index.size
    call.launch(selecting(x.itemsize), out, contiguous(call, x), here, *words, tasks=tasks, cost=3 + 0.1 * row)
    return out


def gather_elements(words, lo, hi):
    """Task t: an element of the index.

    Words: out, x, here, step of the dimension in x, the word of what is absent, number of dimensions, then (size,
    step in x) of each, 0 for the indexed one.
    """
    out, x, here = read(words, 0), read(words, 1), i64s(words, 2)
    step, absent, dims = i64(words, 3), i64(words, 4), i64(words, 5)
    for t in range(lo, hi):
        rest, at = t, 0
        for d in range(dims - 1, 0, -1):
            size = i64(words, 6 + 2 * d)
            at += (rest % size) * i64(words, 7 + 2 * d)
            rest = rest // size
        if dims > 0:
            at += rest * i64(words, 7)
        i = get(here, t)
        if i < 0:
            put(out, t, absent)
        else:
            put(out, t, get(x, at + i * step))
    return 0


def gather_lanes(words, lo, hi):
    """The same from an array without gaps, of the index's shape but for the indexed dimension: places are counted on.

    Words: out, x, here, number of indices in a lane, lanes behind the dimension, its size in x, the word of what is
    absent.
    """
    out, x, here = read(words, 0), read(words, 1), i64s(words, 2)
    count, behind, size, absent = i64(words, 3), i64(words, 4), i64(words, 5), i64(words, 6)
    if count == 1 and behind == 1:
        for t in range(lo, hi):
            i = get(here, t)
            if i >= 0:
                put(out, t, get(x, t * size + i))
            else:
                put(out, t, absent)
        return 0
    row, lane = lo // behind, lo % behind
    k, base = row % count, row // count * size * behind + lane
    for t in range(lo, hi):
        i = get(here, t)
        if i < 0:
            put(out, t, absent)
        else:
            put(out, t, get(x, base + i * behind))
        lane += 1
        base += 1
        if lane == behind:
            lane = 0
            k += 1
            base -= behind
            if k == count:
                k = 0
                base += size * behind
    return 0


@cache
def gathering_lanes(itemsize: int) -> Entry:
    return entry_of(gather_lanes, str(itemsize), {"read": WORDS[itemsize]})


@cache
def gathering(itemsize: int) -> Entry:
    return entry_of(gather_elements, str(itemsize), {"read": WORDS[itemsize]})


@kernel
def gather(call: Any, x: Array, index: Array, *, dim: int, at: Any = WHOLE) -> Any:
    span = extent(at, "v", x.shape[dim])
    if name_of(index.dtype) not in INTEGERS or span[1] - span[0] != x.shape[dim] or name_of(x.dtype) not in READ:
        return NotImplemented
    dim %= x.ndim
    if index.ndim != x.ndim or any(a > b for d, (a, b) in enumerate(zip(index.shape, x.shape)) if d != dim):
        return NotImplemented
    here = located(call, index, span)
    out = call.empty(index.shape, x.dtype)
    absent = identity_word("sum", name_of(x.dtype))
    if x.flags.c_contiguous and x.shape == (*index.shape[:dim], x.shape[dim], *index.shape[dim + 1 :]):
        lane = (index.shape[dim], math.prod(index.shape[dim + 1 :]), x.shape[dim], absent)
        call.launch(gathering_lanes(x.itemsize), out, x, here, *lane, tasks=index.size, cost=1.0)
        return out
    steps = itemstrides(x.strides, x.itemsize)
    pairs = [word for d in range(x.ndim) for word in (index.shape[d], 0 if d == dim else steps[d])]
    words = (steps[dim], absent, x.ndim, *pairs)
    call.launch(gathering(x.itemsize), out, x, here, *words, tasks=index.size, cost=3.0 + x.ndim)
    return out


def one_hot_rows(words, lo, hi):
    """Task t: an index.  Words: out, here, width."""
    out, here, width = i64s(words, 0), i64s(words, 1), i64(words, 2)
    for t in range(lo, hi):
        for c in range(width):
            put(out, t * width + c, 0)
        i = get(here, t)
        if i >= 0:
            put(out, t * width + i, 1)
    return 0


ONE_HOT = entry_of(one_hot_rows, "int64", {})


@kernel
def one_hot(call: Any, index: Array, *, num_classes: int, at: Any = WHOLE) -> Any:
    lo, hi, of = extent(at, "v", num_classes)
    if name_of(index.dtype) not in INTEGERS:
        return NotImplemented
    here = located(call, index, (lo, hi, of))
    out = call.empty((*index.shape, hi - lo), np.int64)
    call.launch(ONE_HOT, out, here, hi - lo, tasks=index.size, cost=3 + 0.1 * (hi - lo))
    return out
