"""Movement: views where they can be, copies by one kernel from strides to strides, and what reads by a rule.

Implements the movement chapter for CUDA.  Cells are copied as what they weigh, so every bit pattern stays.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from refflow.kernels.reference.movement import steps_of, windows
from refflow.kernels.reference.registry import WHOLE, extent
from refflow.numerics import cast as host_cast

from ..elements import CELL, cells
from ..elementwise import dtype_of
from ..layout import coalesce, grid_of, loop_of, reshaped
from ..memory import DeviceArray, empty, packed
from ..registry import Made, family, primitive
from ..target import cuda, i64, u32

COPIED = {1: "uint8", 2: "float16", 4: "int32", 8: "int64"}  # by bytes, a dtype whose cells are copied as they are
_NUMPY = {"uint8": np.uint8, "float16": np.uint16, "int32": np.int32, "int64": np.int64}


@family()
def move(dtype: str, rank: int) -> Made:
    """out[strides] = x[strides] over a space of `rank` dimensions."""
    names = range(rank)
    lines = [
        f"def move(n, {''.join(f'd{d}, ' for d in names[1:])}{''.join(f'a{d}, b{d}, ' for d in names)}x, out):",
        *loop_of(rank),
    ]
    index = ["rest", *[f"c{d}" for d in names[1:]]]
    source, sink = (" + ".join(f"{index[d]} * {letter}{d}" for d in names) for letter in "ab")
    lines += [f"        out[u32({sink})] = x[u32({source})]", "        i = u32(i + step)", ""]
    scope: dict[str, Any] = {"cuda": cuda, "u32": u32}
    exec("\n".join(lines), scope)
    return scope["move"], (u32, *(u32,) * (rank - 1), *(u32,) * (2 * rank), cells(dtype), cells(dtype))


@family()
def fill(dtype: str) -> Made:
    """out[i] = value."""

    def kernel(n, value, out):
        i = u32(cuda.grid(1))
        step = u32(cuda.gridsize(1))
        while i < n:
            out[i] = value
            i = u32(i + step)

    return kernel, (u32, CELL[dtype], cells(dtype))


def as_cells(x: DeviceArray) -> DeviceArray:
    """`x` with elements that are copied as they are."""
    return DeviceArray(x.block, dtype_of(COPIED[x.dtype.itemsize]), x.shape, x.strides, x.offset)


def copy_into(x: DeviceArray, out: DeviceArray) -> None:
    """Writes the elements of `x` (strides of 0 allowed) into a fresh array's part of the same shape."""
    n = x.size
    if n == 0:
        return
    dims, (a, b) = coalesce(x.shape, [x.strides, out.strides])
    pairs = [step for both in zip(a, b) for step in both]
    key = (COPIED[x.dtype.itemsize], len(dims))
    move.launch(key, *grid_of(n), n, *dims[1:], *pairs, as_cells(x), as_cells(out))


def contiguous(x: DeviceArray) -> DeviceArray:
    """`x`, or a row-major copy."""
    if x.contiguous:
        return x
    out = empty(x.shape, x.dtype)
    copy_into(x, out)
    return out


def pattern(value: Any, dtype: np.dtype[Any]) -> Any:
    """A value rounded once to `dtype`, as the number whose cell has the same bits."""
    bits = np.atleast_1d(host_cast(np.asarray(value), dtype)).view(_NUMPY[COPIED[dtype.itemsize]])
    return bits[0]


def filled(shape: Sequence[int], value: Any, dtype: Any) -> DeviceArray:
    """An array of one value, rounded once."""
    out = empty(shape, dtype)
    if out.size:
        fill.launch(
            (COPIED[out.dtype.itemsize],), *grid_of(out.size), out.size, pattern(value, out.dtype), as_cells(out)
        )
    return out


# --- views ------------------------------------------------------------------------------------------------------------


@primitive
def reshape(x: DeviceArray, *, shape: Sequence[int]) -> DeviceArray:
    known = math.prod(n for n in shape if n != -1)
    shape = tuple(x.size // max(known, 1) if n == -1 else int(n) for n in shape)
    return reshaped(x, shape) or contiguous(x).view(shape, packed(shape))


@primitive
def transpose(x: DeviceArray, *, perm: Sequence[int]) -> DeviceArray:
    return x.view([x.shape[d] for d in perm], [x.strides[d] for d in perm])


@primitive
def expand(x: DeviceArray, *, shape: Sequence[int]) -> DeviceArray:
    new = len(shape) - x.ndim
    own = [0 if n == 1 and to != 1 else stride for n, to, stride in zip(x.shape, shape[new:], x.strides)]
    return x.view([int(n) for n in shape], [0] * new + own)


def cut(x: DeviceArray, slices: Sequence[slice]) -> DeviceArray:
    """x[slices] for slices with steps >= 1."""
    bounds = [s.indices(n) for s, n in zip(slices, x.shape)]
    shape = [len(range(*bound)) for bound in bounds] + list(x.shape[len(slices) :])
    strides = [stride * step for stride, (_, _, step) in zip(x.strides, bounds)] + list(x.strides[len(slices) :])
    if 0 in shape:
        return x.view(shape, strides)
    return x.view(shape, strides, sum(stride * start for stride, (start, _, _) in zip(x.strides, bounds)))


@primitive
def slice_(x: DeviceArray, *, starts: Any, stops: Any, steps: Any) -> DeviceArray:
    return cut(x, steps_of(starts, stops, steps))


@primitive
def slice_box(x: DeviceArray, *, slices: tuple[slice, ...]) -> DeviceArray:
    return cut(x, slices)


# --- copies -----------------------------------------------------------------------------------------------------------


def spread(x: DeviceArray, shape: Sequence[int]) -> DeviceArray:
    """`x` broadcast to `shape`, a view."""
    new = len(shape) - x.ndim
    own = [0 if n == 1 else stride for n, stride in zip(x.shape, x.strides)]
    return x.view(shape, [0] * new + own)


@primitive
def slice_update(x: DeviceArray, value: DeviceArray, *, starts: Any, stops: Any, steps: Any) -> DeviceArray:
    out = empty(x.shape, x.dtype)
    copy_into(x, out)
    part = cut(out, steps_of(starts, stops, steps))
    copy_into(spread(value, part.shape), part)
    return out


@primitive
def assemble(*parts: DeviceArray, shape: Any, slices: Any, fill: Any, dtype: Any) -> DeviceArray:
    if len(parts) == 1 and parts[0].shape == tuple(shape):
        return parts[0]
    covered = sum(part.size for part in parts) == math.prod(shape)  # pieces never overlap
    whole = empty(shape, dtype) if covered else filled(shape, fill, dtype)
    for part, where in zip(parts, slices):
        copy_into(part, cut(whole, where))
    return whole


@primitive
def pad(x: DeviceArray, *, low: Sequence[int], high: Sequence[int], value: float) -> DeviceArray:
    out = filled([before + n + after for before, n, after in zip(low, x.shape, high)], value, x.dtype)
    copy_into(x, cut(out, [slice(before, before + n) for before, n in zip(low, x.shape)]))
    return out


@primitive
def cat(*xs: DeviceArray, dim: int) -> DeviceArray:
    shape = list(xs[0].shape)
    shape[dim] = sum(x.shape[dim] for x in xs)
    out, at = empty(shape, xs[0].dtype), 0
    for x in xs:
        copy_into(x, cut(out, [slice(None)] * dim + [slice(at, at + x.shape[dim])]))
        at += x.shape[dim]
    return out


@family()
def reverse(dtype: str) -> Made:
    """out[o, i, r] = x[o, n - 1 - i, r] of row-major arrays."""

    def kernel(total, n, inner, x, out):
        i = u32(cuda.grid(1))
        step = u32(cuda.gridsize(1))
        while i < total:
            row = u32(i // inner)
            r = u32(i - row * inner)
            o = u32(row // n)
            k = u32(row - o * n)
            out[i] = x[u32((o * n + (n - u32(1) - k)) * inner + r)]
            i = u32(i + step)

    return kernel, (u32, u32, u32, cells(dtype), cells(dtype))


@primitive
def flip(x: DeviceArray, *, dims: Sequence[int]) -> DeviceArray:
    for dim in dims:
        source = contiguous(x)
        out = empty(x.shape, x.dtype)
        if out.size:
            inner = math.prod(x.shape[dim % x.ndim + 1 :])
            key = (COPIED[x.dtype.itemsize],)
            reverse.launch(key, *grid_of(out.size), out.size, x.shape[dim], inner, as_cells(source), as_cells(out))
        x = out
    return x


@family()
def triangle(dtype: str, lower: bool) -> Made:
    """Zeros where column - row is beyond (lower) or short of `diagonal`; `shift` is the first column - row."""

    def kernel(total, rows, columns, shift, diagonal, x, out):
        i = u32(cuda.grid(1))
        step = u32(cuda.gridsize(1))
        while i < total:
            line = u32(i // columns)
            c = u32(i - line * columns)
            r = u32(line - u32(line // rows) * rows)
            apart = shift + i64(c) - i64(r)
            kept = apart <= diagonal if lower else apart >= diagonal
            out[i] = x[i] if kept else zero
            i = u32(i + step)

    zero = CELL[dtype](0)
    return kernel, (u32, u32, u32, i64, i64, cells(dtype), cells(dtype))


def _triangle(x: DeviceArray, diagonal: int, at: Any, lower: bool) -> DeviceArray:
    (top, _, _), (left, _, _) = extent(at, "m", x.shape[-2]), extent(at, "n", x.shape[-1])
    source, out = contiguous(x), empty(x.shape, x.dtype)
    if out.size:
        key = (COPIED[x.dtype.itemsize], lower)
        arguments = (out.size, x.shape[-2], x.shape[-1], left - top, diagonal, as_cells(source), as_cells(out))
        triangle.launch(key, *grid_of(out.size), *arguments)
    return out


@primitive
def tril(x: DeviceArray, *, diagonal: int, at: Any = WHOLE) -> DeviceArray:
    return _triangle(x, diagonal, at, True)


@primitive
def triu(x: DeviceArray, *, diagonal: int, at: Any = WHOLE) -> DeviceArray:
    return _triangle(x, diagonal, at, False)


@primitive
def unfold2d(x: DeviceArray, *, kernel: Any, stride: Any, padding: Any, dilation: Any, value: float) -> DeviceArray:
    n, c, *size = x.shape
    counts = [windows(*along) for along in zip(size, kernel, stride, padding, dilation)]
    if any(padding):
        x = pad(x, low=(0, 0, *padding), high=(0, 0, *padding), value=value)
    outer, rows, columns = x.strides[:2], x.strides[2], x.strides[3]
    steps = (rows * stride[0], columns * stride[1], rows * dilation[0], columns * dilation[1])
    return x.view((n, c, *counts, *kernel), (*outer, *steps))
