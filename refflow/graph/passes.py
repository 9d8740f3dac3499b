"""Passes: small pure functions from logical graph to logical graph.

Implements PASS-DEAD and PASS-COMMON of spec/text/passes.md.  A pass never changes a bit of what the graph returns (PASS-BITS).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..ir import Node, Value
from ..ir.lower import frozen
from .logical import LogicalGraph, key


def dead_code(graph: LogicalGraph) -> LogicalGraph:
    """Without the nodes no result depends on (PASS-DEAD).  Random streams are absolute, so leaving a draw out moves no other."""
    wanted = {key(value) for value in graph.results()}
    kept: list[Node] = []
    for node in reversed(graph.nodes):
        if any(key(value) in wanted for value in node.outputs):
            kept.append(node)
            wanted.update(key(value) for value in node.inputs)
    return graph.with_nodes(reversed(kept))


def common_subexpressions(graph: LogicalGraph) -> LogicalGraph:
    """Equal primitives on equal operands become one (PASS-COMMON): after backward only, and never random ones.

    Before backward, merging would change the order in which the gradients of the uses are added.
    """
    same: dict[int, Value] = {}
    seen: dict[Any, Node] = {}
    kept: list[Node] = []
    for node in graph.nodes:
        inputs = tuple(same.get(key(value), value) for value in node.inputs)
        mark = (node.primitive, tuple(map(key, inputs)), frozen(node.attrs))
        twin = seen.get(mark)
        if twin is not None and not node.primitive.random:
            same.update({key(mine): its for mine, its in zip(node.outputs, twin.outputs, strict=True)})
            continue
        kept.append(seen.setdefault(mark, rewired(node, inputs)))
    return substitute(graph.with_nodes(kept), same)


def rewired(node: Node, inputs: tuple[Value, ...]) -> Node:
    """The node on other operands, with the same outputs."""
    if all(a is b for a, b in zip(inputs, node.inputs, strict=True)):
        return node
    return Node(node.primitive, inputs, node.attrs, node.metas, node.outputs, node.order)


def substitute(graph: LogicalGraph, same: Mapping[int, Value]) -> LogicalGraph:
    """The graph with its results replaced by the values that stand for them."""
    variables = tuple(
        v if v.update is None else replace(v, update=same.get(key(v.update), v.update)) for v in graph.variables
    )
    outputs = tuple(same.get(key(value), value) for value in graph.outputs)
    return replace(graph, variables=variables, outputs=outputs)
