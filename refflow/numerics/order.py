"""Orders and ties: the larger of two numbers, sorting, and the place of the largest.

Implements NUM-MAX (IEEE 754-2019 maximum and minimum) and NUM-ORDER of spec/text/numerics.md: NaN sorts as the largest
value, -0 and +0 are equal when sorted, among equals the lowest index comes first, and argmax and argmin take the first
NaN.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from .dtypes import float32, is_float, is_half

Array = npt.NDArray[Any]


def maximum(a: Array, b: Array) -> Array:
    """The larger of each pair (broadcast, equal dtypes); NaN if either is NaN; -0 < +0.  Source: NUM-MAX."""
    return _extreme(a, b, largest=True)


def minimum(a: Array, b: Array) -> Array:
    """The smaller of each pair (broadcast, equal dtypes); NaN if either is NaN; -0 < +0.  Source: NUM-MAX."""
    return _extreme(a, b, largest=False)


def _extreme(a: Array, b: Array, *, largest: bool) -> Array:
    a, b = np.asarray(a), np.asarray(b)
    if not is_float(a.dtype):
        return np.asarray(np.maximum(a, b) if largest else np.minimum(a, b))
    a, b = np.broadcast_arrays(a, b)
    with np.errstate(all="ignore"):
        chosen = np.where(a > b if largest else a < b, a, b)
        # Equal numbers have equal bits, zeros apart: there AND keeps a minus sign only if both have it, OR if any has.
        word = np.dtype(f"u{a.dtype.itemsize}")
        equal = a == b
        if equal.any():
            bits = (np.bitwise_and if largest else np.bitwise_or)(_bits(a, word), _bits(b, word))
            chosen = np.where(equal, bits.view(a.dtype), chosen)
        unordered = a != a
        return np.where(unordered, a, chosen) if unordered.any() else chosen


def _bits(x: Array, word: np.dtype[Any]) -> Array:
    return np.ascontiguousarray(x).view(word).reshape(x.shape)


def argsort(x: Array, axis: int = -1, descending: bool = False) -> Array:
    """The int64 indices that sort `x` along `axis`: stable in both directions, NaN largest, -0 equal to +0.

    Source: NUM-ORDER.
    """
    keys = _keys(x)
    if not descending:
        return np.argsort(keys, axis=axis, kind="stable")
    # Sorting the mirror image ascending and mirroring back puts the largest first and keeps equals in their order.
    mirrored = np.argsort(np.flip(keys, axis), axis=axis, kind="stable")
    return np.asarray(keys.shape[axis] - 1 - np.flip(mirrored, axis))


def argmax(x: Array, axis: int = -1) -> Array:
    """The int64 index of the largest element along `axis`; the first NaN if there is one.  Source: NUM-ORDER."""
    return np.asarray(np.argmax(_keys(x), axis=axis))


def argmin(x: Array, axis: int = -1) -> Array:
    """The int64 index of the least element along `axis`; the first NaN if there is one, as `minimum` propagates it.

    Source: NUM-ORDER.
    """
    return np.asarray(np.argmin(_keys(x), axis=axis))


def _keys(x: Array) -> Array:
    x = np.asarray(x)
    with np.errstate(all="ignore"):
        return x.astype(float32) if is_half(x.dtype) else x
