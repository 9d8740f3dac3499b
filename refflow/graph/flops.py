"""How much arithmetic a task does: for cost models and pictures, never for a result.

Implements PLAN-FLOPS of spec/text/plan.md.
"""

from __future__ import annotations

from ..ir import Meta, Node
from ..layout import Box, boxes, volume


def flops(node: Node, rank: int) -> int:
    """Floating point operations of a node on a rank (of the mesh with micro-steps): 2 a product of a contraction, else 1 an
    element of its largest operand or result.
    """
    here = [_box(value.meta, rank) for value in (*node.inputs, *node.outputs)]
    name = node.primitive.name
    if name == "matmul":
        return 2 * volume(here[0]) * _length(here[-1], -1)
    if name == "conv2d":
        return 2 * volume(here[2]) * volume(here[1]) // max(1, _length(here[1], 0))
    if name == "conv2d_input":
        return 2 * volume(here[0]) * volume(here[1]) // max(1, _length(here[1], 0))
    if name == "conv2d_filter":
        return 2 * volume(here[1]) * volume(here[2]) // max(1, _length(here[2], 0))
    return max(volume(box) for box in here)


def _box(meta: Meta, rank: int) -> Box:
    assert meta.placement is not None and meta.sbp is not None
    return boxes(meta.shape, meta.placement, meta.sbp)[rank]


def _length(box: Box, dim: int) -> int:
    lo, hi = box[dim]
    return hi - lo
