"""Where the greatest or least element stands: argmax and argmin, a thread or a block for each column (NUM-ORDER)."""

from __future__ import annotations

from typing import Any

from ..elements import NUMBER, cells, loader, wide
from ..elementwise import dtype_of
from ..layout import grid_of
from ..memory import DeviceArray, empty
from ..registry import Made, family, primitive
from ..target import SIMULATED, cuda, device, s64, u32
from .reduction import BLOCK, ranges
from .tree import element


def _better(dtype: str, largest: bool) -> Any:
    """better(a, b): whether a comes before b whatever their places; a NaN comes before all (NUM-ORDER)."""

    def greater(a, b):
        return (a > b) | ((a != a) & (b == b))

    def less(a, b):
        return (a < b) | ((a != a) & (b == b))

    return device(greater if largest else less)


@family()
def arg_threads(dtype: str, largest: bool) -> Made:
    """out[c] = the lowest place of the best of column c's n terms, a thread for each column."""
    load, better = loader(dtype), _better(dtype, largest)

    def kernel(n, columns, inner_c, sc0, sc1, inner_t, st0, st1, x, out):
        c = u32(cuda.grid(1))
        while c < columns:
            base = element(u32(0), c, inner_c, sc0, sc1)
            best = load(x, base)
            place = u32(0)
            i = u32(1)
            while i < n:
                value = load(x, element(base, i, inner_t, st0, st1))
                if better(value, best):
                    best = value
                    place = i
                i = u32(i + u32(1))
            out[c] = s64(place)
            c = u32(c + u32(cuda.gridsize(1)))

    return kernel, (*(u32,) * 8, cells(dtype), cells("int64"))


@family(bounds=BLOCK)
def arg_blocks(dtype: str, largest: bool) -> Made:
    """As `arg_threads`, a block for each column; among equals the lowest place, however they meet."""
    load, better, number = loader(dtype), _better(dtype, largest), NUMBER[wide(dtype)]

    def kernel(n, columns, inner_c, sc0, sc1, inner_t, st0, st1, x, out):
        values = cuda.shared.array(BLOCK, number)
        places = cuda.shared.array(BLOCK, u32)
        thread = u32(cuda.threadIdx.x)
        c = u32(cuda.blockIdx.x)
        while c < columns:
            base = element(u32(0), c, inner_c, sc0, sc1)
            if thread < n:
                best = load(x, element(base, thread, inner_t, st0, st1))
                place = thread
                i = u32(thread + u32(BLOCK))
                while i < n:
                    value = load(x, element(base, i, inner_t, st0, st1))
                    if better(value, best):
                        best = value
                        place = i
                    i = u32(i + u32(BLOCK))
                values[thread] = best
                places[thread] = place
            cuda.syncthreads()
            apart = u32(BLOCK // 2)
            while apart > u32(0):
                other = u32(thread + apart)
                if thread < apart and other < n:
                    a, b = values[thread], values[other]
                    if better(b, a) or (not better(a, b) and places[other] < places[thread]):
                        values[thread] = b
                        places[thread] = places[other]
                cuda.syncthreads()
                apart = u32(apart >> u32(1))
            if thread == u32(0):
                out[c] = s64(places[0])
            cuda.syncthreads()
            c = u32(c + u32(cuda.gridDim.x))

    return kernel, (*(u32,) * 8, cells(dtype), cells("int64"))


def _arg(x: DeviceArray, dim: int, largest: bool) -> Any:
    n = x.shape[dim]
    if n == 0:
        return NotImplemented  # the reference says why
    dim %= x.ndim
    source, terms, across, shape = ranges(x, [dim])
    out = empty(shape, dtype_of("int64"))
    if out.size:
        arguments = (n, out.size, *across, *terms, source, out)
        if n >= (8 if SIMULATED else BLOCK):
            arg_blocks.launch((x.dtype.name, largest), min(out.size, 1 << 20), BLOCK, *arguments)
        else:
            arg_threads.launch((x.dtype.name, largest), *grid_of(out.size), *arguments)
    return out


@primitive
def argmax(x: DeviceArray, *, dim: int) -> Any:
    return _arg(x, dim, True)


@primitive
def argmin(x: DeviceArray, *, dim: int) -> Any:
    return _arg(x, dim, False)
