"""The canonical tree as kernels walk it: the size and start of a node, and the fold of a node's terms by one thread.

Implements NUM-TREE for CUDA.  At depth d the tree over n terms has 2^d nodes; node j holds (n + 2^d - 1 - r) >> d terms,
r being j with its d bits reversed (the first turn decides last between floor and ceiling).
"""

from __future__ import annotations

from functools import cache
from typing import Any

from ..target import cuda, device, i64, u32

STACK = 32  # pending left siblings: as many as an index has bits


@device
def node_size(n, j, d):
    """The terms of node j at depth d of the canonical tree over n."""
    turned = (i64(cuda.brev(u32(j))) << i64(d)) >> i64(32)
    return u32((i64(n) + (i64(1) << i64(d)) - i64(1) - turned) >> i64(d))


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


@device
def element(base, i, inner, outer_step, inner_step):
    """Where element i of a range of two dimensions lies, the inner one of size `inner`."""
    row = u32(i // inner)
    return u32(base + row * outer_step + u32(i - row * inner) * inner_step)


@cache
def walker(load: Any, combine: Any) -> Any:
    """walk(stack, x, base, n, at, inner, outer step, inner step): the tree over the n >= 1 terms from number `at` on.

    It walks the deepest level whose nodes all have one term or two, from left to right.  Node j ends as many larger
    nodes as j in binary ends in ones; each of them is the left half that waits on top of the stack + what is at hand.
    Five terms make 2^2 nodes of 2, 1, 1, 1 terms: (a+b) waits; node 01 has c, and (a+b)+c waits; d waits; node 11 has
    e, and ends two: d+e, then ((a+b)+c) + (d+e).
    """

    def walk(stack, x, base, n, at, inner, outer_step, inner_step):
        depth = u32(0)
        while u32(n >> depth) > u32(1):
            depth = u32(depth + u32(1))
        nodes = u32(u32(1) << depth)
        top = u32(0)
        node = u32(0)
        while node < nodes:
            value = load(x, element(base, at, inner, outer_step, inner_step))
            at = u32(at + u32(1))
            if node_size(n, node, depth) > u32(1):
                value = combine(value, load(x, element(base, at, inner, outer_step, inner_step)))
                at = u32(at + u32(1))
            ended = node
            while (ended & u32(1)) != u32(0):
                top = u32(top - u32(1))
                value = combine(stack[top], value)
                ended = u32(ended >> u32(1))
            stack[top] = value
            top = u32(top + u32(1))
            node = u32(node + u32(1))
        return stack[0]

    return device(walk)
