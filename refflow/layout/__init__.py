"""Where numbers live: placements, sbp, balanced splits, boxes of the logical index space (spec/text/layout.md)."""

from __future__ import annotations

from .placement import Coords, Placement, nested
from .sbp import (
    Broadcast,
    FoldKind,
    NdSbp,
    Partial,
    Sbp,
    Split,
    broadcast,
    chosen_by,
    dual,
    normalize,
    partial_sum,
    reduced,
)
from .shards import Box, Range, balanced, box_shape, boxes, cut, intersect, locate, partial_axes, volume, within

__all__ = [
    "Box", "Broadcast", "Coords", "FoldKind", "NdSbp", "Partial", "Placement", "Range", "Sbp", "Split", "balanced",
    "box_shape", "boxes", "broadcast", "chosen_by", "cut", "dual", "intersect", "locate", "nested", "normalize",
    "partial_axes", "partial_sum", "reduced", "volume", "within",
]  # fmt: skip
