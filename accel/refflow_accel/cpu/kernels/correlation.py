"""Correlations in compiled code: a product whose columns are read from images where they lie.

Implements ACC-CONV of spec/text/acceleration.md, with `convolution`, which makes the tables.  w (rows) meets the taps of x
(columns: output pixels) over k = (channel, tap).  The columns of some elements of the batch are an *image*; which pixel
of it a column reads by a tap, and whether there is one, is a table that all channels and images share.  A task packs a
chunk of k of a panel of columns, runs all tiles of rows over it, and goes on: unfinished tiles wait on their stacks.

An absent tap leaves the accumulator as it is.  No packed value could do that, since w may be inf or NaN, and even +0 * w
turns -0 into +0; so a tile gets bits with each step that say which columns take it.  Panels that miss no tap do without.
"""

from __future__ import annotations

from typing import Any

from numba import njit

from .. import abi
from .packing import BLOCK, copy_some, for_each_dtype, read, turn_block
from .tiles import FEW, LANES, ROWS, SIZE, Leaves, Marks, Panel, Place, Rows, aligned, inner, make_stack, make_tile

_whole, _whole_taps = make_tile(ROWS, False, False), make_tile(ROWS, False, True)
_slim_taps, _low_taps = make_tile(ROWS, True, True), make_tile(FEW, False, True)
_buffer, _offsets, _square = make_stack(SIZE), make_stack(LANES), make_stack(BLOCK * LANES)


@njit(inline="always")
def _tile(x, y, leaves, place, marks, rows, missing):
    """A tile by the shape that holds it; few shapes, since each takes long to compile."""
    if place.width <= LANES:
        _slim_taps(x, y, leaves, place, marks)
    elif rows == FEW:
        _low_taps(x, y, leaves, place, marks)
    elif missing:
        _whole_taps(x, y, leaves, place, marks)
    else:
        _whole(x, y, leaves, place)


FIELDS = (
    "groups", "images", "together", "batch", "pixels", "taps", "units", "tasks", "columns", "vectors", "words",
    "rows", "k", "x_group", "x_batch", "x_channel", "w_packed", "w_tile", "w_row", "w_k",
    "out_start", "out_group", "out_row", "out_batch", "chunks", "levels", "room", "by_taps", "tap_words", "scattered",
    "w_begins", "chunk_list", "missing", "shifts", "bits", "sources", "tap_shifts", "tap_bits", "places", "tree",
)  # fmt: skip
(
    GROUPS, IMAGES, TOGETHER, BATCH, PIXELS, TAPS, UNITS, TASKS, COLUMNS_OF, VECTORS, WORDS,
    ROWS_OF, K, X_GROUP, X_BATCH, X_CHANNEL, W_PACKED, W_TILE, W_ROW, W_K,
    OUT_START, OUT_GROUP, OUT_ROW, OUT_BATCH, CHUNKS, LEVELS, ROOM, BY_TAPS, TAP_WORDS, SCATTERED_OUT,
    W_BEGINS, CHUNK_LIST, MISSING, SHIFTS, BITS, SOURCES, TAP_SHIFTS, TAP_BITS, PLACES, TREE,
) = range(len(FIELDS))  # fmt: skip
SCATTERED = -(1 << 62)  # the shift of columns that do not lie together


@inner
def first_channel(tap: int, taps: int, k: int) -> int:
    """The first channel whose `tap` is at or after k."""
    return k // taps + (1 if tap < k % taps else 0)


@inner
def pack_columns(y: Any, yo: int, x: Any, x0: int, table: Any, t: int, valid: int, k0: int, k1: int) -> None:
    """The pixels that columns of panel t read by steps [k0, k1), vectors of columns at a time."""
    taps, words, columns, vectors = table[TAPS], table[WORDS], table[COLUMNS_OF], table[VECTORS]
    offsets = _offsets(table)
    for v in range(vectors):
        word = t * vectors + v
        left = valid - word * LANES
        if left <= 0:
            break
        limit = (1 << min(left, LANES)) - 1
        for tap in range(taps):
            c, end = first_channel(tap, taps, k0), first_channel(tap, taps, k1)
            at = tap * words + word
            bits = table[table[BITS] + (t * taps + tap) * vectors + v] & limit
            shift = table[table[SHIFTS] + at]
            d = yo + (c * taps + tap - k0) * columns + v * LANES
            s = x0 + c * table[X_CHANNEL]
            if shift != SCATTERED:
                for _ in range(c, end):
                    copy_some(y, d, x, s + shift, bits)
                    d += taps * columns
                    s += table[X_CHANNEL]
            else:
                source = table[SOURCES] + at * LANES
                some = 0
                for lane in range(LANES):
                    if bits >> lane & 1:
                        some = table[source + lane]
                for lane in range(LANES):  # what an absent tap reads is not used
                    offsets[lane] = table[source + lane] if bits >> lane & 1 else some
                for _ in range(c, end):
                    for lane in range(LANES):
                        y[d + lane] = read(x, s + offsets[lane])
                    d += taps * columns
                    s += table[X_CHANNEL]


@inner
def pack_taps(y: Any, yo: int, x: Any, x0: int, table: Any, t: int, width: int, k0: int, k1: int) -> None:
    """The same, vectors of taps at a time: squares of columns and taps that are then transposed."""
    taps, words, columns = table[TAPS], table[TAP_WORDS], table[COLUMNS_OF]
    square = _square(y)
    for j in range(0, width, BLOCK):
        k = k0
        while k < k1:
            c, tap = k // taps, k % taps
            word, lane = tap // LANES, tap % LANES
            count = min(LANES - lane, taps - tap, k1 - k)
            for i in range(BLOCK):
                at = (t * columns + j + i) * words + word
                bits = table[table[TAP_BITS] + at] if j + i < width else 0
                copy_some(square, i * LANES, x, x0 + c * table[X_CHANNEL] + table[table[TAP_SHIFTS] + at], bits)
            d = yo + (k - k0) * columns + j
            n = 0
            while n + BLOCK <= count:
                turn_block(y, d + n * columns, columns, square, lane + n, LANES)
                n += BLOCK
            while n < count:
                for i in range(BLOCK):
                    y[d + n * columns + i] = square[i * LANES + lane + n]
                n += 1
            k += count


@inner
def mark_taps(exists: Any, eo: int, table: Any, t: int, k0: int, k1: int) -> None:
    """Which columns of panel t take each of the steps [k0, k1)."""
    taps, vectors = table[TAPS], table[VECTORS]
    at, k = table[BITS] + t * taps * vectors, k0
    while k < k1:
        tap = k % taps
        steps = min(taps - tap, k1 - k)
        here, there = eo + (k - k0) * vectors, at + tap * vectors
        for i in range(steps * vectors):
            exists[here + i] = table[there + i]
        k += steps


def correlate(words: int, lo: int, hi: int) -> int:
    """Tasks (a run of panels of columns): out[g, row, b, pixel] = the tree over (c, tap) of w[g, row, c, tap] * x[...].

    Chunks of k follow each other in ascending order and end at leaves, so every tile meets the leaves of its tree from
    left to right (NUM-CONV); its stack carries it from chunk to chunk.

    Words: x, w, out; work for packed columns, stacks, bits; a table of the FIELDS and what they point to.
    """
    x, w, out = array(words, 0), array(words, 1), array(words, 2)  # type: ignore[name-defined]  # noqa: F821
    y, stacks = array(words, 3), array(words, 4)  # type: ignore[name-defined]  # noqa: F821
    exists, table = abi.u16s(words, 5), abi.i64s(words, 6)
    m, pixels, together, columns = table[ROWS_OF], table[PIXELS], table[TOGETHER], table[COLUMNS_OF]
    images, chunks, levels, n, tree = table[IMAGES], table[CHUNKS], table[LEVELS], table[OUT_ROW], table[table[TREE] :]
    tiles = (m + ROWS - 1) // ROWS
    wbase = aligned(w) if table[W_PACKED] else 0
    scattered = table[SCATTERED_OUT]
    buffer = _buffer(out)
    for task in range(lo, hi):
        yo, eo = aligned(y) + task * table[ROOM] * columns, task * table[ROOM] * table[VECTORS]
        bottom = aligned(stacks) + task * levels * SIZE * (tiles if chunks > 1 else 1)
        marked = -1
        for unit in range(table[UNITS] * task // table[TASKS], table[UNITS] * (task + 1) // table[TASKS]):
            # Images of one panel follow each other: they have the same bits.
            image, g, t = unit % images, unit // images % table[GROUPS], unit // images // table[GROUPS]
            valid = min(together, table[BATCH] - image * together) * pixels
            width = min(columns, valid - t * columns)
            if width <= 0:
                continue
            x0 = g * table[X_GROUP] + image * together * table[X_BATCH]
            o0 = table[OUT_START] + g * table[OUT_GROUP] + image * together * table[OUT_BATCH]
            for chunk in range(chunks):
                c = table[CHUNK_LIST] + 5 * chunk
                first, last, k0, k1, top = table[c], table[c + 1], table[c + 2], table[c + 3], table[c + 4]
                if table[BY_TAPS]:
                    pack_taps(y, yo, x, x0, table, t, width, k0, k1)
                else:
                    pack_columns(y, yo, x, x0, table, t, valid, k0, k1)
                if chunks > 1 or t != marked:
                    mark_taps(exists, eo, table, t, k0, k1)
                    marked = t
                final = chunk == chunks - 1
                for p in range(tiles):
                    height = min(ROWS, m - p * ROWS)
                    rows = ROWS if height > FEW or width <= LANES else FEW
                    up = 0 if table[W_PACKED] else max(0, p * ROWS + rows - m)
                    wo = wbase + table[table[W_BEGINS] + g] + p * table[W_TILE] - up * table[W_ROW] + k0 * table[W_K]
                    level = rows * LANES * (table[VECTORS] if width > LANES else 1)  # of a stack
                    so = bottom + (p * levels * SIZE if chunks > 1 else 0) + top * level
                    oo = o0 + (p * ROWS - up) * n + t * columns
                    to, at, row = (buffer, 0, columns) if scattered else (out, oo, n)
                    _tile(
                        Rows(w, wo, table[W_ROW], table[W_K]),
                        Panel(y, yo, columns),
                        Leaves(tree, first, last, stacks, so, final),
                        Place(to, at, row, up, up + height, width),
                        Marks(exists, eo),
                        rows,
                        table[table[MISSING] + t],
                    )
                    if scattered and final:
                        for j in range(width):
                            oj = o0 + table[table[PLACES] + t * columns + j] + p * ROWS * n
                            for r in range(height):
                                out[oj + r * n] = buffer[(up + r) * columns + j]
    return 0


CORRELATE = for_each_dtype(correlate)
