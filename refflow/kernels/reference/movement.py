"""Movement kernels: every output element is a copy of one input element or a stated filler, so all are exact.

Implements the movement chapter of spec/text/kernels.md; `fold2d`, the transpose of `unfold2d`, adds in the canonical
tree over the source position (NUM-SCATTER).  Normalising negative dimensions and checking bounds is the primitives'.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from ...numerics import trees
from ...numerics.dtypes import cast
from .registry import WHOLE, Array, At, Pair, extent, kernel


@kernel
def reshape(x: Array, *, shape: Sequence[int]) -> Array:
    """Return the elements of `x` in row-major order under another shape of the same size."""
    return x.reshape(shape)


@kernel
def transpose(x: Array, *, perm: Sequence[int]) -> Array:
    """Return `x` with dimension d of the result taken from dimension perm[d]."""
    return x.transpose(perm)


@kernel
def expand(x: Array, *, shape: Sequence[int]) -> Array:
    """Return `x` repeated along its size-1 and missing leading dimensions up to `shape`."""
    return np.broadcast_to(x, shape)


def steps_of(starts: Sequence[int], stops: Sequence[int | None], steps: Sequence[int]) -> tuple[Any, ...]:
    """Return one slice per dimension; a stop of None leaves that dimension whole, whatever its local size.

    The ellipsis after them lets a 0-d array stay one.
    """
    bounds = zip(starts, stops, steps, strict=True)
    return (*(slice(None) if stop is None else slice(start, stop, step) for start, stop, step in bounds), ...)


@kernel
def slice_(x: Array, *, starts: Sequence[int], stops: Sequence[int | None], steps: Sequence[int]) -> Array:
    """Return x[start:stop:step] in every dimension (steps >= 1)."""
    return np.asarray(x[steps_of(starts, stops, steps)])


@kernel
def slice_update(
    x: Array, value: Array, *, starts: Sequence[int], stops: Sequence[int | None], steps: Sequence[int]
) -> Array:
    """Return a copy of `x` in which x[start:stop:step] is `value` (broadcast)."""
    out = x.copy()
    out[steps_of(starts, stops, steps)] = value
    return out


@kernel
def pad(x: Array, *, low: Sequence[int], high: Sequence[int], value: float) -> Array:
    """Return `x` with low[d] elements before and high[d] after it in dimension d, all `value` rounded to its dtype."""
    bounds = list(zip(low, x.shape, high, strict=True))
    out = np.full([before + n + after for before, n, after in bounds], cast(np.asarray(value), x.dtype), x.dtype)
    out[tuple(slice(before, before + n) for before, n, _ in bounds)] = x
    return out


@kernel
def cat(*xs: Array, dim: int) -> Array:
    """Return the arrays one after the other along `dim`."""
    return np.concatenate(xs, axis=dim)


@kernel
def flip(x: Array, *, dims: Sequence[int]) -> Array:
    """Return `x` with the order of the elements along each of `dims` reversed."""
    return np.asarray(np.flip(x, axis=tuple(dims)))


def column_minus_row(x: Array, at: At) -> Array:
    """Return logical column - logical row of each element of the last two dimensions (letters m, n)."""
    (top, bottom, _), (left, right, _) = extent(at, "m", x.shape[-2]), extent(at, "n", x.shape[-1])
    return np.arange(left, right) - np.arange(top, bottom)[:, None]


@kernel
def tril(x: Array, *, diagonal: int, at: At = WHOLE) -> Array:
    """Return `x` with zeros above the given diagonal of the logical matrix (last two dimensions)."""
    return np.where(column_minus_row(x, at) <= diagonal, x, np.zeros((), x.dtype))


@kernel
def triu(x: Array, *, diagonal: int, at: At = WHOLE) -> Array:
    """Return `x` with zeros below the given diagonal of the logical matrix (last two dimensions)."""
    return np.where(column_minus_row(x, at) >= diagonal, x, np.zeros((), x.dtype))


def windows(size: int, kernel: int, stride: int, padding: int, dilation: int) -> int:
    """Return how many windows of a kernel fit along one padded dimension."""
    return max((size + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1, 0)


@kernel
def unfold2d(x: Array, *, kernel: Pair, stride: Pair, padding: Pair, dilation: Pair, value: float) -> Array:
    """Return every window of x (n, c, y, x) as (n, c, p, q, i, j), reading `value` where it hangs over the edge."""
    n, c, *size = x.shape
    padded = pad(x, low=(0, 0, *padding), high=(0, 0, *padding), value=value)
    counts = [windows(*along) for along in zip(size, kernel, stride, padding, dilation, strict=True)]
    outer, rows, columns = padded.strides[:2], padded.strides[2], padded.strides[3]
    steps = (rows * stride[0], columns * stride[1], rows * dilation[0], columns * dilation[1])
    return as_strided(padded, (n, c, *counts, *kernel), (*outer, *steps), writeable=False)


@kernel
def fold2d(g: Array, *, size: Pair, kernel: Pair, stride: Pair, padding: Pair, dilation: Pair) -> Array:
    """Return the transpose of unfold2d: out[y, x] is the tree over the windows (p, q), flat, that read it, or -0.0."""
    n, c, p, q, i, j = g.shape
    y = np.arange(p)[:, None] * stride[0] + np.arange(i) * dilation[0] - padding[0]  # (p, i)
    x = np.arange(q)[:, None] * stride[1] + np.arange(j) * dilation[1] - padding[1]  # (q, j)
    window, target, inside = (
        np.broadcast_to(values, (p, q, i, j)).ravel()
        for values in (
            (np.arange(p)[:, None] * q + np.arange(q))[:, :, None, None],
            y[:, None, :, None] * size[1] + x[None, :, None, :],
            ((y >= 0) & (y < size[0]))[:, None, :, None] & ((x >= 0) & (x < size[1]))[None, :, None, :],
        )
    )
    values = g.transpose(2, 3, 4, 5, 0, 1).reshape(p * q * i * j, n, c)
    out = trees.scatter_tree(values, np.where(inside, target, -1), size[0] * size[1], p * q, window)
    return out.transpose(1, 2, 0).reshape(n, c, *size)
