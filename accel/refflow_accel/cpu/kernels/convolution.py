"""Convolutions: conv2d and its gradients as one correlation under other names of the letters.

Implements ACC-CONV of spec/text/acceleration.md (NUM-CONV's bits).  Here shapes and strides become the tables that
`correlation` works by; they are kept from call to call.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from refflow.kernels.reference.contraction import Taps, held
from refflow.kernels.reference.movement import windows

from ..abi import Call
from ..registry import kernel
from .contraction import of_halves
from .correlation import CORRELATE, FIELDS, SCATTERED
from .packing import BLOCK, Array, Panels, table_of
from .tiles import COLUMNS, LANES, ROWS, SIZE, program

Pair = tuple[int, int]
Shape = tuple[int, ...]
CHUNK = 512  # terms of k packed at a time


@dataclass(frozen=True)
class Plan:
    """How a convolution is computed: the result's shape, whether and how w is packed, the table, scratch and work."""

    shape: Shape
    weights: Panels | None
    table: Array
    columns: int  # elements of packed columns
    stacks: int  # elements of stacks
    bits: int  # 16-bit words
    tasks: int
    cost: float


def _run(call: Call, p: Plan | None, x: Array, w: Array) -> Any:
    if p is None:
        return NotImplemented
    out = call.empty(p.shape, x.dtype)
    if p.tasks:
        slack = 64 // x.itemsize
        factors = w if p.weights is None else p.weights.write(call, w)
        work = call.scratch((p.columns + slack,), x.dtype), call.scratch((p.stacks + slack,), x.dtype)
        bits = call.scratch((p.bits,), np.uint16)
        call.launch(CORRELATE[x.dtype], x, factors, out, *work, bits, call.table(p.table), tasks=p.tasks, cost=p.cost)
    return out


def _served(x: Array, w: Array) -> bool:
    return x.dtype == w.dtype and x.dtype in CORRELATE and x.ndim == w.ndim == 4


@kernel
@of_halves
def conv2d(call: Call, x: Array, w: Array, *, stride: Pair, padding: Pair, dilation: Pair, groups: int) -> Any:
    """out (n, g*o, p, q) of x (n, g*c, y, x) and w (g*o, c, i, j)."""
    if not _served(x, w):
        return NotImplemented
    key = tuple(stride), tuple(padding), tuple(dilation)
    return _run(call, forward(x.shape, x.strides, w.shape, w.strides, x.itemsize, *key, groups), x, w)


@kernel
@of_halves
def conv2d_input(
    call: Call, g: Array, w: Array, *, size: Pair, stride: Pair, padding: Pair, dilation: Pair, groups: int,
    shape: Any = None,
) -> Any:  # fmt: skip
    """conv2d's gradient to x (n, g*c, *size) from g (n, g*o, p, q)."""
    if not _served(g, w):
        return NotImplemented
    channels = int(shape[1]) if shape else w.shape[1] * groups
    key = tuple(size), tuple(stride), tuple(padding), tuple(dilation)
    return _run(call, to_input(g.shape, g.strides, w.shape, w.strides, g.itemsize, *key, channels), g, w)


@kernel
@of_halves
def conv2d_filter(
    call: Call, x: Array, g: Array, *, size: Pair, stride: Pair, padding: Pair, dilation: Pair, groups: int,
    shape: Any = None,
) -> Any:  # fmt: skip
    """conv2d's gradient to w (g*o, c, *size) from g (n, g*o, p, q)."""
    if not _served(x, g):
        return NotImplemented
    each = int(shape[1]) if shape else x.shape[1] // groups
    here = held(x.shape[1], each, groups)
    key = tuple(size), tuple(stride), tuple(padding), tuple(dilation)
    return _run(call, to_filter(x.shape, x.strides, g.shape, g.strides, x.itemsize, *key, each, here), x, g)


@lru_cache(maxsize=256)
def forward(
    xshape: Shape, xbytes: Shape, wshape: Shape, wbytes: Shape, size: int,
    stride: Pair, padding: Pair, dilation: Pair, groups: int,
) -> Plan | None:  # fmt: skip
    """The plan of conv2d."""
    if any(s % size for s in xbytes + wbytes):
        return None
    along = zip(xshape[2:], wshape[2:], stride, padding, dilation, strict=True)
    rows, columns = (
        Taps.reading(np.arange(windows(n, taps, s, pad, d)) * s + np.arange(taps)[:, None] * d - pad, n)
        for n, taps, s, pad, d in along
    )
    (b, _, _, _), (outs, c, _, _) = xshape, wshape
    g = held(xshape[1], c, groups)
    o = outs // max(g, 1)
    (xb, xc, xy, xx), (wo, wc, wi, wj) = (tuple(s // size for s in strides) for strides in (xbytes, wbytes))
    p, q = rows.source.shape[1], columns.source.shape[1]
    shape = (b, outs, p, q)
    return _plan(
        shape, (g, c, b, o), (xc * c, xc, xb, xy, xx), (wo * o, wo, wc, wi, wj),
        (o * p * q, p * q, outs * p * q), rows, columns, size,
    )  # fmt: skip


@lru_cache(maxsize=256)
def to_input(
    gshape: Shape, gbytes: Shape, wshape: Shape, wbytes: Shape, bytes_: int,
    size: Pair, stride: Pair, padding: Pair, dilation: Pair, channels: int,
) -> Plan | None:  # fmt: skip
    """The plan of conv2d_input: out (n, channels, *size), contracted over (o, i, j)."""
    if any(s % bytes_ for s in gbytes + wbytes):
        return None
    along = zip(size, gshape[2:], wshape[2:], stride, padding, dilation, strict=True)
    rows, columns = (
        Taps.dividing(np.arange(n) + pad - np.arange(taps)[:, None] * d, s, source)
        for n, source, taps, s, pad, d in along
    )
    b, outs = gshape[:2]
    each = wshape[1]
    g = channels // each if each else 0
    if g == 0 or outs % g:
        return None
    o = outs // g
    (gb, gc, gy, gx), (wo, wc, wi, wj) = (tuple(s // bytes_ for s in strides) for strides in (gbytes, wbytes))
    p, q = size
    return _plan(
        (b, channels, p, q), (g, o, b, each), (gc * o, gc, gb, gy, gx), (wo * o, wc, wo, wi, wj),
        (each * p * q, p * q, channels * p * q), rows, columns, bytes_,
    )  # fmt: skip


@lru_cache(maxsize=256)
def to_filter(
    xshape: Shape, xbytes: Shape, gshape: Shape, gbytes: Shape, bytes_: int,
    size: Pair, stride: Pair, padding: Pair, dilation: Pair, each: int, groups: int,
) -> Plan | None:  # fmt: skip
    """The plan of conv2d_filter: out (g*o, each, *size), contracted over (n, p, q)."""
    if any(s % bytes_ for s in xbytes + gbytes) or groups == 0 or gshape[1] % groups:
        return None
    along = zip(size, xshape[2:], gshape[2:], stride, padding, dilation, strict=True)
    rows, columns = (
        Taps.reading(np.arange(n) * d + np.arange(taps)[:, None] * s - pad, source)
        for n, source, taps, s, pad, d in along
    )
    b, outs = gshape[:2]
    o = outs // groups
    (xb, xc, xy, xx), (gb, gc, gy, gx) = (tuple(s // bytes_ for s in strides) for strides in (xbytes, gbytes))
    p, q = size
    return _plan(
        (outs, each, p, q), (groups, b, each, o), (xc * each, xb, xc, xy, xx), (gc * o, gc, gb, gy, gx),
        (o * each * p * q, each * p * q, p * q), rows, columns, bytes_,
    )  # fmt: skip


def _plan(
    shape: Shape, letters: tuple[int, int, int, int], xs: tuple[int, ...], ws: tuple[int, ...], outs: tuple[int, int, int],
    rows: Taps, columns: Taps, size: int,
) -> Plan | None:  # fmt: skip
    """The plan of `correlate` for letters (g, c, b, o); strides of x (g, c, b, y, x), w (g, o, c, i, j), out (g, o, b)."""
    (g, c, b, o), (i, p), (j, q) = letters, rows.source.shape, columns.source.shape
    pixels, taps = p * q, i * j
    k = c * taps
    if 0 in shape:
        return Plan(shape, None, table_of(), 0, 0, 0, 0, 0.0)
    if k == 0 or (i > 1 and j > 1 and ws[3] != ws[4] * j):
        return None
    step = ws[4] if j > 1 else ws[3]
    wide = COLUMNS if size < 8 else LANES
    together = _together(pixels, b, taps)
    images, panels = -(-b // together), -(-together * pixels // wide)
    words, vectors = panels * (wide // LANES), wide // LANES
    source, exists = _reads(rows, columns, together, xs)
    shifts, bits, sources = _vectors(source, exists, words)
    tap_words = -(-taps // LANES)
    tap_shifts, tap_bits, _ = _vectors(source.T, exists.T, tap_words)
    by_taps = (shifts == SCATTERED).any() and not (tap_shifts == SCATTERED).any() and taps >= BLOCK
    if not by_taps:
        tap_shifts = tap_bits = np.zeros(0, np.int64)
    else:
        sources = np.zeros(0, np.int64)
        room_for = panels * wide - len(tap_bits)  # columns past the last
        tap_shifts, tap_bits = (np.pad(part, ((0, room_for), (0, 0))) for part in (tap_shifts, tap_bits))
    bits = bits.reshape(taps, panels, vectors).swapaxes(0, 1)
    missing = np.array([not exists[:, at : at + wide].all() for at in range(0, panels * wide, wide)])
    begins = np.arange(g) * ws[0]
    weights = None
    steps = (ROWS * ws[1], ws[1], step)
    if o < ROWS or (c > 1 and ws[2] != step * taps):
        weights = Panels(begins, o, k, ROWS, ROWS, ws[1], ws[2], step, taps)
        begins, steps = weights.places, (ROWS * k, 1, ROWS)
    tree = program(k)
    chunks, levels, room = _chunks(tree)
    units = g * images * panels
    tasks = min(units, 16)
    numbers = {
        "groups": g, "images": images, "together": together, "batch": b, "pixels": pixels, "taps": taps, "units": units, "tasks": tasks,
        "columns": wide, "vectors": vectors, "words": words, "rows": o, "k": k, "x_group": xs[0], "x_batch": xs[2],
        "x_channel": xs[1], "w_packed": int(weights is not None), "w_tile": steps[0], "w_row": steps[1], "w_k": steps[2],
        "out_group": outs[0], "out_row": outs[1], "out_batch": outs[2], "chunks": len(chunks), "levels": levels, "room": room,
        "by_taps": int(by_taps), "tap_words": tap_words,
    }  # fmt: skip
    at = len(FIELDS)
    lists = {
        "w_begins": begins, "chunk_list": chunks, "missing": missing, "shifts": shifts, "bits": bits, "sources": sources,
        "tap_shifts": tap_shifts, "tap_bits": tap_bits, "tree": tree,
    }  # fmt: skip
    for name, part in lists.items():
        numbers[name], at = at, at + part.size
    table = table_of(*(numbers[name] for name in FIELDS), *lists.values())
    tiles = -(-o // ROWS)
    stacks = tasks * levels * SIZE * (tiles if len(chunks) > 1 else 1)
    cost = units * wide * k * (ROWS * tiles / 50 + 0.5) / tasks
    return Plan(shape, weights, table, tasks * room * wide, stacks, tasks * room * vectors, tasks, cost)


def _together(pixels: int, batch: int, taps: int) -> int:
    """How many elements of the batch are an image: few, such that its columns fill vectors and its table stays small."""
    best, least = 1, math.inf
    for z in (1, 2, 4, 8, 16):
        waste = -(-z * pixels // LANES) * LANES / (z * pixels)
        if z <= batch and z * pixels * taps <= max(1 << 20, pixels * taps) and waste < least / 1.1:
            best, least = z, waste
    return best


def _reads(rows: Taps, columns: Taps, together: int, xs: tuple[int, ...]) -> tuple[Array, Array]:
    """Where each column of an image reads by each tap, from x's image on, and whether there is anything; (taps, columns)."""
    (i, p), (j, q) = rows.source.shape, columns.source.shape
    source = rows.source[:, None, :, None] * xs[3] + columns.source[:, None, :] * xs[4]  # (i, j, p, q)
    source = np.arange(together)[:, None] * xs[2] + source.reshape(i * j, 1, p * q)
    exists = rows.present[:, None, :, None] & columns.present[:, None, :]
    exists = np.broadcast_to(exists.reshape(i * j, 1, p * q), source.shape)
    return source.reshape(i * j, -1), exists.reshape(i * j, -1)


def _vectors(source: Array, exists: Array, words: int) -> tuple[Array, Array, Array]:
    """For each vector of LANES of the second axis: the shift if they lie together, bits of those that exist, sources."""
    rows, count = source.shape
    lanes, there = np.zeros((rows, words * LANES), np.int64), np.zeros((rows, words * LANES), bool)
    lanes[:, :count], there[:, :count] = source, exists
    lanes, there = lanes.reshape(rows, words, LANES), there.reshape(rows, words, LANES)
    shift = lanes - np.arange(LANES)
    first = np.take_along_axis(shift, there.argmax(-1)[..., None], -1)
    near = ((shift == first) | ~there).all(-1)
    shifts = np.where(there.any(-1), np.where(near, first[..., 0], SCATTERED), 0)
    return shifts, (there.astype(np.int64) << np.arange(LANES)).sum(-1), lanes


def _chunks(tree: Array) -> tuple[Array, int, int]:
    """Runs of leaves of about CHUNK terms as rows (first, last, first k, last k, height of the stack before); heights."""
    rows, first, begin, k, height, before, highest, longest = [], 0, 0, 0, 0, 0, 1, 0
    for leaf, (terms, merges) in enumerate(tree.tolist()):
        k += terms
        highest = max(highest, height + 1)
        height += 1 - merges
        if leaf == len(tree) - 1 or k + 16 - begin > CHUNK:
            rows.append((first, leaf + 1, begin, k, before))
            longest = max(longest, k - begin)
            first, begin, before = leaf + 1, k, height
    return np.array(rows, np.int64), highest, longest
