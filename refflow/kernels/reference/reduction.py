"""Reduction kernels: dimensions folded away in the canonical order, and the fold over ranks.

Implements NUM-TREE and NUM-EMPTY: several dimensions form one flat range in the order given, outermost first, folded by
the pure tree.  An empty range gives the fold's neutral element (-0.0 for float sums); a *logically* empty max is the
primitive's error.  Which tree it is, and that float16 and bfloat16 are folded in float32 and rounded once, is
refflow.numerics.trees's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ...numerics import order, trees
from .registry import Array, kernel


def flat(x: Array, dims: Sequence[int]) -> Array:
    """Return `x` with `dims` brought to the front, in that order, as one dimension."""
    kept = [d for d in range(x.ndim) if d not in dims]
    front = x.transpose(*dims, *kept)
    return front.reshape(math.prod(front.shape[: len(dims)]), *front.shape[len(dims) :])


def fold_dims(x: Array, dims: Sequence[int], kind: str) -> Array:
    """Return the fold of `x` over `dims`, which are removed."""
    return trees.tree_fold(flat(x, dims), 0, kind)


@kernel
def sum_(x: Array, *, dims: Sequence[int]) -> Array:
    """Return the sum of `x` over `dims`, a pure tree over their flat range in the order given; nothing sums to -0.0."""
    return fold_dims(x, dims, "sum")


@kernel
def prod(x: Array, *, dims: Sequence[int]) -> Array:
    """Return the product of `x` over `dims`, a pure tree; the empty product is 1."""
    return fold_dims(x, dims, "prod")


@kernel
def amax(x: Array, *, dims: Sequence[int]) -> Array:
    """Return the greatest element over `dims` (NaN wins, -0 < +0); an empty shard gives the neutral element."""
    return fold_dims(x, dims, "max")


@kernel
def amin(x: Array, *, dims: Sequence[int]) -> Array:
    """Return the least element over `dims` (NaN wins, -0 < +0); an empty shard gives the neutral element."""
    return fold_dims(x, dims, "min")


@kernel
def any_(x: Array, *, dims: Sequence[int]) -> Array:
    """Return, as bool, whether any element over `dims` is not zero."""
    return fold_dims(x != 0, dims, "max")


@kernel
def all_(x: Array, *, dims: Sequence[int]) -> Array:
    """Return, as bool, whether every element over `dims` is not zero."""
    return fold_dims(x != 0, dims, "min")


@kernel
def argmax(x: Array, *, dim: int) -> Array:
    """Return the lowest index of the greatest element along `dim` (NaN largest, -0 equal to +0), int64."""
    return order.argmax(x, dim)


@kernel
def argmin(x: Array, *, dim: int) -> Array:
    """Return the lowest index of the least element along `dim` (NaN largest, -0 equal to +0), int64."""
    return order.argmin(x, dim)


@kernel
def fold(*parts: Array, kind: str) -> Array:
    """Return the ranks' parts folded elementwise, a pure tree over their position (kind: sum, prod, max or min)."""
    return trees.fold_parts(parts, kind)
