"""The primitives, one declaration each (spec/text/primitives.md); importing this fills `refflow.ir.REGISTRY`."""

from __future__ import annotations

from . import border, constant, contraction, creation, elementwise, indexing, order, reduction, shape, slicing

__all__ = [
    "border", "constant", "contraction", "creation", "elementwise", "indexing", "order", "reduction", "shape", "slicing",
]  # fmt: skip
