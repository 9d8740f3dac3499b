"""Indexing kernels: reading and adding at positions held in an integer array.

Implements IDX-RANGE and NUM-SCATTER of spec/text/kernels.md.  Letter v of `at` is the indexed dimension: a shard of it
answers -0.0 (0, False) for indices that other shards hold, so that the shards' sum is the whole, exactly.  An index
outside the whole is an error on every shard.  Adding at an index is a tree over the *source* position, absent = -0.0.
"""

from __future__ import annotations

import math

import numpy as np

from ...errors import IndexOutOfRange
from ...numerics import trees
from ...numerics.dtypes import identity
from .registry import WHOLE, Array, At, extent, kernel


def check_range(name: str, index: Array, of: int) -> None:
    """Raise IndexOutOfRange naming the first index outside [0, of), row-major, and where it stands."""
    bad = (index < 0) | (index >= of)
    if bad.any():
        where = np.unravel_index(int(np.argmax(bad)), index.shape)
        place = tuple(int(i) for i in where)
        raise IndexOutOfRange(f"{name}: index {int(index[where])} at position {place} is outside [0, {of})")


def located(name: str, index: Array, at: At, size: int) -> tuple[Array, int]:
    """Return where in this shard of letter v each index is (the shard's length if in another one), and that length."""
    lo, hi, of = extent(at, "v", size)
    check_range(name, index, of)
    return np.where((index >= lo) & (index < hi), index - lo, hi - lo), hi - lo


def with_neutral_row(x: Array, dim: int) -> Array:
    """Return `x` with one more slice at the end of `dim`: the sum's neutral element, what an absent index reads."""
    row = np.full((*x.shape[:dim], 1, *x.shape[dim + 1 :]), identity("sum", x.dtype), x.dtype)
    return np.concatenate([x, row], axis=dim)


@kernel
def index_select(x: Array, index: Array, *, dim: int, at: At = WHOLE) -> Array:
    """Return x[..., index, ...]: dimension `dim` (letter v) replaced by the dimensions of `index`.

    Raises IndexOutOfRange for an index outside the whole dimension; one in another shard reads -0.0 (0, False).
    """
    here, length = located("index_select", index, at, x.shape[dim])
    return np.asarray(np.take(x if (here < length).all() else with_neutral_row(x, dim), here, axis=dim))


@kernel
def gather(x: Array, index: Array, *, dim: int, at: At = WHOLE) -> Array:
    """Return out[.., k, ..] = x[.., index[.., k, ..], ..] along `dim` (letter v); `index` may be shorter in the others.

    Raises IndexOutOfRange for an index outside the whole dimension; one in another shard reads -0.0 (0, False).
    """
    here, length = located("gather", index, at, x.shape[dim])
    part = x[tuple(slice(None) if d == dim else slice(n) for d, n in enumerate(index.shape))]
    return np.take_along_axis(part if (here < length).all() else with_neutral_row(part, dim), here, axis=dim)


@kernel
def index_add(index: Array, src: Array, *, dim: int, size: int, at: At = WHOLE) -> Array:
    """Return the transpose of index_select: out[.., v, ..] sums src[.., k, ..] over the flat positions k with index v.

    `src` has the dimensions of `index` in place of `dim`; `size` is the whole of v, `at` the shard; no source: -0.0.
    Raises IndexOutOfRange.
    """
    here, length = located("index_add", index, at, size)
    rest = src.shape[:dim], src.shape[dim + index.ndim :]
    values = np.moveaxis(src.reshape(*rest[0], index.size, *rest[1]), dim, 0)
    return np.moveaxis(trees.scatter_tree(values, here.ravel(), length, index.size), 0, dim)


@kernel
def scatter_add(index: Array, src: Array, *, dim: int, size: int, at: At = WHOLE) -> Array:
    """Return the transpose of gather: out[.., v, ..] sums src[.., k, ..] over the positions k along `dim` with index v.

    `src` is cut to `index`'s shape, which is the result's but for `dim`: `size` is the whole of v, `at` the shard.
    Raises IndexOutOfRange.
    """
    here, length = located("scatter_add", index, at, size)
    columns = np.moveaxis(here, dim, 0)
    values = np.moveaxis(src[tuple(slice(n) for n in index.shape)], dim, 0)
    count, rest = columns.shape[0], columns.shape[1:]
    lanes = math.prod(rest)  # each is a scatter of its own: lane l of row v is target v * lanes + l
    targets = columns.reshape(count, lanes) * lanes + np.arange(lanes)
    sources = np.broadcast_to(np.arange(count)[:, None], targets.shape)
    out = trees.scatter_tree(values.ravel(), targets.ravel(), length * lanes, count, sources.ravel())
    return np.moveaxis(out.reshape(length, *rest), 0, dim)


@kernel
def one_hot(index: Array, *, num_classes: int, at: At = WHOLE) -> Array:
    """Return int64 ones where a new last dimension (letter v, its shard in `at`) equals the index, zeros elsewhere.

    Raises IndexOutOfRange for an index outside the whole of v.
    """
    lo, hi, of = extent(at, "v", num_classes)
    check_range("one_hot", index, of)
    return np.equal(index[..., None], np.arange(lo, hi)).astype(np.int64)
