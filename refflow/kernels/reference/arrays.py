"""Array operations boxing needs: cut a box, put pieces together.

Implements KER-ARRAYS of spec/text/kernels.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .registry import Array, Dtype, kernel


@kernel
def slice_box(x: Array, *, slices: tuple[slice, ...]) -> Array:
    """The part of a local array under `slices` (a view: nobody writes into it)."""
    where: tuple[Any, ...] = (*slices, ...)  # without the ellipsis a 0-d array would come as a number
    return np.asarray(x[where])


@kernel
def assemble(
    *parts: Array, shape: tuple[int, ...], slices: Sequence[tuple[slice, ...]], fill: Any, dtype: Dtype
) -> Array:
    """An array of `shape` holding each part under its slices and `fill` elsewhere."""
    if len(parts) == 1 and parts[0].shape == shape:
        return parts[0]
    whole = np.full(shape, fill, dtype)
    for part, where in zip(parts, slices, strict=True):
        whole[where] = part
    return whole
