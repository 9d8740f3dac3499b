"""Contraction kernels: matmul, and 2-d convolution with its two gradients, over one flat range each.

Implements NUM-CONTRACT and NUM-CONV of spec/text/numerics.md.  The tree and its leaves' chains of multiply-adds are
refflow.numerics.contraction's; here it is said which factors meet, in which order.  A tap that falls on padding, or
between strides, is absent: its place in the tree stays, its product does not exist (never +0 * w, NaN for w = inf).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...numerics import cast, contract
from .movement import windows
from .registry import Array, Pair, kernel, widen


@kernel
def matmul(x: Array, y: Array) -> Array:
    """Return the matrix products of x (..., m, k) and y (..., k, n), batches broadcast, contracted over k."""
    return cast(contract(widen(x), widen(y)), x.dtype)


@kernel
def conv2d(x: Array, w: Array, *, stride: Pair, padding: Pair, dilation: Pair, groups: int) -> Array:
    """Return out (n, g*o, p, q) of x (n, g*c, y, x) and w (g*o, c, i, j), contracted over the flat range (c, i, j).

    The arrays may hold some of the `groups` only.
    """
    sizes = zip(x.shape[2:], w.shape[2:], stride, padding, dilation, strict=True)
    rows, columns = (
        Taps.reading(np.arange(windows(size, taps, s, pad, d)) * s + np.arange(taps)[:, None] * d - pad, size)
        for size, taps, s, pad, d in sizes
    )
    g = held(x.shape[1], w.shape[1], groups)
    source = split(x, 1, g, w.shape[1]).transpose(1, 2, 0, 3, 4)
    out = correlate(source, split(w, 0, g), rows, columns)
    return joined(out.transpose(2, 0, 1, 3, 4), 1, x)


@kernel
def conv2d_input(
    g: Array,
    w: Array,
    *,
    size: Pair,
    stride: Pair,
    padding: Pair,
    dilation: Pair,
    groups: int,
    shape: Sequence[int] | None = None,
) -> Array:
    """Return conv2d's gradient to x (n, g*c, *size) from g (n, g*o, p, q), contracted over the flat range (o, i, j).

    Where the arrays hold some of the `groups` only, the local output `shape` says how many.
    """
    sizes = zip(size, g.shape[2:], w.shape[2:], stride, padding, dilation, strict=True)
    rows, columns = (
        Taps.dividing(np.arange(outputs) + pad - np.arange(taps)[:, None] * d, s, source)
        for outputs, source, taps, s, pad, d in sizes
    )
    here = held(shape[1], w.shape[1], groups) if shape else groups
    source = split(g, 1, here).transpose(1, 2, 0, 3, 4)
    out = correlate(source, split(w, 0, here).transpose(0, 2, 1, 3, 4), rows, columns)
    return joined(out.transpose(2, 0, 1, 3, 4), 1, g)


@kernel
def conv2d_filter(
    x: Array,
    g: Array,
    *,
    size: Pair,
    stride: Pair,
    padding: Pair,
    dilation: Pair,
    groups: int,
    shape: Sequence[int] | None = None,
) -> Array:
    """Return conv2d's gradient to w (g*o, c, *size) from g (n, g*o, p, q), contracted over the flat range (n, p, q).

    Where the arrays hold some of the `groups` only, the local output `shape` says how many.
    """
    sizes = zip(size, x.shape[2:], g.shape[2:], stride, padding, dilation, strict=True)
    rows, columns = (
        Taps.reading(np.arange(outputs) * d + np.arange(taps)[:, None] * s - pad, source)
        for outputs, source, taps, s, pad, d in sizes
    )
    c = shape[1] if shape else x.shape[1] // groups
    here = held(x.shape[1], c, groups)
    source = split(x, 1, here, c).transpose(1, 0, 2, 3, 4)
    return joined(correlate(source, split(g, 1, here).transpose(1, 2, 0, 3, 4), rows, columns), 0, x)


@dataclass(frozen=True)
class Taps:
    """Along one dimension: which source index each output reads by each tap, and whether it exists; (taps, outputs)."""

    source: Array  # 0 where absent
    present: Array

    @staticmethod
    def reading(position: Array, size: int) -> Taps:
        """Return the taps that read `position` of a source of `size` elements."""
        present = (position >= 0) & (position < size)
        return Taps(np.where(present, position, 0), present)

    @staticmethod
    def dividing(position: Array, stride: int, size: int) -> Taps:
        """Return the taps that read position / stride where it is whole."""
        quotient, between = np.divmod(position, stride)
        return Taps.reading(np.where(between == 0, quotient, -1), size)


def correlate(x: Array, w: Array, rows: Taps, columns: Taps) -> Array:
    """Return sum over (c, i, j) of x[g, c, b, rows[i, p], columns[j, q]] * w[g, o, c, i, j], as (g, o, b, p, q).

    x is (g, c, b, source rows, source columns).  conv2d and its gradients are this under other names of the letters.
    """
    g, c, b = x.shape[:3]
    (i, p), (j, q) = rows.source.shape, columns.source.shape
    if 0 in x.shape[3:]:  # every tap is absent, but NumPy needs something to read
        x = np.zeros((g, c, b, *(max(n, 1) for n in x.shape[3:])), x.dtype)
    read = x[:, :, :, rows.source[:, None, :, None], columns.source[:, None, :]]  # (g, c, b, i, j, p, q)
    factors = widen(read.transpose(0, 1, 3, 4, 2, 5, 6).reshape(g, c * i * j, b * p * q))
    exists = rows.present[:, None, None, :, None] & columns.present[:, None, None, :]  # (i, j, b, p, q)
    present = np.broadcast_to(exists, (c, i, j, b, p, q)).reshape(factors.shape[1:])
    weights = widen(w.reshape(g, w.shape[1], c * i * j))
    return contract(weights, factors, None if exists.all() else present).reshape(g, w.shape[1], b, p, q)


def held(channels: int, each: int, groups: int) -> int:
    """Return how many groups these channels are, at `each` to a group: a split of the groups leaves a group whole."""
    return channels // each if each else groups


def split(x: Array, dim: int, groups: int, each: int | None = None) -> Array:
    """Return `x` with its channels (dimension `dim`) as (groups, channels of a group)."""
    each = x.shape[dim] // max(groups, 1) if each is None else each
    return x.reshape(*x.shape[:dim], groups, each, *x.shape[dim + 1 :])


def joined(x: Array, dim: int, like: Array) -> Array:
    """Return `x` with (groups, channels of a group), at `dim`, as one dimension, in the dtype of `like`."""
    return cast(x.reshape(*x.shape[:dim], x.shape[dim] * x.shape[dim + 1], *x.shape[dim + 2 :]), like.dtype)
