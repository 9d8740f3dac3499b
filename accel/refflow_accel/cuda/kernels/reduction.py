"""Reductions: the canonical tree over a strided range, cut at nodes so that there are enough threads.

Implements NUM-TREE for CUDA, the walk down one node being `tree`'s.  The results of the 2^d nodes at depth d are folded
again: they form the top of the same tree.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from refflow.numerics.dtypes import identity

from ...chains import single
from ..elements import NUMBER, cells, combiner, loader, storer, wide
from ..elementwise import dtype_of, run
from ..layout import grid_of, merged
from ..memory import DeviceArray, empty
from ..registry import Made, family, primitive
from ..target import SIMULATED, cuda, device, u32
from .movement import contiguous, filled
from .tree import STACK, element, node_size, node_start, walker

SPAN, BLOCK = (8, 4) if SIMULATED else (2048, 256)  # terms that a block stages, and its threads
STAGED = 12 if SIMULATED else 64  # terms from which a block takes a column
ENOUGH = 16 if SIMULATED else 1 << 15  # threads to ask for before nodes get long


@family()
def fold_threads(dtype: str, kind: str, to: str) -> Made:
    """out[j, c] = the tree over node j (of 2^d) of column c's n terms, a thread for each.

    Column c lies at (c // inner_c) * sc0 + (c % inner_c) * sc1, its terms likewise (inner_t, st0, st1), in elements.
    """
    walk, store, number = walker(loader(dtype), combiner(kind, dtype)), storer(to), NUMBER[wide(dtype)]

    def kernel(n, d, tasks, columns, inner_c, sc0, sc1, inner_t, st0, st1, x, out):
        stack = cuda.local.array(STACK, number)
        task = u32(cuda.grid(1))
        while task < tasks:
            j = u32(task // columns)
            c = u32(task - j * columns)
            base = element(u32(0), c, inner_c, sc0, sc1)
            store(out, task, walk(stack, x, base, node_size(n, j, d), node_start(n, j, d), inner_t, st0, st1))
            task = u32(task + u32(cuda.gridsize(1)))

    return kernel, (*(u32,) * 10, cells(dtype), cells(to))


@device
def _same(x, i):
    return x[i]


@family(bounds=BLOCK)
def fold_blocks(dtype: str, kind: str, to: str) -> Made:
    """out[j, c] as `fold_threads` has it, a block for each, which stages the node's terms, SPAN at most.

    Threads fold the 2^e nodes below it, e so great that each has a term, and then neighbours, level by level.
    """
    load, store, combine, number = loader(dtype), storer(to), combiner(kind, dtype), NUMBER[wide(dtype)]
    walk = walker(_same, combine)

    def kernel(n, d, tasks, columns, inner_c, sc0, sc1, inner_t, st0, st1, x, out):
        staged = cuda.shared.array(SPAN, number)
        nodes = cuda.shared.array(BLOCK, number)
        stack = cuda.local.array(STACK, number)
        thread = u32(cuda.threadIdx.x)
        task = u32(cuda.blockIdx.x)
        while task < tasks:
            j = u32(task // columns)
            c = u32(task - j * columns)
            base = element(u32(0), c, inner_c, sc0, sc1)
            size = node_size(n, j, d)
            first = node_start(n, j, d)
            i = thread
            while i < size:
                staged[i] = load(x, element(base, u32(first + i), inner_t, st0, st1))
                i = u32(i + u32(BLOCK))
            e = u32(0)
            while u32(u32(2) << e) <= size and u32(u32(2) << e) <= u32(BLOCK):
                e = u32(e + u32(1))
            live = u32(u32(1) << e)
            cuda.syncthreads()
            if thread < live:
                own, at = node_size(size, thread, e), node_start(size, thread, e)
                nodes[thread] = walk(stack, staged, u32(0), own, at, u32(1), u32(1), u32(0))
            cuda.syncthreads()
            apart = u32(1)
            while apart < live:
                if thread < live and (thread & u32(u32(2) * apart - u32(1))) == u32(0):
                    nodes[thread] = combine(nodes[thread], nodes[u32(thread + apart)])
                cuda.syncthreads()
                apart = u32(apart << u32(1))
            if thread == u32(0):
                store(out, task, nodes[0])
            cuda.syncthreads()
            task = u32(task + u32(cuda.gridDim.x))

    return kernel, (*(u32,) * 10, cells(dtype), cells(to))


# --- the host's part --------------------------------------------------------------------------------------------------

Range = tuple[int, int, int]  # inner size, outer step, inner step


def two_dims(shape: Sequence[int], strides: Sequence[int]) -> Range | None:
    """A range of at most two dimensions after merging, or None."""
    dims, steps = merged(tuple(shape), tuple(strides))
    if len(dims) > 2:
        return None
    return (dims[0], 0, steps[0]) if len(dims) == 1 else (dims[1], steps[0], steps[1])


def fold_range(x: DeviceArray, n: int, terms: Range, columns: int, across: Range, kind: str, to: DeviceArray) -> None:
    """to[c] = the fold over n >= 1 terms of each column; levels of nodes above, if one thread or block has too much."""
    dtype = x.dtype.name
    blocks = n >= STAGED and (terms[2] == 1 or columns < 64)
    d = 0
    if blocks:
        while -(-n >> d) > SPAN:
            d += 1
    else:
        while columns << d < ENOUGH and n >> (d + 1) >= 16:
            d += 1
    target = empty((1 << d, columns), dtype_of(wide(dtype))) if d else to
    tasks = columns << d
    arguments = (n, d, tasks, columns, *across, *terms, x, target)
    key = (dtype, kind, target.dtype.name)
    if blocks:
        fold_blocks.launch(key, min(tasks, 1 << 20), BLOCK, *arguments)
    else:
        fold_threads.launch(key, *grid_of(tasks), *arguments)
    if d:
        fold_range(target, 1 << d, (1 << d, 0, columns), columns, (columns, 0, 1), kind, to)


def ranges(x: DeviceArray, dims: Sequence[int]) -> tuple[DeviceArray, Range, Range, list[int]]:
    """`x` (or a copy in better order), its terms over `dims` in that order, its columns, and the shape of those."""
    kept = [d for d in range(x.ndim) if d not in dims]
    shape = [x.shape[d] for d in kept]
    terms = two_dims([x.shape[d] for d in dims], [x.strides[d] for d in dims])
    across = two_dims(shape, [x.strides[d] for d in kept])
    if terms is None or across is None:
        order = [*kept, *dims]
        x = contiguous(x.view([x.shape[d] for d in order], [x.strides[d] for d in order]))
        n = math.prod(x.shape[len(kept) :])
        terms, across = (n, 0, 1), (max(math.prod(shape), 1), 0, n)
    return x, terms, across, shape


def fold_dims(x: DeviceArray, dims: Sequence[int], kind: str) -> DeviceArray:
    """The fold of `x` over `dims`, which are removed."""
    dims = [d % x.ndim for d in dims]
    if x.dtype.name == "bool":
        kind = {"sum": "max", "prod": "min"}.get(kind, kind)
    n = math.prod(x.shape[d] for d in dims)
    shape = [size for d, size in enumerate(x.shape) if d not in dims]
    if n == 0:
        return filled(shape, identity(kind, x.dtype), x.dtype)
    out = empty(shape, x.dtype)
    if out.size:
        source, terms, across, _ = ranges(x, dims)
        fold_range(source, n, terms, out.size, across, kind, out)
    return out


@primitive
def sum_(x: DeviceArray, *, dims: Sequence[int]) -> DeviceArray:
    return fold_dims(x, dims, "sum")


@primitive
def prod(x: DeviceArray, *, dims: Sequence[int]) -> DeviceArray:
    return fold_dims(x, dims, "prod")


@primitive
def amax(x: DeviceArray, *, dims: Sequence[int]) -> DeviceArray:
    return fold_dims(x, dims, "max")


@primitive
def amin(x: DeviceArray, *, dims: Sequence[int]) -> DeviceArray:
    return fold_dims(x, dims, "min")


def truth(x: DeviceArray) -> DeviceArray:
    """x != 0."""
    return x if x.dtype.name == "bool" else run(single("cast", (x.dtype.name,), "bool"), [x])[0]


@primitive
def any_(x: DeviceArray, *, dims: Sequence[int]) -> DeviceArray:
    return fold_dims(truth(x), dims, "max")


@primitive
def all_(x: DeviceArray, *, dims: Sequence[int]) -> DeviceArray:
    return fold_dims(truth(x), dims, "min")
