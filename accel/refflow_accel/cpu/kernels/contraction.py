"""Matrix products by tiles, with the bits of the canonical tree.

Implements ACC-MATMUL of spec/text/acceleration.md (NUM-CONTRACT's bits).  A task is a block of tiles of one matrix of the
batch.  Factors are read where they lie if that is fast, by their strides, so that a transpose costs no copy; else they
are packed into panels first, by a launch of its own.  `tiles` computes a tile; what is chosen here changes no bit.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import lru_cache, wraps
from typing import Any

import ml_dtypes
import numpy as np
from numba import njit

from .. import abi
from ..abi import Call
from ..registry import NATIVE, kernel
from .packing import Array, Panels, for_each_dtype, table_of
from .tiles import (
    COLUMNS,
    DEPTH,
    FEW,
    LANES,
    ROWS,
    SIZE,
    Leaves,
    Panel,
    Place,
    Rows,
    aligned,
    make_stack,
    make_tile,
    program,
)

Shape = tuple[int, ...]

_stack = make_stack(DEPTH * SIZE)
_whole, _low = make_tile(ROWS, False, False), make_tile(FEW, False, False)
_slim, _small = make_tile(ROWS, True, False), make_tile(FEW, True, False)


@njit(inline="always")
def _tile(x, y, leaves, place, rows):
    """A tile by the smallest shape that holds its `rows` and the columns of its place."""
    if place.width > LANES:
        if rows == ROWS:
            _whole(x, y, leaves, place)
        else:
            _low(x, y, leaves, place)
    elif rows == ROWS:
        _slim(x, y, leaves, place)
    else:
        _small(x, y, leaves, place)


LEAVES, M, N, COLUMNS_OF, X_PACKED, X_TILE, X_ROW, X_K, Y_PACKED, Y_PANEL, Y_K, HIGH, WIDE, BATCH, HEAD = range(15)


def product(words: int, lo: int, hi: int) -> int:
    """Tasks (matrix, block of rows, block of columns) of out = x y.

    The loops go over tiles only: a tile runs the whole tree over k by itself (NUM-CONTRACT), so their order is free.

    Words: x, y, out, and a table: the tree's leaves; m, n; columns of a panel; is x packed, the steps to its next tile of
    rows, row and k; is y packed, the steps to its next panel and k; tiles of rows and panels of columns in a block; the
    size of the batch; then where each matrix of x begins, where each of y, and the tree.
    """
    x, y, out, table = array(words, 0), array(words, 1), array(words, 2), abi.i64s(words, 3)  # type: ignore[name-defined]  # noqa: F821
    m, n, columns, batch = table[M], table[N], table[COLUMNS_OF], table[BATCH]
    xr, xk, yk, high, wide = table[X_ROW], table[X_K], table[Y_K], table[HIGH], table[WIDE]
    xbase = aligned(x) if table[X_PACKED] else 0
    ybase = aligned(y) if table[Y_PACKED] else 0
    tiles, panels = (m + ROWS - 1) // ROWS, (n + columns - 1) // columns
    across = (panels + wide - 1) // wide
    blocks = (tiles + high - 1) // high * across
    leaves = Leaves(table[HEAD + 2 * batch :], 0, table[LEAVES], _stack(out), 0, True)
    for task in range(lo, hi):
        g, block = task // blocks, task % blocks
        i, j = block // across * high, block % across * wide
        for t in range(j, min(panels, j + wide)):
            panel, width = Panel(y, ybase + table[HEAD + batch + g] + t * table[Y_PANEL], yk), min(columns, n - t * columns)
            for p in range(i, min(tiles, i + high)):
                height = min(ROWS, m - p * ROWS)
                rows = ROWS if height > FEW else FEW
                # A tile that hangs over moves up, so that it reads only rows that exist; panels have room for it.
                up = 0 if table[X_PACKED] else max(0, p * ROWS + rows - m)
                left = Rows(x, xbase + table[HEAD + g] + p * table[X_TILE] - up * xr, xr, xk)
                place = Place(out, (g * m + p * ROWS - up) * n + t * columns, n, up, up + height, width)
                _tile(left, panel, leaves, place, rows)
    return 0


PRODUCT = for_each_dtype(product)


HALVES = frozenset(map(np.dtype, (np.float16, ml_dtypes.bfloat16)))
FLOAT32 = np.dtype(np.float32)


def of_halves(function: Any) -> Any:
    """The kernel, which computes float16 and bfloat16 in float32 and rounds the results once (NUM-HALF)."""

    @wraps(function)
    def run(call: Call, x: Array, y: Array, **attributes: Any) -> Any:
        if x.dtype not in HALVES or y.dtype != x.dtype:
            return function(call, x, y, **attributes)
        wide = function(call, *(NATIVE["cast"](call, a, dtype=FLOAT32) for a in (x, y)), **attributes)
        return wide if wide is NotImplemented else NATIVE["cast"](call, wide, dtype=x.dtype)

    return run


@kernel
@of_halves
def matmul(call: Call, x: Array, y: Array) -> Any:
    """The matrix products of x (..., m, k) and y (..., k, n), batches broadcast; any strides."""
    dtype = x.dtype
    if dtype != y.dtype or dtype not in PRODUCT or x.ndim < 2 or y.ndim < 2 or x.shape[-1] != y.shape[-2]:
        return NotImplemented
    p = plan(x.shape, x.strides, y.shape, y.strides, x.itemsize, abi.threads())
    if p is None:
        return NotImplemented
    out = call.empty(p.shape, dtype)
    if p.tasks:
        left = x if p.left is None else p.left.write(call, x)
        right = y if p.right is None else p.right.write(call, y)
        call.launch(PRODUCT[dtype], left, right, out, call.table(p.table), tasks=p.tasks, cost=p.cost)
    return out


@dataclass(frozen=True)
class Plan:
    """How a product is computed: the result's shape, what is packed, the table of `product`, its tasks and their ns."""

    shape: Shape
    left: Panels | None
    right: Panels | None
    table: Array
    tasks: int
    cost: float


@lru_cache(maxsize=1024)
def plan(xshape: Shape, xbytes: Shape, yshape: Shape, ybytes: Shape, size: int, threads: int) -> Plan | None:
    """The plan for operands of these shapes and strides in bytes; None where the reference has to do it."""
    if any(stride % size for stride in xbytes + ybytes) or xshape[-1] == 0:
        return None
    xstrides, ystrides = (tuple(stride // size for stride in strides) for strides in (xbytes, ybytes))
    try:
        batch = np.broadcast_shapes(xshape[:-2], yshape[:-2])
    except ValueError:
        return None
    (m, k), n = xshape[-2:], yshape[-1]
    shape = (*batch, m, n)
    if 0 in shape:
        return Plan(shape, None, None, table_of(), 0, 0.0)
    if math.prod(yshape[:-2]) == 1 and len(xshape) > 2 and _one_matrix(xshape[:-1], xstrides[:-1]):
        m, batch = m * math.prod(xshape[:-2]), ()  # one matrix for all: the batch is more rows
        xshape, xstrides, yshape, ystrides = (m, k), xstrides[-2:], (k, n), ystrides[-2:]
    count, columns = math.prod(batch), COLUMNS if size < 8 else LANES
    left, xs, xtile, xr, xk = _left(batch, xshape, xstrides, n, size)
    right, ys, ypanel, yk = _right(batch, yshape, ystrides, m, columns)
    high, wide = _block(count, -(-m // ROWS), -(-n // columns), k * size, threads)
    tree = program(k)
    packed = int(left is not None), int(right is not None)
    numbers = (len(tree), m, n, columns, packed[0], xtile, xr, xk, packed[1], ypanel, yk, high, wide)
    tasks = count * -(-m // (ROWS * high)) * -(-n // (columns * wide))
    work = min(high * ROWS, m) * min(wide * columns, n) * k
    return Plan(shape, left, right, table_of(*numbers, count, xs, ys, tree), tasks, work * size / 4 / 50)


def _one_matrix(shape: Shape, strides: Shape) -> bool:
    """Whether dimensions lie as one would: each steps over all of the next."""
    long = [(n, stride) for n, stride in zip(shape, strides) if n != 1]
    return all(outer == inner * n for (_, outer), (n, inner) in itertools.pairwise(long)) and shape[-1] != 1


def _begins(shape: Shape, strides: Shape) -> Array:
    """Where the matrices of a batch begin, in this shape."""
    begins = np.zeros(shape, np.int64)
    for axis, (n, stride) in enumerate(zip(shape, strides)):
        begins += (np.arange(n) * stride).reshape(n, *[1] * (len(shape) - axis - 1))
    return begins


def _left(batch: Shape, shape: Shape, strides: Shape, n: int, size: int) -> tuple[Panels | None, Array, int, int, int]:
    """x as it lies, or in panels; where its matrices begin, and the steps to the next tile of rows, row and k."""
    (m, k), (row, step) = shape[-2:], strides[-2:]
    begins = _begins(shape[:-2], strides[:-2])
    if not _pack_left(m, k, step, n, size):
        return None, np.broadcast_to(begins, batch), ROWS * row, row, step
    panels = Panels(begins, m, k, ROWS, ROWS, row, 0, step, k)
    return panels, np.broadcast_to(panels.places, batch), ROWS * k, 1, ROWS


def _right(batch: Shape, shape: Shape, strides: Shape, m: int, columns: int) -> tuple[Panels | None, Array, int, int]:
    """y likewise; with the steps to the next panel and k.  Columns that do not lie together have to be packed."""
    (k, n), (step, column) = shape[-2:], strides[-2:]
    begins = _begins(shape[:-2], strides[:-2])
    if (column == 1 or n == 1) and not _pack_right(m, k, n):
        return None, np.broadcast_to(begins, batch), columns, step
    panels = Panels(begins, n, k, columns, 0, column, 0, step, k)
    return panels, np.broadcast_to(panels.places, batch), columns * k, columns


WAYS, AGAIN = 8, 1 << 16  # of a second-level cache of 1 MiB: lines in one place, bytes after which places come again


def _pack_left(m: int, k: int, step: int, n: int, size: int) -> bool:
    """Rows are read where they lie, except where there is no tile of rows that exist, or steps of k are too long: each to
    another page, or so many to so few places of a cache that none of their lines is left for the next tile of rows."""
    if m < ROWS and m != FEW:
        return True
    crowded = k * math.gcd(step * size, AGAIN) > WAYS * AGAIN
    return step != 1 and ((k >= 512 and n >= 512) or (crowded and m > 2 * ROWS and n >= 4 * COLUMNS))


def _pack_right(m: int, k: int, n: int) -> bool:
    """A panel is copied if it pays: it is read by many tiles, and does not stay in a second-level cache by itself."""
    return m > 4 * ROWS and n > COLUMNS and k * n >= 1 << 18


X_BYTES = 1 << 19  # of x in a task: half of a second-level cache of 1 MiB


def _block(batch: int, tiles: int, panels: int, bytes_of_k: int, threads: int) -> tuple[int, int]:
    """(tiles of rows, panels of columns) of a task: rows of x that stay in a second-level cache; enough for all threads."""
    high = max(1, min(tiles, X_BYTES // (ROWS * bytes_of_k)))
    wide = panels
    while batch * -(-tiles // high) * -(-panels // wide) < 2 * threads and threads > 1 and high * wide > 8:
        if high * ROWS > wide * COLUMNS:
            high = -(-high // 2)
        else:
            wide = -(-wide // 2)
    return high, wide
