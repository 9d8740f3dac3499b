"""Passes: small pure functions from logical graph to logical graph.

Implements PASS-DEAD, PASS-COMMON, PASS-COMPOSE and PASS-RECOMPUTE of spec/text/passes.md.  A pass never changes a bit
of what the graph returns (PASS-BITS).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..ir import Meta, Node, Value, bind_space, candidates, lower, parse
from ..ir.lower import frozen
from ..layout import Partial
from ..state import settings
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
    """A move followed by a move of what nobody else looks at is one move (PASS-COMPOSE): P -> B -> S becomes P -> S.

    So it is where only transposes and reshapes stand between the two, which then work on what the one move brings.
    """
    uses: dict[int, int] = {}
    for value in [value for node in graph.nodes for value in node.inputs] + list(graph.results()):
        uses[key(value)] = uses.get(key(value), 0) + 1
    made_by: dict[int, Node] = {}
    kept: list[Node] = []
    for node in graph.nodes:
        done = _one_move(node, made_by, uses) if node.primitive.name == "to_global" else [node]
        made_by.update({key(value): new for new in done for value in new.outputs})
        kept += done
    return dead_code(graph.with_nodes(kept))


TURNING = frozenset({"transpose", "reshape"})  # what puts elements elsewhere and is carried out on parts as well


def _one_move(last: Node, made_by: Mapping[int, Node], uses: Mapping[int, int]) -> list[Node]:
    """The nodes that stand for a move: it alone, or one move from where an earlier one began, and what stood between."""
    between: list[Node] = []
    node: Node | None = last
    while node is not None:
        (source,) = node.inputs
        node = made_by.get(key(source)) if uses[key(source)] == 1 else None
        if node is None or node.primitive.name == "to_global":
            break
        if node.primitive.name not in TURNING:
            return [last]
        between.insert(0, node)
    if node is None:
        return [last]
    if not between:
        return [rewired(last, node.inputs)]
    return _moved_first(node, between, last) or [last]


def _moved_first(first: Node, between: list[Node], last: Node) -> list[Node]:
    """One move, then `between` on what it brings, so that `last`'s output comes out; nothing where a part does not do."""
    metas = [last.metas[0]]  # of what each of `between` takes, then of what the last one gives
    for node in reversed(between):
        wanted = _taken_for(node, node.inputs[0].meta, metas[0])
        if wanted is None:
            return []
        metas.insert(0, wanted)
    attrs = {"placement": metas[0].placement, "sbp": metas[0].sbp}
    lazy = type(first.outputs[0].shards)
    values = [*(Value(meta, lazy()) for meta in metas[:-1]), last.outputs[0]]
    nodes = [Node(first.primitive, first.inputs, attrs, (metas[0],), (values[0],))]
    for i, node in enumerate(between):
        nodes.append(Node(node.primitive, (values[i],), node.attrs, (metas[i + 1],), (values[i + 1],)))
    return nodes


def _taken_for(node: Node, source: Meta, target: Meta) -> Meta | None:
    """The layout of `source` on which a unary node gives `target` without a move; None if there is none, or a P."""
    assert target.placement is not None and target.sbp is not None
    rule = node.primitive.rule(source, **node.attrs)
    space = bind_space(node.primitive.name, parse(rule.space, 1), [source.shape], rule.sizes)
    for signature in candidates(rule, space, False, target.placement):
        if signature.outputs[0] == target.sbp and not any(isinstance(one, Partial) for one in signature.inputs[0]):
            found = source.with_layout(target.placement, signature.inputs[0])
            lowered = lower(node.primitive, (found,), node.attrs, settings().signatures, False)
            return found if lowered.outputs[0] == target and not any(lowered.targets) else None
    return None


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
