"""Indexing kernels: reading and adding at positions held in an integer array.

Implements ACC-SCATTER of spec/text/acceleration.md (NUM-SCATTER and IDX-RANGE in compiled code).  What is added at one
place is found by a stable counting sort of the positions by place; the tree over the whole source range is then walked
over the terms that are there, two neighbours joining at the node where their paths meet.
"""

# ruff: noqa: F821  (names of the scope)

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
from numba import types

from refflow.kernels.reference.registry import WHOLE, extent

from ..abi import Entry, i64, i64s
from ..registry import kernel
from . import elements
from .elements import LOAD, NUMBA, READ, STORE, WORDS, buffer, entry_of, get, itemstrides, name_of, put, wide
from .movement import contiguous, slots_of
from .reduction import identity_word

Array = np.ndarray[Any, Any]
INTEGERS = ("int64", "int32", "int8", "uint8")


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
    steps = itemstrides(x.strides, x.itemsize)
    pairs = [word for d in range(x.ndim) for word in (index.shape[d], 0 if d == dim else steps[d])]
    words = (steps[dim], identity_word("sum", name_of(x.dtype)), x.ndim, *pairs)
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


# --- adding -----------------------------------------------------------------------------------------------------------


def group_sources(words, lo, hi):
    """One task: the positions of the indices, by place and in ascending order.

    Words: sources, starts (one more than places), here, number of indices, of places.
    """
    sources, starts, here = i64s(words, 0), i64s(words, 1), i64s(words, 2)
    count, places = i64(words, 3), i64(words, 4)
    for v in range(places + 1):
        put(starts, v, 0)
    for k in range(count):
        i = get(here, k)
        if i >= 0:
            put(starts, i, get(starts, i) + 1)
    total = 0
    for v in range(places + 1):
        total += get(starts, v)
        put(starts, v, total)
    for k in range(count - 1, -1, -1):
        i = get(here, k)
        if i >= 0:
            at = get(starts, i) - 1
            put(starts, i, at)
            put(sources, at, k)
    return 0


GROUP = entry_of(group_sources, "int64", {})


def add_rows(words, lo, hi):
    """Task t: a block of a row of the result.

    Words: out, src, sources, starts, slots, number of indices, of places, size of a row.
    """
    out, src, sources, starts = write(words, 0), read(words, 1), i64s(words, 2), i64s(words, 3)
    slots, count, places, row = i64s(words, 4), i64(words, 5), i64(words, 6), i64(words, 7)
    blocks = (row + 255) // 256
    stack, heights = piles(), levels()
    for t in range(lo, hi):
        o, block = t // blocks, t % blocks
        v, base = o % places, o // places * count
        size = min(row - block * 256, 256)
        to = o * row + block * 256
        first, last = get(starts, v), get(starts, v + 1)
        top, before = -1, 0
        for k in range(first, last + 1):
            apart = 1 << 62  # past the last term all that is left joins
            source = 0
            if k < last:
                source = get(sources, k)
                slot = get(slots, source)
                apart = slot ^ before
                before = slot
            while top > 0 and get(heights, top) < apart:
                low = 256 * (top - 1)
                for c in range(size):
                    put(stack, low + c, combine(get(stack, low + c), get(stack, low + 256 + c)))
                top -= 1
            if k < last:
                top += 1
                put(heights, top, apart)
                low = 256 * top
                at = (base + source) * row + block * 256
                for c in range(size):
                    put(stack, low + c, load(src, at + c))
        if first == last:
            for c in range(size):
                store(out, to + c, nothing)
        else:
            for c in range(size):
                store(out, to + c, get(stack, c))
    return 0


@cache
def adding(dtype: str) -> Entry:
    return entry_of(add_rows, dtype, {**terms(dtype), "piles": buffer(NUMBA[wide(dtype)], 40 * 256)})


def terms(dtype: str) -> dict[str, Any]:
    """What sums of elements of a dtype are made of."""
    inner = wide(dtype)
    scope = {"read": READ[dtype], "write": READ[dtype], "load": LOAD[dtype], "store": STORE[dtype]}
    scope |= {"combine": elements.combine("sum", inner), "nothing": elements.nothing(inner)}
    return {**scope, "levels": buffer(types.int64, 64), "pile": buffer(NUMBA[inner], 64)}


@kernel
def index_add(call: Any, index: Array, src: Array, *, dim: int, size: int, at: Any = WHOLE) -> Any:
    if name_of(index.dtype) not in INTEGERS or name_of(src.dtype) not in READ or index.size >= 1 << 38:
        return NotImplemented
    if src.shape[dim : dim + index.ndim] != index.shape:
        return NotImplemented
    lo, hi, of = extent(at, "v", size)
    here, places, count = located(call, index, (lo, hi, of)), hi - lo, index.size
    sources, starts = call.scratch((count,), np.int64), call.scratch((places + 1,), np.int64)
    call.launch(GROUP, sources, starts, here, count, places, tasks=1, cost=3.0 * count + places)
    before, after = src.shape[:dim], src.shape[dim + index.ndim :]
    out = call.empty((*before, places, *after), src.dtype)
    row = math.prod(after)
    words = (sources, starts, slots_of(call, count), count, places, row)
    tasks = math.prod(before) * places * -(-row // 256)
    cost = 5 + 0.2 * min(row, 256) * (1 + count / max(places, 1))
    call.launch(adding(name_of(src.dtype)), out, contiguous(call, src), *words, tasks=tasks, cost=cost)
    return out


def add_lanes(words, lo, hi):
    """Task t: a lane, which is a scatter of its own.

    Words: out, src, here, slots, places, number of indices in a lane, lanes behind the dimension, step of the
    dimension in src, number of other dimensions, then (size, step in src) of each.
    """
    out, src, here, slots = write(words, 0), read(words, 1), i64s(words, 2), i64s(words, 3)
    places, count, behind, step, dims = i64(words, 4), i64(words, 5), i64(words, 6), i64(words, 7), i64(words, 8)
    sources, starts = np.empty(count, np.int64), np.empty(places + 1, np.int64)
    stack, heights = pile(), levels()
    for t in range(lo, hi):
        rest, base = t, 0
        for d in range(dims - 1, -1, -1):
            size = i64(words, 9 + 2 * d)
            base += (rest % size) * i64(words, 10 + 2 * d)
            rest = rest // size
        index = t // behind * count * behind + t % behind
        to = t // behind * places * behind + t % behind
        starts[:] = 0
        for k in range(count):
            i = get(here, index + k * behind)
            if i >= 0:
                starts[i] += 1
        total = 0
        for v in range(places + 1):
            total += starts[v]
            starts[v] = total
        for k in range(count - 1, -1, -1):
            i = get(here, index + k * behind)
            if i >= 0:
                starts[i] -= 1
                sources[starts[i]] = k
        for v in range(places):
            top, before = 0, 0
            for k in range(starts[v], starts[v + 1]):
                slot = get(slots, sources[k])
                apart = slot ^ before
                while top > 1 and get(heights, top - 1) < apart:
                    put(stack, top - 2, combine(get(stack, top - 2), get(stack, top - 1)))
                    top -= 1
                put(heights, top, apart)
                put(stack, top, load(src, base + sources[k] * step))
                before = slot
                top += 1
            while top > 1:
                put(stack, top - 2, combine(get(stack, top - 2), get(stack, top - 1)))
                top -= 1
            store(out, to + v * behind, get(stack, 0) if top else nothing)
    return 0


@cache
def adding_lanes(dtype: str) -> Entry:
    return entry_of(add_lanes, dtype, terms(dtype))


@kernel
def scatter_add(call: Any, index: Array, src: Array, *, dim: int, size: int, at: Any = WHOLE) -> Any:
    if name_of(index.dtype) not in INTEGERS or name_of(src.dtype) not in READ or src.ndim != index.ndim:
        return NotImplemented
    if any(a > b for a, b in zip(index.shape, src.shape)):
        return NotImplemented
    dim %= src.ndim
    lo, hi, of = extent(at, "v", size)
    here, places, count = located(call, index, (lo, hi, of)), hi - lo, index.shape[dim]
    behind = math.prod(index.shape[dim + 1 :])
    lanes = math.prod(index.shape[:dim]) * behind
    out = call.empty((*index.shape[:dim], places, *index.shape[dim + 1 :]), src.dtype)
    steps = itemstrides(src.strides, src.itemsize)
    pairs = [word for d in range(src.ndim) if d != dim for word in (index.shape[d], steps[d])]
    words = (slots_of(call, count), places, count, behind, steps[dim], src.ndim - 1, *pairs)
    cost = 20.0 + 10.0 * count + 3.0 * places
    call.launch(adding_lanes(name_of(src.dtype)), out, src, here, *words, tasks=lanes, cost=cost)
    return out
