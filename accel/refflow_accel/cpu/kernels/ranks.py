"""The fold over ranks: what boxing does with partial values, and micro-steps with what they add up.

Implements ACC-REDUCE of spec/text/acceleration.md for NUM-FOLD: a canonical tree over the position of the parts, of
each element by itself.
"""

# ruff: noqa: F821  (names of the scope)

from __future__ import annotations

from functools import cache
from typing import Any

from ..abi import Entry, i64
from ..registry import kernel
from . import elements, nodes
from .elements import LOAD, NUMBA, READ, STORE, buffer, entry_of, get, name_of, specialise, wide
from .movement import contiguous
from .nodes import BLOCK
from .reduction import Array

KINDS = ("sum", "prod", "max", "min")


def fold_parts(words, lo, hi):
    """Task t: a block of elements, each the tree over its parts by position (NUM-FOLD).

    Words: out, number of parts, size, then the parts.  As `reduction.fold_columns`, a part being a row.
    """
    out = write(words, 0)
    n, total = i64(words, 1), i64(words, 2)
    stack = piles()
    d = depth_to(n, 2)
    end = (1 << d) - 1
    least, over = n >> d, n & end
    for t in range(lo, hi):
        at = t * BLOCK
        count = min(total - at, BLOCK)
        choice, part = end, 3
        for j in range(end + 1):
            rows = least + ((over + choice) >> d)
            level = join_rows(stack, j, read(words, part), at, read(words, part + rows - 1), at, rows, count)
            part += rows
            if j < end:
                choice = next_choice(choice, level, d)
        for c in range(count):
            store(out, at + c, get(stack, BLOCK * d + c))
    return 0


@cache
def folding_parts(kind: str, dtype: str) -> Entry:
    inner = wide(dtype)
    scope = {"read": READ[dtype], "write": READ[dtype], "load": LOAD[dtype], "store": STORE[dtype]}
    scope |= {"piles": buffer(NUMBA[inner], 33 * BLOCK), "combine": elements.combine(kind, inner)}
    return entry_of(fold_parts, f"{kind}_{dtype}", specialise(nodes.ROWS, scope))


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
