"""Scans: ascending and sequential by definition (NUM-SCAN), a thread for each line."""

from __future__ import annotations

import math
from typing import Any

from ...expressions import FLOATS, INTEGERS
from ..elements import NUMBER, cells, loader, storer, wide
from ..layout import grid_of
from ..memory import DeviceArray, empty
from ..registry import Made, family, primitive
from ..target import cuda, u32
from .movement import contiguous


@family()
def scan(dtype: str, multiplied: bool) -> Made:
    """out[o, k, r] = out[o, k - 1, r] + (or *) x[o, k, r], in float32 for halves, from the first element."""
    load, store, number = loader(dtype), storer(dtype), NUMBER[wide(dtype)]

    def kernel(lines, n, inner, x, out):
        line = u32(cuda.grid(1))
        while line < lines:
            o = u32(line // inner)
            at = u32(o * n * inner + u32(line - o * inner))
            total = number(load(x, at))
            store(out, at, total)
            k = u32(1)
            while k < n:
                at = u32(at + inner)
                total = number(total * load(x, at)) if multiplied else number(total + load(x, at))
                store(out, at, total)
                k = u32(k + u32(1))
            line = u32(line + u32(cuda.gridsize(1)))

    return kernel, (u32, u32, u32, cells(dtype), cells(dtype))


def _scan(x: DeviceArray, dim: int, multiplied: bool) -> Any:
    if x.dtype.name not in (*FLOATS, *INTEGERS):
        return NotImplemented
    out = empty(x.shape, x.dtype)
    if out.size:
        dim %= x.ndim
        n, inner = x.shape[dim], math.prod(x.shape[dim + 1 :])
        lines = out.size // n
        scan.launch((x.dtype.name, multiplied), *grid_of(lines), lines, n, inner, contiguous(x), out)
    return out


@primitive
def cumsum(x: DeviceArray, *, dim: int) -> Any:
    return _scan(x, dim, False)


@primitive
def cumprod(x: DeviceArray, *, dim: int) -> Any:
    return _scan(x, dim, True)
