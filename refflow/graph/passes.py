"""Passes: small pure functions from logical graph to logical graph.

Implements PASS-DEAD, PASS-COMMON, PASS-COMPOSE and PASS-RECOMPUTE of spec/text/passes.md.  A pass never changes a bit
of what the graph returns (PASS-BITS).
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


def compose_boxing(graph: LogicalGraph) -> LogicalGraph:
    """A move followed by a move of what nobody else looks at is one move (PASS-COMPOSE): P -> B -> S becomes P -> S."""
    uses: dict[int, int] = {}
    for value in [value for node in graph.nodes for value in node.inputs] + list(graph.results()):
        uses[key(value)] = uses.get(key(value), 0) + 1
    moves: dict[int, Node] = {}
    kept: list[Node] = []
    for node in graph.nodes:
        if node.primitive.name == "to_global":
            first = moves.get(key(node.inputs[0]))
            if first is not None and uses[key(node.inputs[0])] == 1:
                node = rewired(node, first.inputs)
            moves[key(node.outputs[0])] = node
        kept.append(node)
    return dead_code(graph.with_nodes(kept))


def recompute(graph: LogicalGraph, scopes: Mapping[int, int], forward: frozenset[int]) -> LogicalGraph:
    """Activations of a checkpointed scope are made again where backward first needs them (PASS-RECOMPUTE).

    `scopes` gives the scope of nodes (by order), `forward` the orders of forward nodes.  A made-again draw reuses its
    stream, so dropout replays.
    """
    inside: dict[int, list[Node]] = {}
    scope_of: dict[int, int] = {}
    for node in graph.nodes:
        scope = scopes.get(node.order)
        if scope is not None:
            inside.setdefault(scope, []).append(node)
            scope_of.update({key(value): scope for value in node.outputs})
    again: dict[int, Value] = {}
    done: set[int] = set()
    kept: list[Node] = []
    for node in graph.nodes:
        if node.order not in forward:
            for scope in sorted({scope_of[key(value)] for value in node.inputs if key(value) in scope_of} - done):
                done.add(scope)
                kept += _copies(inside[scope], again)
            node = rewired(node, tuple(again.get(key(value), value) for value in node.inputs))
        kept.append(node)
    return dead_code(graph.with_nodes(kept))


def _copies(nodes: list[Node], again: dict[int, Value]) -> list[Node]:
    copies = []
    for node in nodes:
        inputs = tuple(again.get(key(value), value) for value in node.inputs)
        outputs = tuple(Value(value.meta, type(value.shards)()) for value in node.outputs)
        again.update({key(old): new for old, new in zip(node.outputs, outputs, strict=True)})
        copies.append(Node(node.primitive, inputs, node.attrs, node.metas, outputs))
    return copies
