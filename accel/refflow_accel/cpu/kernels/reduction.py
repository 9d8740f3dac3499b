"""Reduction kernels: dimensions folded away in the canonical order, without copying the operand.

Implements ACC-REDUCE of spec/text/acceleration.md (NUM-TREE in compiled code).  A fold reads its operand in one of two
forms: *rows*, a result at a time, where neighbours in memory are folded; *columns*, a block of results at a time, where
neighbours in memory are results.  A long fold with few results is first cut at one depth of its tree, so that threads
may share it.  The tree is `nodes`'; the fold over ranks is in `ranks`, the place of an extreme in `extremes`.
"""

# ruff: noqa: F821  (names of the scope)

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import numpy as np

from ..abi import Entry, i64
from ..halves import device
from ..registry import kernel
from . import elements, nodes
from .creation import filled
from .elements import LOAD, NUMBA, READ, STORE, buffer, entry_of, get, itemstrides, name_of, put, specialise, wide
from .nodes import BLOCK

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


PAIRED = 4096  # terms of the rows that are folded by pairs together: what is left of them fits the first cache

# --- rows -------------------------------------------------------------------------------------------------------------

# words of both forms: x, the result, the partial results of a cut fold, n, depth of the cut, number of kept dimensions,
# of folded ones, then those


def fold_rows(words, lo, hi):
    """Task t: node t mod 2^cut of result t div 2^cut."""
    x, out, parts = read(words, 0), write(words, 1), read_wide(words, 2)
    n, cut, kept, folded = i64(words, 3), i64(words, 4), i64(words, 5), i64(words, 6)
    last = 7 + 3 * kept
    if ORDERED and cut == 0 and close(words, n, kept, folded):
        most = PAIRED // n
        for t in range(lo, hi, most):
            by_pairs(x, t * n, out, t, n, min(most, hi - t))
        return 0
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


def close(words, n, kept, folded):
    """Whether the tree joins neighbours only, n being a power of two, and the rows lie behind one another."""
    if kept != 1 or folded != 1 or n < 8 or n > PAIRED or n & (n - 1) != 0:
        return False
    return i64(words, 8) == n and i64(words, 9) == 1 and i64(words, 11) == 1


def by_pairs(x, at, out, to, n, rows):
    """Some rows of 2^k terms: each level of all their trees as one pass over pairs, which vectors join at once."""
    above, below = pairs(), pairs()
    count = rows * n >> 1
    for k in range(count):
        put(above, k, combine(load(x, at + 2 * k), load(x, at + 2 * k + 1)))
    while count > rows:
        count >>= 1
        for k in range(count):
            put(below, k, combine(get(above, 2 * k), get(above, 2 * k + 1)))
        for k in range(count):
            put(above, k, get(below, k))
    for k in range(rows):
        store(out, to + k, get(above, k))


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
    """`nodes.tree` over a range of several dimensions: the same leaves in the same order, each brought together first."""
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
            choice = next_choice(choice, level, d)
    return value


def loop_node(x, at, words, first, folded, start, n):
    """The same for a fold whose order does not show, run by run."""
    size, step = i64(words, first + 2 * folded - 2), i64(words, first + 2 * folded - 1)
    stop = start + n
    count = min(n, size - start % size)
    value = walk(x, at + place(words, first, folded, start), step, count)
    start += count
    while start < stop:
        count = min(stop - start, size)
        value = combine(value, walk(x, at + place(words, first, folded, start), step, count))
        start += count
    return value


# --- columns ----------------------------------------------------------------------------------------------------------


def fold_columns(words, lo, hi):
    """Task t: node t mod 2^cut of a block of columns; blocks run through the last kept dimension first.

    Each column's tree is that of `nodes.tree`; columns are independent, so a row of them is joined at a time.
    """
    x, out, parts = read(words, 0), write(words, 1), read_wide(words, 2)
    n, cut, kept, folded = i64(words, 3), i64(words, 4), i64(words, 5), i64(words, 6)
    last = 7 + 3 * kept
    width, across = i64(words, last - 3), i64(words, last - 1)
    blocks = (width + BLOCK - 1) // BLOCK
    stack = piles()
    for t in range(lo, hi):
        o, node = t >> cut, t & ((1 << cut) - 1)
        o, block = o // blocks, o % blocks
        count = min(width - block * BLOCK, BLOCK)
        at, to = block * BLOCK, block * BLOCK * across
        for k in range(kept - 2, -1, -1):
            size = i64(words, 7 + 3 * k)
            o, i = o // size, o % size
            at += i * i64(words, 8 + 3 * k)
            to += i * i64(words, 9 + 3 * k)
        start, terms = node_start(n, cut, node), node_size(n, cut, node)
        d = depth_to(terms, 2)
        end = (1 << d) - 1
        least, over, choice = terms >> d, terms & end, end
        for j in range(end + 1):
            rows = least + ((over + choice) >> d)
            a = at + place(words, last, folded, start)
            b = at + place(words, last, folded, start + 1) if rows == 2 else a
            level = join_rows(stack, j, x, a, x, b, rows, count)
            start += rows
            if j < end:
                choice = next_choice(choice, level, d)
        top = BLOCK * d  # the last leaf ends at the root
        if cut > 0:
            to += node * i64(words, last + 2 * folded)
            for c in range(count):
                put(parts, to + c * across, get(stack, top + c))
        else:
            for c in range(count):
                store(out, to + c * across, get(stack, top + c))
    return 0


# --- their meaning for a dtype ----------------------------------------------------------------------------------------


@device
def load_truth(x, i):
    return np.uint8(get(x, i) != 0)


@device
def load_truth_half(x, i):
    return np.uint8((get(x, i) & 0x7FFF) != 0)


@cache
def folding(columns: bool, kind: str, source: str, made: str, truth: bool = False) -> Entry:
    """The kernel of a form, for a fold of elements `source` (in their wide form) stored as `made`."""
    inner = "bool" if truth else wide(source)
    names = {"combine": elements.combine(kind, inner), "pile": buffer(NUMBA[inner], 64)}
    scope = {**names, "load": LOAD[source], "read": READ[source], "write": READ[made], "read_wide": READ[inner]}
    scope |= {"upper": kind == "max", "store": STORE[made], "i64": i64, "piles": buffer(NUMBA[inner], 33 * BLOCK)}
    if truth:
        scope["load"] = load_truth_half if source in ("float16", "bfloat16") else load_truth
    suffix = f"{kind}_{source}_{made}{'_truth' if truth else ''}"
    if columns:
        inside = specialise((place, nodes.node_start, nodes.node_size, *nodes.ROWS), scope)
        return entry_of(fold_columns, suffix, inside)
    scope["ORDERED"] = ordered = kind in ("sum", "prod") and inner in ("float32", "float64")
    if ordered:  # leaves brought in are in their wide form
        scope["leaf_here"] = specialise(nodes.LEAVES, {**names, "load": elements.load_same})["leaf"]
        scope["pairs"] = buffer(NUMBA[inner], PAIRED // 2)
    tree, loop = (*nodes.TREE, place, tree_runs, tree_node), (*nodes.WALK, *nodes.LOOP, place, loop_node)
    texts = (close, by_pairs, *tree) if ordered else loop
    inside = specialise(texts, scope)
    if not ordered:
        inside["walk"] = inside[nodes.walk_of(inner)]
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
