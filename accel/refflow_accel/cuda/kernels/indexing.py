"""Indexing: reading and adding at positions held in an integer array.

Implements IDX-RANGE and NUM-SCATTER for CUDA.  A bad index sets a word that the host reads before it goes on; the
reference then says which.  Adding walks the sources of a target in order, and adds neighbours in the tree over the
source position as soon as no later source can come between: two entries meet at the highest bit in which their slots
differ.  The host sorts the positions by target, since it has to look at the indices anyway.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from refflow.kernels.reference.registry import WHOLE, extent
from refflow.numerics.dtypes import identity

from ..elements import CELL, NEUTRAL, NUMBER, cells, loader, storer, wide
from ..elementwise import cast, dtype_of
from ..layout import grid_of
from ..memory import DeviceArray, empty, from_host, read
from ..registry import HOST, Made, Refused, family, primitive
from ..target import cuda, device, i32, i64, pointer, s32, s64, u32
from .movement import COPIED, as_cells, contiguous, pattern

STACK = 33
HOST["the order of index_add's and scatter_add's sources"] = (
    "a stable sort of the indices, which the host checks anyway"
)


# --- reading ----------------------------------------------------------------------------------------------------------


@family()
def pick(dtype: str, aligned: bool) -> Made:
    """out[o, k, r] = x[o, index[..], r]; `absent` where another shard holds it, status where none does.

    index is (count,) or, aligned, of out's shape.
    """

    def kernel(total, count, inner, length, lo, of, absent, x, index, out, status):
        i = u32(cuda.grid(1))
        while i < total:
            row = u32(i // inner)
            r = u32(i - row * inner)
            o = u32(row // count)
            k = index[i] if aligned else index[u32(row - o * count)]
            here = k - lo
            value = absent
            if k < i64(0) or k >= of:
                status[0] = s32(1)
            elif here >= i64(0) and here < i64(length):
                value = x[u32((o * length + u32(here)) * inner + r)]
            out[i] = value
            i = u32(i + u32(cuda.gridsize(1)))

    return kernel, (*(u32,) * 4, i64, i64, CELL[dtype], cells(dtype), cells("int64"), cells(dtype), pointer(s32))


@family()
def hot() -> Made:
    """out[i, v] = index[i] == lo + v."""

    def kernel(total, width, lo, of, index, out, status):
        i = u32(cuda.grid(1))
        while i < total:
            row = u32(i // width)
            k = index[row]
            if k < i64(0) or k >= of:
                status[0] = s32(1)
            out[i] = s64(1) if k == lo + i64(u32(i - row * width)) else s64(0)
            i = u32(i + u32(cuda.gridsize(1)))

    return kernel, (u32, u32, i64, i64, cells("int64"), cells("int64"), pointer(s32))


def positions(index: DeviceArray) -> DeviceArray:
    """`index` as row-major int64."""
    return contiguous(cast(index, dtype=dtype_of("int64")))


def refuse(status: DeviceArray) -> None:
    """Raises Refused if a kernel has set the word; waits for it."""
    if read(status)[0]:
        raise Refused


def _pick(x: DeviceArray, index: DeviceArray, shape: Sequence[int], dim: int, at: Any, aligned: bool) -> DeviceArray:
    lo, _, of = extent(at, "v", x.shape[dim])
    out, status = empty(shape, x.dtype), from_host(np.zeros(1, np.int32))
    inner = math.prod(x.shape[dim + 1 :])
    count = shape[dim] if aligned else index.size
    key = (COPIED[x.dtype.itemsize], aligned)
    absent = pattern(identity("sum", x.dtype), x.dtype)
    arrays = as_cells(contiguous(x)), positions(index), as_cells(out), status
    if out.size:
        pick.launch(key, *grid_of(out.size), out.size, count, inner, x.shape[dim], lo, of, absent, *arrays)
        refuse(status)
    return out


@primitive
def index_select(x: DeviceArray, index: DeviceArray, *, dim: int, at: Any = WHOLE) -> Any:
    shape = x.shape[:dim] + index.shape + x.shape[dim + 1 :]
    if math.prod(shape) == 0:
        return NotImplemented  # the indices are checked all the same
    return _pick(x, index, shape, dim, at, False)


@primitive
def gather(x: DeviceArray, index: DeviceArray, *, dim: int, at: Any = WHOLE) -> Any:
    if index.size == 0 or x.size == 0:
        return NotImplemented
    shape = [n if d == dim else m for d, (n, m) in enumerate(zip(x.shape, index.shape))]
    return _pick(x.view(shape, x.strides), index, index.shape, dim, at, True)


@primitive
def one_hot(index: DeviceArray, *, num_classes: int, at: Any = WHOLE) -> Any:
    lo, hi, of = extent(at, "v", num_classes)
    out, status = empty((*index.shape, hi - lo), np.int64), from_host(np.zeros(1, np.int32))
    if out.size == 0:
        return NotImplemented
    hot.launch((), *grid_of(out.size), out.size, hi - lo, lo, of, positions(index), out, status)
    refuse(status)
    return out


# --- adding -----------------------------------------------------------------------------------------------------------


@device
def slot(source, size):
    """The slot of a source position in the tree over `size`: its turns, walking down; left ones of short ranges too."""
    place = u32(0)
    deep = size
    while deep > u32(1):
        deep = u32(u32(deep + u32(1)) >> u32(1))
        half = u32(u32(size + u32(1)) >> u32(1))
        right = source >= half
        place = u32((place << u32(1)) | (u32(1) if right else u32(0)))
        source = u32(source - half) if right else source
        size = u32(size - half) if right else half
    return place


@device
def below(a, b):
    """Whether the highest bit of a is lower than that of b."""
    return a < b and a < u32(a ^ b)


@device
def push(values, meets, top, value, meet):
    """The height of the stack with one more entry, which meets the one before at `meet`'s highest bit.

    Whatever the entries before have in common below that bit is added first.  Entry e meets entry e - 1 at meets[e].
    """
    while top > u32(1) and below(meets[u32(top - u32(1))], meet):
        top = u32(top - u32(1))
        values[u32(top - u32(1))] = values[u32(top - u32(1))] + values[top]
    values[top] = value
    meets[top] = meet
    return u32(top + u32(1))


@device
def drain(values, top, neutral):
    """What is left on the stack, added; `neutral` for nothing."""
    total = neutral
    if top > u32(0):
        total = values[u32(top - u32(1))]
        while top > u32(1):
            top = u32(top - u32(1))
            total = values[u32(top - u32(1))] + total
    return total


@family()
def scatter(dtype: str) -> Made:
    """out[o, t, r] = the tree over source positions e // lanes (of `reach`) of x[o, e, r], e of target t in `order`.

    The entries of target t are order[starts[t] : starts[t + 1]], ascending.
    """
    load, store, number, neutral = loader(dtype), storer(dtype), NUMBER[wide(dtype)], NEUTRAL[wide(dtype)]

    def kernel(total, targets, inner, entries, lanes, reach, x, order, starts, out):
        values = cuda.local.array(STACK, number)
        meets = cuda.local.array(STACK, u32)
        i = u32(cuda.grid(1))
        while i < total:
            row = u32(i // inner)
            r = u32(i - row * inner)
            o = u32(row // targets)
            t = u32(row - o * targets)
            top = u32(0)
            last = u32(0)
            at = u32(starts[t])
            end = u32(starts[u32(t + u32(1))])
            while at < end:
                e = u32(order[at])
                place = slot(u32(e // lanes), reach)
                value = load(x, u32((o * entries + e) * inner + r))
                top = push(values, meets, top, value, u32(place ^ last))
                last = place
                at = u32(at + u32(1))
            store(out, i, drain(values, top, neutral))
            i = u32(i + u32(cuda.gridsize(1)))

    return kernel, (*(u32,) * 6, cells(dtype), pointer(s32), pointer(s32), cells(dtype))


def sorted_by_target(target: np.ndarray[Any, Any], targets: int) -> tuple[DeviceArray, DeviceArray]:
    """(order, starts) of the entries whose target is in [0, targets), by target, then by place."""
    order = np.argsort(target, kind="stable").astype(np.int32)
    starts = np.searchsorted(target[order], np.arange(targets + 1)).astype(np.int32)
    return from_host(order), from_host(starts)


def here(index: DeviceArray, at: Any, size: int) -> tuple[np.ndarray[Any, Any], int]:
    """On the host, where in this shard each index is (the shard's length if in another one), and that length."""
    lo, hi, of = extent(at, "v", size)
    values = read(positions(index))
    if ((values < 0) | (values >= of)).any():
        raise Refused
    return np.where((values >= lo) & (values < hi), values - lo, hi - lo), hi - lo


@primitive
def index_add(index: DeviceArray, src: DeviceArray, *, dim: int, size: int, at: Any = WHOLE) -> Any:
    if src.dtype.name == "bool" or src.size == 0:
        return NotImplemented
    target, length = here(index, at, size)
    out = empty((*src.shape[:dim], length, *src.shape[dim + index.ndim :]), src.dtype)
    if out.size:
        order, starts = sorted_by_target(target.reshape(-1), length)
        inner = math.prod(src.shape[dim + index.ndim :])
        arguments = (out.size, length, inner, index.size, 1, index.size, contiguous(src), order, starts, out)
        scatter.launch((src.dtype.name,), *grid_of(out.size), *arguments)
    return out


@primitive
def scatter_add(index: DeviceArray, src: DeviceArray, *, dim: int, size: int, at: Any = WHOLE) -> Any:
    if src.dtype.name == "bool" or index.size == 0:
        return NotImplemented
    place, length = here(index, at, size)
    columns = np.moveaxis(place, dim, 0)
    count, rest = columns.shape[0], columns.shape[1:]
    lanes = math.prod(rest)  # each is a scatter of its own: lane l of row v is target v * lanes + l
    target = (columns.reshape(count, lanes) * lanes + np.arange(lanes)).reshape(-1)
    perm = [dim, *[d for d in range(index.ndim) if d != dim]]
    cut = src.view([index.shape[d] for d in perm], [src.strides[d] for d in perm])
    out = empty((length, *rest), src.dtype)
    if out.size:
        order, starts = sorted_by_target(target, length * lanes)
        arguments = (out.size, length * lanes, 1, count * lanes, lanes, count, contiguous(cut), order, starts, out)
        scatter.launch((src.dtype.name,), *grid_of(out.size), *arguments)
    back = [d + 1 if d < dim else (0 if d == dim else d) for d in range(index.ndim)]
    return out.view([out.shape[d] for d in back], [out.strides[d] for d in back])


# --- fold2d -----------------------------------------------------------------------------------------------------------


@family()
def fold_windows(dtype: str) -> Made:
    """out[m, y, x] = the tree over windows (p, q) of g[m, p, q, i, j] that read (y, x); strides in elements."""
    load, store, number, neutral = loader(dtype), storer(dtype), NUMBER[wide(dtype)], NEUTRAL[wide(dtype)]

    def kernel(total, high, wide_, rows, columns, kh, kw, sy, sx, py, px, dy, dx, g, out):
        values = cuda.local.array(STACK, number)
        meets = cuda.local.array(STACK, u32)
        at = u32(cuda.grid(1))
        while at < total:
            line = u32(at // wide_)
            x = i32(u32(at - line * wide_)) + px
            m = u32(line // high)
            y = i32(u32(line - m * high)) + py
            top = u32(0)
            last = u32(0)
            for p in range(rows):
                down = y - i32(p) * sy
                i = down // dy
                if down >= 0 and i * dy == down and i < kh:
                    for q in range(columns):
                        along = x - i32(q) * sx
                        j = along // dx
                        if along >= 0 and j * dx == along and j < kw:
                            window = u32(u32(p) * u32(columns) + u32(q))
                            place = slot(window, u32(u32(rows) * u32(columns)))
                            tap = u32(u32(i) * u32(kw) + u32(j))
                            entry = u32(u32(m * u32(rows) * u32(columns) + window) * u32(kh) * u32(kw) + tap)
                            top = push(values, meets, top, load(g, entry), u32(place ^ last))
                            last = place
            store(out, at, drain(values, top, neutral))
            at = u32(at + u32(cuda.gridsize(1)))

    return kernel, (u32, u32, u32, *(i32,) * 10, cells(dtype), cells(dtype))


@primitive
def fold2d(g: DeviceArray, *, size: Any, kernel: Any, stride: Any, padding: Any, dilation: Any) -> Any:
    if g.dtype.name == "bool":
        return NotImplemented
    n, c, p, q, i, j = g.shape
    out = empty((n, c, *size), g.dtype)
    if out.size:
        arguments = (out.size, *size, p, q, i, j, *stride, *padding, *dilation, contiguous(g), out)
        fold_windows.launch((g.dtype.name,), *grid_of(out.size), *arguments)
    return out
