"""The parts of a result: what each micro-step alone makes of an output that was put together over the micro-steps.

Implements TIME-PARTS of spec/text/passes.md.  `at_step` takes one micro-step's value out of those of all; what build
did to an output once it was put together is done to each part again.  So parts are results like others, in every world
and under every schedule; a graph that keeps none is as it was.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..ir import SPECIAL, Meta, Node, Primitive, Value, no_rule
from ..layout import box_shape, boxes, broadcast
from ..ops.border import logical_shape
from ..tensor.tensor import Tensor
from .logical import key
from .time import TimedPlacement, varies
from .trace import Tracer


def at_step_meta(meta: Meta, step: int) -> Meta:
    """The meta of what micro-step `step` holds: B over the micro-steps; along a dimension they cut, its part.

    Balanced cuts of the ranks' balanced parts are, for one micro-step, a balanced split again: the lengths never rise
    from rank to rank, and differ by at most one.
    """
    placement, sbp = meta.placement, meta.sbp
    assert isinstance(placement, TimedPlacement) and sbp is not None
    parts = boxes(meta.shape, placement, sbp)
    base = placement.base
    shapes = {rank: box_shape(parts[rank * placement.steps + step]) for rank in base.ranks}
    shape = logical_shape(shapes, base, sbp[:-1])
    return Meta(shape, meta.dtype, placement, (*sbp[:-1], broadcast))


def _at_step(inputs: tuple[Value, ...], attrs: Mapping[str, Any]) -> tuple[Value, ...]:
    """What each rank holds in one micro-step, held in all of them; nothing moves between ranks."""
    (value,), step = inputs, attrs["step"]
    placement = value.meta.placement
    assert isinstance(placement, TimedPlacement)
    steps = placement.steps
    shards = {rank: value.shards[rank // steps * steps + step] for rank in value.shards}
    return (Value(at_step_meta(value.meta, step), shards),)


at_step = Primitive("at_step", no_rule, doc="the value of one micro-step")
SPECIAL["at_step"] = _at_step


def parts_of(outputs: Sequence[Tensor], tracer: Tracer) -> list[list[Value]]:
    """For each output of a traced build, the values of its M parts; itself alone if no micro-step has a part in it."""
    made_by = {key(value): node for node in tracer.nodes for value in node.outputs}
    return [_parts(tensor.value, tracer, made_by) for tensor in outputs]


def _parts(value: Value, tracer: Tracer, made_by: Mapping[int, Node]) -> list[Value]:
    tail = _since_together(value, made_by)
    if not tail:
        return [value]
    return [_again(tail, step, tracer).get(key(value), value) for step in range(tracer.steps)]


def _since_together(value: Value, made_by: Mapping[int, Node]) -> list[Node]:
    """The nodes that put something together over the micro-steps and those that made `value` of it, in program order."""
    found: dict[int, Node] = {}  # by order
    waiting, seen = [value], {key(value)}
    while waiting:
        node = made_by.get(key(waiting.pop()))
        if node is None:
            continue
        found[node.order] = node
        if not _puts_together(node):
            waiting += [v for v in node.inputs if key(v) not in seen and not varies(v.meta)]
            seen.update(map(key, node.inputs))
    concerned: set[int] = set()
    kept = []
    for _, node in sorted(found.items()):
        if _puts_together(node) or any(key(v) in concerned for v in node.inputs):
            concerned.update(map(key, node.outputs))
            kept.append(node)
    return kept


def _puts_together(node: Node) -> bool:
    """Whether a node brings a value that varies over the micro-steps to B there."""
    return node.primitive.name == "to_global" and varies(node.inputs[0].meta) and not varies(node.metas[0])


def _again(tail: Sequence[Node], step: int, tracer: Tracer) -> dict[int, Value]:
    """The tail done again for what one micro-step holds: key of a value -> the part that stands for it."""
    part: dict[int, Value] = {}
    for node in tail:
        if _puts_together(node):
            (whole,), (output,) = node.inputs, node.outputs
            (alone,) = _node(tracer, at_step, (whole,), {"step": step}, (at_step_meta(whole.meta, step),))
            layout = output.meta
            assert layout.placement is not None and layout.sbp is not None
            if (alone.meta.placement, alone.meta.sbp) != (layout.placement, layout.sbp):
                meta = alone.meta.with_layout(layout.placement, layout.sbp)
                (alone,) = _node(tracer, node.primitive, (alone,), node.attrs, (meta,))
            part[key(output)] = alone
        else:
            inputs = tuple(part.get(key(v), v) for v in node.inputs)
            outputs = _node(tracer, node.primitive, inputs, node.attrs, node.metas)
            part.update({key(old): new for old, new in zip(node.outputs, outputs, strict=True)})
    return part


def _node(
    tracer: Tracer, primitive: Primitive, inputs: tuple[Value, ...], attrs: Mapping[str, Any], metas: tuple[Meta, ...]
) -> tuple[Value, ...]:
    """Writes a node down, as part of the forward pass, and gives its outputs."""
    outputs = tuple(map(tracer.lazy, metas))
    node = Node(primitive, inputs, attrs, metas, outputs)
    tracer.nodes.append(node)
    tracer.forward.add(node.order)
    return outputs


def grouped(parts: Iterator[Tensor], counts: Sequence[int]) -> Iterator[tuple[Tensor, ...]]:
    """Tuples of so many parts each, in order."""
    for count in counts:
        yield tuple(next(parts) for _ in range(count))
