"""The kernels of the back end "cuda" that are not elementwise, a module for each chapter; importing it fills the tables."""

from __future__ import annotations

from .. import elementwise
from . import contraction, creation, extremes, indexing, movement, order, reduction, scan
