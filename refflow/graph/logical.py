"""The logical graph: nodes in program order, with shape, dtype, placement and sbp on every edge.

Implements GRAPH-NODE, GRAPH-STATE and GRAPH-PRINT of spec/text/graph.md.  The nodes are the tape's (`refflow.ir.Node`),
so one vjp, one set of declarations and one choice of signature serve eager code and graphs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..boxing import format_sbp
from ..ir import Meta, Node, Value
from .time import as_told

if TYPE_CHECKING:
    from ..tensor.tensor import Tensor


def key(value: Value) -> int:
    """What identifies a value in a graph: its shards, which detach() and requires_grad_() share with their result."""
    return id(value.shards)


@dataclass(frozen=True, eq=False)
class Variable:
    """A tensor cell the graph reads (`value` stands for it) and perhaps writes (`update` becomes its next value).

    `value` is None for state that the call makes (an optimizer's, at its first step).
    """

    name: str
    cell: Tensor
    value: Value | None
    update: Value | None = None


@dataclass(frozen=True, eq=False)
class LogicalGraph:
    """What a call computes: `outputs` and variable updates, from `inputs`, variables and constants, by `nodes` in program order."""

    name: str
    inputs: tuple[Value, ...]
    variables: tuple[Variable, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[Value, ...]
    draws: tuple[int, int] = (0, 0)  # global and local draws of the generator per call
    steps: int = 1  # micro-batches per call
    scalars: tuple[Value, ...] = ()  # numbers of the optimizers, given anew in each call

    def with_nodes(self, nodes: Iterable[Node]) -> LogicalGraph:
        """The graph with other nodes."""
        return replace(self, nodes=tuple(nodes))

    def results(self) -> Iterator[Value]:
        """Everything somebody outside sees: outputs and updates."""
        yield from self.outputs
        for variable in self.variables:
            if variable.update is not None:
                yield variable.update

    def constants(self) -> list[Value]:
        """The values captured from outside, in order of first use."""
        found = {key(v): v for node in self.nodes for v in node.inputs}
        found |= {key(v): v for v in self.results()}
        known = [*self.inputs, *self.scalars, *(v.value for v in self.variables if v.value is not None)]
        for value in (*known, *(v for node in self.nodes for v in node.outputs)):
            found.pop(key(value), None)
        return list(found.values())

    def names(self) -> dict[int, str]:
        """A short name for every value, by key: %0 … for results, the variable's or input's name."""
        named = {key(value): f"input{i}" for i, value in enumerate(self.inputs)}
        named.update({key(v.value): v.name for v in self.variables if v.value is not None})
        named.update({key(value): f"scalar{i}" for i, value in enumerate(self.scalars)})
        named.update({key(value): f"constant{i}" for i, value in enumerate(self.constants())})
        for i, node in enumerate(self.nodes):
            for j, value in enumerate(node.outputs):
                named[key(value)] = f"%{i}" if len(node.outputs) == 1 else f"%{i}.{j}"
        return named

    def __str__(self) -> str:
        names = self.names()
        lines = [f"graph {self.name}"]
        lines += [f"  input {names[key(value)]}: {typed(value.meta)}" for value in self.inputs]
        lines += [f"  variable {v.name}: {typed(v.value.meta)}" for v in self.variables if v.value is not None]
        lines += [f"  {names[key(value)]}: {typed(value.meta)}" for value in (*self.scalars, *self.constants())]
        for node in self.nodes:
            operands = [names[key(value)] for value in node.inputs]
            attrs = [f"{name}={told(node, name)}" for name in node.attrs if name not in ("placement", "sbp")]
            results = ", ".join(names[key(value)] for value in node.outputs)
            lines.append(f"  {results} = {node.primitive.name}({', '.join(operands + attrs)}): {typed(node.metas[0])}")
        lines += [f"  return {', '.join(names[key(value)] for value in self.outputs)}"]
        lines += [
            f"  {v.name} <- {names[key(v.update)]}" for v in self.variables if v.update is not None
        ]
        return "\n".join(lines)

    def to_dot(self) -> str:
        """The graph in DOT: a box per node, an edge per use labelled with shape and sbp."""
        names = self.names()
        lines = [
            f'digraph "{self.name}" {{',
            "  node [shape=box, fontname=Helvetica]; edge [fontname=Helvetica, fontsize=10];",
        ]
        source: dict[int, str] = {}
        held = [(v, "ellipse") for v in (*self.inputs, *self.scalars)] + [(v, "plaintext") for v in self.constants()]
        held += [(v.value, "cylinder") for v in self.variables if v.value is not None]
        for i, (value, shape) in enumerate(held):
            source[key(value)] = f"v{i}"
            lines.append(f'  v{i} [label="{names[key(value)]}", shape={shape}];')
        for i, node in enumerate(self.nodes):
            lines.append(f'  n{i} [label="{node.primitive.name}\\n{names[key(node.outputs[0])]}"];')
            lines += [f'  {source[key(value)]} -> n{i} [label="{short(value.meta)}"];' for value in node.inputs]
            source.update({key(value): f"n{i}" for value in node.outputs})
        ends = [(value, f"output{i}", "ellipse") for i, value in enumerate(self.outputs)]
        ends += [(v.update, v.name, "cylinder") for v in self.variables if v.update is not None]
        for i, (value, name, shape) in enumerate(ends):
            lines.append(f'  o{i} [label="{name}", shape={shape}];')
            lines.append(f'  {source[key(value)]} -> o{i} [label="{short(value.meta)}"];')
        return "\n".join([*lines, "}"])


def short(meta: Meta) -> str:
    """``8x16 S(0)``, as the user wrote it where there are no micro-batches."""
    sbp = as_told(meta).sbp
    return f"{'x'.join(map(str, meta.shape)) or 'scalar'}{'' if sbp is None else f' {format_sbp(sbp)}'}"


def typed(meta: Meta) -> str:
    """``float32 8x16 S(0) on ranks [0, 1]``."""
    where = "" if meta.placement is None else f" on {meta.placement}"
    return f"{meta.dtype.name} {short(meta)}{where}"


def told(node: Node, name: str) -> str:
    """An attribute of a node as text, a layout like those of values."""
    value, where = node.attrs[name], node.metas[0].placement
    if name == "grad_sbp" and value is not None and where is not None:
        return format_sbp(as_told(node.metas[0].with_layout(where, value)).sbp or ())
    return getattr(value, "name", None) or str(value)
