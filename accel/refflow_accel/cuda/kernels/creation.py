"""Creation: arrays from attributes alone, each element from its logical index (RNG-INDEX)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from refflow.kernels.reference.registry import WHOLE, extent
from refflow.numerics.dtypes import cast as host_cast
from refflow.numerics.dtypes import is_float

from ..elements import cells, storer, wide
from ..elementwise import cast, dtype_of
from ..layout import grid_of
from ..memory import DeviceArray, empty
from ..registry import HOST, Made, family, primitive
from ..target import S, cuda, device, f32, f64, i64, u8, u32
from .movement import filled

HOST["random numbers of more than four dimensions in shards"] = "their logical index is written for four"


@primitive
def full(*, shape: Sequence[int], value: float, dtype: Any) -> DeviceArray:
    return filled(shape, value, dtype)


@family()
def ramp(dtype: str) -> Made:
    """out[i] = start + (lo + i) * step in the type that `dtype` is computed in: a rounding each."""
    store, kind = storer(dtype), wide(dtype)
    number = {"float32": f32, "float64": f64, "int64": i64}[kind]

    def kernel(n, lo, start, step, out):
        i = u32(cuda.grid(1))
        while i < n:
            store(out, i, start + number(lo + i64(i)) * step)
            i = u32(i + u32(cuda.gridsize(1)))

    return kernel, (u32, i64, number, number, cells(dtype))


@primitive
def arange(*, start: float, step: float, length: int, dtype: Any, at: Any = WHOLE) -> Any:
    lo, hi, _ = extent(at, "d0", length)
    name = np.dtype(dtype).name
    if name == "bool":
        return NotImplemented
    if is_float(dtype):
        kind = np.dtype(wide(name))
        first, by = (host_cast(host_cast(np.asarray(value), dtype), kind) for value in (start, step))
    else:
        first, by = np.asarray(int(start)), np.asarray(int(step))
    out = empty((hi - lo,), dtype)
    if out.size:
        ramp.launch((name,), *grid_of(out.size), out.size, lo, first[()], by[()], out)
    return out


@family()
def diagonal() -> Made:
    """out[i, j] = top + i == left + j."""

    def kernel(total, columns, apart, out):
        i = u32(cuda.grid(1))
        while i < total:
            row = u32(i // columns)
            out[i] = u8(1) if i64(row) + apart == i64(u32(i - row * columns)) else u8(0)
            i = u32(i + u32(cuda.gridsize(1)))

    return kernel, (u32, u32, i64, cells("bool"))


@primitive
def eye(*, dims: Any, dtype: Any, at: Any = WHOLE) -> DeviceArray:
    (top, bottom, _), (left, right, _) = extent(at, "d0", dims[0]), extent(at, "d1", dims[1])
    out = empty((bottom - top, right - left), dtype_of("bool"))
    if out.size:
        diagonal.launch((), *grid_of(out.size), out.size, right - left, top - left, out)
    return cast(out, dtype=np.dtype(dtype))


# --- random numbers ---------------------------------------------------------------------------------------------------

random_word, uniform, normal, bounded = S.random_word, S.uniform, S.normal, S.bounded


@device
def _bits(index, seed, stream, low, span):
    return random_word(index, seed, stream)


@device
def _uniform(index, seed, stream, low, span):
    return uniform(random_word(index, seed, stream))


@device
def _normal(index, seed, stream, low, span):
    return normal(index, seed, stream)


@device
def _integer(index, seed, stream, low, span):
    return bounded(random_word(index, seed, stream), low, span)


DRAWN: dict[str, tuple[Callable[..., Any], str]] = {
    "random_bits": (_bits, "int64"),
    "rand": (_uniform, "float32"),
    "randn": (_normal, "float32"),
    "randint": (_integer, "int64"),
}


@family()
def draw(name: str) -> Made:
    """out[i] = the number of its logical index: base + c0 * s0 + ... for its place (c0, c1, c2, c3) in this shard."""
    number, dtype = DRAWN[name]

    def kernel(n, d1, d2, d3, base, s0, s1, s2, s3, seed, stream, low, span, out):
        i = u32(cuda.grid(1))
        while i < n:
            q2 = u32(i // d3)
            q1 = u32(q2 // d2)
            c0 = u32(q1 // d1)
            index = base + i64(c0) * s0 + i64(u32(q1 - c0 * d1)) * s1
            index = index + i64(u32(q2 - q1 * d2)) * s2 + i64(u32(i - q2 * d3)) * s3
            out[i] = number(index, seed, stream, low, span)
            i = u32(i + u32(cuda.gridsize(1)))

    return kernel, (u32, u32, u32, u32, *(i64,) * 9, cells(dtype))


def _signed(word: int) -> Any:
    """64 bits as an int64."""
    return np.uint64(word & 0xFFFFFFFFFFFFFFFF).astype(np.int64)


def _draw(name: str, dims: Sequence[int], seed: int, stream: int, at: Any, low: int = 0, span: int = 1) -> Any:
    parts = [extent(at, f"d{d}", n) for d, n in enumerate(dims)]
    shape = [hi - lo for lo, hi, _ in parts]
    out = empty(shape, dtype_of(DRAWN[name][1]))
    if out.size == 0:
        return out
    base, step = 0, 1
    steps: list[int] = []
    for lo, _, of in reversed(parts):
        base += lo * step
        steps.insert(0, step)
        step *= of
    if shape == [of for _, _, of in parts]:  # a whole array is one dimension
        shape, steps = [out.size], [1]
    if len(shape) > 4:
        return NotImplemented
    gap = [1] * (4 - len(shape))
    sizes, steps = [*gap, *shape], [*[0 for _ in gap], *steps]
    words = [_signed(word) for word in (base, *steps, seed, stream, low, span)]
    draw.launch((name,), *grid_of(out.size), out.size, *sizes[1:], *words, out)
    return out


@primitive
def rand(*, dims: Sequence[int], seed: int, stream: int, at: Any = WHOLE) -> Any:
    return _draw("rand", dims, seed, stream, at)


@primitive
def randn(*, dims: Sequence[int], seed: int, stream: int, at: Any = WHOLE) -> Any:
    return _draw("randn", dims, seed, stream, at)


@primitive
def random_bits(*, dims: Sequence[int], seed: int, stream: int, at: Any = WHOLE) -> Any:
    return _draw("random_bits", dims, seed, stream, at)


@primitive
def randint(*, low: int, high: int, dims: Sequence[int], seed: int, stream: int, at: Any = WHOLE) -> Any:
    if not 0 < high - low <= 1 << 32:
        return NotImplemented  # the reference says what is wrong
    return _draw("randint", dims, seed, stream, at, low, high - low)
