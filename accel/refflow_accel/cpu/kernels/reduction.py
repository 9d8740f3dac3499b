"""Reduction kernels: dimensions folded away in the canonical order, without copying the operand.

Implements ACC-REDUCE of spec/text/acceleration.md (NUM-TREE, NUM-FOLD and NUM-ORDER in compiled code).  A fold reads
its operand in one of two forms: *rows*, a result at a time, where neighbours in memory are folded; *columns*, a block
of results at a time, where neighbours in memory are results.  A long fold with few results is first cut at one depth of
its tree, so that threads may share it.
"""

# ruff: noqa: F821  (names of the scope)

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import numpy as np

from ..abi import Entry, i64, i64s
from ..registry import kernel
from . import elements, nodes
from .creation import filled
from .elements import LOAD, NUMBA, READ, STORE, buffer, entry_of, get, itemstrides, name_of, put, specialise, wide
from .movement import contiguous

BLOCK = 256  # columns folded together
Array = np.ndarray[Any, Any]


# --- where the elements lie -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fold:
    """A reduction's index space, neighbouring dimensions made one: (size, step in x, step in the result) of those kept,
    (size, step in x) of those folded, `n` terms to each of `results`."""

    columns: bool
    kept: tuple[tuple[int, int, int], ...]
    folded: tuple[tuple[int, int], ...]
    n: int
    results: int
    shape: tuple[int, ...]


@lru_cache(maxsize=4096)
def space(shape: tuple[int, ...], steps: tuple[int, ...], dims: tuple[int, ...]) -> Fold:
    """How to walk an operand: the last kept dimension of `columns` is the one folded in blocks."""
    left = tuple(d for d in range(len(shape)) if d not in dims)
    out, step = [], 1
    for d in reversed(left):
        out.append((shape[d], steps[d], step))
        step *= shape[d]
    kept = _merged(out[::-1])
    folded = tuple((size, step) for size, step, _ in _merged([(shape[d], steps[d], 0) for d in dims])) or ((1, 0),)
    n = math.prod(shape[d] for d in dims)
    columns = False
    if kept and n > 1:
        nearest = min(range(len(kept)), key=lambda k: (kept[k][1] != 1, -kept[k][0]))
        columns = kept[nearest][1] == 1 and abs(folded[-1][1]) > 1 and kept[nearest][0] >= 8
        if columns:
            kept = (*kept[:nearest], *kept[nearest + 1 :], kept[nearest])
    return Fold(columns, kept, folded, n, step, tuple(shape[d] for d in left))


def _merged(dims: list[tuple[int, int, int]]) -> tuple[tuple[int, int, int], ...]:
    """Neighbours that lie behind one another as one dimension; those of size 1 dropped."""
    out: list[tuple[int, int, int]] = []
    for size, step, other in dims:
        if size == 1:
            continue
        if out and out[-1][1] == step * size and out[-1][2] == other * size:
            out[-1] = (out[-1][0] * size, step, other)
        else:
            out.append((size, step, other))
    return tuple(out)


# --- rows -------------------------------------------------------------------------------------------------------------

# words of both forms: x, the result, the partial results of a cut fold, n, depth of the cut, number of kept dimensions,
# of folded ones, then those


def fold_rows(words, lo, hi):
    """Task t: node t mod 2^cut of result t div 2^cut."""
    x, out, parts = read(words, 0), write(words, 1), read_wide(words, 2)
    n, cut, kept, folded = i64(words, 3), i64(words, 4), i64(words, 5), i64(words, 6)
    last = 7 + 3 * kept
    for t in range(lo, hi):
        o, j = t >> cut, t & ((1 << cut) - 1)
        at, to = 0, 0
        for k in range(kept - 1, -1, -1):
            size = i64(words, 7 + 3 * k)
            i = o
            if k > 0:
                o, i = o // size, o % size
            at += i * i64(words, 8 + 3 * k)
            to += i * i64(words, 9 + 3 * k)
        start, count = 0, n
        if cut > 0:
            start, count = node_start(n, cut, j), node_size(n, cut, j)
        value = node(x, at, words, last, folded, start, count)
        if cut > 0:
            put(parts, t, value)
        else:
            store(out, to, value)
    return 0


def place(words, first, folded, k):
    """Where the k-th term of a range of several dimensions lies."""
    if folded == 1:
        return k * i64(words, first + 1)
    at = 0
    for d in range(folded - 1, -1, -1):
        size = i64(words, first + 2 * d)
        at += (k % size) * i64(words, first + 2 * d + 1)
        k = k // size
    return at


def tree_node(x, at, words, first, folded, start, n):
    """The tree over n terms from `start` on."""
    if folded > 1:
        return tree_runs(x, at, words, first, folded, start, n)
    step = i64(words, first + 1)
    return tree(x, at + start * step, step, n)


def tree_runs(x, at, words, first, folded, start, n):
    """`tree` over a range of several dimensions, its leaves brought together."""
    size, step = i64(words, first + 2 * folded - 2), i64(words, first + 2 * folded - 1)
    d = depth_to(n, 16)
    last = (1 << d) - 1
    least, over, choice = n >> d, n & last, last
    stack, terms = pile(), pile()
    value = load(x, at)
    inside, here = start % size, at + place(words, first, folded, start)
    for j in range(last + 1):
        count = least + ((over + choice) >> d)
        for k in range(count):
            put(terms, k, load(x, here))
            start += 1
            inside += 1
            here += step
            if inside == size:
                inside, here = 0, at + place(words, first, folded, start)
        value = leaf_here(terms, 0, 1, count)
        level = 0
        while (j >> level) & 1:
            value = combine(get(stack, level), value)
            level += 1
        if j < last:
            put(stack, level, value)
            choice ^= ((2 << level) - 1) << (d - 1 - level)
    return value


def loop_node(x, at, words, first, folded, start, n):
    """The same for a fold whose order does not show, run by run."""
    size, step = i64(words, first + 2 * folded - 2), i64(words, first + 2 * folded - 1)
    stop = start + n
    count = min(n, size - start % size)
    value = loop(x, at + place(words, first, folded, start), step, count)
    start += count
    while start < stop:
        count = min(stop - start, size)
        value = combine(value, loop(x, at + place(words, first, folded, start), step, count))
        start += count
    return value


# --- columns ----------------------------------------------------------------------------------------------------------


def fold_columns(words, lo, hi):
    """Task t: node t mod 2^cut of a block of columns; blocks run through the last kept dimension first.

    Leaves are one row or two; the stack holds a block of partial sums at each level.
    """
    x, out, parts = read(words, 0), write(words, 1), read_wide(words, 2)
    n, cut, kept, folded = i64(words, 3), i64(words, 4), i64(words, 5), i64(words, 6)
    last = 7 + 3 * kept
    width, across = i64(words, last - 3), i64(words, last - 1)
    blocks = (width + 255) // 256
    stack = piles()
    for t in range(lo, hi):
        o = t >> cut
        o, block = o // blocks, o % blocks
        count = min(width - block * 256, 256)
        at, to = block * 256, block * 256 * across
        for k in range(kept - 2, -1, -1):
            size = i64(words, 7 + 3 * k)
            o, i = o // size, o % size
            at += i * i64(words, 8 + 3 * k)
            to += i * i64(words, 9 + 3 * k)
        start, d = 0, 0
        terms = n
        for k in range(cut - 1, -1, -1):  # down to this node
            half = (terms + 1) >> 1
            if (t >> k) & 1:
                start, half = start + half, terms - half
            terms = half
        while (terms - 1) >> d > 1:
            d += 1
        end = (1 << d) - 1
        least, over, choice = terms >> d, terms & end, end
        for j in range(end + 1):
            rows = least + ((over + choice) >> d)
            a, b = at + place(words, last, folded, start), 0
            if rows == 2:
                b = at + place(words, last, folded, start + 1)
            start += rows
            level = 0
            while (j >> level) & 1:
                level += 1
            top = 256 * level
            if rows == 2:
                for c in range(count):
                    put(stack, top + c, combine(load(x, a + c), load(x, b + c)))
            else:
                for c in range(count):
                    put(stack, top + c, load(x, a + c))
            for below in range(0, top, 256):
                for c in range(count):
                    put(stack, top + c, combine(get(stack, below + c), get(stack, top + c)))
            if j < end:
                choice ^= ((2 << level) - 1) << (d - 1 - level)
        top = 256 * d
        if cut > 0:
            to += (t & ((1 << cut) - 1)) * i64(words, last + 2 * folded)
            for c in range(count):
                put(parts, to + c * across, get(stack, top + c))
        else:
            for c in range(count):
                store(out, to + c * across, get(stack, top + c))
    return 0


# --- their meaning for a dtype ----------------------------------------------------------------------------------------


@elements.device
def load_truth(x, i):
    return np.uint8(get(x, i) != 0)


@elements.device
def load_truth_half(x, i):
    return np.uint8((get(x, i) & 0x7FFF) != 0)


@cache
def folding(columns: bool, kind: str, source: str, made: str, truth: bool = False) -> Entry:
    """The kernel of a form, for a fold of elements `source` (in their wide form) stored as `made`."""
    inner = "bool" if truth else wide(source)
    names = {"combine": elements.combine(kind, inner), "pile": buffer(NUMBA[inner], 64)}
    scope = {**names, "load": LOAD[source], "read": READ[source], "write": READ[made], "read_wide": READ[inner]}
    scope |= {"store": STORE[made], "i64": i64, "piles": buffer(NUMBA[inner], 33 * BLOCK)}
    if truth:
        scope["load"] = load_truth_half if source in ("float16", "bfloat16") else load_truth
    suffix = f"{kind}_{source}_{made}{'_truth' if truth else ''}"
    if columns:
        inside = specialise((place,), scope)
        return entry_of(fold_columns, suffix, inside)
    ordered = kind in ("sum", "prod") and inner in ("float32", "float64")
    if ordered:  # leaves brought in are in their wide form
        scope["leaf_here"] = specialise(nodes.LEAVES, {**names, "load": elements.load_same})["leaf"]
    texts = (*nodes.TREE, place, tree_runs, tree_node) if ordered else (*nodes.WALK, nodes.loop, place, loop_node)
    inside = specialise(texts, scope)
    inside["node"] = inside[texts[-1].__name__]
    return entry_of(fold_rows, suffix, inside)


# --- the kernels ------------------------------------------------------------------------------------------------------

ENOUGH = 1 << 15  # terms a thread should have


def fold_dims(call: Any, x: Array, dims: Sequence[int], kind: str, *, truth: bool = False) -> Any:
    """The fold of `x` over `dims`, which are removed."""
    if name_of(x.dtype) not in READ:
        return NotImplemented
    at = space(x.shape, itemstrides(x.strides, x.itemsize), tuple(dims))
    out = call.empty(at.shape, np.bool_ if truth else x.dtype)
    if at.n == 0:
        return filled(call, out, identity_word(kind, name_of(out.dtype)))
    launch(call, x, out, at, kind, name_of(x.dtype), name_of(out.dtype), truth)
    return out


def launch(call: Any, x: Array, out: Array, at: Fold, kind: str, source: str, made: str, truth: bool) -> None:
    """Runs a fold, first cut into nodes of its tree if it has fewer tasks than would keep threads busy."""
    width = at.kept[-1][0] if at.columns else 1
    tasks = at.results // width * -(-width // BLOCK) if width else 0
    cost = at.n * (0.1 * min(width, BLOCK) if at.columns else 0.4) + 5
    cut = 0
    while tasks << cut < 16 and at.n >> cut > ENOUGH // min(width, BLOCK):
        cut += 1
    inner = "bool" if truth else wide(source)
    # a cut fold's partial results: rows leave theirs next to each other, columns a row of results for each node
    parts: Any = call.scratch(at.results << cut, inner) if cut and tasks else 0
    kept = [word for dim in at.kept for word in dim]
    folded = [word for dim in at.folded for word in dim]
    words = (at.n, cut, len(at.kept), len(at.folded), *kept, *folded, at.results)
    call.launch(
        folding(at.columns, kind, source, made, truth), x, out, parts, *words, tasks=tasks << cut, cost=cost / (1 << cut)
    )
    if cut and tasks:
        count = 1 << cut
        shape, steps = ((count, at.results), (at.results, 1)) if at.columns else ((at.results, count), (count, 1))
        rest = space(shape, steps, (0 if at.columns else 1,))
        launch(call, parts, out, rest, kind, inner, made, False)


@cache
def identity_word(kind: str, dtype: str) -> int:
    """The bits of the neutral element."""
    from refflow.numerics import dtypes

    made = np.asarray(dtypes.identity(kind, getattr(dtypes, "bool_" if dtype == "bool" else dtype)))
    return int(made.view(f"i{made.itemsize}")[()])


@kernel
def sum_(call: Any, x: Array, *, dims: Sequence[int]) -> Any:
    return fold_dims(call, x, dims, "sum")


@kernel
def prod(call: Any, x: Array, *, dims: Sequence[int]) -> Any:
    return fold_dims(call, x, dims, "prod")


@kernel
def amax(call: Any, x: Array, *, dims: Sequence[int]) -> Any:
    return fold_dims(call, x, dims, "max")


@kernel
def amin(call: Any, x: Array, *, dims: Sequence[int]) -> Any:
    return fold_dims(call, x, dims, "min")


@kernel
def any_(call: Any, x: Array, *, dims: Sequence[int]) -> Any:
    return fold_dims(call, x, dims, "max", truth=True)


@kernel
def all_(call: Any, x: Array, *, dims: Sequence[int]) -> Any:
    return fold_dims(call, x, dims, "min", truth=True)


# --- the place of an extreme ------------------------------------------------------------------------------------------


def extreme_place(words, lo, hi):
    """Task o: words x, out, n, step, number of kept dimensions, those (size, step in x, step in the result)."""
    x, out = read(words, 0), i64s(words, 1)
    n, step, kept = i64(words, 2), i64(words, 3), i64(words, 4)
    for o in range(lo, hi):
        rest, at = o, 0
        for k in range(kept - 1, -1, -1):
            size = i64(words, 5 + 3 * k)
            at += (rest % size) * i64(words, 6 + 3 * k)
            rest = rest // size
        best, where = load(x, at), 0
        for i in range(1, n):
            if best != best:  # the first NaN
                break
            value = load(x, at + i * step)
            if beats(value, best):
                best, where = value, i
        put(out, o, where)
    return 0


@elements.device
def above(a, b):
    return a > b or a != a


@elements.device
def below(a, b):
    return a < b or a != a


@cache
def placing(kind: str, dtype: str) -> Entry:
    scope = {"read": READ[dtype], "load": LOAD[dtype], "beats": above if kind == "max" else below}
    return entry_of(extreme_place, f"{kind}_{dtype}", scope)


def place_of(call: Any, x: Array, dim: int, kind: str) -> Any:
    if name_of(x.dtype) not in READ or x.shape[dim] == 0:
        return NotImplemented
    steps = itemstrides(x.strides, x.itemsize)
    dim %= x.ndim
    at = space(x.shape, steps, (dim,))
    out = call.empty(at.shape, np.int64)
    # `columns` has moved a dimension to the end, but results are told by the row-major number of their index
    kept = tuple(sorted(at.kept, key=lambda size_steps: -size_steps[2]))
    words = (x.shape[dim], steps[dim], len(kept), *(word for size_steps in kept for word in size_steps))
    call.launch(placing(kind, name_of(x.dtype)), x, out, *words, tasks=at.results, cost=x.shape[dim] + 5.0)
    return out


@kernel
def argmax(call: Any, x: Array, *, dim: int) -> Any:
    return place_of(call, x, dim, "max")


@kernel
def argmin(call: Any, x: Array, *, dim: int) -> Any:
    return place_of(call, x, dim, "min")


# --- the fold over ranks ----------------------------------------------------------------------------------------------


def fold_parts(words, lo, hi):
    """Task t: a block of elements; words out, number of parts, size, then the parts."""
    out = write(words, 0)
    n, total = i64(words, 1), i64(words, 2)
    stack = piles()
    for t in range(lo, hi):
        at = t * 256
        count = min(total - at, 256)
        d = depth_to(n, 2)
        last = (1 << d) - 1
        least, over = n >> d, n & last
        choice = last
        level, part = 0, 3
        for j in range(last + 1):
            size = least + ((over + choice) >> d)
            a, b = read(words, part), read(words, part + size - 1)
            part += size
            level = 0
            while (j >> level) & 1:
                level += 1
            to = 256 * level
            if size == 2:
                for c in range(count):
                    put(stack, to + c, combine(load(a, at + c), load(b, at + c)))
            else:
                for c in range(count):
                    put(stack, to + c, load(a, at + c))
            for k in range(level):
                for c in range(count):
                    put(stack, to + c, combine(get(stack, 256 * k + c), get(stack, to + c)))
            if j < last:
                choice ^= ((2 << level) - 1) << (d - 1 - level)
        for c in range(count):
            store(out, at + c, get(stack, 256 * level + c))
    return 0


@cache
def folding_parts(kind: str, dtype: str) -> Entry:
    inner = wide(dtype)
    scope = {"read": READ[dtype], "write": READ[dtype], "load": LOAD[dtype], "store": STORE[dtype]}
    scope |= {"piles": buffer(NUMBA[inner], 33 * BLOCK), "combine": elements.combine(kind, inner)}
    return entry_of(fold_parts, f"{kind}_{dtype}", specialise(nodes.WALK, scope))


@kernel
def fold(call: Any, *parts: Array, kind: str) -> Any:
    first = parts[0] if parts else None
    if first is None or any(p.shape != first.shape or p.dtype != first.dtype for p in parts) or kind not in KINDS:
        return NotImplemented  # the reference tells what is wrong
    if len(parts) == 1:
        return first
    if name_of(first.dtype) not in READ:
        return NotImplemented
    out = call.empty(first.shape, first.dtype)
    rows = [contiguous(call, part) for part in parts]
    tasks = -(-first.size // BLOCK)
    words = (len(parts), first.size, *rows)
    call.launch(folding_parts(kind, name_of(first.dtype)), out, *words, tasks=tasks, cost=30.0 * len(parts))
    return out


KINDS = ("sum", "prod", "max", "min")
