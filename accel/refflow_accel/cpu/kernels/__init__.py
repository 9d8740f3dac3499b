"""The CPU kernels, a file per chapter; importing this package fills the table of `registry`."""

from __future__ import annotations

from . import (
    arrays,
    contraction,
    convolution,
    creation,
    elementwise,
    extremes,
    indexing,
    movement,
    order,
    ranks,
    reduction,
    scatter,
    windows,
)
