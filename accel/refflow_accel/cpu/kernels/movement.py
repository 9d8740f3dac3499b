"""Movement kernels: copies between strided arrays, and what is made of them.

Part of ACC-KERNELS of spec/text/acceleration.md.  Elements are copied as words of 1, 2, 4 or 8 bytes, whatever they
mean.  `contiguous` and `copy` serve the other chapters too.  `fold2d`, which adds, is in `windows`.
"""

# ruff: noqa: F821  (names of the scope)

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from refflow.kernels.reference.movement import steps_of, windows
from refflow.kernels.reference.registry import WHOLE

from ..abi import Entry, i64
from ..registry import kernel
from .creation import filled, value_word
from .elements import WORDS, entry_of, get, itemstrides, put

Array = np.ndarray[Any, Any]
Pair = tuple[int, int]
TILE = 32  # of a transposition: a tile's lines of both arrays stay in the first cache
NARROW = 8  # rows shorter than this are copied many at a time


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
            for tile in range(c0, c1, TILE):
                end = min(tile + TILE, c1)
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


def copy_narrow(words, lo, hi):
    """Task t: a block of a run, a long dimension, with all the elements of some short dimensions at each of its places.

    The run is the innermost loop, wherever it lies.  Words: to, from, length of a block, number of short and of other
    dimensions, then (size, step in to, step in from) of the run, of the short ones and of the others.
    """
    to, source = read(words, 0), read(words, 1)
    block, short, others = i64(words, 2), i64(words, 3), i64(words, 4)
    length, forward, source_forward = i64(words, 5), i64(words, 6), i64(words, 7)
    blocks = (length + block - 1) // block
    each = 1
    for k in range(short):
        each *= i64(words, 8 + 3 * k)
    for t in range(lo, hi):
        o, first = t // blocks, (t % blocks) * block
        count = min(block, length - first)
        at, base = first * forward, first * source_forward
        for k in range(short + others - 1, short - 1, -1):
            size = i64(words, 8 + 3 * k)
            o, i = o // size, o % size
            at += i * i64(words, 9 + 3 * k)
            base += i * i64(words, 10 + 3 * k)
        for e in range(each):
            a, b, rest = at, base, e
            for k in range(short - 1, -1, -1):
                size = i64(words, 8 + 3 * k)
                rest, i = rest // size, rest % size
                a += i * i64(words, 9 + 3 * k)
                b += i * i64(words, 10 + 3 * k)
            for r in range(count):
                put(to, a + r * forward, get(source, b + r * source_forward))
    return 0


@cache
def copying_narrow(itemsize: int) -> Entry:
    """The same where rows are short."""
    return entry_of(copy_narrow, str(itemsize), {"read": WORDS[itemsize]})


Steps = tuple[int, int, int]  # size, step in what is written, step in what is read


def merged_steps(shape: tuple[int, ...], to: tuple[int, ...], source: tuple[int, ...]) -> list[Steps]:
    """The dimensions of a copy, the outermost in what is written first, neighbours that lie behind one another as one."""
    dims = sorted(((n, a, b) for n, a, b in zip(shape, to, source) if n != 1), key=lambda dim: -abs(dim[1]))
    merged: list[Steps] = []
    for n, a, b in dims:
        if merged and merged[-1][1:] == (a * n, b * n):
            merged[-1] = (merged[-1][0] * n, a, b)
        else:
            merged.append((n, a, b))
    return merged


def is_narrow(merged: list[Steps]) -> bool:
    """Whether rows are so short that loops over them would be most of the work."""
    return len(merged) > 1 and merged[-1][0] < NARROW and max(dim[0] for dim in merged) >= NARROW


def narrow_pieces(merged: list[Steps]) -> tuple[tuple[int, ...], int, float]:
    """`pieces` for `copy_narrow`: the run is the nearest long dimension, what lies inside of it is short."""
    outer = merged[:-1]
    long = [k for k, dim in enumerate(outer) if dim[0] >= 2 * NARROW]
    chosen = long[-1] if long else max(range(len(outer)), key=lambda k: outer[k][0])
    run, rest = merged[chosen], merged[:chosen] + merged[chosen + 1 :]
    short = [rest.pop()]
    while rest and rest[-1][0] * math.prod(dim[0] for dim in short) <= 8 * NARROW:
        short.insert(0, rest.pop())
    each = math.prod(dim[0] for dim in short)
    block = max(2 * NARROW, 2048 // max(each, 1))  # what is written stays in the first cache until its lines are full
    tasks = math.prod(dim[0] for dim in rest) * -(-run[0] // block)
    words = (block, len(short), len(rest), *run, *(word for dim in (*short, *rest) for word in dim))
    return words, tasks, 0.5 * each * min(block, run[0]) + 5 * each


@lru_cache(maxsize=4096)
def pieces(
    shape: tuple[int, ...], to: tuple[int, ...], source: tuple[int, ...]
) -> tuple[bool, tuple[int, ...], int, float]:
    """Whether `copy_narrow` copies; the words of a copy after its arrays, its number of tasks, and what one costs."""
    merged = merged_steps(shape, to, source)
    if is_narrow(merged):
        return (True, *narrow_pieces(merged))
    units = [k for k, dim in enumerate(merged[:-1]) if dim[2] == 1]
    transposed = bool(units) and merged[-1][2] not in (0, 1)
    if transposed:
        merged.insert(len(merged) - 2, merged.pop(units[0]))
    merged = [(1, 0, 0)] * (2 - len(merged)) + merged
    height, width = merged[-2][0], merged[-1][0]
    rows, columns = (TILE, 1024) if transposed else (max(1, 4096 // max(width, 1)), 8192)
    tasks = math.prod(dim[0] for dim in merged[:-2]) * -(-height // rows) * -(-width // columns)
    cost = 0.2 * min(rows, height) * min(columns, width) + 5
    return False, (len(merged), rows, columns, *(word for dim in merged for word in dim)), tasks, cost


def copy(call: Any, to: Array, source: Array) -> None:
    """Copies `source` into `to`: two views of one shape and itemsize (`source` may be broadcast)."""
    narrow, words, tasks, cost = pieces(
        to.shape, itemstrides(to.strides, to.itemsize), itemstrides(source.strides, source.itemsize)
    )
    entry = copying_narrow(to.itemsize) if narrow else copying(to.itemsize)
    call.launch(entry, to, source, *words, tasks=tasks, cost=cost)


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
