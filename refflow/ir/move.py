"""to_global: boxing as a primitive, so that every move is recorded, differentiated and traced like the rest.

Implements BOX-PRIMITIVE of spec/text/boxing.md.  It computes nothing: its value is the boxing plan's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..boxing import Layout, plan, run
from ..errors import LocalGlobalError, SbpError
from ..layout import NdSbp, Partial
from ..numerics import bool_
from .node import Meta, Node, Value
from .primitive import Primitive, Rule

Attrs = Mapping[str, Any]
Mover = Callable[[tuple[Value, ...], Attrs], tuple[Value, ...]]

SPECIAL: dict[str, Mover] = {}  # the primitives that move tensors rather than compute, by name


def no_rule(*metas: Meta, **attrs: Any) -> Rule:
    """The rule of a primitive that has none."""
    raise SbpError("this primitive moves tensors: it has a boxing plan, not a signature")


def _to_global(inputs: tuple[Value, ...], attrs: Attrs) -> tuple[Value, ...]:
    value = inputs[0]
    placement, sbp = attrs["placement"], attrs["sbp"]
    meta = value.meta
    if meta.placement is None or meta.sbp is None:
        raise LocalGlobalError(
            "to_global: the primitive moves global tensors; a local one crosses the border by local_to_global"
        )
    refuse_sum_of_bools(meta, sbp)
    moves = plan(meta.shape, Layout(meta.placement, meta.sbp), Layout(placement, sbp))
    return (Value(meta.with_layout(placement, sbp), run(moves, value.shards, meta.dtype)),)


def refuse_sum_of_bools(meta: Meta, sbp: NdSbp) -> None:
    """`SbpError` for P(sum) of a bool tensor: bools fold by max (or) and min (and)."""
    if meta.dtype == bool_ and any(one == Partial("sum") for one in sbp):
        raise SbpError("to_global: a bool tensor has no P(sum); P(max) folds by or, P(min) by and")


def _to_global_vjp(node: Node, g: Value) -> list[Value | None]:
    """The gradient, in `grad_sbp` if one was asked for; the engine brings it to the operand's layout (AUTO-LAYOUT)."""
    wanted = node.attrs.get("grad_sbp")
    if wanted is not None and g.meta.sbp != wanted:
        g = to_global(g, placement=g.meta.placement, sbp=wanted)
    return [g]


to_global = Primitive("to_global", no_rule, _to_global_vjp, doc="the same logical tensor in another layout")
SPECIAL["to_global"] = _to_global
