"""The micro-kernel of contractions: one tile of outputs, in vector registers, by the canonical tree (NUM-CONTRACT).

A tree is a postfix program, `program(k)`: row i is (terms of leaf i, merges that follow it).  The leaf that runs lives in
registers; finished left siblings wait on a stack.  Only the program decides the bits: the shape of a tile, packing, the
order of tiles and threads are free.  A leaf starts with a plain product, which has the bits of fma(a, b, -0.0): adding
-0.0 changes no value, and the product is rounded once either way.  Vectors are written as LLVM IR, any width of which
LLVM lowers to what the machine has.
"""

from __future__ import annotations

from functools import lru_cache, partial
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from refflow.numerics import LEAF

from ..processor import features

I64, I32 = ir.IntType(64), ir.IntType(32)
DEPTH = 24  # levels a stack has room for: 2^24 leaves


inner = njit(error_model="numpy", nogil=True)  # a function of kernels


def _machine() -> tuple[int, int]:
    """(float32 lanes of a vector, rows of a tile): 16 accumulators of 512 bits, 12 of 256, 16 of 128."""
    has = features()
    if {"avx512f", "avx512vl", "avx512bw"} <= has:
        return 16, 8
    return (8, 6) if "avx2" in has else (4, 8)


LANES, ROWS = _machine()
FEW = ROWS // 2  # rows of the tile for what is left over
COLUMNS = 2 * LANES  # of a tile
SIZE = ROWS * COLUMNS


@lru_cache(maxsize=4096)
def program(k: int) -> np.ndarray[Any, Any]:
    """The canonical tree over k >= 1 terms as postfix rows (terms of a leaf, merges after it), int64 (leaves, 2)."""
    rows: list[list[int]] = []

    def node(n: int, merges: int) -> None:
        if n <= LEAF:
            rows.append([n, merges])
        else:
            half = (n + 1) // 2
            node(half, 0)
            node(n - half, merges + 1)  # where the right child ends, its parent ends

    node(k, 0)
    made = np.array(rows, np.int64)
    made.flags.writeable = False
    return made


def _constant(n: int) -> Any:
    return ir.Constant(I64, n)


def pointer_to(context: Any, b: Any, kind: Any, array: Any, offset: Any) -> Any:
    """The address of an element of a flat array."""
    return b.gep(context.make_array(kind)(context, b, array).data, [offset])


def _loop(b: Any, more: Any, body: Any, start: list[Any]) -> list[Any]:
    """``while more(values): values = body(values)``, in SSA form."""
    before = b.block
    head, inside, after = (b.append_basic_block(name) for name in ("head", "inside", "after"))
    b.branch(head)
    b.position_at_end(head)
    values = [b.phi(value.type) for value in start]
    for phi, value in zip(values, start):
        phi.add_incoming(value, before)
    b.cbranch(more(values), inside, after)
    b.position_at_end(inside)
    for phi, value in zip(values, body(values)):
        phi.add_incoming(value, b.block)
    b.branch(head)
    b.position_at_end(after)
    return values


class _Arithmetic:
    """What a step is for an element type: fused for float32, two roundings for float64, wrapping for integers."""

    def __init__(self, b: Any, element: Any) -> None:
        self.b = b
        self.vector = ir.VectorType(element, LANES)
        self.floating = isinstance(element, (ir.FloatType, ir.DoubleType))
        self.fused = isinstance(element, ir.FloatType)
        if self.fused:
            kind = ir.FunctionType(self.vector, [self.vector] * 3)
            self.fma = cgutils.get_or_insert_function(b.module, kind, f"llvm.fma.v{LANES}f32")

    @property
    def neutral(self) -> Any:
        """What a leaf adds to: to add a product to -0 is the product."""
        return ir.Constant(self.vector, [-0.0] * LANES if self.floating else None)

    def times(self, x: Any, y: Any) -> Any:
        return self.b.fmul(x, y) if self.floating else self.b.mul(x, y)

    def plus(self, x: Any, y: Any) -> Any:
        return self.b.fadd(x, y) if self.floating else self.b.add(x, y)

    def step(self, x: Any, y: Any, total: Any) -> Any:
        return self.b.call(self.fma, [x, y, total]) if self.fused else self.plus(total, self.times(x, y))


class Tile:
    """The code of one tile: `rows` by `vectors` accumulators, named acc[r * vectors + v]."""

    UNROLL = 4

    def __init__(self, b: Any, element: Any, rows: int, vectors: int) -> None:
        self.b, self.rows, self.vectors, self.element = b, rows, vectors, element
        self.does = _Arithmetic(b, element)
        self.size = rows * vectors * LANES
        self.words = 1 if self.element_bytes == 8 else 2  # of bits, for each step, though a slim tile needs but one
        self.narrow = ir.VectorType(ir.IntType(1), LANES)

    def at(self, pointer: Any, index: Any) -> Any:
        return self.b.bitcast(self.b.gep(pointer, [index]), self.does.vector.as_pointer())

    def part(self, pointer: Any, v: int) -> Any:
        return self.at(pointer, _constant(v * LANES))

    def load(self, pointer: Any) -> Any:
        return self.b.load(pointer, align=self.element_bytes)

    @property
    def element_bytes(self) -> int:
        width = getattr(self.element, "width", 0)
        return int(width) // 8 if width else (4 if self.does.fused else 8)

    def opaque(self, pointer: Any) -> Any:
        """The same pointer, of which LLVM knows nothing: else it keeps an induction variable for every row."""
        kind = ir.FunctionType(pointer.type, [pointer.type])
        return self.b.asm(kind, "", "=r,0", [pointer], False)

    def spread(self, scalar: Any) -> Any:
        """A scalar in every lane."""
        start = ir.Constant(self.does.vector, ir.Undefined)
        zeros = ir.Constant(ir.VectorType(I32, LANES), [0] * LANES)
        return self.b.shuffle_vector(self.b.insert_element(start, scalar, I32(0)), start, zeros)

    def columns(self, count: Any) -> list[Any]:
        """The lanes of each vector that lie below `count`."""
        wide = ir.VectorType(I32, LANES)
        start = self.b.insert_element(ir.Constant(wide, ir.Undefined), self.b.trunc(count, I32), I32(0))
        limit = self.b.shuffle_vector(start, start, ir.Constant(wide, [0] * LANES))
        numbers = (ir.Constant(wide, [v * LANES + lane for lane in range(LANES)]) for v in range(self.vectors))
        return [self.b.icmp_signed("<", lanes, limit) for lanes in numbers]

    def _masked(self, verb: str) -> Any:
        vector, pointer = self.does.vector, self.does.vector.as_pointer()
        letter = "i" if not self.does.floating else "f"
        name = f"llvm.masked.{verb}.v{LANES}{letter}{self.element_bytes * 8}.p0"
        if verb == "load":
            kind = ir.FunctionType(vector, [pointer, I32, self.narrow, vector])
        else:
            kind = ir.FunctionType(ir.VoidType(), [vector, pointer, I32, self.narrow])
        return cgutils.get_or_insert_function(self.b.module, kind, name)

    def load_some(self, pointer: Any, lanes: Any) -> Any:
        """The elements of the lanes given, zero in the others, whose memory is not touched."""
        zero = ir.Constant(self.does.vector, None)
        return self.b.call(self._masked("load"), [pointer, I32(self.element_bytes), lanes, zero])

    def store_some(self, value: Any, pointer: Any, lanes: Any) -> None:
        self.b.call(self._masked("store"), [value, pointer, I32(self.element_bytes), lanes])

    def present(self, pointer: Any, v: int) -> Any:
        """The lanes whose tap exists, from one 16-bit word of a step and vector."""
        word = self.b.load(self.b.gep(pointer, [_constant(v)]))
        bits = word if LANES == 16 else self.b.trunc(word, ir.IntType(LANES))
        return self.b.bitcast(bits, self.narrow)


class Rows(NamedTuple):
    """What a tile reads of x: row r of step s is array[at + r * row + s * k]."""

    array: Any
    at: int
    row: int
    k: int


class Panel(NamedTuple):
    """What it reads of y: column j of step s is array[at + s * k + j]."""

    array: Any
    at: int
    k: int


class Leaves(NamedTuple):
    """The leaves [first, last) of `program`; their nodes go onto the stack from `at` on, the last of all if `final` nowhere."""

    tree: Any
    first: int
    last: int
    stack: Any
    at: int
    final: int


class Place(NamedTuple):
    """Where a result goes: rows [start, height) of the tile, columns below `width`, to array[at + r * row + j]."""

    array: Any
    at: int
    row: int
    start: int
    height: int
    width: int


class Marks(NamedTuple):
    """Which columns have the tap of each step: 16 bits for each step and vector, from array[at] on."""

    array: Any
    at: int


def _given(context: Any, b: Any, kind: Any, value: Any) -> SimpleNamespace:
    """A record among an intrinsic's arguments: its numbers as 64-bit integers, its arrays as functions offset -> address."""
    fields = {}
    for name, type, field in zip(kind.fields, kind.types, cgutils.unpack_tuple(b, value), strict=True):
        if isinstance(type, types.Array):
            fields[name] = partial(pointer_to, context, b, type, field)
        else:
            fields[name] = context.cast(b, field, type, types.int64)
    return SimpleNamespace(**fields)


def make_tile(rows: int, narrow: bool, taps: bool) -> Any:
    """The intrinsic ``tile(Rows, Panel, Leaves, Place)`` that runs some leaves of the tree, or all, for one tile.

    rows: of the tile, r < rows.
    narrow: one vector of columns, not two (8-byte elements always have one, of twice the registers).
    taps: it takes `Marks` too; an absent tap leaves its accumulator as it was.
    """

    def build(context: Any, b: Any, signature: Any, args: Any) -> Any:
        kind = signature.args[0][0].dtype
        vectors = 1 if narrow or kind.bitwidth == 64 else 2
        tile = Tile(b, context.get_data_type(kind), rows, vectors)
        _emit(tile, *[_given(context, b, kind, value) for kind, value in zip(signature.args, args, strict=True)])
        return context.get_dummy_value()

    @intrinsic
    def tile(context: Any, x: Any, y: Any, leaves: Any, place: Any) -> Any:
        return types.void(x, y, leaves, place), build

    @intrinsic
    def marked(context: Any, x: Any, y: Any, leaves: Any, place: Any, marks: Any) -> Any:
        return types.void(x, y, leaves, place, marks), build

    return marked if taps else tile


def _emit(t: Tile, x: Any, y: Any, leaves: Any, place: Any, marks: Any = None) -> None:
    """The body of `make_tile`'s intrinsic."""
    b, rows, vectors = t.b, t.rows, t.vectors
    inside = t.columns(place.width)
    nearby = [_constant(0), x.row, b.add(x.row, x.row), b.mul(x.row, _constant(3))]
    four = b.mul(x.row, _constant(4))
    final = b.icmp_signed("!=", leaves.final, _constant(0))

    def rows_of(px: Any) -> list[Any]:
        """The addresses of a step's rows, by few registers."""
        made: list[Any] = []
        for r in range(rows):
            if r and r % 4 == 0:
                px = t.opaque(b.gep(px, [four]))
            made.append(b.gep(px, [nearby[r % 4]]))
        return made

    def step(px: Any, py: Any, pm: Any, acc: list[Any] | None) -> tuple[Any, Any, Any, list[Any]]:
        """One k for the whole tile; without `acc`, the first of a leaf."""
        right = [t.load_some(t.part(py, v), inside[v]) for v in range(vectors)]
        there = [t.present(pm, v) for v in range(vectors)] if marks else []
        made = []
        for r, address in enumerate(rows_of(px)):
            left = t.spread(b.load(address))
            for v in range(vectors):
                before = t.does.neutral if acc is None else acc[r * vectors + v]
                after = t.does.times(left, right[v]) if acc is None else t.does.step(left, right[v], before)
                made.append(b.select(there[v], after, before) if marks else after)
        pm = b.gep(pm, [_constant(t.words)]) if marks else pm
        return t.opaque(b.gep(px, [x.k])), b.gep(py, [y.k]), pm, made

    def steps(count: int) -> Any:
        def body(values: list[Any]) -> list[Any]:
            left, px, py, pm, *acc = values
            for _ in range(count):
                px, py, pm, acc = step(px, py, pm, acc)
            return [b.sub(left, _constant(count)), px, py, pm, *acc]

        return body

    def at_least(n: int) -> Any:
        return lambda values: b.icmp_signed(">=", values[0], _constant(n))

    def merge(values: list[Any]) -> list[Any]:
        """The left sibling, from the stack, plus the node in registers."""
        left, top, *acc = values
        top = b.gep(top, [_constant(-t.size)])
        return [b.sub(left, _constant(1)), top] + [t.does.plus(t.load(t.part(top, q)), a) for q, a in enumerate(acc)]

    def leaf(values: list[Any]) -> list[Any]:
        i, px, py, pm, top = values
        two = b.add(i, i)
        terms = b.load(leaves.tree(two))
        merges = b.load(leaves.tree(b.add(two, _constant(1))))
        px, py, pm, acc = step(px, py, pm, None)
        values = _loop(b, at_least(t.UNROLL), steps(t.UNROLL), [b.sub(terms, _constant(1)), px, py, pm, *acc])
        _, px, py, pm, *acc = _loop(b, at_least(1), steps(1), values)
        _, top, *acc = _loop(b, at_least(1), merge, [merges, top, *acc])
        i = b.add(i, _constant(1))
        with b.if_else(b.and_(final, b.icmp_signed("==", i, leaves.last))) as (done, goes_on):
            with done:
                store(acc)
            with goes_on:
                for q, a in enumerate(acc):
                    b.store(a, t.part(top, q), align=t.element_bytes)
        return [i, px, py, pm, b.gep(top, [_constant(t.size)])]

    def store(acc: list[Any]) -> None:
        to = place.array(place.at)
        for r in range(rows):
            wanted = b.icmp_signed(">=", _constant(r), place.start)
            with b.if_then(b.and_(wanted, b.icmp_signed("<", _constant(r), place.height))):
                for v in range(vectors):
                    t.store_some(acc[r * vectors + v], t.part(to, v), inside[v])
            to = b.gep(to, [place.row])

    def more(values: list[Any]) -> Any:
        return b.icmp_signed("<", values[0], leaves.last)

    begin = [x.array(x.at), y.array(y.at), marks.array(marks.at) if marks else leaves.tree(_constant(0))]
    _loop(b, more, leaf, [leaves.first, *begin, leaves.stack(leaves.at)])


def make_stack(count: int) -> Any:
    """The intrinsic ``stack(like)``: `count` elements of the dtype of `like` on the caller's stack, 64 bytes aligned."""

    @intrinsic
    def stack(context: Any, like: Any) -> Any:
        kind = types.Array(like.dtype, 1, "C")

        def build(context: Any, b: Any, signature: Any, args: Any) -> Any:
            with b.goto_entry_block():
                room = b.alloca(ir.ArrayType(context.get_data_type(like.dtype), count))
                room.align = 64
            data = b.bitcast(room, context.get_data_type(like.dtype).as_pointer())
            made = context.make_array(kind)(context, b)
            size = context.get_constant(types.intp, like.dtype.bitwidth // 8)
            shape, strides = (
                cgutils.pack_array(b, [word]) for word in (context.get_constant(types.intp, count), size)
            )  # fmt: skip
            context.populate_array(made, data=data, shape=shape, strides=strides, itemsize=size, meminfo=None)
            return made._getvalue()

        return kind(like), build

    return stack


@intrinsic
def aligned(context: Any, array: Any) -> Any:
    """The index of the first element of a flat array whose address is a multiple of 64."""

    def build(context: Any, b: Any, signature: Any, args: Any) -> Any:
        data = context.make_array(signature.args[0])(context, b, args[0]).data
        away = b.and_(b.neg(b.ptrtoint(data, I64)), _constant(63))
        return b.udiv(away, _constant(array.dtype.bitwidth // 8))

    return types.int64(array), build
