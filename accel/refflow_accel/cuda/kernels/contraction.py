"""Contractions: matmul, and conv2d with its two gradients as one correlation under other names of the letters.

Implements NUM-CONTRACT and NUM-CONV for CUDA.  A tap that falls on padding, or between strides, is absent.  This module
says at which nodes a range is cut; how factors are found is `factors`', the tree itself the kernel of `tiles`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from refflow.kernels.reference.contraction import held
from refflow.kernels.reference.movement import windows
from refflow.numerics.dtypes import identity

from ..elements import cells, wide
from ..elementwise import dtype_of
from ..layout import coalesce
from ..memory import LIMIT, DeviceArray, empty, packed
from ..registry import Family, Made, family, primitive
from ..target import SIMULATED, u32
from .factors import CORRELATION, MATMUL, Axis, Matrices, Windows
from .movement import contiguous, filled, spread
from .reduction import fold_range
from .tiles import LARGE, LONGEST, SMALL, Tile, contraction

ENOUGH = 4 if SIMULATED else 264  # blocks to ask for before nodes get long
SHORT = 32 if SIMULATED else 512  # terms of a node that is not cut any more for the sake of blocks


def _contracts_with_fma(key: tuple[Any, ...]) -> bool:
    return wide(key[0]) == "float32"


@family(fma=_contracts_with_fma, bounds=SMALL.threads)
def product(dtype: str, to: str, tile: Tile) -> Made:
    """out[part, item, i, j] = node `part` of the tree over k of x[item, i, k] * y[item, k, j]."""
    kernel = contraction(MATMUL, dtype, to, tile, masked=False)
    return kernel, (*(u32,) * 7, MATMUL.geometry, cells(dtype), cells(dtype), cells(to))


@family(fma=_contracts_with_fma, bounds=SMALL.threads)
def correlation(dtype: str, to: str, tile: Tile, masked: bool) -> Made:
    """out[part, g, o, (b, p, q)] = node `part` of the tree over (c, i, j) of weights x and sources y."""
    kernel = contraction(CORRELATION, dtype, to, tile, masked)
    return kernel, (*(u32,) * 7, CORRELATION.geometry, cells(dtype), cells(dtype), cells(to))


# --- the host's part --------------------------------------------------------------------------------------------------


def contract(
    kernel: Family,
    rest: tuple[Any, ...],
    items: int,
    m: int,
    n: int,
    k: int,
    geometry: Matrices | Windows,
    x: DeviceArray,
    y: DeviceArray,
) -> DeviceArray:
    """The results (items, m, n) of a tiled kernel: its tile, the nodes its range is cut at, and their fold."""
    dtype = x.dtype
    out = empty((items, m, n), dtype)
    if out.size == 0:
        return out
    if k == 0:
        return filled((items, m, n), identity("sum", dtype), dtype)
    blocks_of = {tile: -(-m // tile.bm) * -(-n // tile.bn) for tile in (SMALL, LARGE)}
    large = wide(dtype.name) == "float32" and m > 64 and n > 64 and blocks_of[LARGE] * items >= ENOUGH // 2
    tile = LARGE if large else SMALL
    d = 0
    while -(-k >> d) > LONGEST or (blocks_of[tile] * items << d < ENOUGH and -(-k >> d) > SHORT):
        d += 1
    while d and out.size << d > LIMIT and -(-k >> (d - 1)) <= LONGEST:
        d -= 1
    made = empty((1 << d, out.size), dtype_of(wide(dtype.name))) if d else out
    results = items << d
    arguments = (m, n, k, d, items, results, -(-n // tile.bn), geometry, x, y, made)
    grid = (blocks_of[tile], min(results, 65535))
    kernel.launch((dtype.name, made.dtype.name, tile, *rest), grid, tile.threads, *arguments)
    if d:
        fold_range(made, 1 << d, (1 << d, 0, out.size), out.size, (out.size, 0, 1), "sum", out)
    return out


def batches(shape: tuple[int, ...], x: DeviceArray, y: DeviceArray) -> Any:
    """The batch in at most three dimensions: (sizes, strides of x, strides of y), or None."""
    strides = []
    for array in (x, y):
        own = [0 if n == 1 else stride for n, stride in zip(array.shape[:-2], array.strides[:-2])]
        strides.append((0,) * (len(shape) - len(own)) + tuple(own))
    sizes, (a, b) = coalesce(shape, strides)
    if len(sizes) > 3:
        return None
    ones = (1,) * (3 - len(sizes))
    return (*ones, *sizes), (*(0 for _ in ones), *a), (*(0 for _ in ones), *b)


@primitive
def matmul(x: DeviceArray, y: DeviceArray) -> Any:
    if x.dtype != y.dtype or x.dtype.name == "bool":
        return NotImplemented
    batch = np.broadcast_shapes(x.shape[:-2], y.shape[:-2])
    m, k, n = x.shape[-2], x.shape[-1], y.shape[-1]
    if not batch or all(size == 1 for size in y.shape[:-2]):  # rows of all items make one matrix
        joined = contiguous(x) if x.ndim > 2 else x
        shape = (math.prod(x.shape[:-1]), k)  # a dimension of size 1 may have any stride: a copy's own are trusted
        rows = joined.view(shape, packed(shape) if x.ndim > 2 else x.strides)
        made = _matmul(rows, y.view(y.shape[-2:], y.strides[-2:]), (), rows.shape[0], k, n)
        return made.view((*batch, m, n), packed((*batch, m, n)))
    made = _matmul(x, y, batch, m, k, n)
    return made.view((*batch, m, n), packed((*batch, m, n)))


def _matmul(x: DeviceArray, y: DeviceArray, batch: tuple[int, ...], m: int, k: int, n: int) -> DeviceArray:
    found = batches(batch, x, y)
    if found is None:
        x, y = contiguous(x), contiguous(y)
        found = batches(batch, x, y)
    if found is None:  # broadcast in turns: no three dimensions describe it
        x, y = (contiguous(spread(a, (*batch, *a.shape[-2:]))) for a in (x, y))
        found = batches(batch, x, y)
    sizes, a, b = found
    geometry = Matrices(*sizes[1:], *a, *x.strides[-2:], *b, *y.strides[-2:])
    return contract(product, (), math.prod(batch), m, n, k, geometry, x, y)


# --- convolution ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Along:
    """One dimension: output o reads by tap t what stands at (o * step + t * apart + at) / by, if that is whole."""

    outputs: int
    taps: int
    step: int
    apart: int
    at: int
    by: int
    size: int

    @property
    def present(self) -> bool:
        """Whether every output finds something by every tap."""
        low = self.at + min(0, self.apart * (self.taps - 1))
        high = self.at + self.step * (self.outputs - 1) + max(0, self.apart * (self.taps - 1))
        return self.by == 1 and low >= 0 and high < self.size

    @property
    def axis(self) -> Axis:
        """What the kernel is told."""
        return Axis(self.step, self.apart, self.at, self.by, self.size)


def correlate(x: DeviceArray, w: DeviceArray, rows: Along, columns: Along) -> DeviceArray:
    """sum over (c, i, j) of x[g, c, b, rows(p, i), columns(q, j)] * w[g, o, c, i, j], as (g, o, b, p, q)."""
    g, c, b = x.shape[:3]
    o, taps = w.shape[1], (rows.taps, columns.taps)
    window = rows.outputs * columns.outputs
    sizes = math.prod(taps), taps[1], window, columns.outputs
    geometry = Windows._make((*w.strides, *x.strides, *sizes, rows.axis, columns.axis))
    masked = not (rows.present and columns.present)
    made = contract(correlation, (masked,), g, o, b * window, c * math.prod(taps), geometry, w, x)
    shape = (g, o, b, rows.outputs, columns.outputs)
    return made.view(shape, packed(shape))


def split(x: DeviceArray, dim: int, groups: int, each: int | None = None) -> DeviceArray:
    """`x` with its channels (dimension `dim`) as (groups, channels of a group), a view."""
    each = x.shape[dim] // max(groups, 1) if each is None else each
    stride = x.strides[dim]
    shape = (*x.shape[:dim], groups, each, *x.shape[dim + 1 :])
    return x.view(shape, (*x.strides[:dim], stride * each, stride, *x.strides[dim + 1 :]))


def permuted(x: DeviceArray, *perm: int) -> DeviceArray:
    """`x` with its dimensions in another order, a view."""
    return x.view([x.shape[d] for d in perm], [x.strides[d] for d in perm])


def joined(x: DeviceArray, dim: int) -> DeviceArray:
    """`x` with (groups, channels of a group), at `dim`, as one dimension: they lie in this order in what `correlate` makes."""
    shape = (*x.shape[:dim], x.shape[dim] * x.shape[dim + 1], *x.shape[dim + 2 :])
    return x.view(shape, (*x.strides[:dim], *x.strides[dim + 1 :]))


@primitive
def conv2d(x: DeviceArray, w: DeviceArray, *, stride: Any, padding: Any, dilation: Any, groups: int) -> Any:
    if x.dtype.name == "bool":
        return NotImplemented
    sizes = zip(x.shape[2:], w.shape[2:], stride, padding, dilation)
    rows, columns = (Along(windows(n, t, s, p, d), t, s, d, -p, 1, n) for n, t, s, p, d in sizes)
    g = held(x.shape[1], w.shape[1], groups)
    source = permuted(split(x, 1, g, w.shape[1]), 1, 2, 0, 3, 4)
    return joined(permuted(correlate(source, split(w, 0, g), rows, columns), 2, 0, 1, 3, 4), 1)


@primitive
def conv2d_input(
    g: DeviceArray,
    w: DeviceArray,
    *,
    size: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int,
    shape: Any = None,
) -> Any:
    if g.dtype.name == "bool":
        return NotImplemented
    sizes = zip(size, g.shape[2:], w.shape[2:], stride, padding, dilation)
    rows, columns = (Along(outputs, t, 1, -d, p, s, n) for outputs, n, t, s, p, d in sizes)
    here = held(shape[1], w.shape[1], groups) if shape else groups
    source = permuted(split(g, 1, here), 1, 2, 0, 3, 4)
    made = correlate(source, permuted(split(w, 0, here), 0, 2, 1, 3, 4), rows, columns)
    return joined(permuted(made, 2, 0, 1, 3, 4), 1)


@primitive
def conv2d_filter(
    x: DeviceArray,
    g: DeviceArray,
    *,
    size: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int,
    shape: Any = None,
) -> Any:
    if x.dtype.name == "bool":
        return NotImplemented
    sizes = zip(size, x.shape[2:], g.shape[2:], stride, padding, dilation)
    rows, columns = (Along(outputs, t, d, s, -p, 1, n) for outputs, n, t, s, p, d in sizes)
    c = shape[1] if shape else x.shape[1] // groups
    here = held(x.shape[1], c, groups)
    source = permuted(split(x, 1, here, c), 1, 0, 2, 3, 4)
    return joined(correlate(source, permuted(split(g, 1, here), 1, 2, 0, 3, 4), rows, columns), 0)
