"""Elementwise kernels: chains of primitives, generated from the expressions that the CPU's are generated from.

Implements ACC-CHAIN for CUDA: one grid-stride loop over the space of the chain, u32 indices, operands broadcast by
strides of 0.  What a step computes is `refflow_accel.expressions`'.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Sequence
from functools import cache, lru_cache, partial
from typing import Any

import numpy as np

from ..chains import Chain, Step, single
from ..expressions import (
    BOOL,
    FLOAT,
    FLOAT32,
    HALVES,
    INTEGER,
    expression,
    load,
    refusal,
    result,
    serves,
    store,
)
from . import target
from .elements import cells
from .layout import Shape, broadcast, coalesce, grid_of, loop_of
from .memory import DeviceArray, empty, from_host, read
from .registry import HOST, Made, Refused, family, register
from .target import S, cuda, f32, f64, i8, s32, s64, u8, u16, u32

SCOPE: dict[str, Any] = {
    **vars(S), "cuda": cuda, "u32": u32, "abs": builtins.abs, "INF64": float("inf"),
    "float32": f32, "float64": f64, "int8": i8, "int32": s32, "int64": s64, "uint8": u8, "uint16": u16,
}  # fmt: skip


def text_of(chain: Chain, rank: int) -> str:
    """The source of the kernel of a chain whose space has `rank` dimensions."""
    inputs, outputs = range(len(chain.inputs)), range(len(chain.outputs))
    names = [f"x{k}" for k in inputs] + [f"v{k}" for k in range(len(chain.steps))]
    strides = [[f"s{k}_{d}" for d in range(rank)] for k in inputs]
    pointers = [f"p{k}" for k in inputs] + [f"out{k}" for k in outputs]
    arguments = ["n", *[f"d{d}" for d in range(1, rank)], *[s for row in strides for s in row], *pointers, "status"]
    lines = [f"def chain({', '.join(arguments)}):", *loop_of(rank)]
    for k in inputs:
        place = " + ".join([f"rest * s{k}_0", *[f"c{d} * s{k}_{d}" for d in range(1, rank)]])
        lines.append(f"        x{k} = {load(chain.inputs[k], f'p{k}[u32({place})]')}")
    for k, step in enumerate(chain.steps):
        dtypes = tuple(chain.dtype(o) for o in step.operands)
        operands = tuple(names[o] for o in step.operands)
        bad = refusal(step.op, dtypes, operands)
        if bad is not None:
            lines += [f"        if {bad}:", "            status[0] = int32(1)"]
        lines.append(f"        v{k} = {expression(step.op, dtypes, step.dtype, operands)}")
    for k, index in enumerate(chain.outputs):
        dtype, value = chain.dtype(index), names[index]
        written = f"uint8(1) if {value} else uint8(0)" if dtype == "bool" else store(dtype, value)
        lines.append(f"        out{k}[i] = {f'uint16({written})' if dtype in HALVES else written}")
    return "\n".join([*lines, "        i = u32(i + step)", ""])


CONSTANTS = 60000  # bytes of tables in one kernel: a module has 65536 of constants
TABLES = {  # bytes of a primitive's tables; what it calls has copies of its own
    **dict.fromkeys(("exp", "expm1", "tanh", "sigmoid"), 1536),
    "log": 3072, "log1p": 4096, "softplus": 5632, "pow": 5632, "erf": 7800, "gelu": 34312, "sin": 13632, "cos": 13632,
}  # fmt: skip


@family()
def chain(made: Chain, rank: int) -> Made:
    """The kernel of a chain over a space of `rank` dimensions."""
    scope = dict(SCOPE)
    exec(text_of(made, rank), scope)
    strides = (u32,) * (rank * len(made.inputs))
    dtypes = (*made.inputs, *[made.dtype(index) for index in made.outputs])
    arrays = tuple(cells(dtype) for dtype in dtypes)
    return scope["chain"], (u32, *(u32,) * (rank - 1), *strides, *arrays, target.pointer(s32))


@cache
def _refuses(made: Chain) -> bool:
    """Whether some data are bad for a chain."""
    return any(refusal(s.op, tuple(made.dtype(o) for o in s.operands), ("", "")) is not None for s in made.steps)


def run(made: Chain, arrays: Sequence[DeviceArray]) -> list[DeviceArray]:
    """The results of a chain on its inputs (broadcast), fresh and row-major.

    Raises Refused for bad data, which waits for the device; only integer division and power have any.
    """
    shape, rank, grid, numbers = _way(tuple([(array.shape, array.strides) for array in arrays]))
    outs = [empty(shape, dtype_of(made.dtype(index))) for index in made.outputs]
    if not numbers[0]:
        return outs
    status = from_host(np.zeros(1, np.int32)) if _refuses(made) else outs[0]
    chain.launch((made, rank), *grid, *numbers, *arrays, *outs, status)
    if _refuses(made) and read(status)[0]:
        raise Refused
    return outs


@lru_cache(maxsize=4096)
def _way(operands: tuple[tuple[Shape, Shape], ...]) -> tuple[Shape, int, tuple[int, int], tuple[int, ...]]:
    """For operands of these shapes and strides: the results' shape, the kernel's rank, its grid, its numbers."""
    shape, strides = broadcast(operands)
    n = math.prod(shape)
    dims, steps = coalesce(shape, strides) if n else ((1,), [])
    return shape, len(dims), grid_of(n), (n, *dims[1:], *[step for row in steps for step in row])


@cache
def dtype_of(name: str) -> np.dtype[Any]:
    """The dtype of a name."""
    from refflow.numerics import dtypes

    found: np.dtype[Any] = dtypes.bfloat16 if name == "bfloat16" else np.dtype(name)
    return found


def _elementwise(op: str, *arrays: DeviceArray) -> Any:
    dtypes = tuple(array.dtype.name for array in arrays)
    to = result(op, dtypes)
    if not serves(op, dtypes, to):
        return NotImplemented
    return run(single(op, dtypes, to), arrays)[0]


def cast(x: DeviceArray, *, dtype: Any) -> DeviceArray:
    """`x` with one rounding to `dtype`."""
    if x.dtype == dtype:
        return x
    return run(single("cast", (x.dtype.name,), np.dtype(dtype).name), [x])[0]


for _op in dict.fromkeys((*FLOAT, *FLOAT32, *INTEGER, *BOOL)):
    register(_op, partial(_elementwise, _op))
register("cast", cast)
HOST["elementary functions of float64"] = "they are decided by mpmath, for checks"
HOST["floor_divide and remainder of float64"] = "their exact remainder is written for float32"


# --- the fold over ranks ----------------------------------------------------------------------------------------------

_FOLDS = {"sum": "add", "prod": "mul", "max": "maximum", "min": "minimum"}


@lru_cache(maxsize=256)
def _fold(count: int, dtype: str, kind: str) -> Chain:
    """The canonical tree over `count` parts; halves are summed and multiplied in float32 and rounded once (NUM-FOLD)."""
    steps: list[Step] = []
    inner = "float32" if dtype in HALVES and kind in ("sum", "prod") else dtype

    def put(op: str, operands: tuple[int, ...], to: str) -> int:
        steps.append(Step(op, operands, to))
        return count + len(steps) - 1

    def node(parts: list[int]) -> int:
        if len(parts) == 1:
            return parts[0] if inner == dtype else put("cast", (parts[0],), inner)
        half = (len(parts) + 1) // 2
        return put(_FOLDS[kind], (node(parts[:half]), node(parts[half:])), inner)

    top = node(list(range(count)))
    top = top if inner == dtype else put("cast", (top,), dtype)
    return Chain((dtype,) * count, tuple(steps), (top,))


def fold(*parts: DeviceArray, kind: str) -> Any:
    """The ranks' parts folded elementwise, a pure tree over their position."""
    dtype = parts[0].dtype.name
    if len(parts) == 1:
        return parts[0]
    if any(p.dtype.name != dtype or p.shape != parts[0].shape for p in parts):
        return NotImplemented  # the reference says what is wrong
    return run(_fold(len(parts), dtype, kind), parts)[0]


register("fold", fold)
