"""Movement kernels: copies between strided arrays, and what is made of them.

Elements are copied as words of 1, 2, 4 or 8 bytes, whatever they mean.  `contiguous` and `copy` serve the other
chapters too.  `fold2d`, which adds, implements NUM-SCATTER over the windows that read an element (ACC-SCATTER).
"""

# ruff: noqa: F821  (names of the scope)

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Any

import numpy as np
from numba import types
from numpy.lib.stride_tricks import as_strided

from refflow.kernels.reference.movement import steps_of, windows
from refflow.kernels.reference.registry import WHOLE

from ..abi import Entry, i64, i64s
from ..registry import kernel
from . import elements, nodes
from .creation import filled, value_word
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

Array = np.ndarray[Any, Any]
Pair = tuple[int, int]
TILE = 32  # of a transposition: a tile's lines of both arrays stay in the first cache


# --- strided copies ---------------------------------------------------------------------------------------------------


def copy_words(words, lo, hi):
    """Task t: a piece of rows x columns.

    Words: to, from, number of dimensions, rows and columns of a piece, then (size, step in to, step in from) of each.
    """
    to, source = read(words, 0), read(words, 1)
    count, rows, columns = i64(words, 2), i64(words, 3), i64(words, 4)
    last = 5 + 3 * (count - 1)
    height, down, source_down = i64(words, last - 3), i64(words, last - 2), i64(words, last - 1)
    width, right, source_right = i64(words, last), i64(words, last + 1), i64(words, last + 2)
    across, along = (width + columns - 1) // columns, (height + rows - 1) // rows
    for t in range(lo, hi):
        o, c0 = t // across, (t % across) * columns
        o, r0 = o // along, (o % along) * rows
        c1, r1 = min(c0 + columns, width), min(r0 + rows, height)
        at, base = 0, 0
        for k in range(count - 3, -1, -1):
            size = i64(words, 5 + 3 * k)
            o, i = o // size, o % size
            at += i * i64(words, 6 + 3 * k)
            base += i * i64(words, 7 + 3 * k)
        if right == 1 and source_right == 1:
            for r in range(r0, r1):
                a, b = at + r * down, base + r * source_down
                for c in range(c0, c1):
                    put(to, a + c, get(source, b + c))
        elif right == 1 and source_right == 0:
            for r in range(r0, r1):
                a, value = at + r * down, get(source, base + r * source_down)
                for c in range(c0, c1):
                    put(to, a + c, value)
        elif right == 1 and source_down == 1:
            for tile in range(c0, c1, 32):
                end = min(tile + 32, c1)
                for r in range(r0, r1):
                    a, b = at + r * down, base + r
                    for c in range(tile, end):
                        put(to, a + c, get(source, b + c * source_right))
        else:
            for r in range(r0, r1):
                a, b = at + r * down, base + r * source_down
                for c in range(c0, c1):
                    put(to, a + c * right, get(source, b + c * source_right))
    return 0


@cache
def copying(itemsize: int) -> Entry:
    """The copy of words of `itemsize` bytes."""
    return entry_of(copy_words, str(itemsize), {"read": WORDS[itemsize]})


@lru_cache(maxsize=4096)
def pieces(shape: tuple[int, ...], to: tuple[int, ...], source: tuple[int, ...]) -> tuple[tuple[int, ...], int, float]:
    """The words of a copy after its arrays, its number of tasks, and what one costs."""
    dims = sorted(((n, a, b) for n, a, b in zip(shape, to, source) if n != 1), key=lambda dim: -abs(dim[1]))
    merged: list[tuple[int, int, int]] = []
    for n, a, b in dims:
        if merged and merged[-1][1:] == (a * n, b * n):
            merged[-1] = (merged[-1][0] * n, a, b)
        else:
            merged.append((n, a, b))
    units = [k for k, dim in enumerate(merged[:-1]) if dim[2] == 1]
    transposed = bool(units) and merged[-1][2] not in (0, 1)
    if transposed:
        merged.insert(len(merged) - 2, merged.pop(units[0]))
    merged = [(1, 0, 0)] * (2 - len(merged)) + merged
    height, width = merged[-2][0], merged[-1][0]
    rows, columns = (TILE, 1024) if transposed else (max(1, 4096 // max(width, 1)), 8192)
    tasks = math.prod(dim[0] for dim in merged[:-2]) * -(-height // rows) * -(-width // columns)
    cost = 0.2 * min(rows, height) * min(columns, width) + 5
    return (len(merged), rows, columns, *(word for dim in merged for word in dim)), tasks, cost


def copy(call: Any, to: Array, source: Array) -> None:
    """Copies `source` into `to`: two views of one shape and itemsize (`source` may be broadcast)."""
    words, tasks, cost = pieces(
        to.shape, itemstrides(to.strides, to.itemsize), itemstrides(source.strides, source.itemsize)
    )
    call.launch(copying(to.itemsize), to, source, *words, tasks=tasks, cost=cost)


def contiguous(call: Any, x: Array) -> Array:
    """`x` if its elements lie in row-major order without gaps, else a copy that does."""
    if x.flags.c_contiguous:
        return x
    out: Array = call.empty(x.shape, x.dtype)
    copy(call, out, x)
    return out


# --- primitives made of copies ----------------------------------------------------------------------------------------


@kernel
def reshape(call: Any, x: Array, *, shape: Sequence[int]) -> Any:
    if not x.flags.c_contiguous:
        try:
            return x.reshape(tuple(shape), copy=False)  # a view, where the strides allow one
        except (ValueError, TypeError):  # they do not; NumPy 2.0 cannot be asked
            x = contiguous(call, x)
    return x.reshape(tuple(shape))


@kernel
def slice_update(
    call: Any,
    x: Array,
    value: Array,
    *,
    starts: Sequence[int],
    stops: Sequence[int | None],
    steps: Sequence[int],
) -> Any:
    if x.dtype != value.dtype:
        return NotImplemented
    out = call.empty(x.shape, x.dtype)
    copy(call, out, x)
    part = out[steps_of(starts, stops, steps)] if x.ndim else out
    copy(call, part, np.broadcast_to(value, part.shape))
    return out


@kernel
def pad(call: Any, x: Array, *, low: Sequence[int], high: Sequence[int], value: float) -> Any:
    out = call.empty(tuple(a + n + b for a, n, b in zip(low, x.shape, high, strict=True)), x.dtype)
    if out.size != x.size:
        filled(call, out, value_word(value, x.dtype))
    copy(call, out[tuple(slice(a, a + n) for a, n in zip(low, x.shape))] if x.ndim else out, x)
    return out


@kernel
def cat(call: Any, *xs: Array, dim: int) -> Any:
    if not xs or any(x.dtype != xs[0].dtype or x.ndim != xs[0].ndim for x in xs) or not xs[0].ndim:
        return NotImplemented
    dim %= xs[0].ndim
    first = xs[0].shape
    if any(x.shape[:dim] != first[:dim] or x.shape[dim + 1 :] != first[dim + 1 :] for x in xs):
        return NotImplemented
    out = call.empty((*first[:dim], sum(x.shape[dim] for x in xs), *first[dim + 1 :]), xs[0].dtype)
    at = 0
    for x in xs:
        copy(call, out[(slice(None),) * dim + (slice(at, at + x.shape[dim]),)], x)
        at += x.shape[dim]
    return out


@kernel
def flip(call: Any, x: Array, *, dims: Sequence[int]) -> Any:
    out = call.empty(x.shape, x.dtype)
    copy(call, out, np.asarray(np.flip(x, axis=tuple(dims))))
    return out


# --- triangles --------------------------------------------------------------------------------------------------------


def triangle_rows(words, lo, hi):
    """Task t: a row.  Words: out, x, rows and columns of a matrix, column - row of its corner, diagonal, lower?"""
    out, x = read(words, 0), read(words, 1)
    rows, columns, corner, diagonal = i64(words, 2), i64(words, 3), i64(words, 4), i64(words, 5)
    lower = i64(words, 6)
    for t in range(lo, hi):
        at = t * columns
        edge = diagonal - corner + t % rows  # the column on the diagonal
        for c in range(columns):
            kept = c <= edge if lower else c >= edge
            put(out, at + c, get(x, at + c) if kept else zero)
    return 0


@cache
def triangle(itemsize: int) -> Entry:
    zero = 0 if itemsize == 8 else np.dtype(f"u{itemsize}").type(0)
    return entry_of(triangle_rows, str(itemsize), {"read": WORDS[itemsize], "zero": zero})


def triangular(call: Any, x: Array, diagonal: int, at: Any, lower: bool) -> Any:
    rows, columns = x.shape[-2:]
    top, left = (at[letter][0] if letter in at else 0 for letter in "mn")
    if any(at[a][1] - at[a][0] != n for a, n in zip("mn", (rows, columns)) if a in at):
        return NotImplemented
    out = call.empty(x.shape, x.dtype)
    words = (rows, columns, left - top, diagonal, int(lower))
    tasks = x.size // columns if columns else 0
    call.launch(triangle(x.itemsize), out, contiguous(call, x), *words, tasks=tasks, cost=0.2 * columns + 5)
    return out


@kernel
def tril(call: Any, x: Array, *, diagonal: int, at: Any = WHOLE) -> Any:
    return triangular(call, x, diagonal, at, True)


@kernel
def triu(call: Any, x: Array, *, diagonal: int, at: Any = WHOLE) -> Any:
    return triangular(call, x, diagonal, at, False)


# --- windows ----------------------------------------------------------------------------------------------------------


@kernel
def unfold2d(
    call: Any, x: Array, *, kernel: Pair, stride: Pair, padding: Pair, dilation: Pair, value: float
) -> Any:
    n, c, *size = x.shape
    padded = pad(call, x, low=(0, 0, *padding), high=(0, 0, *padding), value=value) if any(padding) else x
    counts = [windows(*along) for along in zip(size, kernel, stride, padding, dilation, strict=True)]
    outer, rows, columns = padded.strides[:2], padded.strides[2], padded.strides[3]
    steps = (rows * stride[0], columns * stride[1], rows * dilation[0], columns * dilation[1])
    return as_strided(padded, (n, c, *counts, *kernel), (*outer, *steps), writeable=False)


def leaf_slots(words, lo, hi):
    """The slot of each of n leaves in the full tree above them.  Words: slots, n."""
    slots, n = i64s(words, 0), i64(words, 1)
    for k in range(lo, hi):
        put(slots, k, slot_of(n, k))
    return 0


def fold_windows(words, lo, hi):
    """Task t: a row of an image.

    Words: out, g, slots of the windows, height and width of the image, counts, kernel, stride, padding, dilation
    (two each), then the steps of g's dimensions c, p, q, i, j after that of n, and the number of channels.
    """
    out, g, slots = write(words, 0), read(words, 1), i64s(words, 2)
    height, width, down, across = i64(words, 3), i64(words, 4), i64(words, 5), i64(words, 6)
    tall, broad, stride0, stride1 = i64(words, 7), i64(words, 8), i64(words, 9), i64(words, 10)
    pad0, pad1, dilation0, dilation1 = i64(words, 11), i64(words, 12), i64(words, 13), i64(words, 14)
    gn, gc, gp, gq, gi, gj = (
        i64(words, 15), i64(words, 16), i64(words, 17), i64(words, 18), i64(words, 19), i64(words, 20)
    )  # fmt: skip
    channels = i64(words, 21)
    stack, heights = pile(), places()
    for t in range(lo, hi):
        y = t % height
        base = (t // height // channels) * gn + (t // height % channels) * gc
        for x in range(width):
            top, before = 0, 0
            for i in range(tall - 1, -1, -1):  # windows in ascending order: the lower the tap, the earlier the window
                r = y + pad0 - i * dilation0
                p = r // stride0
                if r < 0 or p >= down or p * stride0 != r:
                    continue
                for j in range(broad - 1, -1, -1):
                    s = x + pad1 - j * dilation1
                    q = s // stride1
                    if s < 0 or q >= across or q * stride1 != s:
                        continue
                    slot = get(slots, p * across + q)
                    if top > 0:
                        apart = slot ^ before
                        while top > 1 and get(heights, top - 1) < apart:
                            put(stack, top - 2, combine(get(stack, top - 2), get(stack, top - 1)))
                            top -= 1
                        put(heights, top, apart)
                    put(stack, top, load(g, base + p * gp + q * gq + i * gi + j * gj))
                    before = slot
                    top += 1
            while top > 1:
                put(stack, top - 2, combine(get(stack, top - 2), get(stack, top - 1)))
                top -= 1
            store(out, t * width + x, get(stack, 0) if top else nothing)
    return 0


@cache
def folding_windows(dtype: str) -> Entry:
    inner = wide(dtype)
    scope = {"read": READ[dtype], "write": READ[dtype], "load": LOAD[dtype], "store": STORE[dtype]}
    scope |= {"pile": buffer(NUMBA[inner], 64), "places": buffer(types.int64, 64)}
    scope |= {"combine": elements.combine("sum", inner), "nothing": elements.nothing(inner)}
    return entry_of(fold_windows, dtype, scope)


def slots_of(call: Any, n: int) -> Array:
    """The slots of the leaves of the tree over n terms."""
    slots: Array = call.scratch((n,), np.int64)
    call.launch(SLOTS, slots, n, tasks=n, cost=3.0 * n.bit_length())
    return slots


@kernel
def fold2d(
    call: Any, g: Array, *, size: Pair, kernel: Pair, stride: Pair, padding: Pair, dilation: Pair
) -> Any:
    n, c, p, q, i, j = g.shape
    if name_of(g.dtype) not in READ:
        return NotImplemented
    out = call.empty((n, c, *size), g.dtype)
    words = (*size, p, q, i, j, *stride, *padding, *dilation, *itemstrides(g.strides, g.itemsize), c)
    tasks = n * c * size[0] if size[1] else 0
    cost = size[1] * (5.0 + 3.0 * i * j)
    call.launch(folding_windows(name_of(g.dtype)), out, g, slots_of(call, p * q), *words, tasks=tasks, cost=cost)
    return out


SLOTS = entry_of(leaf_slots, "int64", specialise((nodes.depth_to, nodes.slot_of), {}))
