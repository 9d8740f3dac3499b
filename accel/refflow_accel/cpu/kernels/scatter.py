"""Adding at places: index_add and scatter_add; `windows` has fold2d.

Implements ACC-SCATTER of spec/text/acceleration.md (NUM-SCATTER and IDX-RANGE in compiled code).  What is added at one
place is found by a stable counting sort of the positions by place; the tree over the whole source range is then walked
over the terms that are there, two neighbours joining at the node where their paths meet (`nodes.push`).  So a sum
depends on where its terms stand in the source, not on how many there are, nor on threads.  Where a place can have one
term only (lanes of one source) the sum is that term, and is copied.
"""

# ruff: noqa: F821  (names of the scope)

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
from numba import types

from refflow.kernels.reference.registry import WHOLE, extent

from ...expressions import INTEGERS
from ..abi import Entry, i64, i64s
from ..halves import device
from ..registry import kernel
from . import elements, nodes
from .creation import filled
from .elements import (
    LOAD,
    NUMBA,
    READ,
    STORE,
    WORDS,
    buffer,
    entry_of,
    get,
    itemstrides,
    name_of,
    put,
    specialise,
    wide,
)
from .indexing import located
from .movement import contiguous
from .nodes import BLOCK
from .reduction import Array, identity_word


def terms(dtype: str) -> dict[str, Any]:
    """What sums of elements of a dtype are made of: a stack of partial sums, and where they part."""
    inner = wide(dtype)
    scope = {"read": READ[dtype], "write": READ[dtype], "load": LOAD[dtype], "store": STORE[dtype]}
    scope |= {"combine": elements.combine("sum", inner), "nothing": elements.nothing(inner)}
    scope |= {"levels": buffer(types.int64, 64), "pile": buffer(NUMBA[inner], 64)}
    return specialise(nodes.SPARSE, scope)


# --- slots ------------------------------------------------------------------------------------------------------------


def leaf_slots(words, lo, hi):
    """The slot of each of n leaves in the full tree above them.  Words: slots, n."""
    slots, n = i64s(words, 0), i64(words, 1)
    for k in range(lo, hi):
        put(slots, k, slot_of(n, k))
    return 0


SLOTS = entry_of(leaf_slots, "int64", specialise((nodes.depth_to, nodes.slot_of), {}))


def slots_of(call: Any, n: int) -> Array:
    """The slots of the leaves of the tree over n terms."""
    slots: Array = call.scratch((n,), np.int64)
    call.launch(SLOTS, slots, n, tasks=n, cost=3.0 * n.bit_length())
    return slots


@device
def by_place(sources, starts, here, first, step, count, places):
    """A stable counting sort: sources[starts[v] : starts[v + 1]] are the k whose place here[first + k step] is v."""
    for v in range(places + 1):
        put(starts, v, 0)
    for k in range(count):
        i = get(here, first + k * step)
        if i >= 0:
            put(starts, i, get(starts, i) + 1)
    total = 0
    for v in range(places + 1):
        total += get(starts, v)
        put(starts, v, total)
    for k in range(count - 1, -1, -1):  # from the end of each place backwards, so that its sources ascend
        i = get(here, first + k * step)
        if i >= 0:
            at = get(starts, i) - 1
            put(starts, i, at)
            put(sources, at, k)


# --- index_add --------------------------------------------------------------------------------------------------------


def group_sources(words, lo, hi):
    """One task: the positions of the indices, by place and in ascending order.

    Words: sources, starts (one more than places), here, number of indices, of places.
    """
    by_place(i64s(words, 0), i64s(words, 1), i64s(words, 2), 0, 1, i64(words, 3), i64(words, 4))
    return 0


GROUP = entry_of(group_sources, "int64", {})


def add_rows(words, lo, hi):
    """Task t: a block of a row of the result.

    As `nodes.push` and `nodes.drain` do, for a block of columns at once: the stack has a row of BLOCK sums for each
    term that waits.  Words: out, src, sources, starts, slots, number of indices, of places, size of a row.
    """
    out, src, sources, starts = write(words, 0), read(words, 1), i64s(words, 2), i64s(words, 3)
    slots, count, places, row = i64s(words, 4), i64(words, 5), i64(words, 6), i64(words, 7)
    blocks = (row + BLOCK - 1) // BLOCK
    stack, heights = piles(), levels()
    for t in range(lo, hi):
        o, block = t // blocks, t % blocks
        v, base = o % places, o // places * count
        size = min(row - block * BLOCK, BLOCK)
        to = o * row + block * BLOCK
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
                low = BLOCK * (top - 1)
                for c in range(size):
                    put(stack, low + c, combine(get(stack, low + c), get(stack, low + BLOCK + c)))
                top -= 1
            if k < last:
                top += 1
                put(heights, top, apart)
                low = BLOCK * top
                at = (base + source) * row + block * BLOCK
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
    return entry_of(add_rows, dtype, {**terms(dtype), "piles": buffer(NUMBA[wide(dtype)], 40 * BLOCK)})


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
    tasks = math.prod(before) * places * -(-row // BLOCK)
    cost = 5 + 0.2 * min(row, BLOCK) * (1 + count / max(places, 1))
    call.launch(adding(name_of(src.dtype)), out, contiguous(call, src), *words, tasks=tasks, cost=cost)
    return out


# --- scatter_add ------------------------------------------------------------------------------------------------------


def add_lanes(words, lo, hi):
    """Task t: a lane, which is a scatter of its own.

    Words: out, src, here, slots, places, number of indices in a lane, lanes behind the dimension, step of the
    dimension in src, number of other dimensions, then (size, step in src) of each.
    """
    out, src, here, slots = write(words, 0), read(words, 1), i64s(words, 2), i64s(words, 3)
    places, count, behind, step, dims = i64(words, 4), i64(words, 5), i64(words, 6), i64(words, 7), i64(words, 8)
    sources, starts = np.empty(count, np.int64), np.empty(places + 1, np.int64)
    stack, meets = pile(), levels()
    for t in range(lo, hi):
        rest, base = t, 0
        for d in range(dims - 1, -1, -1):
            size = i64(words, 9 + 2 * d)
            base += (rest % size) * i64(words, 10 + 2 * d)
            rest = rest // size
        index = t // behind * count * behind + t % behind
        to = t // behind * places * behind + t % behind
        by_place(sources, starts, here, index, behind, count, places)
        for v in range(places):
            top, before = 0, 0
            for k in range(starts[v], starts[v + 1]):
                slot = get(slots, sources[k])
                top = push(stack, meets, top, load(src, base + sources[k] * step), slot ^ before)
                before = slot
            store(out, to + v * behind, drain(stack, top))
    return 0


def put_lanes(words, lo, hi):
    """Task t: a lane of one source, which is a sum by itself; the rest of the result is there already.

    Words: out, src, here, places, lanes behind the dimension.
    """
    out, src, here = read(words, 0), read(words, 1), i64s(words, 2)
    places, behind = i64(words, 3), i64(words, 4)
    if behind == 1:
        for t in range(lo, hi):
            i = get(here, t)
            if i >= 0:
                put(out, t * places + i, get(src, t))
        return 0
    lane, to = lo % behind, lo // behind * places * behind
    for t in range(lo, hi):
        i = get(here, t)
        if i >= 0:
            put(out, to + i * behind + lane, get(src, t))
        lane += 1
        if lane == behind:
            lane = 0
            to += places * behind
    return 0


@cache
def putting_lanes(itemsize: int) -> Entry:
    return entry_of(put_lanes, str(itemsize), {"read": WORDS[itemsize]})


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
    if count == 1:
        filled(call, out, identity_word("sum", name_of(src.dtype)))
        alone = contiguous(call, src[tuple(slice(n) for n in index.shape)])
        call.launch(putting_lanes(src.itemsize), out, alone, here, places, behind, tasks=lanes, cost=1.0)
        return out
    steps = itemstrides(src.strides, src.itemsize)
    pairs = [word for d in range(src.ndim) if d != dim for word in (index.shape[d], steps[d])]
    words = (slots_of(call, count), places, count, behind, steps[dim], src.ndim - 1, *pairs)
    cost = 20.0 + 10.0 * count + 3.0 * places
    call.launch(adding_lanes(name_of(src.dtype)), out, src, here, *words, tasks=lanes, cost=cost)
    return out
