"""The tiled contraction kernel: matmul and convolution are one, which differ in how a factor is found.

Implements NUM-CONTRACT for CUDA.  A block makes a tile of results, a thread a smaller one in registers.  A leaf of the
tree (LEAF terms or fewer) is loaded into shared memory, whose rows are 4 longer, so that columns do not meet in one
bank, and multiplied up as one chain from -0; what a leaf lacks to the next multiple of 4 is +0 * -0, which changes no
chain.  Finished left siblings wait on a stack in local memory.  A range longer than LONGEST is cut at nodes of the tree,
whose results another kernel folds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from refflow.numerics.profile import LEAF

from ..elements import NEUTRAL, NUMBER, ZERO, loader, storer, wide
from ..target import SIMULATED, cuda, device, u16, u32
from .factors import Factors
from .tree import node_size, node_start

STACK = 10
LONGEST = LEAF << (STACK - 3)  # terms of a node: its pending siblings fit the stack
UNROLLED = 4  # terms of a chain that are multiplied up without a look at its end


@dataclass(frozen=True)
class Tile:
    """A block's results, and a thread's."""

    bm: int
    bn: int
    tr: int
    tc: int

    @property
    def threads(self) -> int:
        return self.bm // self.tr * (self.bn // self.tc)


SMALL, LARGE = (Tile(4, 4, 2, 2),) * 2 if SIMULATED else (Tile(64, 64, 4, 4), Tile(128, 128, 8, 8))


def filler(factors: Factors, dtype: str, tile: Tile, masked: bool) -> tuple[Any, Any]:
    """(fill_x, fill_y): what a block's threads do to bring a leaf's factors into shared memory."""
    load, zero, neutral = loader(dtype), ZERO[wide(dtype)], NEUTRAL[wide(dtype)]
    x_at, y_at, bm, bn, threads = factors.x_at, factors.y_at, tile.bm, tile.bn, tile.threads

    @device
    def fill_x(cells, x, geometry, start, m, row0, k0, length, by_row, thread):
        e = thread
        while e < u32(LEAF * bm):
            k = u32(e // u32(bm)) if by_row else u32(e % u32(LEAF))
            i = u32(e % u32(bm)) if by_row else u32(e // u32(LEAF))
            value = zero
            if k < length and u32(i + row0) < m:
                value = load(x, x_at(geometry, start, u32(i + row0), u32(k0 + k)))
            cells[k, i] = value
            e = u32(e + u32(threads))

    @device
    def fill_y(cells, mask, y, geometry, start, n, col0, k0, length, by_term, thread):
        e = thread
        while e < u32(LEAF * bn):
            k = u32(e % u32(LEAF)) if by_term else u32(e // u32(bn))
            j = u32(e // u32(LEAF)) if by_term else u32(e % u32(bn))
            value = neutral
            present = False
            if k < length and u32(j + col0) < n:
                present, place = y_at(geometry, start, u32(k0 + k), u32(j + col0))
                if present:
                    value = load(y, place)
            cells[k, j] = value
            if masked:
                mask[k, j] = u16(1) if present else u16(0)
            e = u32(e + u32(threads))

    return fill_x, fill_y


@device
def _fused(a, b, total):
    return cuda.fma(a, b, total)


@device
def _rounded_twice(a, b, total):
    return total + a * b


def chain_of_leaf(dtype: str, tile: Tile, masked: bool) -> Any:
    """multiply(acc, x_tile, y_tile, mask, row, column, length): a thread's results of one leaf, its first at (row, column)."""
    number, neutral, tr, tc = NUMBER[wide(dtype)], NEUTRAL[wide(dtype)], tile.tr, tile.tc
    step = _fused if wide(dtype) == "float32" else _rounded_twice

    @device
    def multiply(acc, x_tile, y_tile, mask, row, column, length):
        a = cuda.local.array((tr,), number)
        b = cuda.local.array((tc,), number)
        for r in range(tr):
            for c in range(tc):
                acc[r, c] = neutral
        k0 = u32(0)
        while k0 < length:
            for u in range(UNROLLED):
                k = u32(k0 + u32(u))
                for r in range(tr):
                    a[r] = x_tile[k, u32(row + u32(r))]
                for c in range(tc):
                    b[c] = y_tile[k, u32(column + u32(c))]
                for r in range(tr):
                    for c in range(tc):
                        made = step(a[r], b[c], acc[r, c])
                        if masked:  # an absent tap leaves the chain as it is: +0 * w would turn its -0 to +0
                            made = made if mask[k, u32(column + u32(c))] != u16(0) else acc[r, c]
                        acc[r, c] = made
            k0 = u32(k0 + u32(UNROLLED))

    return multiply


def siblings(tile: Tile) -> tuple[Any, Any]:
    """(put, add): a thread's results put on the stack, and those that wait there added from the left."""
    tr, tc = tile.tr, tile.tc

    @device
    def put(stack, top, acc):
        for r in range(tr):
            for c in range(tc):
                stack[top, r, c] = acc[r, c]

    @device
    def add(stack, top, acc):
        for r in range(tr):
            for c in range(tc):
                acc[r, c] = stack[top, r, c] + acc[r, c]

    return put, add


@device
def leaf_height(size):
    """The depth at which each node of a tree over `size` terms is a leaf, or two."""
    height = u32(0)
    while size > u32(2 * LEAF):
        size = u32(u32(size + u32(1)) >> u32(1))
        height = u32(height + u32(1))
    return height


def contraction(factors: Factors, dtype: str, to: str, tile: Tile, masked: bool) -> Any:
    """The kernel that contracts `factors` of `dtype`; `masked` where factors of y may be absent."""
    fill_x, fill_y = filler(factors, dtype, tile, masked)
    multiply, (put, add) = chain_of_leaf(dtype, tile, masked), siblings(tile)
    begin, x_by_row, y_by_term = factors.start, factors.x_by_row, factors.y_by_term
    number, store = NUMBER[wide(dtype)], storer(to)
    bm, bn, tr, tc = tile.bm, tile.bn, tile.tr, tile.tc
    wide_m, wide_n, mask_n = bm + 4, bn + 4, bn if masked else 1

    def kernel(m, n, terms, depth, items, results, across, geometry, x, y, out):
        x_tile = cuda.shared.array((LEAF, wide_m), number)
        y_tile = cuda.shared.array((LEAF, wide_n), number)
        mask = cuda.shared.array((LEAF, mask_n), u16)
        acc = cuda.local.array((tr, tc), number)
        stack = cuda.local.array((STACK, tr, tc), number)
        thread = u32(cuda.threadIdx.x)
        line = u32(thread // u32(bn // tc))
        row = u32(line * u32(tr))
        column = u32(u32(thread - line * u32(bn // tc)) * u32(tc))
        down = u32(u32(cuda.blockIdx.x) // across)
        row0 = u32(down * u32(bm))
        col0 = u32(u32(u32(cuda.blockIdx.x) - down * across) * u32(bn))
        z = u32(cuda.blockIdx.y)
        while z < results:
            part = u32(z // items)
            x_start, y_start = begin(geometry, u32(z - part * items))
            size = node_size(terms, part, depth)
            k0 = node_start(terms, part, depth)
            height = leaf_height(size)
            top = u32(0)
            node = u32(0)
            while node < u32(u32(1) << height):
                both = node_size(size, node, height)
                leaves = u32(2) if both > u32(LEAF) else u32(1)
                first = u32(u32(both + u32(1)) >> u32(1)) if leaves == u32(2) else both
                leaf = u32(0)
                while leaf < leaves:
                    length = first if leaf == u32(0) else u32(both - first)
                    fill_x(x_tile, x, geometry, x_start, m, row0, k0, length, x_by_row(geometry), thread)
                    fill_y(y_tile, mask, y, geometry, y_start, n, col0, k0, length, y_by_term(geometry), thread)
                    cuda.syncthreads()
                    multiply(acc, x_tile, y_tile, mask, row, column, length)
                    cuda.syncthreads()
                    k0 = u32(k0 + length)
                    ended = u32(u32(node << u32(1)) | leaf) if leaves == u32(2) else node  # as many as it ends in ones
                    while (ended & u32(1)) != u32(0):
                        top = u32(top - u32(1))
                        add(stack, top, acc)
                        ended = u32(ended >> u32(1))
                    put(stack, top, acc)
                    top = u32(top + u32(1))
                    leaf = u32(leaf + u32(1))
                node = u32(node + u32(1))
            for r in range(tr):
                i = u32(row0 + row + u32(r))
                for c in range(tc):
                    j = u32(col0 + column + u32(c))
                    if i < m and j < n:
                        store(out, u32(u32(z * m + i) * n + j), stack[0, r, c])
            z = u32(z + u32(cuda.gridDim.y))

    return kernel
