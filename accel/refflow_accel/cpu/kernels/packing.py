"""Panels: the factors of a contraction copied so that a tile reads them in ascending addresses.

Part of ACC-MATMUL and ACC-CONV of spec/text/acceleration.md; what is packed, `contraction` and `convolution` decide.  A
panel holds up to `width` rows of a matrix, its k-th step in `width` elements that lie together.  What is past the
matrix's edge is not written: a tile computes nothing that it stores from there.  The steps of k may be two letters
(outer, inner) of an array, each with a stride of its own, or any places in a list.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from .. import abi
from ..abi import Call, Entry
from .elements import entry_of
from .tiles import I32, LANES, Tile, aligned, inner, pointer_to

Array = np.ndarray[Any, Any]

READERS = {"float32": abi.f32s, "float64": abi.f64s, "int8": abi.i8s, "int32": abi.i32s, "int64": abi.i64s}
BLOCK = 8  # elements of the squares that are transposed in registers


@intrinsic
def read(context: Any, source: Any, i: Any) -> Any:
    """source[i], below zero too: an operand's first element is not the lowest if it is reversed."""

    def build(context: Any, b: Any, signature: Any, args: Any) -> Any:
        return b.load(pointer_to(context, b, source, args[0], args[1]))

    return source.dtype(source, types.int64), build


@intrinsic
def copy_block(context: Any, target: Any, d: Any, source: Any, s: Any) -> Any:
    """target[d : d + BLOCK] = source[s : s + BLOCK]."""
    n = types.int64

    def build(context: Any, b: Any, signature: Any, args: Any) -> Any:
        element = context.get_data_type(target.dtype)
        kind = ir.VectorType(element, BLOCK).as_pointer()
        size = target.dtype.bitwidth // 8
        read = b.bitcast(pointer_to(context, b, source, args[2], args[3]), kind)
        b.store(b.load(read, align=size), b.bitcast(pointer_to(context, b, target, args[0], args[1]), kind), align=size)
        return context.get_dummy_value()

    return types.void(target, n, source, n), build


@intrinsic
def turn_block(context: Any, target: Any, d: Any, dk: Any, source: Any, s: Any, sr: Any) -> Any:
    """target[d + k*dk + r] = source[s + r*sr + k] for k, r < BLOCK: a square, transposed by halves, quarters, pairs."""
    n = types.int64

    def build(context: Any, b: Any, signature: Any, args: Any) -> Any:
        element = context.get_data_type(target.dtype)
        size = target.dtype.bitwidth // 8
        kind = ir.VectorType(element, BLOCK).as_pointer()
        place = pointer_to(context, b, source, args[3], args[4])
        rows = []
        for _ in range(BLOCK):
            rows.append(b.load(b.bitcast(place, kind), align=size))
            place = b.gep(place, [args[5]])
        half = BLOCK // 2
        while half:
            low = [lane if not lane & half else BLOCK + lane - half for lane in range(BLOCK)]
            high = [lane + half if not lane & half else BLOCK + lane for lane in range(BLOCK)]
            made = list(rows)
            for i in range(BLOCK):
                if not i & half:
                    for j, lanes in ((i, low), (i + half, high)):
                        mask = ir.Constant(ir.VectorType(I32, BLOCK), lanes)
                        made[j] = b.shuffle_vector(rows[i], rows[i + half], mask)
            rows, half = made, half // 2
        place = pointer_to(context, b, target, args[0], args[1])
        for row in rows:
            b.store(row, b.bitcast(place, kind), align=size)
            place = b.gep(place, [args[2]])
        return context.get_dummy_value()

    return types.void(target, n, n, source, n, n), build


@intrinsic
def copy_some(context: Any, target: Any, d: Any, source: Any, s: Any, bits: Any) -> Any:
    """target[d : d + LANES] = source[s : s + LANES] where `bits` has a one, else zero; the others are not read."""
    n = types.int64

    def build(context: Any, b: Any, signature: Any, args: Any) -> Any:
        tile = Tile(b, context.get_data_type(target.dtype), 1, 1)
        read = tile.part(pointer_to(context, b, source, args[2], args[3]), 0)
        lanes = b.bitcast(b.trunc(args[4], ir.IntType(LANES)), tile.narrow)
        write = tile.part(pointer_to(context, b, target, args[0], args[1]), 0)
        b.store(tile.load_some(read, lanes), write, align=tile.element_bytes)
        return context.get_dummy_value()

    return types.void(target, n, source, n, n), build


@inner
def pack_run(target: Any, d: int, width: int, source: Any, s: int, rows: int, row: int, step: int, steps: int) -> None:
    """target[d + k*width + r] = source[s + r*row + k*step] for k < steps, r < rows."""
    done = 0  # rows done
    if row == 1:
        done = rows - rows % BLOCK
        for k in range(steps):
            for r in range(0, done, BLOCK):
                copy_block(target, d + k * width + r, source, s + k * step + r)
    elif step == 1:
        done = rows - rows % BLOCK
        whole = steps - steps % BLOCK
        for r in range(0, done, BLOCK):
            for k in range(0, whole, BLOCK):
                turn_block(target, d + k * width + r, width, source, s + r * row + k, row)
            for k in range(whole, steps):
                for i in range(r, r + BLOCK):
                    target[d + k * width + i] = read(source, s + i * row + k)
    for k in range(steps):
        for r in range(done, rows):
            target[d + k * width + r] = read(source, s + r * row + k * step)


@inner
def pack_range(
    target: Any, d: int, width: int, source: Any, s: int, rows: int, row: int,
    outer: int, inner: int, count: int, k0: int, k1: int,
) -> None:  # fmt: skip
    """As `pack_run` for steps [k0, k1) of k = (outer letter, inner letter of `count`)."""
    k = k0
    while k < k1:
        u, t = divmod(k, count)
        steps = min(count - t, k1 - k)
        pack_run(target, d + k * width, width, source, s + u * outer + t * inner, rows, row, inner, steps)
        k += steps


CHUNK = 32  # steps of k in one task
HEAD = 9  # numbers of the table before its lists


def pack(words: int, lo: int, hi: int) -> int:
    """Tasks (matrix, CHUNK steps of k): those steps of all panels of a matrix.

    Words: source, target, and a table: rows, k, width; how far rows past the last are zeros; the steps to the next row,
    outer and inner letter of k, and how many of the inner there are (none: the steps of k are listed); how many matrices;
    then where each matrix begins, and where each listed k is.  In the target, from its first aligned element on, matrix
    follows matrix and panel follows panel (width * k elements).
    """
    source, target, table = array(words, 0), array(words, 1), abi.i64s(words, 2)  # type: ignore[name-defined]  # noqa: F821
    rows, k, width, fill = table[0], table[1], table[2], table[3]
    row, outer, inside, count, listed = table[4], table[5], table[6], table[7], HEAD + table[8]
    chunks, panels = (k + CHUNK - 1) // CHUNK, (rows + width - 1) // width
    base = aligned(target)
    for task in range(lo, hi):
        m, chunk = task // chunks, task % chunks
        k0, k1 = chunk * CHUNK, min(k, chunk * CHUNK + CHUNK)
        for p in range(panels):
            here = min(width, rows - p * width)
            at = base + (m * panels + p) * width * k
            from_ = table[HEAD + m] + p * width * row
            if count:
                pack_range(target, at, width, source, from_, here, row, outer, inside, count, k0, k1)
            else:
                for j in range(k0, k1):
                    pack_run(target, at + j * width, width, source, from_ + table[listed + j], here, row, 0, 1)
            for j in range(k0, k1):
                for r in range(here, fill):
                    target[at + j * width + r] = 0
    return 0


def for_each_dtype(function: Any) -> dict[np.dtype[Any], Entry]:
    """The kernel for every dtype, `array` being what reads its operands; a product of integers has no sign, modulo 2^n."""
    made = {np.dtype(name): entry_of(function, name, {"array": reader}) for name, reader in READERS.items()}
    made[np.dtype(np.uint8)] = made[np.dtype(np.int8)]
    return made


PACK = for_each_dtype(pack)


def table_of(*parts: Any) -> Array:
    """Numbers and arrays of them, one after the other, int64; a compiled program may keep it, so it is read-only."""
    made = (
        np.concatenate([np.asarray(part, np.int64).reshape(-1) for part in parts]) if parts else np.zeros(0, np.int64)
    )
    made.flags.writeable = False
    return made


@dataclass(frozen=True)
class Panels:
    """How matrices of (rows, k) become panels `width` wide; the steps of k are (outer, inner) letters of a source."""

    begins: Array  # where each matrix begins
    rows: int
    k: int
    width: int
    fill: int  # what is past the last row, up to this one, is zero
    row: int
    outer: int = 0
    inner: int = 0
    count: int = 0  # of the inner letter; 0: the steps of k are listed
    listed: Array | None = None

    @cached_property
    def table(self) -> Array:
        """What `pack` reads."""
        numbers = self.rows, self.k, self.width, self.fill, self.row, self.outer, self.inner, self.count
        return table_of(*numbers, self.begins.size, self.begins, () if self.listed is None else self.listed)

    @property
    def size(self) -> int:
        """Elements of one packed matrix."""
        return -(-self.rows // self.width) * self.width * self.k

    @property
    def places(self) -> Array:
        """Where each packed matrix begins, in the shape of `begins`."""
        return np.arange(self.begins.size).reshape(self.begins.shape) * self.size

    def write(self, call: Call, source: Array) -> Array:
        """Launch the copying; returns the panels, which begin at the first aligned element."""
        target = call.scratch((self.begins.size * self.size + 64 // source.itemsize,), source.dtype)
        tasks = self.begins.size * -(-self.k // CHUNK)
        cost = 0.25 * self.rows * min(self.k, CHUNK)
        call.launch(PACK[source.dtype], source, target, call.table(self.table), tasks=tasks, cost=cost)
        return target
