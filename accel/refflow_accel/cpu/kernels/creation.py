"""Creation kernels: arrays from attributes alone, each element from its logical index.

Implements the creation chapter of spec/text/kernels.md and RNG-INDEX for the back end "numba"; random numbers come in
runs from `scalar.draws`.  A seed and a stream differ from step to step, so kernels read them from an array.
"""

# ruff: noqa: F821  (names of the scope)

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from refflow.kernels.reference.registry import WHOLE, extent
from refflow.numerics.dtypes import cast, is_float

from ...scalar import draws
from ..abi import Entry, f32s, f64, i64, i64s
from ..registry import kernel
from .elements import READ, STORE, WORDS, entry_of, get, put

Array = np.ndarray[Any, Any]
Pair = tuple[int, int]
BLOCK = 4096  # elements a task


# --- one value --------------------------------------------------------------------------------------------------------


def fill_words(words, lo, hi):
    """Task t: a block of elements.  Words: out, how many, the word each becomes."""
    out, count, word = read(words, 0), i64(words, 1), i64(words, 2)
    for i in range(lo * BLOCK, min(hi * BLOCK, count)):
        put(out, i, word)
    return 0


@cache
def filling(itemsize: int) -> Entry:
    return entry_of(fill_words, str(itemsize), {"read": WORDS[itemsize]})


def filled(call: Any, out: Array, word: int) -> Array:
    """`out`, which lies in row-major order without gaps, with every element the bits `word`."""
    call.launch(filling(out.itemsize), out, out.size, word, tasks=-(-out.size // BLOCK), cost=0.1 * BLOCK)
    return out


def value_word(value: Any, dtype: np.dtype[Any]) -> int:
    """The bits of a Python scalar rounded once to `dtype`, as the integer of its size."""
    made = np.asarray(cast(np.asarray(value), dtype))
    return int(made.reshape(1).view(f"i{made.itemsize}")[0])


@kernel
def full(call: Any, *, shape: Sequence[int], value: float, dtype: np.dtype[Any]) -> Any:
    dtype = np.dtype(dtype)
    return filled(call, call.empty(tuple(shape), dtype), value_word(value, dtype))


# --- from indices -----------------------------------------------------------------------------------------------------


def arange_floats(words, lo, hi):
    """Task t: a block.  Words: out, how many, the first index, start and step as float64."""
    out, count, first = write(words, 0), i64(words, 1), i64(words, 2)
    start, step = real(f64(words, 3)), real(f64(words, 4))
    for i in range(lo * BLOCK, min(hi * BLOCK, count)):
        store(out, i, start + real(first + i) * step)
    return 0


def arange_integers(words, lo, hi):
    """Task t: a block.  Words: out, how many, the first index, start and step."""
    out, count, first, start, step = write(words, 0), i64(words, 1), i64(words, 2), i64(words, 3), i64(words, 4)
    for i in range(lo * BLOCK, min(hi * BLOCK, count)):
        put(out, i, start + (first + i) * step)
    return 0


@cache
def counting(dtype: str) -> Entry:
    if dtype in ("float32", "float64", "float16", "bfloat16"):
        real = np.float64 if dtype == "float64" else np.float32
        return entry_of(arange_floats, dtype, {"write": READ[dtype], "store": STORE[dtype], "real": real})
    return entry_of(arange_integers, dtype, {"write": READ[dtype]})


@kernel
def arange(
    call: Any, *, start: float, step: float, length: int, dtype: np.dtype[Any], at: Any = WHOLE
) -> Any:
    dtype = np.dtype(dtype)
    if dtype.name not in READ or dtype == np.bool_:
        return NotImplemented
    lo, hi, _ = extent(at, "d0", length)
    out = call.empty((hi - lo,), dtype)
    words: tuple[Any, ...]
    if is_float(dtype):  # the attributes rounded once, as every scalar is
        words = tuple(np.float64(cast(np.asarray(value), dtype)) for value in (start, step))
    else:
        words = int(start), int(step)
        if not all(-(2**63) <= word < 2**63 for word in words):
            return NotImplemented
    call.launch(counting(dtype.name), out, hi - lo, lo, *words, tasks=-(-(hi - lo) // BLOCK), cost=0.5 * BLOCK)
    return out


def eye_rows(words, lo, hi):
    """Task t: a row.  Words: out, columns, row - column of the corner, the word of one."""
    out, columns, corner, one = read(words, 0), i64(words, 1), i64(words, 2), i64(words, 3)
    for t in range(lo, hi):
        for c in range(columns):
            put(out, t * columns + c, 0)
        if 0 <= corner + t < columns:
            put(out, t * columns + corner + t, one)
    return 0


@cache
def identity(itemsize: int) -> Entry:
    return entry_of(eye_rows, str(itemsize), {"read": WORDS[itemsize]})


@kernel
def eye(call: Any, *, dims: Pair, dtype: np.dtype[Any], at: Any = WHOLE) -> Any:
    dtype = np.dtype(dtype)
    (top, bottom, _), (left, right, _) = extent(at, "d0", dims[0]), extent(at, "d1", dims[1])
    out = call.empty((bottom - top, right - left), dtype)
    words = (right - left, top - left, value_word(1, dtype))
    call.launch(identity(dtype.itemsize), out, *words, tasks=bottom - top, cost=0.1 * (right - left) + 5)
    return out


# --- random numbers ---------------------------------------------------------------------------------------------------


def random_rows(words, lo, hi):
    """Task t: a row of the shard, or a piece of one: a run of logical indices, so a run of the generator (RNG-INDEX).

    Words: out, (seed, stream), low, span, length of a row, of a piece, the first index of the first row, number of
    other dimensions, then (size, step of the logical index) of each.
    """
    out, numbers = write(words, 0), i64s(words, 1)
    seed, stream, low, span = get(numbers, 0), get(numbers, 1), i64(words, 2), i64(words, 3)
    length, piece, origin, dims = i64(words, 4), i64(words, 5), i64(words, 6), i64(words, 7)
    pieces = (length + piece - 1) // piece
    for t in range(lo, hi):
        o, c = t // pieces, (t % pieces) * piece
        stop = min(c + piece, length)
        to = o * length
        first = origin
        for d in range(dims - 1, -1, -1):
            size = i64(words, 8 + 2 * d)
            first += (o % size) * i64(words, 9 + 2 * d)
            o = o // size
        block(first + c, seed, stream, low, span, out[to + c : to + stop], stop - c)
    return 0


DRAWS: dict[str, tuple[Any, Any]] = {  # a run of numbers, and how the result is written
    "random_bits": (draws.bits_block, i64s),
    "rand": (draws.uniform_block, f32s),
    "randn": (draws.normal_block, f32s),
    "randint": (draws.integers_block, i64s),
}


@cache
def drawing(name: str) -> Entry:
    block, write = DRAWS[name]
    return entry_of(random_rows, name, {"block": block, "write": write})


def drawn(
    call: Any, name: str, dims: Sequence[int], at: Any, seed: int, stream: int, dtype: Any, low: int = 0, span: int = 0
) -> Any:
    spans = [extent(at, f"d{d}", n) for d, n in enumerate(dims)]
    steps = [math.prod(of for _, _, of in spans[d + 1 :]) for d in range(len(spans))]
    out = call.empty(tuple(hi - lo for lo, hi, _ in spans), dtype)
    origin = sum(lo * step for (lo, _, _), step in zip(spans, steps))
    if origin + sum((hi - lo) * step for (lo, hi, _), step in zip(spans, steps)) >= 2**63:
        return NotImplemented
    # from the right, dimensions that are whole make one row with the next; the rest are walked
    length, rows = 1, len(spans)
    while rows and steps[rows - 1] == length:
        rows -= 1
        length *= out.shape[rows]
    words = (low, span, length, BLOCK, origin, rows, *(w for d in range(rows) for w in (out.shape[d], steps[d])))
    tasks = math.prod(out.shape[:rows]) * -(-length // BLOCK)
    cost = min(length, BLOCK) * (7.0 if name == "randn" else 1.0)
    call.launch(drawing(name), out, call.numbers(signed(seed), signed(stream)), *words, tasks=tasks, cost=cost)
    return out


def signed(number: int) -> int:
    """The low 64 bits of a number as an int64."""
    if -(2**63) <= number < 2**63:
        return number
    number &= 2**64 - 1
    return number - 2**64 if number >= 2**63 else number


@kernel
def rand(call: Any, *, dims: Sequence[int], seed: int, stream: int, at: Any = WHOLE) -> Any:
    return drawn(call, "rand", dims, at, seed, stream, np.float32)


@kernel
def randn(call: Any, *, dims: Sequence[int], seed: int, stream: int, at: Any = WHOLE) -> Any:
    return drawn(call, "randn", dims, at, seed, stream, np.float32)


@kernel
def random_bits(call: Any, *, dims: Sequence[int], seed: int, stream: int, at: Any = WHOLE) -> Any:
    return drawn(call, "random_bits", dims, at, seed, stream, np.int64)


@kernel
def randint(
    call: Any, *, low: int, high: int, dims: Sequence[int], seed: int, stream: int, at: Any = WHOLE
) -> Any:
    if not 0 < high - low <= 1 << 32 or not -(2**63) <= low < 2**63:
        return NotImplemented
    return drawn(call, "randint", dims, at, seed, stream, np.int64, low, high - low)
