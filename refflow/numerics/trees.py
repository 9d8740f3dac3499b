"""Canonical trees: the one order in which terms are added, whatever splits them.

Implements NUM-TREE, NUM-FOLD, NUM-SCATTER and NUM-ALIGN of spec/text/numerics.md.  Over n terms, a range longer than
its leaf is node(first ceil(n/2)) + node(rest).  Sums have leaf 1.  Which axes form the range, and in which order, is
left to `kernels`; contractions, whose leaves are longer, to `contraction`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import DtypeError, NumericsError, ShapeError
from .dtypes import cast, float32, identity, is_half
from .order import maximum, minimum

Array = npt.NDArray[Any]

_COMBINE: dict[str, Callable[[Array, Array], Array]] = {
    "sum": np.add, "prod": np.multiply, "max": maximum, "min": minimum,
}  # fmt: skip
_SPAN = 1 << 14  # terms folded at once: longer ranges are halved as the definition says, so temporaries stay in cache


@dataclass(frozen=True)
class Slots:
    """A canonical tree of depth D laid out in 2^D slots; a slot holds a leaf or is absent (the identity)."""

    depth: int
    start: Array  # of each leaf, longest leaves first
    place: Array  # the slot of each leaf, in the same order
    lengths: tuple[int, ...]  # of each leaf, in the same order
    active: tuple[int, ...]  # active[t] leaves have a term number t; they are the first ones
    dense: bool  # every slot holds a leaf, all of one length, so places and starts are regular

    def taps(self, t: int) -> slice | Array:
        """The positions of term t of the leaves that have one."""
        if self.dense:
            return slice(t, None, self.lengths[0])
        return np.asarray(self.start[: self.active[t]] + t)


def depth(n: int, leaf: int) -> int:
    """The depth of the canonical tree over n terms: that of its first leaf, which no other exceeds."""
    height = 0
    while n > leaf:
        n, height = (n + 1) // 2, height + 1
    return height


@lru_cache(maxsize=256)
def slots(n: int, leaf: int) -> Slots:
    """The slots of the canonical tree over n >= 1 terms.

    Halving keeps the sizes at one depth within one of each other, so leaves lie at two depths at most; a leaf of the
    upper one takes the left slot below it and leaves the right one absent.
    """
    sizes = np.array([n])
    for _ in range(depth(n, leaf)):
        halves = np.stack([np.where(sizes > leaf, (sizes + 1) // 2, sizes), np.where(sizes > leaf, sizes // 2, 0)], 1)
        sizes = halves.reshape(-1)
    place = np.argsort(-sizes, kind="stable")[: np.count_nonzero(sizes)]
    start = (np.cumsum(sizes) - sizes)[place]
    lengths = sizes[place]
    active = tuple(int(np.count_nonzero(lengths > t)) for t in range(int(lengths[0])))
    dense = len(lengths) == len(sizes) and bool((lengths == lengths[0]).all())
    return Slots(depth(n, leaf), start, place, tuple(lengths.tolist()), active, dense)


def levels(x: Array, kind: str) -> Array:
    """Fold the 2^D slots along axis 0, neighbours first."""
    combine = _COMBINE[kind]
    while x.shape[0] > 1:
        x = combine(x[0::2], x[1::2])
    return np.asarray(x[0])


def fill(values: Array, where: Slots, kind: str) -> Array:
    """Leaf values along axis 0, laid into their slots."""
    if where.dense:
        return values
    full = np.full((1 << where.depth, *values.shape[1:]), identity(kind, values.dtype), values.dtype)
    full[where.place] = values
    return full


def _fold(x: Array, kind: str) -> Array:
    """Tree over axis 0, at least one long."""
    n = x.shape[0]
    if n > _SPAN:
        half = (n + 1) // 2
        return _COMBINE[kind](_fold(x[:half], kind), _fold(x[half:], kind))
    if n & (n - 1):
        x = fill(x, slots(n, 1), kind)
    return levels(x, kind)


def tree_fold(x: Array, axis: int, kind: str) -> Array:
    """Fold `x` along `axis` by the canonical tree of leaf 1; `kind` is "sum", "prod", "max" or "min".

    The axis is removed, the dtype stays; an empty axis gives the identity.  Sums and products of float16 and bfloat16
    are folded in float32 and rounded once.  Raises NumericsError for another kind.  Source: NUM-TREE.
    """
    if kind not in _COMBINE:
        raise NumericsError(f"tree_fold: no fold is called {kind!r}; there are {', '.join(_COMBINE)}")
    x = np.asarray(x)
    x = x.transpose(axis, *(d for d in range(x.ndim) if d != axis % x.ndim))
    if x.shape[0] == 0:
        return np.full(x.shape[1:], identity(kind, x.dtype), x.dtype)
    with np.errstate(all="ignore"):
        if is_half(x.dtype) and kind in ("sum", "prod"):
            return cast(np.asarray(_fold(x.astype(float32), kind)), x.dtype)
        return np.asarray(_fold(x, kind))


def tree_sum(x: Array, axis: int) -> Array:
    """Sum `x` along `axis` by the canonical tree of leaf 1 (see `tree_fold`).  Source: NUM-TREE."""
    return tree_fold(x, axis, "sum")


def fold_parts(parts: Sequence[Array], kind: str) -> Array:
    """Fold equally shaped arrays by the canonical tree over their positions, as partials over ranks are folded.

    Raises NumericsError for no parts or another kind, ShapeError or DtypeError if they differ.  Source: NUM-FOLD.
    """
    if kind not in _COMBINE or not parts:
        raise NumericsError(f"fold_parts: {kind!r} over {len(parts)} parts; give some, and {', '.join(_COMBINE)}")
    if any(part.shape != parts[0].shape for part in parts):
        raise ShapeError(f"fold_parts: shapes {[part.shape for part in parts]}; partials have one shape")
    dtype = parts[0].dtype
    if any(part.dtype != dtype for part in parts):
        raise DtypeError(f"fold_parts: dtypes {[part.dtype.name for part in parts]}; partials have one dtype")
    widen = is_half(dtype) and kind in ("sum", "prod") and len(parts) > 1
    with np.errstate(all="ignore"):
        if widen:
            return cast(np.asarray(_fold_list([part.astype(float32) for part in parts], kind)), dtype)
        return np.asarray(_fold_list(parts, kind))


def _fold_list(parts: Sequence[Array], kind: str) -> Array:
    if len(parts) == 1:
        return parts[0]
    half = (len(parts) + 1) // 2
    return _COMBINE[kind](_fold_list(parts[:half], kind), _fold_list(parts[half:], kind))


def scatter_tree(values: Array, target: Array, size: int, extent: int, source: Array | None = None) -> Array:
    """out[t] = the tree over source index 0..extent-1 of the values whose target is t; absent ones are the identity.

    values (N, ...), target (N,) integer, source (N,) integer in [0, extent), by default 0..N-1; no (target, source)
    pair may repeat.  A target outside [0, size) contributes nothing.  Returns (size, ...); a target that nobody names
    holds -0.0 (0 for integers).  Raises ShapeError if lengths do not fit.  Source: NUM-SCATTER.
    """
    values, target = np.asarray(values), np.asarray(target)
    source = np.arange(len(target)) if source is None else np.asarray(source)
    if target.ndim != 1 or source.shape != target.shape or values.shape[:1] != target.shape:
        raise ShapeError(f"scatter_tree: values {values.shape}, target {target.shape}, source {source.shape}: no fit")
    dtype = values.dtype
    out = np.full((size, *values.shape[1:]), identity("sum", dtype), dtype)
    inside = np.flatnonzero((target >= 0) & (target < size))
    if inside.size == 0:
        return out
    if int(source.max()) >= extent:
        raise ShapeError(f"scatter_tree: source index {int(source.max())} in an extent of {extent}")
    height = depth(extent, 1)
    keys = (target[inside].astype(np.int64) << height) + _slot(source[inside], extent)
    order = np.argsort(keys, kind="stable")
    with np.errstate(all="ignore"):
        terms = values[inside[order]]
        folded, keys = _merge(terms.astype(float32) if is_half(dtype) else terms, keys[order], height)
        out[keys] = cast(folded, dtype)
    return out


def _slot(source: Array, extent: int) -> Array:
    """The slot of each source index, by walking down the tree: no table, since the extent may be far above N."""
    slot, rest = np.zeros(len(source), np.int64), source.astype(np.int64)
    size = np.full(len(source), extent)
    for _ in range(depth(extent, 1)):
        half = (size + 1) // 2
        right = rest >= half
        slot = 2 * slot + right
        rest = rest - half * right
        size = np.where(right, size - half, half)
    return slot


def _merge(terms: Array, keys: Array, height: int) -> tuple[Array, Array]:
    """Level by level, add neighbours that share a parent; single ones pass through.  Keys are sorted and distinct."""
    for _ in range(height):
        keys = keys >> 1
        left = np.flatnonzero(keys[1:] == keys[:-1])
        if left.size:
            terms[left] += terms[left + 1]
            kept = np.ones(len(keys), bool)
            kept[left + 1] = False
            terms, keys = terms[kept], keys[kept]
    return terms, keys


def aligned(bounds: Sequence[int], leaf: int) -> bool:
    """True if folding shards by the tree over their positions is, term by term, the tree over the whole range.

    bounds = offsets b[0] <= ... <= b[p] of p shards of a flat range; each shard is itself folded by the canonical tree,
    and empty shards drop out.  Source: NUM-ALIGN.
    """
    parts, n = len(bounds) - 1, bounds[-1] - bounds[0]
    if parts == 1 or n == 0:
        return True
    half = (parts + 1) // 2
    first, rest = bounds[: half + 1], bounds[half:]
    if first[-1] == bounds[-1]:
        return aligned(first, leaf)
    if rest[0] == bounds[0]:
        return aligned(rest, leaf)
    return n > leaf and rest[0] == bounds[0] + (n + 1) // 2 and aligned(first, leaf) and aligned(rest, leaf)
