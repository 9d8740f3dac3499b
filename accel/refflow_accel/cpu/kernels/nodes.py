"""The canonical tree in compiled code: no tables, only the sizes of its nodes.

Implements NUM-TREE for the CPU kernels.  At depth d the j-th node of a tree over n terms has (n + c(j)) >> d terms,
where c(j) is the complement of j with its d bits in reverse order: halving so often gives ceil((n - b) / 2) for a
branch b, and the sum of those choices.  So a fold goes through its terms once, from left to right: leaves of up to 16
terms are written out, and a leaf joins the partial sums on a stack as a carry joins a binary counter: leaf j is the last
one of as many nodes as j ends in ones, and each of them is its left half, which waits on the stack, plus its right half,
which has just been made.  The stack then holds one partial sum for each one in j + 1.

A scatter has only some of the leaves.  A leaf's *slot* is its path from the root, so two leaves meet at the highest bit
in which their slots differ, and `push` and `drain` join neighbours there.

The functions are a text for `specialise`: `load(x, i)`, `combine(a, b)` and `pile()` (64 wide elements) mean what their
user says.
"""

# ruff: noqa: F821  (names of the scope)

from __future__ import annotations

import numpy as np

from .elements import get, highest, key_of, lowest, of_key, put

BLOCK = 256  # elements of a row that are folded together: one of a stack of 33 rows, which the first two caches hold


def four(x, i, s):
    """The tree over 4 terms, the first at i and each s further."""
    return combine(combine(load(x, i), load(x, i + s)), combine(load(x, i + 2 * s), load(x, i + 3 * s)))


def few(x, i, s, n):
    """The tree over 1 to 4."""
    value = load(x, i)
    if n == 1:
        return value
    value = combine(value, load(x, i + s))
    if n == 2:
        return value
    if n == 3:
        return combine(value, load(x, i + 2 * s))
    return combine(value, combine(load(x, i + 2 * s), load(x, i + 3 * s)))


def leaf(x, i, s, n):
    """The tree over 1 to 16."""
    if n == 16:
        left = combine(four(x, i, s), four(x, i + 4 * s, s))
        return combine(left, combine(four(x, i + 8 * s, s), four(x, i + 12 * s, s)))
    if n <= 4:
        return few(x, i, s, n)
    if n <= 8:
        half = (n + 1) >> 1
        return combine(few(x, i, s, half), few(x, i + half * s, s, n - half))
    a, b, c, d = (n + 3) >> 2, (n + 1) >> 2, (n + 2) >> 2, n >> 2
    left = combine(few(x, i, s, a), few(x, i + a * s, s, b))
    i += (a + b) * s
    return combine(left, combine(few(x, i, s, c), few(x, i + c * s, s, d)))


def depth_to(n, most):
    """How often n is halved until no node has more than `most` terms."""
    d = 0
    while ((n - 1) >> d) + 1 > most:
        d += 1
    return d


def node_start(n, d, j):
    """Where the j-th node at depth d begins, by walking down to it."""
    start = 0
    for level in range(d - 1, -1, -1):
        half = (n + 1) // 2
        if (j >> level) & 1:
            start += half
            n -= half
        else:
            n = half
    return start


def node_size(n, d, j):
    """How many terms it has."""
    for level in range(d - 1, -1, -1):
        n = n // 2 if (j >> level) & 1 else (n + 1) // 2
    return n


def next_choice(choice, level, d):
    """c(j + 1) of c(j), j ending in `level` ones: those d bits count upwards from the other end, inverted."""
    return choice ^ (((2 << level) - 1) << (d - 1 - level))


def tree(x, i, s, n):
    """The tree over n >= 1 terms, the first at i and each s further: leaves in order, each joined to its left."""
    d = depth_to(n, 16)
    last = (1 << d) - 1
    least, over, choice = n >> d, n & last, last
    stack = pile()
    value = load(x, i)
    for j in range(last + 1):
        size = least + ((over + choice) >> d)
        value = leaf(x, i, s, size)
        i += size * s
        level = 0
        while (j >> level) & 1:
            value = combine(get(stack, level), value)
            level += 1
        if j < last:
            put(stack, level, value)
            choice = next_choice(choice, level, d)
    return value


def join_rows(stack, j, x, a, y, b, rows, count):
    """Leaf j of `count` trees at once, x[a ..] or x[a ..] + y[b ..], joined to its left siblings; the level it then has.

    The stack has a row of BLOCK partial sums for each level.  Left operands are the older ones (NUM-TREE).
    """
    level = 0
    while (j >> level) & 1:
        level += 1
    top = BLOCK * level
    if rows == 2:
        for c in range(count):
            put(stack, top + c, combine(load(x, a + c), load(y, b + c)))
    else:
        for c in range(count):
            put(stack, top + c, load(x, a + c))
    for below in range(0, top, BLOCK):
        for c in range(count):
            put(stack, top + c, combine(get(stack, below + c), get(stack, top + c)))
    return level


def loop(x, i, s, n):
    """The tree for a fold whose order does not show: a maximum, a minimum, integers."""
    value = load(x, i)
    if s == 1:
        for k in range(1, n):
            value = combine(value, load(x, i + k))
    else:
        for k in range(1, n):
            value = combine(value, load(x, i + k * s))
    return value


def loop_keys(x, i, s, n):
    """The maximum or minimum of float32 by their keys, which vectors compare at once; a NaN is beyond either infinity."""
    if s != 1:
        return loop(x, i, s, n)
    most = key_of(load(x, i))
    least = most
    for k in range(n):  # the first again, which changes nothing: n is more often than n - 1 a multiple of vectors
        key = key_of(load(x, i + k))
        most, least = highest(most, key), lowest(least, key)
    if most > key_of(np.float32(np.inf)) or least < key_of(np.float32(-np.inf)):
        return np.float32(np.nan)
    return of_key(most if upper else least)


LOOP = (loop, loop_keys)


def walk_of(dtype: str) -> str:
    """Which of them folds the maximum or minimum of elements computed in `dtype`."""
    return "loop_keys" if dtype == "float32" else "loop"


def slot_of(n, k):
    """The slot of leaf k where the canonical tree over n terms is laid into a full one; a lone leaf goes left."""
    slot, size = 0, n
    for _ in range(depth_to(n, 1)):
        half = (size + 1) // 2
        slot *= 2
        if k >= half:
            slot += 1
            k, size = k - half, size - half
        else:
            size = half
    return slot


def push(stack, meets, top, value, meet):
    """The height of the stack with one more term, which parts from the one before at the highest bit of `meet`.

    Terms on it that part at a lower bit meet first: no later term can come between them (NUM-SCATTER).  Slots ascend,
    so no two neighbours part at one bit, and numbers compare as their highest bits do.
    """
    while top > 1 and get(meets, top - 1) < meet:
        put(stack, top - 2, combine(get(stack, top - 2), get(stack, top - 1)))
        top -= 1
    put(stack, top, value)
    put(meets, top, meet)
    return top + 1


def drain(stack, top):
    """What is left on the stack as one, from the right; `nothing` if there is nothing."""
    while top > 1:
        put(stack, top - 2, combine(get(stack, top - 2), get(stack, top - 1)))
        top -= 1
    return get(stack, 0) if top else nothing


LEAVES = (four, few, leaf)
WALK = (depth_to, node_start, node_size)
TREE = (*LEAVES, *WALK, next_choice, tree)
ROWS = (depth_to, next_choice, join_rows)
SPARSE = (push, drain)
