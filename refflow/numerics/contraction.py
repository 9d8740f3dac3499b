"""Contractions: the canonical tree of matrix products and convolutions.

Implements NUM-CONTRACT of spec/text/numerics.md.  A leaf of up to LEAF terms is one ascending chain of fused
multiply-adds from -0.0, and the leaves are added by the canonical tree.  What a tap is, and which are absent, is left
to `kernels`.  This is the hot loop of the reference: all leaves take their t-th step together, in blocks that stay in
cache.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import DtypeError, ShapeError
from .dtypes import bool_, float32, float64, is_integer
from .profile import LEAF
from .rounding import add_rounded
from .trees import Slots, depth, fill, levels, slots

Array = npt.NDArray[Any]

_BLOCK = 1 << 13  # elements of one work array; five of them stay in a second-level cache
_FEW = 16  # leaves worked on together even if that leaves few output elements a block


def contract(a: Array, b: Array, present: Array | None = None) -> Array:
    """out[..., i, j] = the canonical tree over k of a[..., i, k] * b[..., k, j]; leading axes broadcast.

    a (..., m, k), b (..., k, n), of one dtype: float32 (fused chains), float64 (multiply, then add) or an integer type
    (wraps).  `present`, a bool array that broadcasts to b's shape, marks taps that exist: an absent one contributes
    nothing, not even +0 * w.  k = 0 gives -0.0 (0 for integers).  Raises ShapeError, DtypeError.  Source: NUM-CONTRACT.
    """
    a, b = np.asarray(a), np.asarray(b)
    if a.ndim < 2 or b.ndim < 2 or a.shape[-1] != b.shape[-2]:
        raise ShapeError(f"contract: {a.shape} with {b.shape}; give (..., m, k) and (..., k, n)")
    if a.dtype != b.dtype or not (a.dtype in (float32, float64) or is_integer(a.dtype)):
        raise DtypeError(f"contract: {a.dtype.name} with {b.dtype.name}; give float32, float64 or an integer type")
    if present is not None:
        present = np.broadcast_to(np.asarray(present, bool_), b.shape)
    if is_integer(a.dtype):
        return np.asarray(np.matmul(a, b if present is None else np.where(present, b, b.dtype.type(0))))
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    m, n = a.shape[-2], b.shape[-1]
    absent = None if present is None or present.all() else _pack(~present, batch, bool_)
    with np.errstate(all="ignore"):
        left, right = _pack(a.mT, batch, float64), _pack(b, batch, float64)
        count = max(left.shape[1], right.shape[1]) if 0 not in batch else 0
        if m > n:  # the longer side goes innermost; products commute to the bit
            out = np.full((count, n, m), -0.0, a.dtype)
            _blocks(right, left, absent if absent is None else absent[..., None], out)
            return out.mT.reshape(*batch, m, n)
        out = np.full((count, m, n), -0.0, a.dtype)
        _blocks(left, right, absent if absent is None else absent[:, :, None, :], out)
        return out.reshape(*batch, m, n)


def _pack(x: Array, batch: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """(..., k, n) to contiguous (k, batch, n); an operand without a batch keeps a batch of one and broadcasts later."""
    matrix = x.shape[-2:]
    if all(size == 1 for size in x.shape[:-2]):
        x = x.reshape(1, *matrix)
    else:
        x = np.broadcast_to(x, (*batch, *matrix)).reshape(int(np.prod(batch)), *matrix)
    return np.ascontiguousarray(x.swapaxes(0, 1), dtype)


class _Work:
    """Work arrays of the chains, reused from block to block; flat, so that the first leaves are one piece."""

    def __init__(self, size: int, dtype: np.dtype[Any]) -> None:
        self.fused = dtype == float32
        self.product = np.empty(size, np.float64)
        self.value = np.empty(size, dtype)
        if self.fused:
            self.total, self.before, self.after = (np.empty(size, np.float64) for _ in range(3))
            self.low = np.empty(size, np.int64)
            self.bits = self.total.view(np.int64)


def _blocks(left: Array, right: Array, absent: Array | None, out: Array) -> None:
    """Write out[batch, i, j] for left (k, batch | 1, m), right (k, batch | 1, n), absent broadcasting to four axes."""
    if out.size == 0 or left.shape[0] == 0:
        return
    count, m, n = out.shape
    room = max(_FEW, _BLOCK // out.size)
    # A power of two, so that a range of no more than together * LEAF terms has no more than `together` leaves.
    together = min(1 << depth(left.shape[0], LEAF), 1 << room.bit_length() - 1)
    room = max(1, _BLOCK // together)
    columns = min(n, room)
    rows = min(m, max(1, room // columns))
    items = min(count, max(1, room // (rows * columns)))
    work = _Work(together * items * rows * columns, out.dtype)
    for g in range(0, count, items):
        for i in range(0, m, rows):
            for j in range(0, n, columns):
                gs, rs, cs = slice(g, g + items), slice(i, i + rows), slice(j, j + columns)
                piece = out[gs, rs, cs]
                x = left[:, gs if left.shape[1] > 1 else slice(None), rs, None]
                y = right[:, gs if right.shape[1] > 1 else slice(None), None, cs]
                z = absent
                if z is not None:
                    z = z[:, gs if z.shape[1] > 1 else slice(None)]
                    z = z[:, :, rs if z.shape[2] > 1 else slice(None), cs if z.shape[3] > 1 else slice(None)]
                piece[...] = _node(x, y, z, piece.shape, together, work)


def _node(x: Array, y: Array, absent: Array | None, shape: tuple[int, ...], together: int, work: _Work) -> Array:
    """The canonical tree over axis 0 of x * y; a range of too many leaves for the work arrays is halved first."""
    k = x.shape[0]
    if k > together * LEAF:
        h = (k + 1) // 2
        first = _node(x[:h], y[:h], absent if absent is None else absent[:h], shape, together, work)
        return first + _node(x[h:], y[h:], absent if absent is None else absent[h:], shape, together, work)
    plan = slots(k, LEAF)
    values = _chains(x, y, absent, shape, plan, work)
    return levels(fill(values.reshape(-1, *shape), plan, "sum"), "sum")


def _chains(x: Array, y: Array, absent: Array | None, shape: tuple[int, ...], plan: Slots, work: _Work) -> Array:
    """The flat values of all leaves: step t takes the t-th term of every leaf that has one (those are the first)."""
    size = shape[0] * shape[1] * shape[2]
    before, after = (work.before, work.after) if work.fused else (work.value, work.value)
    before[: len(plan.lengths) * size] = -0.0
    work.value[: len(plan.lengths) * size] = -0.0
    live = 0
    for t, active in enumerate(plan.active):
        if active != live:
            live, end = active, active * size
            flat = work.product[:end]
            product = flat.reshape(active, *shape)
            value = work.value[:end]
            if work.fused:
                total, bits, low, before, after = (
                    w[:end] for w in (work.total, work.bits, work.low, before, after)
                )  # fmt: skip
        taps = plan.taps(t)
        np.multiply(x[taps], y[taps], out=product)
        if absent is not None:
            np.copyto(product, -0.0, where=absent[taps])  # chain + -0.0 is the chain, to the bit
        if work.fused:
            add_rounded(flat, before, total, bits, low, value, after)
            before, after = after, before
        else:
            np.add(value, flat, out=value)
    return work.value[: len(plan.lengths) * size]
