"""What boxing needs of local arrays: pieces put together (KER-ARRAYS); cutting is a view, the fold over ranks is `ranks`'."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from ..registry import kernel
from .creation import filled, value_word
from .movement import copy

Array = np.ndarray[Any, Any]


@kernel
def assemble(
    call: Any,
    *parts: Array,
    shape: tuple[int, ...],
    slices: Sequence[tuple[slice, ...]],
    fill: Any,
    dtype: np.dtype[Any],
) -> Any:
    if len(parts) == 1 and parts[0].shape == tuple(shape):
        return parts[0]
    dtype = np.dtype(dtype)
    if any(part.dtype != dtype for part in parts) or len(parts) != len(slices):
        return NotImplemented
    whole = call.empty(tuple(shape), dtype)
    places = [whole[where] if whole.ndim else whole for where in slices]
    if sum(place.size for place in places) < whole.size or _overlap(places):
        filled(call, whole, value_word(fill, dtype))
    for part, place in zip(parts, places):
        if part.shape != place.shape:
            return NotImplemented
        copy(call, place, part)
    return whole


def _overlap(places: Sequence[Array]) -> bool:
    """Whether two places may share elements: then their sizes do not tell whether all is covered."""
    spans = sorted(np.lib.array_utils.byte_bounds(place) for place in places if place.size)
    return any(after[0] < before[1] for before, after in pairwise(spans))
