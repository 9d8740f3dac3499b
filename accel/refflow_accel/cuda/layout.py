"""Where elements lie: broadcasting, and the fewest dimensions that describe several operands at once.

Part of ACC-CUDA-KERNELS of spec/text/acceleration.md: the host's side of launches, which reads shapes and strides only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from .memory import DeviceArray, packed
from .target import SIMULATED

Shape = tuple[int, ...]
THREADS = 256


def grid_of(tasks: int) -> tuple[int, int]:
    """(blocks, threads) for a grid-stride loop over `tasks`; simulated threads are dear, so there are few of them."""
    if SIMULATED:
        return (2, 2) if 3 < tasks < 64 else (1, 1)
    return min(-(-tasks // THREADS), 8192), THREADS


def loop_of(rank: int) -> list[str]:
    """The source of a kernel's grid-stride loop over n elements of a space of extents (.., d1, .., d{rank - 1}), row-major.

    In its body `i` is the element's number and (rest, c1, .., c{rank - 1}) its place; the last line is the caller's:
    ``i = u32(i + step)``.
    """
    lines = [
        "    i = u32(cuda.grid(1))",
        "    step = u32(cuda.gridsize(1))",
        "    while i < n:",
        "        rest = i",
    ]
    for d in range(rank - 1, 0, -1):
        lines += [f"        q = u32(rest // d{d})", f"        c{d} = u32(rest - q * d{d})", "        rest = q"]
    return lines


def broadcast(operands: Sequence[tuple[Shape, Shape]]) -> tuple[Shape, list[Shape]]:
    """The common shape of arrays of some shapes and strides, and each one's strides in it (0 where it repeats)."""
    common = np.broadcast_shapes(*[shape for shape, _ in operands])
    spread = []
    for shape, strides in operands:
        own = [0 if n == 1 else stride for n, stride in zip(shape, strides)]
        spread.append((0,) * (len(common) - len(shape)) + tuple(own))
    return common, spread


def coalesce(shape: Shape, strides: Sequence[Shape]) -> tuple[Shape, list[Shape]]:
    """The same elements in the same order with the fewest dimensions, at least one."""
    kept: list[tuple[int, list[int]]] = []
    for d, n in enumerate(shape):
        steps = [s[d] for s in strides]
        if n == 1:
            continue
        if kept and all(before == step * n for before, step in zip(kept[-1][1], steps)):
            kept[-1] = (kept[-1][0] * n, steps)
        else:
            kept.append((n, steps))
    if not kept:
        return (1,), [(0,) for _ in strides]
    return tuple(n for n, _ in kept), [tuple(steps[k] for _, steps in kept) for k in range(len(strides))]


def merged(shape: Shape, strides: Shape) -> tuple[Shape, Shape]:
    """`coalesce` for one array."""
    dims, (steps,) = coalesce(shape, [strides])
    return dims, steps


def reshaped(array: DeviceArray, shape: Shape) -> DeviceArray | None:
    """`array` under another shape of the same size without a copy, or None where that is impossible."""
    if array.contiguous:
        return array.view(shape, packed(shape))
    if math.prod(shape) == 0:
        return array.view(shape, packed(shape))
    dims, steps = merged(array.shape, array.strides)
    strides: list[int] = []
    d = len(dims) - 1
    left, step = dims[d], steps[d]
    for n in reversed(shape):
        if n == 1:
            strides.append(1)
            continue
        if left == 1:
            d -= 1
            left, step = dims[d], steps[d]
        if left % n:
            return None
        strides.append(step)
        left, step = left // n, step * n
    return array.view(shape, tuple(reversed(strides)))
