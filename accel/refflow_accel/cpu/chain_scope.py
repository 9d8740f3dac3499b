"""The names a generated kernel may use: the compiled scalar functions, loops, buffers and readers of arguments."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, types

from ..expressions import BLOCKS, HALVES
from ..scalar import blocks as _blocks
from ..scalar.dialect import INF64
from ..scalar.target_cpu import Cpu, cpu
from . import abi, chain_halves
from .chain_loop import any_set, each, heavy, spread
from .kernels import elements

BLOCK = 512  # elements of a buffer: several fit the first-level cache

scalar = njit(forceinline=True, error_model="numpy", nogil=True)


@scalar
def whole_quotient(x: int, y: int) -> int:
    """floor(x / y), wrapping where y is -1; any number where y is 0."""
    d = 1 if (y == 0) | (y == -1) else y
    return -x if y == -1 else x // d


@scalar
def whole_remainder(x: int, y: int) -> int:
    """x - y floor(x / y); any number where y is 0."""
    d = 1 if (y == 0) | (y == -1) else y
    return x - (x // d) * d


@scalar
def whole_power(x: int, y: int) -> int:
    """x to the power y >= 0, wrapping in 64 bits and so in fewer; by squaring."""
    made = 1
    while y > 0:
        made = made * x if y & 1 else made
        x = x * x
        y >>= 1
    return made


def unary(words: int, lo: int, hi: int) -> int:
    """The kernel of a heavy function on float32 blocks of `hi` elements: words x, result."""
    function(abi.f32s(words, 0), abi.f32s(words, 1), hi)
    return 0


def binary(words: int, lo: int, hi: int) -> int:
    """As `unary`, of two operands."""
    function(abi.f32s(words, 0), abi.f32s(words, 1), abi.f32s(words, 2), hi)
    return 0


function: Any = None  # the scope's
HEAVY = {
    name: elements.entry_of(binary if name == "pow" else unary, name, {"function": getattr(_blocks, f"{name}_block")})
    for name in BLOCKS
}

_KINDS = {
    "float32": "f32s",
    "float64": "f64s",
    "int8": "i8s",
    "int32": "i32s",
    "int64": "i64s",
    "uint8": "u8s",
    "uint16": "u16s",
}
SCOPE: dict[str, Any] = {
    **cpu(),
    **{name: getattr(np, name) for name in _KINDS},
    **{f"{name}_buffer": elements.buffer(getattr(types, name), BLOCK) for name in _KINDS},
    **{f"{name}_array": getattr(abi, reader) for name, reader in _KINDS.items()},
    "sqrt32": Cpu.primitives["sqrt32"],
    "sqrt64": Cpu.primitives["sqrt64"],
    **{f"{short}_decode": getattr(elements, f"widen_{long}") for long, short in HALVES.items()},  # in 32-bit lanes
    **{f"{short}_encode": getattr(elements, f"narrow_{long}") for long, short in HALVES.items()},
    **(
        {name: getattr(chain_halves, name) for name in ("f16_encode", "f16_decode")}
        if chain_halves.in_hardware()
        else {}
    ),
    "word": abi.i64,
    "entry": abi.entry,
    "each": each,
    "heavy": heavy,
    "spread": spread,
    "any_set": any_set,
    "scalar": scalar,
    "whole_quotient": whole_quotient,
    "whole_remainder": whole_remainder,
    "whole_power": whole_power,
    "INF64": INF64,
}
globals().update(SCOPE)
