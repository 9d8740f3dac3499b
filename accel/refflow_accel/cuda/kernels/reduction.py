"""Reductions: the canonical tree over a strided range, cut at nodes so that there are enough threads, and arg-reductions.

Implements NUM-TREE for CUDA.  At depth d the tree over n terms has 2^d nodes; node j holds (n + 2^d - 1 - r) >> d terms,
r being j with its d bits reversed (the first turn decides last between floor and ceiling).  A thread walks the nodes
of one or two terms below its own in order, and adds finished left siblings from a stack.  Partial results of nodes are
folded again: 2^d of them form the top of the same tree.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import Any

from refflow.numerics.dtypes import identity

from ...chains import single
from ...expressions import HALVES
from ..elements import DTYPES, NUMBER, cells, combiner, loader, storer, wide
from ..elementwise import dtype_of, run
from ..layout import grid_of, merged
from ..memory import DeviceArray, empty
from ..registry import Made, family, primitive
from ..target import SIMULATED, cuda, device, i64, s64, u32
from .movement import contiguous, filled

STACK = 32  # pending left siblings: as many as an index has bits
SPAN, BLOCK = (8, 4) if SIMULATED else (2048, 256)  # terms that a block stages, and its threads
STAGED = 12 if SIMULATED else 64  # terms from which a block takes a column
ENOUGH = 16 if SIMULATED else 1 << 15  # threads to ask for before nodes get long


# --- the tree ---------------------------------------------------------------------------------------------------------


@device
def node_size(n, j, d):
    """The terms of node j at depth d of the canonical tree over n."""
    turned = u32(0)
    for _ in range(d):
        turned = u32((turned << u32(1)) | (j & u32(1)))
        j = u32(j >> u32(1))
    return u32((i64(n) + (i64(1) << i64(d)) - i64(1) - i64(turned)) >> i64(d))


@device
def node_start(n, j, d):
    """The first term of that node, by walking down."""
    start = u32(0)
    size = n
    for k in range(d):
        half = u32((size + u32(1)) >> u32(1))
        right = u32(j >> u32(d - u32(1) - u32(k))) & u32(1)
        start = u32(start + half) if right != u32(0) else start
        size = u32(size - half) if right != u32(0) else half
    return start


@cache
def walker(load: Any, combine: Any) -> Any:
    """walk(stack, x, base, n, at, inner, outer step, inner step): the tree over the n >= 1 terms from number `at` on.

    Term i lies at base + (i // inner) * outer step + (i % inner) * inner step.  Nodes are made from left to right; one
    that ends a larger node, as its number's trailing ones tell, is added to the left halves that wait: left + right.
    """

    def walk(stack, x, base, n, at, inner, step0, step1):
        depth = u32(0)
        while u32(n >> depth) > u32(1):  # its nodes have one or two terms
            depth = u32(depth + u32(1))
        nodes = u32(u32(1) << depth)
        turned = u32(0)  # the node's number, bits reversed
        top = u32(0)
        node = u32(0)
        while node < nodes:
            row = u32(at // inner)
            value = load(x, u32(base + row * step0 + u32(at - row * inner) * step1))
            at = u32(at + u32(1))
            if u32((i64(n) + i64(nodes) - i64(1) - i64(turned)) >> i64(depth)) > u32(1):
                row = u32(at // inner)
                value = combine(value, load(x, u32(base + row * step0 + u32(at - row * inner) * step1)))
                at = u32(at + u32(1))
            bit = u32(nodes >> u32(1))
            rest = node
            while (rest & u32(1)) != u32(0):
                top = u32(top - u32(1))
                value = combine(stack[top], value)
                rest = u32(rest >> u32(1))
                turned = u32(turned - bit)
                bit = u32(bit >> u32(1))
            turned = u32(turned + bit)
            stack[top] = value
            top = u32(top + u32(1))
            node = u32(node + u32(1))
        return stack[0]

    return device(walk)


def _gate() -> list[tuple[str, str, str]]:
    sums = [(dtype, "sum", dtype) for dtype in DTYPES if dtype != "bool"]
    halves = [(half, "sum", "float32") for half in HALVES] + [("float32", "sum", half) for half in HALVES]
    others = [("float32", kind, "float32") for kind in ("prod", "max", "min")]
    return [*sums, *halves, *others, ("float64", "max", "float64"), ("bool", "max", "bool"), ("int64", "min", "bool")]


@family(gate=_gate())
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
            row = u32(c // inner_c)
            base = u32(row * sc0 + u32(c - row * inner_c) * sc1)
            store(out, task, walk(stack, x, base, node_size(n, j, d), node_start(n, j, d), inner_t, st0, st1))
            task = u32(task + u32(cuda.gridsize(1)))

    return kernel, (*(u32,) * 10, cells(dtype), cells(to))


@device
def _same(x, i):
    return x[i]


@family(gate=_gate(), bounds=BLOCK)
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
            row = u32(c // inner_c)
            base = u32(row * sc0 + u32(c - row * inner_c) * sc1)
            size = node_size(n, j, d)
            first = node_start(n, j, d)
            i = thread
            while i < size:
                at = u32(first + i)
                row = u32(at // inner_t)
                staged[i] = load(x, u32(base + row * st0 + u32(at - row * inner_t) * st1))
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


# --- where the greatest stands ----------------------------------------------------------------------------------------


def _better(dtype: str, largest: bool) -> Any:
    """better(a, b): whether a comes before b whatever their places; a NaN comes before all (NUM-ORDER)."""

    def greater(a, b):
        return (a > b) | ((a != a) & (b == b))

    def less(a, b):
        return (a < b) | ((a != a) & (b == b))

    return device(greater if largest else less)


@family(gate=[(dtype, True) for dtype in ("float32", "float64", "bfloat16", "int32", "bool")] + [("float32", False)])
def arg_threads(dtype: str, largest: bool) -> Made:
    """out[c] = the lowest place of the best of column c's n terms, a thread for each column."""
    load, better = loader(dtype), _better(dtype, largest)

    def kernel(n, columns, inner_c, sc0, sc1, inner_t, st0, st1, x, out):
        c = u32(cuda.grid(1))
        while c < columns:
            row = u32(c // inner_c)
            base = u32(row * sc0 + u32(c - row * inner_c) * sc1)
            best = load(x, base)
            place = u32(0)
            i = u32(1)
            while i < n:
                row = u32(i // inner_t)
                value = load(x, u32(base + row * st0 + u32(i - row * inner_t) * st1))
                if better(value, best):
                    best = value
                    place = i
                i = u32(i + u32(1))
            out[c] = s64(place)
            c = u32(c + u32(cuda.gridsize(1)))

    return kernel, (*(u32,) * 8, cells(dtype), cells("int64"))


@family(gate=[("float32", True), ("float32", False), ("float16", True)], bounds=BLOCK)
def arg_blocks(dtype: str, largest: bool) -> Made:
    """As `arg_threads`, a block for each column; among equals the lowest place, however they meet."""
    load, better, number = loader(dtype), _better(dtype, largest), NUMBER[wide(dtype)]

    def kernel(n, columns, inner_c, sc0, sc1, inner_t, st0, st1, x, out):
        values = cuda.shared.array(BLOCK, number)
        places = cuda.shared.array(BLOCK, u32)
        thread = u32(cuda.threadIdx.x)
        c = u32(cuda.blockIdx.x)
        while c < columns:
            row = u32(c // inner_c)
            base = u32(row * sc0 + u32(c - row * inner_c) * sc1)
            if thread < n:
                row = u32(thread // inner_t)
                best = load(x, u32(base + row * st0 + u32(thread - row * inner_t) * st1))
                place = thread
                i = u32(thread + u32(BLOCK))
                while i < n:
                    row = u32(i // inner_t)
                    value = load(x, u32(base + row * st0 + u32(i - row * inner_t) * st1))
                    if better(value, best):
                        best = value
                        place = i
                    i = u32(i + u32(BLOCK))
                values[thread] = best
                places[thread] = place
            cuda.syncthreads()
            apart = u32(BLOCK // 2)
            while apart > u32(0):
                other = u32(thread + apart)
                if thread < apart and other < n:
                    a, b = values[thread], values[other]
                    if better(b, a) or (not better(a, b) and places[other] < places[thread]):
                        values[thread] = b
                        places[thread] = places[other]
                cuda.syncthreads()
                apart = u32(apart >> u32(1))
            if thread == u32(0):
                out[c] = s64(places[0])
            cuda.syncthreads()
            c = u32(c + u32(cuda.gridDim.x))

    return kernel, (*(u32,) * 8, cells(dtype), cells("int64"))


def _arg(x: DeviceArray, dim: int, largest: bool) -> Any:
    n = x.shape[dim]
    if n == 0:
        return NotImplemented  # the reference says why
    dim %= x.ndim
    source, terms, across, shape = ranges(x, [dim])
    out = empty(shape, dtype_of("int64"))
    if out.size:
        arguments = (n, out.size, *across, *terms, source, out)
        if n >= (8 if SIMULATED else BLOCK):
            arg_blocks.launch((x.dtype.name, largest), min(out.size, 1 << 20), BLOCK, *arguments)
        else:
            arg_threads.launch((x.dtype.name, largest), *grid_of(out.size), *arguments)
    return out


@primitive
def argmax(x: DeviceArray, *, dim: int) -> Any:
    return _arg(x, dim, True)


@primitive
def argmin(x: DeviceArray, *, dim: int) -> Any:
    return _arg(x, dim, False)
