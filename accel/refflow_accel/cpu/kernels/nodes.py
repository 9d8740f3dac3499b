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


def t1(x, i, s):
    return load(x, i)


def t2(x, i, s):
    return combine(load(x, i), load(x, i + s))


def t3(x, i, s):
    return combine(t2(x, i, s), load(x, i + 2 * s))


def t4(x, i, s):
    return combine(t2(x, i, s), t2(x, i + 2 * s, s))


def t5(x, i, s):
    return combine(t3(x, i, s), t2(x, i + 3 * s, s))


def t6(x, i, s):
    return combine(t3(x, i, s), t3(x, i + 3 * s, s))


def t7(x, i, s):
    return combine(t4(x, i, s), t3(x, i + 4 * s, s))


def t8(x, i, s):
    return combine(t4(x, i, s), t4(x, i + 4 * s, s))


def t9(x, i, s):
    return combine(t5(x, i, s), t4(x, i + 5 * s, s))


def t10(x, i, s):
    return combine(t5(x, i, s), t5(x, i + 5 * s, s))


def t11(x, i, s):
    return combine(t6(x, i, s), t5(x, i + 6 * s, s))


def t12(x, i, s):
    return combine(t6(x, i, s), t6(x, i + 6 * s, s))


def t13(x, i, s):
    return combine(t7(x, i, s), t6(x, i + 7 * s, s))


def t14(x, i, s):
    return combine(t7(x, i, s), t7(x, i + 7 * s, s))


def t15(x, i, s):
    return combine(t8(x, i, s), t7(x, i + 8 * s, s))


def t16(x, i, s):
    return combine(t8(x, i, s), t8(x, i + 8 * s, s))


def leaf(x, i, s, n):
    """The tree over n terms, 1 to 16, the first at i and each s further."""
    if n == 16:
        return t16(x, i, s)
    if n > 8:
        if n > 12:
            if n == 13:
                return t13(x, i, s)
            return t14(x, i, s) if n == 14 else t15(x, i, s)
        if n > 10:
            return t11(x, i, s) if n == 11 else t12(x, i, s)
        return t9(x, i, s) if n == 9 else t10(x, i, s)
    if n > 4:
        if n > 6:
            return t7(x, i, s) if n == 7 else t8(x, i, s)
        return t5(x, i, s) if n == 5 else t6(x, i, s)
    if n > 2:
        return t3(x, i, s) if n == 3 else t4(x, i, s)
    return t1(x, i, s) if n == 1 else t2(x, i, s)


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
    if n <= 16:
        return leaf(x, i, s, n)
    d = depth_to(n, 16)
    last = (1 << d) - 1
    least, over = n >> d, n & last
    stack = pile()
    choice = last
    for j in range(last):
        size = least + ((over + choice) >> d)
        value = leaf(x, i, s, size)
        i += size * s
        level = 0
        while (j >> level) & 1:
            value = combine(stack[level], value)
            level += 1
        stack[level] = value
        choice ^= ((2 << level) - 1) << (d - 1 - level)
    value = leaf(x, i, s, least)
    for level in range(d):
        value = combine(stack[level], value)
    return value


def loop(x, i, s, n):
    """The same for a fold whose order does not show."""
    value = load(x, i)
    for k in range(1, n):
        value = combine(value, load(x, i + k * s))
    return value


LEAVES = (t1, t2, t3, t4, t5, t6, t7, t8, t9, t10, t11, t12, t13, t14, t15, t16, leaf)
WALK = (depth_to, node_start, node_size)
TREE = (*LEAVES, *WALK, tree)


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
