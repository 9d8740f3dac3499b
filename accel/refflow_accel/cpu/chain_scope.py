"""The names a generated kernel may use: the compiled scalar functions, loops, buffers and readers of arguments.

Part of ACC-GENERATED of spec/text/acceleration.md.  `HEAVY` has the kernels of the functions that are carried out on
whole blocks, whose addresses a chain's kernel is given.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, types

from ..expressions import BLOCKS
from ..scalar import blocks as _blocks
from ..scalar.dialect import INF64
from ..scalar.target_cpu import Cpu, cpu
from . import abi, halves
from .chain_loop import any_set, each, heavy, spread
from .kernels import elements

BLOCK = 512  # elements of a buffer: several fit the first-level cache

scalar = njit(forceinline=True, error_model="numpy", nogil=True)


def unary(words: int, lo: int, hi: int) -> int:
    """The kernel of a heavy function on float32 blocks of `hi` elements: words x, result."""
    function(abi.f32s(words, 0), abi.f32s(words, 1), hi)
    return 0


def binary(words: int, lo: int, hi: int) -> int:
    """As `unary`, of two operands."""
    function(abi.f32s(words, 0), abi.f32s(words, 1), abi.f32s(words, 2), hi)
    return 0


def terms(words: int, lo: int, hi: int) -> int:
    """Gelu and what its gradient is made of: words x, y, z, and three results."""
    given = abi.f32s(words, 0), abi.f32s(words, 1), abi.f32s(words, 2)
    function(*given, abi.f32s(words, 3), abi.f32s(words, 4), abi.f32s(words, 5), hi)
    return 0


function: Any = None  # stands for what `entry_of` puts in its place
HEAVY = {
    name: elements.entry_of(binary if name == "pow" else unary, name, {"function": getattr(_blocks, f"{name}_block")})
    for name in BLOCKS
}
HEAVY["gelu_terms"] = elements.entry_of(terms, "gelu_terms", {"function": _blocks.gelu_terms_block})

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
    **{name: getattr(halves, name) for name in ("f16_encode", "f16_decode", "bf16_encode", "bf16_decode")},
    "word": abi.i64,
    "entry": abi.entry,
    "each": each,
    "heavy": heavy,
    "spread": spread,
    "any_set": any_set,
    "scalar": scalar,
    "INF64": INF64,
}
globals().update(SCOPE)
