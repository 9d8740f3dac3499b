"""Scan and order kernels: results along one dimension that depend on what comes before, or on rank.

Implements NUM-SCAN (ascending, sequential, starting with the first element) and NUM-ORDER (stable, lowest index first,
NaN largest, -0 equal to +0), whose comparison is refflow.numerics.order's.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...numerics import order
from ...numerics.dtypes import cast
from .registry import Array, kernel, widen


def scan(step: Callable[..., Array], x: Array, dim: int) -> Array:
    """Return y with y[0] = x[0] and y[i] = step(y[i-1], x[i]) along `dim`, in float32 for float16 and bfloat16."""
    wide = widen(x)
    out = np.empty(x.shape, wide.dtype)
    rows, terms = np.moveaxis(out, dim, 0), np.moveaxis(wide, dim, 0)
    rows[:1] = terms[:1]
    for i in range(1, len(rows)):
        step(rows[i - 1 : i], terms[i : i + 1], out=rows[i : i + 1])
    return cast(out, x.dtype)


@kernel
def cumsum(x: Array, *, dim: int) -> Array:
    """Return the running sums of `x` along `dim`, each the previous one plus the next element."""
    return scan(np.add, x, dim)


@kernel
def cumprod(x: Array, *, dim: int) -> Array:
    """Return the running products of `x` along `dim`, each the previous one times the next element."""
    return scan(np.multiply, x, dim)


@kernel
def argsort(x: Array, *, dim: int, descending: bool) -> Array:
    """Return the int64 indices that sort `x` along `dim`: stable, lowest index first, NaN largest, -0 equal to +0."""
    return order.argsort(x, dim, descending)
