"""Reverse-mode differentiation: one `vjp` over the nodes behind some values, eager or lazy.

Implements AUTO-VJP, AUTO-LAYOUT, AUTO-ORDER, AUTO-LEAF and AUTO-FREE of spec/text/autograd.md.  A gradient has the
layout of what it belongs to, with P reduced; the uses of a value are reduced first and then added in reverse program
order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..errors import AutogradError, DtypeError, LocalGlobalError, ShapeError
from ..ir import Node, Value, to_global
from ..layout import reduced
from ..ops.elementwise import add
from ..ops.shape import zeros_like
from ..state import Override
from .tensor import Tensor


def reachable(outputs: Iterable[Value]) -> list[Node]:
    """The nodes behind `outputs`, in reverse program order."""
    seen: dict[int, Node] = {}
    stack = [value.node for value in outputs if value.node is not None]
    while stack:
        node = stack.pop()
        if id(node) not in seen:
            seen[id(node)] = node
            stack += [value.node for value in node.inputs if value.node is not None]
    return sorted(seen.values(), key=lambda node: node.order, reverse=True)


def vjp(
    outputs: Sequence[Value],
    cotangents: Sequence[Value],
    *,
    retain_graph: bool = False,
    create_graph: bool = False,
    watch: Sequence[Value] = (),
) -> dict[int, Value]:
    """The gradient of sum(outputs * cotangents) to every leaf and every value in `watch`, by id of the value.

    Frees the graph unless `retain_graph`; records the gradient's own nodes if `create_graph`.  Errors: `AutogradError`
    on a freed graph.  Source: AUTO-VJP.
    """
    with Override(grad=create_graph):
        grads = _Gradients({id(value) for value in watch})
        for value, cotangent in zip(outputs, cotangents, strict=True):
            grads.add(value, cotangent)
        nodes = reachable(outputs)
        for node in nodes:
            arrived = [grads.take(value) for value in node.outputs]
            if node.freed:
                raise AutogradError(
                    f"backward through {node.primitive.name} a second time: its graph was freed; pass retain_graph=True the first time"
                )
            if is_detour(node) or all(g is None for g in arrived):
                continue
            filled = [zeros_like(v) if g is None else g for v, g in zip(node.outputs, arrived, strict=True)]
            assert node.primitive.vjp is not None
            for value, g in zip(node.inputs, node.primitive.vjp(node, *filled), strict=True):
                if g is not None and value.requires_grad:
                    grads.add(value, g)
        if not retain_graph:
            for node in nodes:
                if node.primitive is not to_global:  # which saves nothing, and on one rank would perhaps not be there
                    node.freed, node.inputs, node.outputs = True, (), ()
        return grads.finish()


class _Gradients:
    """Cotangents on their way: one sum per value, closed when the node that made the value is reached."""

    def __init__(self, watched: set[int]) -> None:
        self._sums: dict[int, tuple[Value, Value]] = {}
        self._kept: dict[int, Value] = {}
        self._watched = watched

    def add(self, value: Value, g: Value) -> None:
        """One more use of `value`, and of what was moved to make it."""
        while value.node is not None and is_detour(value.node):
            if id(value) in self._watched:
                self._accumulate(value, g)
            wanted = value.node.attrs.get("grad_sbp")
            if wanted is not None:
                g = to_global(g, placement=value.meta.placement, sbp=wanted)
            value = value.node.inputs[0]
        self._accumulate(value, g)

    def _accumulate(self, value: Value, g: Value) -> None:
        """Reduced to the layout of `value`, then added to the later uses (AUTO-ORDER)."""
        g = in_layout_of(value, g)
        earlier = self._sums.get(id(value))
        # Where nothing costs a byte (one rank, no elements) add may choose another layout: hence once more.
        self._sums[id(value)] = (value, g if earlier is None else in_layout_of(value, add(earlier[1], g)))

    def take(self, value: Value) -> Value | None:
        """The finished gradient of `value`; hooks see it first."""
        found = self._sums.pop(id(value), None)
        if found is None:
            return None
        g = found[1]
        for hook in value.hooks or ():
            g = _hooked(hook, g)
        if id(value) in self._watched:
            self._kept[id(value)] = g
        return g

    def finish(self) -> dict[int, Value]:
        """What is left are leaves."""
        for value, _ in list(self._sums.values()):
            g = self.take(value)
            assert g is not None
            self._kept[id(value)] = g
        return self._kept


def _hooked(hook: Any, g: Value) -> Value:
    changed = hook(Tensor(g))
    if changed is None:
        return g
    if not isinstance(changed, Tensor):
        raise AutogradError(f"hook: must return a tensor or None, found {type(changed).__name__}")
    fits_gradient("hook", changed.value, g)
    return in_layout_of(g, changed.value)


def fits_gradient(name: str, g: Value, value: Value) -> None:
    """Errors unless `g` can be a gradient of `value`: one shape, one dtype, both local or both global (AUTO-SEED)."""
    found, wanted = g.meta, value.meta
    if g.ragged != value.ragged or found.shape != wanted.shape:
        raise ShapeError(f"{name}: the gradient has shape {found.shape}, the tensor {wanted.shape}")
    if found.dtype != wanted.dtype:
        raise DtypeError(f"{name}: the gradient is {found.dtype.name}, the tensor {wanted.dtype.name}; cast() it first")
    if (found.placement is None) != (wanted.placement is None):
        kinds = ["local" if meta.placement is None else "global" for meta in (found, wanted)]
        raise LocalGlobalError(f"{name}: the gradient is {kinds[0]}, the tensor {kinds[1]}")


def is_detour(node: Node) -> bool:
    """Whether `node` is a move, and no hook waits for the gradient of the moved value.

    What uses the moved value uses the value itself, there and then, so that layouts change no order of adding
    (AUTO-ORDER).
    """
    return node.primitive is to_global and not node.outputs[0].hooks


def in_layout_of(value: Value, g: Value) -> Value:
    """`g` brought to the placement of `value` and to its sbp with every P reduced (AUTO-LAYOUT)."""
    meta = value.meta
    if meta.placement is None or meta.sbp is None:
        return g
    sbp = reduced(meta.sbp)
    if g.meta.sbp == sbp and g.meta.placement == meta.placement:
        return g
    return to_global(g, placement=meta.placement, sbp=sbp)


def leaves(outputs: Iterable[Value]) -> Mapping[int, Value]:
    """The leaf values that require a gradient behind `outputs`, by id."""
    found: dict[int, Value] = {}
    for value in outputs:
        if value.node is None and value.requires_grad:
            found[id(value)] = value
    for node in reachable(outputs):
        for value in node.inputs:
            if value.node is None and value.requires_grad:
                found[id(value)] = value
    return found
