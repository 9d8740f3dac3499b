"""The place of an extreme: argmax and argmin.

Implements ACC-REDUCE of spec/text/acceleration.md for NUM-ORDER: the lowest index wins, NaN is beyond every number, and
the zeros are equal.  Operands are read where they lie; `reduction.space` says how.
"""

# ruff: noqa: F821  (names of the scope)

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from ..abi import Entry, i64, i64s
from ..halves import device
from ..registry import kernel
from . import elements, nodes
from .elements import LOAD, READ, entry_of, itemstrides, name_of, put, specialise, wide
from .reduction import Array, space

FEW = 16  # terms that are looked through once


def extreme_place(words, lo, hi):
    """Task o: a result: of few terms in ascending order, so that of equals the first one stays; else its value first.

    Words: x, out, n, step, number of kept dimensions, those (size, step in x, step in the result).
    """
    x, out = read(words, 0), i64s(words, 1)
    n, step, kept = i64(words, 2), i64(words, 3), i64(words, 4)
    for o in range(lo, hi):
        rest, at = o, 0
        for k in range(kept - 1, 0, -1):
            size = i64(words, 5 + 3 * k)
            at += (rest % size) * i64(words, 6 + 3 * k)
            rest = rest // size
        if kept > 0:
            at += rest * i64(words, 6)
        best, where = load(x, at), 0
        if n == 4:  # windows of 2 x 2
            where = best_of_four(best, load(x, at + step), load(x, at + 2 * step), load(x, at + 3 * step))
        elif n <= FEW:  # no branches: which of so few is the greatest cannot be foreseen
            for i in range(1, n):
                value = load(x, at + i * step)
                better = beats(value, best) & (best == best)
                best = value if better else best
                where = i if better else where
        else:
            best = walk(x, at, step, n)
            while where < n - 1 and differ(load(x, at + where * step), best):
                where += 1
        put(out, o, where)
    return 0


@device
def above(a, b):
    return (a > b) | (a != a)


@device
def below(a, b):
    return (a < b) | (a != a)


@device
def differ(a, b):
    return (a != b) & ((a == a) | (b == b))


def best_of_four(a, b, c, d):
    """The place of the extreme of four: the lower of a pair unless the upper beats it, and so of pairs."""
    right, last = beats(b, a) & (a == a), beats(d, c) & (c == c)
    left, other = b if right else a, d if last else c
    here = np.int64(1) if right else np.int64(0)
    there = np.int64(3) if last else np.int64(2)
    return there if beats(other, left) & (left == left) else here


@cache
def placing(kind: str, dtype: str) -> Entry:
    inner = wide(dtype)
    scope = {"read": READ[dtype], "load": LOAD[dtype], "combine": elements.combine(kind, inner), "upper": kind == "max"}
    scope |= {"beats": above if kind == "max" else below, "differ": differ}
    inside = specialise((*nodes.LOOP, best_of_four), scope)
    inside["walk"] = inside[nodes.walk_of(inner)]
    return entry_of(extreme_place, f"{kind}_{dtype}", {**inside, "i64": i64, "i64s": i64s, "FEW": FEW})


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
