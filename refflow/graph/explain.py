"""The choices of a whole graph, told node by node: signatures, their prices, what was dearer or refused, what moves.

Implements GRAPH-EXPLAIN of spec/text/graph.md.  Which signature is chosen is `ir.signature`'s; this only tells.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from ..boxing import Layout, format_sbp
from ..boxing import plan as boxing_plan
from ..explain import Explanation, described
from ..ir import SPECIAL, Meta, Node, Option, Primitive
from ..ir.lower import frozen
from ..layout import broadcast
from .logical import LogicalGraph, key
from .moves import travelling
from .time import as_told

SHOWN = 2  # of the dearer options of a node whose choice has a price, and of the refused ones that would be cheaper


@dataclass(frozen=True)
class Told:
    """One node in words: its name, what it does, the layouts chosen, their price in bytes, and why.

    `bytes` are those it sends between ranks in a call, if it is a move; `options` is None for what moves, and for what
    is made from nothing.  `operands` lists those that were moved for it.
    """

    name: str
    primitive: str
    does: str
    chosen: str
    price: int
    why: str
    bytes: int = 0
    options: Explanation | None = None
    operands: tuple[str, ...] = ()

    def lines(self, shown: int | None, widths: tuple[int, int, int]) -> Iterator[str]:
        """Its lines; dearer and refused options for a choice that has a price, at most `shown` of each (None: all, for all)."""
        name, does, chosen = widths
        yield f"{self.name:{name}} {self.does:{does}} {self.chosen:{chosen}} {self.price:>9d} B   {self.why}"
        yield from (f"{'':{name}}   {operand}" for operand in self.operands)
        if self.options is None or (shown is not None and not self.price):
            return
        best = self.options.options[0]
        barred = [o for o in self.options.barred if shown is None or o.bytes < best.bytes]
        for word, rest in (("refused", barred), ("dearer", self.options.options[1:])):
            for option in rest[:shown]:
                yield f"{'':{name}}   {word:7s} {option.signature!s:40s} {option.bytes:>9d} B   {_reason(option)}"
            if shown is not None and len(rest) > shown:
                yield f"{'':{name}}   … and {len(rest) - shown} more {word}"


def _reason(option: Option) -> str:
    waits = f"waits for {option.late} elements of other micro-steps; " if option.late else ""
    return waits + option.signature.why


@dataclass(frozen=True)
class GraphExplanation:
    """Every node of a graph with what was chosen for it and why; printable, in full by `text(None)`."""

    title: str
    policy: str
    nodes: tuple[Told, ...] = field(repr=False)

    @property
    def bytes(self) -> int:
        """What the moves told here send between ranks in one call."""
        return sum(node.bytes for node in self.nodes)

    def text(self, shown: int | None = SHOWN) -> str:
        """The table: a line for each node, and where a choice has a price, `shown` cheaper options that are refused and
        `shown` dearer ones; None: all of them, for every node.
        """
        widths = tuple(
            min(most, max((len(getattr(node, column)) for node in self.nodes), default=0))
            for column, most in (("name", 12), ("does", 44), ("chosen", 52))
        )
        moves = [node for node in self.nodes if node.bytes]
        lines = [f"{self.title}: {len(self.nodes)} nodes, signatures: {self.policy}"]
        lines += [line for node in self.nodes for line in node.lines(shown, (widths[0], widths[1], widths[2]))]
        lines += [f"{len(moves)} moves send {self.bytes} B between ranks in a call"]
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.text()

    __repr__ = __str__


def explain_graph(
    graph: LogicalGraph,
    asked: Mapping[int, tuple[Meta, ...]],
    inserted: frozenset[int],
    policy: str,
    only: tuple[str, ...] = (),
) -> GraphExplanation:
    """The explanation of a traced graph; `only` these primitives, or all.

    `asked`: the metas of a node's operands before they were moved for it, and `inserted`: the moves made for that, by
    order of the node.
    """
    names, readers = graph.names(), _readers(graph)
    cache: dict[object, Explanation] = {}
    told = []
    for node in graph.nodes:
        if only and node.primitive.name not in only:
            continue
        operands = ", ".join(names[key(v)] for v in node.inputs)
        name, kind = names[key(node.outputs[0])], node.primitive.name
        size = "x".join(map(str, node.metas[0].shape)) or "scalar"
        does = f"{kind}({operands}) {size}"
        if kind == "to_global":
            why = f"for {readers.get(name, 'nobody')}" if node.order in inserted else "as build or a pass asks"
            told.append(_moved(name, does, node, graph.steps, why))
        elif kind in SPECIAL or not node.inputs:
            made = f"of micro-step {node.attrs['step']}" if node.inputs else "made there"
            told.append(Told(name, kind, does, f"-> {_sbp(node.metas[0])}", 0, made))
        else:
            metas = asked.get(node.order, tuple(v.meta for v in node.inputs))
            before = tuple(map(as_told, metas))
            told.append(_chosen(name, does, node, before, _options(cache, node.primitive, before, node, policy)))
    return GraphExplanation(graph.name + (f", {graph.steps} micro-steps" if graph.steps > 1 else ""), policy, tuple(told))


def _options(
    cache: dict[object, Explanation], primitive: Primitive, metas: tuple[Meta, ...], node: Node, policy: str
) -> Explanation:
    mark = (primitive, metas, frozen(node.attrs))
    if mark not in cache:
        cache[mark] = described(primitive, metas, node.attrs, policy)
    return cache[mark]


def _chosen(name: str, does: str, node: Node, before: tuple[Meta, ...], options: Explanation) -> Told:
    best = options.options[0]
    moved = tuple(
        f"operand {i} moved from {_sbp(meta)} to {_sbp(value.meta)}"
        for i, (meta, value) in enumerate(zip(before, node.inputs, strict=True))
        if meta.sbp != as_told(value.meta).sbp
    )
    return Told(name, node.primitive.name, does, str(best.signature), best.bytes, _reason(best), 0, options, moved)


def _sbp(meta: Meta) -> str:
    sbp = as_told(meta).sbp
    assert sbp is not None
    return format_sbp(sbp)


def _readers(graph: LogicalGraph) -> dict[str, str]:
    """name of a value -> those who read it, in words."""
    names = graph.names()
    found: dict[str, list[str]] = {}
    for node in graph.nodes:
        for value in node.inputs:
            reader = f"{names[key(node.outputs[0])]} ({node.primitive.name})"
            found.setdefault(names[key(value)], []).append(reader)
    return {name: ", ".join(dict.fromkeys(those)) for name, those in found.items()}


def _moved(name: str, does: str, node: Node, steps: int, why: str) -> Told:
    """What a move does, and the bytes it sends between ranks in a call (GRAPH-COMM)."""
    before, after = node.inputs[0].meta, node.metas[0]
    assert before.placement is not None and after.placement is not None
    assert before.sbp is not None and after.sbp is not None
    source, target = before.sbp, after.sbp
    if source[-1] != target[-1]:  # micro-steps first (acc, pack), within the rank
        source, target = (*source[:-1], broadcast), (*target[:-1], broadcast)
    acts = steps if source[-1] != broadcast else 1
    moves = boxing_plan(before.shape, Layout(before.placement, source), Layout(after.placement, target))
    sent = sum(travelling(step, m, steps) for step in moves.steps for m in range(acts)) * before.dtype.itemsize
    kinds = ", ".join(step.kind for step in moves.steps) or "nothing travels"
    chosen = f"{_sbp(before)} -> {_sbp(after)}"
    return Told(name, "to_global", does, chosen, sent, f"{kinds}; {why}", sent)
