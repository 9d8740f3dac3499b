"""The kernels of the back end "cuda", a module for each chapter; importing this package fills the tables of `registry`.

Elementwise ones are `cuda.elementwise`'s.  `tree`, `tiles` and `factors` are what folds and contractions are made of.
"""

from __future__ import annotations

from .. import elementwise
from . import contraction, creation, extremes, indexing, movement, order, reduction, scan
