"""What the processor can do at most: fused multiply-adds that touch nothing but registers, launched as kernels are."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ..cpu import abi
from ..cpu.kernels.tiles import LANES, ROWS
from .rounds import Recorded

SUMS = 2 * ROWS  # independent ones, in as many registers as a tile of a product
TASKS, TIMES = 64, 10_000
FLOPS = 2 * TASKS * TIMES * SUMS * LANES


@intrinsic
def _multiply_add(context: Any, x: Any, times: Any) -> Any:
    """s = s x + x, so many times, for each lane of each sum; the sum of all."""
    vector = ir.VectorType(ir.FloatType(), LANES)

    def build(context: Any, b: Any, signature: Any, args: Any) -> Any:
        def function(name: str, *kinds: Any) -> Any:
            return cgutils.get_or_insert_function(b.module, ir.FunctionType(*kinds), f"{name}.v{LANES}f32")

        fma = function("llvm.fma", vector, [vector] * 3)
        x = reduce(
            lambda v, i: b.insert_element(v, args[0], ir.Constant(ir.IntType(32), i)),
            range(LANES),
            vector(ir.Undefined),
        )
        starts = [ir.Constant(vector, [i / SUMS] * LANES) for i in range(SUMS)]  # unlike, or LLVM keeps one sum
        sums = [cgutils.alloca_once_value(b, start) for start in starts]
        with cgutils.for_range(b, args[1]):
            for place in sums:
                b.store(b.call(fma, [b.load(place), x, x]), place)
        whole = reduce(b.fadd, [b.load(place) for place in sums])
        added = function("llvm.vector.reduce.fadd", ir.FloatType(), [ir.FloatType(), vector])
        return b.call(added, [ir.Constant(ir.FloatType(), 0.0), whole])

    return types.float32(types.float32, types.int64), build


@abi.entry
def multiply_adds(words: Any, lo: int, hi: int) -> int:
    """Each task multiplies and adds, and writes where all ended."""
    out, x, times = abi.f32s(words, 0), abi.f32(words, 1), abi.i64(words, 2)
    for task in range(lo, hi):
        out[task] = _multiply_add(x, times)
    return 0


def work() -> Callable[[], Any]:
    """FLOPS operations in float32."""
    call = Recorded()
    call.launch(multiply_adds, np.empty(TASKS, np.float32), np.float32(0.5), TIMES, tasks=TASKS, cost=1e6)
    return call.program()
