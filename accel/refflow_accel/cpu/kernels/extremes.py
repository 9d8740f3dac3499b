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
from .elements import LOAD, READ, entry_of, itemstrides, name_of, put
from .reduction import Array, space


def extreme_place(words, lo, hi):
    """Task o: a result, its terms in ascending order, so that of equals the first one stays.

    Words: x, out, n, step, number of kept dimensions, those (size, step in x, step in the result).
    """
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


@device
def above(a, b):
    return a > b or a != a


@device
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
