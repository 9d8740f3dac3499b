"""The canonical tree in compiled code: no tables, only the sizes of its nodes.

Implements NUM-TREE for the CPU kernels.  At depth d the j-th node of a tree over n terms has (n + c(j)) >> d terms,
where c(j) is the complement of j with its d bits in reverse order: halving so often gives ceil((n - b) / 2) for a
branch b, and the sum of those choices.  So a fold goes through its terms once, from left to right: leaves of up to 16
terms are written out, and a leaf joins the partial sums on a stack as a carry joins a binary counter.

The functions are a text for `specialise`: `load(x, i)`, `combine(a, b)` and `pile()` (64 wide elements) mean what their
user says.
"""

# ruff: noqa: F821  (names of the scope)

from __future__ import annotations

from .elements import get, put


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


def tree(x, i, s, n):
    """The tree over n >= 1 terms, the first at i and each s further."""
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
            choice ^= ((2 << level) - 1) << (d - 1 - level)
    return value


def loop(x, i, s, n):
    """The same for a fold whose order does not show."""
    value = load(x, i)
    if s == 1:
        for k in range(1, n):
            value = combine(value, load(x, i + k))
    else:
        for k in range(1, n):
            value = combine(value, load(x, i + k * s))
    return value


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


LEAVES = (four, few, leaf)
WALK = (depth_to, node_start, node_size)
TREE = (*LEAVES, *WALK, tree)
