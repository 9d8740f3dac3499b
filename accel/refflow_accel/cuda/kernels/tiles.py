"""The tiled contraction kernel: matmul and convolution are one text, which differs in how a factor is found.

Implements NUM-CONTRACT for CUDA.  A block makes a tile of `BM` by `BN` results, a thread `TR` by `TC` of them in
registers.  A leaf of the tree (LEAF terms or fewer) is loaded into shared memory, whose rows are 4 longer, so that columns
do not meet in one bank, and multiplied up as one chain from -0; what a leaf lacks to the next multiple of 4 is +0 * -0,
which changes no chain.  Finished left siblings wait on a stack in local memory.  A range longer than LONGEST is cut at
nodes of the tree, whose results another kernel folds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from refflow.numerics.profile import LEAF

from ..elements import NEUTRAL, NUMBER, ZERO, loader, storer, wide
from ..target import SIMULATED, cuda, i32, i64, u16, u32
from .reduction import node_size, node_start

STACK = 10
LONGEST = LEAF << (STACK - 3)  # terms of a node: its pending siblings fit the stack


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

# Where a factor is.  The names: i row and j column of the result, k term; `ok` says whether there is one.
MATMUL = {
    "arguments": "d1, d2, a0, a1, a2, am, ak, b0, b1, b2, bk, bn",
    "bases": """
        z2 = u32(item // d2)
        z0 = u32(z2 // d1)
        z1 = u32(z2 - z0 * d1)
        z2 = u32(item - z2 * d2)
        base_a = u32(z0 * a0 + z1 * a1 + z2 * a2)
        base_b = u32(z0 * b0 + z1 * b1 + z2 * b2)
        a_by_row = ak != u32(1)
        b_by_term = bn != u32(1)""",
    "a": """
                        value = load(x, u32(base_a + i * am + k * ak))""",
    "b": """
                        value = load(y, u32(base_b + k * bk + j * bn))""",
}
CORRELATION = {
    "arguments": (
        "wg, wo, wc, wi, wj, xg, xc, xb, xy, xx, taps, taps_j, window, window_q, "
        "row_p, row_t, row_at, row_by, row_size, col_q, col_t, col_at, col_by, col_size"
    ),
    "bases": """
        base_a = u32(item * wg)
        base_b = u32(item * xg)
        a_by_row = False
        b_by_term = False""",
    "a": """
                        c = u32(k // taps)
                        rest = u32(k - c * taps)
                        ti = u32(rest // taps_j)
                        value = load(x, u32(base_a + i * wo + c * wc + ti * wi + u32(rest - ti * taps_j) * wj))""",
    "b": """
                        c = u32(k // taps)
                        rest = u32(k - c * taps)
                        ti = u32(rest // taps_j)
                        tj = u32(rest - ti * taps_j)
                        image = u32(j // window)
                        rest = u32(j - image * window)
                        p = u32(rest // window_q)
                        q = u32(rest - p * window_q)
                        row = i32(i32(p) * row_p + i32(ti) * row_t + row_at)
                        col = i32(i32(q) * col_q + i32(tj) * col_t + col_at)
                        if row >= 0 and col >= 0:
                            r = u32(u32(row) // row_by)
                            s = u32(u32(col) // col_by)
                            whole = u32(r * row_by) == u32(row) and u32(s * col_by) == u32(col)
                            if whole and r < row_size and s < col_size:
                                value = load(y, u32(base_b + c * xc + image * xb + r * xy + s * xx))
                                present = True""",
}
TEXT = """
def contraction(m, n, terms, depth, items, results, across, {arguments}, x, y, out):
    a_tile = cuda.shared.array((LEAF, WIDE_M), number)
    b_tile = cuda.shared.array((LEAF, WIDE_N), number)
    {mask}
    acc = cuda.local.array((TR, TC), number)
    a = cuda.local.array((TR,), number)
    b = cuda.local.array((TC,), number)
    stack = cuda.local.array((STACK, TR, TC), number)
    thread = u32(cuda.threadIdx.x)
    ty = u32(thread // u32(BN // TC))
    first_r = u32(ty * u32(TR))
    first_c = u32(u32(thread - ty * u32(BN // TC)) * u32(TC))
    tile_y = u32(u32(cuda.blockIdx.x) // across)
    row0 = u32(tile_y * u32(BM))
    col0 = u32(u32(u32(cuda.blockIdx.x) - tile_y * across) * u32(BN))
    z = u32(cuda.blockIdx.y)
    while z < results:
        part = u32(z // items)
        item = u32(z - part * items){bases}
        size = node_size(terms, part, depth)
        k0 = node_start(terms, part, depth)
        height = u32(0)  # of the tree over leaves, less one: nodes there are a leaf, or two
        longest = size
        while longest > u32(2 * LEAF):
            longest = u32(u32(longest + u32(1)) >> u32(1))
            height = u32(height + u32(1))
        nodes = u32(u32(1) << height)
        turned = u32(0)
        top = u32(0)
        node = u32(0)
        while node < nodes:
            both = u32((i64(size) + i64(nodes) - i64(1) - i64(turned)) >> i64(height))
            leaves = u32(2) if both > u32(LEAF) else u32(1)
            leaf = u32(0)
            while leaf < leaves:
                length = both
                if leaves == u32(2):
                    length = u32(u32(both + u32(1)) >> u32(1)) if leaf == u32(0) else u32(both >> u32(1))
                e = thread
                while e < u32(LEAF * BM):
                    kk = u32(e // u32(BM)) if a_by_row else u32(e % u32(LEAF))
                    i = u32(e % u32(BM)) if a_by_row else u32(e // u32(LEAF))
                    at = i
                    i = u32(i + row0)
                    k = u32(k0 + kk)
                    value = zero
                    if kk < length and i < m:{a}
                    a_tile[kk, at] = value
                    e = u32(e + u32(THREADS))
                e = thread
                while e < u32(LEAF * BN):
                    kk = u32(e % u32(LEAF)) if b_by_term else u32(e // u32(BN))
                    j = u32(e // u32(LEAF)) if b_by_term else u32(e % u32(BN))
                    at = j
                    j = u32(j + col0)
                    k = u32(k0 + kk)
                    value = neutral
                    present = False
                    if kk < length and j < n:{b}
                    b_tile[kk, at] = value
                    {put_mask}
                    e = u32(e + u32(THREADS))
                cuda.syncthreads()
                for r in range(TR):
                    for c in range(TC):
                        acc[r, c] = neutral
                kq = u32(0)
                while kq < length:
                    for u in range(4):
                        kk = u32(kq + u32(u))
                        for r in range(TR):
                            a[r] = a_tile[kk, u32(first_r + u32(r))]
                        for c in range(TC):
                            b[c] = b_tile[kk, u32(first_c + u32(c))]
                        for r in range(TR):
                            for c in range(TC):
                                {step}
                    kq = u32(kq + u32(4))
                cuda.syncthreads()
                k0 = u32(k0 + length)
                if leaf == u32(0) and leaves == u32(2):
                    for r in range(TR):
                        for c in range(TC):
                            stack[top, r, c] = acc[r, c]
                    top = u32(top + u32(1))
                leaf = u32(leaf + u32(1))
            merges = u32(u32(node << u32(1)) | u32(1)) if leaves == u32(2) else node  # as many as it ends in ones
            while (merges & u32(1)) != u32(0):
                top = u32(top - u32(1))
                for r in range(TR):
                    for c in range(TC):
                        acc[r, c] = stack[top, r, c] + acc[r, c]
                merges = u32(merges >> u32(1))
            for r in range(TR):
                for c in range(TC):
                    stack[top, r, c] = acc[r, c]
            top = u32(top + u32(1))
            bit = u32(nodes >> u32(1))
            rest = node
            while (rest & u32(1)) != u32(0):
                turned = u32(turned - bit)
                bit = u32(bit >> u32(1))
                rest = u32(rest >> u32(1))
            turned = u32(turned + bit)
            node = u32(node + u32(1))
        for r in range(TR):
            i = u32(row0 + first_r + u32(r))
            for c in range(TC):
                j = u32(col0 + first_c + u32(c))
                if i < m and j < n:
                    store(out, u32(u32(z * m + i) * n + j), stack[0, r, c])
        z = u32(z + u32(cuda.gridDim.y))
"""


def contraction(kind: str, dtype: str, to: str, tile: Tile, masked: bool) -> Any:
    """The kernel of "matmul" or "correlation" on elements of `dtype`; `masked` where factors of y may be absent."""
    number = wide(dtype)
    product = "cuda.fma(a[r], b[c], acc[r, c])" if number == "float32" else "acc[r, c] + a[r] * b[c]"
    at = "b_mask[kk, u32(first_c + u32(c))]"
    names = MATMUL if kind == "matmul" else CORRELATION
    text = TEXT.format(
        **names,
        mask="b_mask = cuda.shared.array((LEAF, BN), u16)" if masked else "",
        put_mask="b_mask[kk, at] = u16(1) if present else u16(0)" if masked else "",
        step=f"acc[r, c] = {product} if {at} != u16(0) else acc[r, c]" if masked else f"acc[r, c] = {product}",
    )
    scope = {
        "cuda": cuda, "u32": u32, "i32": i32, "i64": i64, "u16": u16, "LEAF": LEAF, "STACK": STACK,
        "BM": tile.bm, "BN": tile.bn, "TR": tile.tr, "TC": tile.tc, "THREADS": tile.threads,
        "WIDE_M": tile.bm + 4, "WIDE_N": tile.bn + 4,
        "number": NUMBER[number], "zero": ZERO[number], "neutral": NEUTRAL[number],
        "load": loader(dtype), "store": storer(to), "node_size": node_size, "node_start": node_start,
    }  # fmt: skip
    exec(text, scope)
    return scope["contraction"]
