"""Creation kernels: arrays from attributes alone, each element from its *logical* index.

Implements the creation chapter of spec/text/kernels.md and RNG-INDEX: the letters d0, d1, ... in `at` place the shard
in the whole, so a shard of arange, eye or rand is that part of the whole.  The generator is refflow.numerics.philox.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...numerics import philox
from ...numerics.dtypes import cast, is_float
from .registry import WHOLE, Array, At, Dtype, Pair, extent, kernel, widen


@kernel
def full(*, shape: Sequence[int], value: float, dtype: Dtype) -> Array:
    """Return an array of one value, rounded once to `dtype`."""
    return np.full(shape, cast(np.asarray(value), dtype), dtype)


@kernel
def arange(*, start: float, step: float, length: int, dtype: Dtype, at: At = WHOLE) -> Array:
    """Return start + i*step for this shard's logical indices i (letter d0): floats round i, the product and the sum."""
    lo, hi, _ = extent(at, "d0", length)
    index = np.arange(lo, hi, dtype=np.int64)
    if not is_float(dtype):
        return cast(int(start) + index * int(step), dtype)
    first, by = (widen(cast(np.asarray(value), dtype)) for value in (start, step))
    return cast(first + cast(index, first.dtype) * by, dtype)


@kernel
def eye(*, dims: Pair, dtype: Dtype, at: At = WHOLE) -> Array:
    """Return ones where the logical row (d0) equals the logical column (d1), zeros elsewhere."""
    (top, bottom, _), (left, right, _) = extent(at, "d0", dims[0]), extent(at, "d1", dims[1])
    return cast(np.arange(top, bottom)[:, None] == np.arange(left, right), dtype)


def logical_index(dims: Sequence[int], at: At) -> Array:
    """Return the row-major position, in the whole array of shape `dims`, of each element of this shard (uint64)."""
    flat: Array = np.zeros((), np.uint64)
    for d, n in enumerate(dims):
        lo, hi, of = extent(at, f"d{d}", n)
        flat = flat[..., None] * np.uint64(of) + np.arange(lo, hi, dtype=np.uint64)
    return flat


@kernel
def rand(*, dims: Sequence[int], seed: int, stream: int, at: At = WHOLE) -> Array:
    """Return float32 uniforms on [0, 1) for this shard of a whole of shape `dims`."""
    return philox.uniform(logical_index(dims, at), seed, stream)


@kernel
def randn(*, dims: Sequence[int], seed: int, stream: int, at: At = WHOLE) -> Array:
    """Return float32 standard normals (Box-Muller) for this shard of a whole of shape `dims`."""
    return philox.normal(logical_index(dims, at), seed, stream)


@kernel
def random_bits(*, dims: Sequence[int], seed: int, stream: int, at: At = WHOLE) -> Array:
    """Return the generator's 32-bit words, as int64, for this shard of a whole of shape `dims`."""
    return philox.random_bits(logical_index(dims, at), seed, stream).astype(np.int64)


@kernel
def randint(*, low: int, high: int, dims: Sequence[int], seed: int, stream: int, at: At = WHOLE) -> Array:
    """Return int64 integers on [low, high) (high - low < 2**32) for this shard of a whole of shape `dims`."""
    return philox.integers(logical_index(dims, at), low, high, seed, stream)
