"""Convolutions: conv2d and its gradients as one correlation under other names of the letters.

Implements ACC-CONV of spec/text/acceleration.md (NUM-CONV's bits).  Here shapes and strides become the tables that
`correlation` works by; they are kept from call to call.  A gradient to the input reads its pixels by few taps each, the
same for pixels one stride apart, which are a correlation of their own.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
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
    """How a convolution is computed: the result's shape, and correlations that each make some of its elements."""

    shape: Shape
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class Part:
    """One correlation: whether and how w is packed, the table, elements of scratch and work."""

    weights: Panels | None
    table: Array
    columns: int  # elements of packed columns
    stacks: int  # elements of stacks
    bits: int  # 16-bit words
    tasks: int
    cost: float


def _run(call: Call, plan: Plan | None, x: Array, w: Array) -> Any:
    if plan is None:
        return NotImplemented
    out = call.empty(plan.shape, x.dtype)
    slack = 64 // x.itemsize
    for p in plan.parts:
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


# --- the letters of each convolution ------------------------------------------------------------------------------------


@lru_cache(maxsize=256)
def forward(
    xshape: Shape, xbytes: Shape, wshape: Shape, wbytes: Shape, size: int,
    stride: Pair, padding: Pair, dilation: Pair, groups: int,
) -> Plan | None:  # fmt: skip
    """The plan of conv2d; None where the reference has to do it."""
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
    return _plan((b, outs, p, q), Correlation(
        (g, c, b, o), (xc * c, xc, xb, xy, xx), (wo * o, wo, wc, wi, wj),
        (o * p * q, p * q, outs * p * q, q, 1), rows, columns, size,
    ))  # fmt: skip


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
    return _plan((b, channels, p, q), Correlation(
        (g, o, b, each), (gc * o, gc, gb, gy, gx), (wo * o, wc, wo, wi, wj),
        (each * p * q, p * q, channels * p * q, q, 1), rows, columns, bytes_,
    ), stride)  # fmt: skip


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
    return _plan((outs, each, p, q), Correlation(
        (groups, b, each, o), (xc * each, xb, xc, xy, xx), (gc * o, gc, gb, gy, gx),
        (o * each * p * q, each * p * q, p * q, q, 1), rows, columns, bytes_,
    ))  # fmt: skip


@dataclass(frozen=True)
class Correlation:
    """out[g, o, b, p, q] = the tree over (c, i, j) of w[g, o, c, i, j] * x[g, c, b, rows[i, p], columns[j, q]].

    Strides are in elements, in the order of these letters; `item` is the bytes of an element.
    """

    letters: tuple[int, int, int, int]  # the sizes of g, c, b, o
    x: Shape
    w: Shape
    out: Shape
    rows: Taps
    columns: Taps
    item: int
    start: int = 0  # of out

    def phases(self, stride: Pair) -> Iterator[Correlation]:
        """The outputs that lie `stride` apart, as a correlation each: of those a gradient reads by the same taps."""
        _, _, _, line, one = self.out
        for p, q in itertools.product(*map(range, stride)):
            rows, columns = _every(self.rows, p, stride[0]), _every(self.columns, q, stride[1])
            if rows.source.shape[1] and columns.source.shape[1]:
                out = (*self.out[:3], line * stride[0], one * stride[1])
                yield replace(self, rows=rows, columns=columns, out=out, start=p * line + q * one)


def _every(taps: Taps, first: int, step: int) -> Taps:
    return Taps(taps.source[:, first::step], taps.present[:, first::step])


# --- the tables of a correlation ----------------------------------------------------------------------------------------


def _plan(shape: Shape, correlation: Correlation, stride: Pair = (1, 1)) -> Plan | None:
    """The plan of a correlation whose outputs read by other taps within each `stride` of them."""
    if 0 in shape:
        return Plan(shape, ())
    c, taps = correlation.letters[1], correlation.rows.source.shape[0] * correlation.columns.source.shape[0]
    return Plan(shape, tuple(map(_part, correlation.phases(stride)))) if c * taps else None


def _part(correlation: Correlation) -> Part:
    (g, c, b, o), xs, ws, outs = correlation.letters, correlation.x, correlation.w, correlation.out
    rows, columns, wide = correlation.rows, correlation.columns, COLUMNS if correlation.item < 8 else LANES
    p, q = rows.source.shape[1], columns.source.shape[1]
    pixels = p * q
    kept, tree = _kept(np.outer(rows.present.any(1), columns.present.any(1)).ravel(), c)
    taps, k = len(kept), c * len(kept)
    together = _together(pixels, b, taps)
    images, panels = -(-b // together), -(-together * pixels // wide)
    source, exists = _reads(rows, columns, together, xs)
    reading = _reading(source[kept], exists[kept], panels, wide)
    weights, begins, steps = _weights(np.arange(g) * ws[0], o, c, ws, kept, columns.source.shape[0])
    places = _places(outs, together, p, q)
    chunks, levels, room = _chunks(tree)
    units = g * images * panels
    tasks, tiles = min(units, 16), -(-o // ROWS)
    numbers = {
        "groups": g, "images": images, "together": together, "batch": b, "pixels": pixels, "taps": taps, "units": units, "tasks": tasks,
        "columns": wide, "vectors": wide // LANES, "words": panels * (wide // LANES), "rows": o, "k": k,
        "x_group": xs[0], "x_batch": xs[2], "x_channel": xs[1],
        "w_packed": int(weights is not None), "w_tile": steps[0], "w_row": steps[1], "w_k": steps[2],
        "out_start": correlation.start, "out_group": outs[0], "out_row": outs[1], "out_batch": outs[2],
        "chunks": len(chunks), "levels": levels, "room": room,
        "by_taps": int(reading["tap_shifts"].size > 0), "tap_words": -(-taps // LANES), "scattered": int(places.size > 0),
    }  # fmt: skip
    lists = {"w_begins": begins, "chunk_list": chunks, **reading, "places": places, "tree": tree}
    at = len(FIELDS)
    for name, part in lists.items():
        numbers[name], at = at, at + part.size
    table = table_of(*(numbers[name] for name in FIELDS), *lists.values())
    stacks = tasks * levels * SIZE * (tiles if len(chunks) > 1 else 1)
    cost = units * wide * k * (ROWS * tiles / 50 + 0.5) / tasks
    return Part(weights, table, tasks * room * wide, stacks, tasks * room * (wide // LANES), tasks, cost)


def _kept(read: Array, channels: int) -> tuple[Array, Array]:
    """The taps to multiply by, those that some output reads; and the tree over them, with a term in each leaf.

    An absent tap leaves a chain as it is, and so does one that is left out; a leaf of nothing would be -0, as is one of
    an absent tap.
    """
    whole, taps = program(channels * len(read)), len(read)
    ends = np.cumsum(whole[:, 0])
    begins = ends - whole[:, 0]
    read = read.copy()
    while True:
        before = np.concatenate([[0], np.cumsum(np.tile(read, channels))])
        terms = before[ends] - before[begins]
        if terms.all():
            return np.flatnonzero(read), np.stack([terms, whole[:, 1]], 1)
        read[begins[terms == 0][0] % taps] = True


def _weights(
    begins: Array, rows: int, channels: int, ws: Shape, kept: Array, taps_j: int
) -> tuple[Panels | None, Array, tuple[int, int, int]]:
    """w as it lies, or in panels; where its groups begin, and the steps to the next tile of rows, row and k."""
    of_taps = kept // taps_j * ws[3] + kept % taps_j * ws[4]
    of_k = (np.arange(channels)[:, None] * ws[2] + of_taps).ravel()
    if rows >= ROWS and _even(of_k):
        return None, begins + of_k[0], (ROWS * ws[1], ws[1], _step(of_k))
    if _even(of_taps):
        panels = Panels(begins + of_taps[0], rows, of_k.size, ROWS, ROWS, ws[1], ws[2], _step(of_taps), len(kept))
    else:
        panels = Panels(begins, rows, of_k.size, ROWS, ROWS, ws[1], listed=of_k)
    return panels, panels.places, (ROWS * of_k.size, 1, ROWS)


def _step(places: Array) -> int:
    return int(places[1] - places[0]) if places.size > 1 else 0


def _even(places: Array) -> bool:
    return bool((np.diff(places) == _step(places)).all())


def _places(outs: Shape, together: int, p: int, q: int) -> Array:
    """Where the columns of an image go; nothing if one after the other."""
    images, lines, pixels = (np.arange(n) * step for n, step in zip((together, p, q), outs[2:], strict=True))
    places = (images[:, None, None] + lines[:, None] + pixels).ravel()
    return places[:0] if (places == np.arange(places.size)).all() else places


def _reading(source: Array, exists: Array, panels: int, wide: int) -> dict[str, Array]:
    """What packing reads, of tables (taps, columns): vectors of columns at a time, or of taps where only those lie together.

    missing: whether a panel lacks a tap.  shifts, bits, sources: `_vectors` of columns; bits by panel, tap and vector.
    tap_shifts, tap_bits: `_vectors` of taps, by column.
    """
    taps, words = len(source), panels * (wide // LANES)
    shifts, bits, sources = _vectors(source, exists, words)
    tap_shifts, tap_bits, _ = _vectors(source.T, exists.T, -(-taps // LANES))
    nothing = np.zeros(0, np.int64)
    if (shifts == SCATTERED).any() and not (tap_shifts == SCATTERED).any() and taps >= BLOCK:
        past = ((0, panels * wide - len(tap_bits)), (0, 0))  # columns past the last
        tap_shifts, tap_bits, sources = np.pad(tap_shifts, past), np.pad(tap_bits, past), nothing
    else:
        tap_shifts = tap_bits = nothing
    return {
        "missing": np.array([not exists[:, at : at + wide].all() for at in range(0, panels * wide, wide)]),
        "shifts": shifts,
        "bits": bits.reshape(taps, panels, wide // LANES).swapaxes(0, 1),
        "sources": sources,
        "tap_shifts": tap_shifts,
        "tap_bits": tap_bits,
    }


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
