"""float16 in the processor's own conversions where it has them: exact one way, to nearest even the other (NUM-HALF)."""

from __future__ import annotations

import platform
from typing import Any

from llvmlite import binding, ir
from numba import types
from numba.extending import intrinsic


def in_hardware() -> bool:
    """Whether LLVM makes instructions of these conversions here (where not, it would call a library there may not be)."""
    return platform.machine() in ("aarch64", "arm64") or bool(binding.get_host_cpu_features().get("f16c"))


@intrinsic
def f16_encode(typing: Any, x: Any) -> Any:
    """The float16 pattern nearest to a float32."""

    def build(context: Any, b: Any, signature: Any, args: Any) -> Any:
        return b.bitcast(b.fptrunc(args[0], ir.HalfType()), ir.IntType(16))

    return types.uint16(types.float32), build


@intrinsic
def f16_decode(typing: Any, pattern: Any) -> Any:
    """The float32 that a float16 pattern stands for."""

    def build(context: Any, b: Any, signature: Any, args: Any) -> Any:
        word = args[0] if args[0].type.width == 16 else b.trunc(args[0], ir.IntType(16))
        return b.fpext(b.bitcast(word, ir.HalfType()), ir.FloatType())

    return types.float32(pattern), build
