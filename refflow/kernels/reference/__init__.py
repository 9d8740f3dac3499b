"""The reference back end's kernels: what each primitive's value is, on one local array (NumPy, no ranks).

A file per chapter; importing this package fills `KERNELS`.  They define the bits: other back ends must match them.
"""

from __future__ import annotations

from . import arrays, contraction, creation, elementwise, indexing, movement, order, reduction
from .registry import KERNELS

__all__ = ["KERNELS", "arrays", "contraction", "creation", "elementwise", "indexing", "movement", "order", "reduction"]
