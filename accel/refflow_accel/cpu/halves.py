"""float16 and bfloat16 on the CPU: `f16_encode`, `f16_decode`, `bf16_encode`, `bf16_decode` for kernels and chains.

Implements NUM-HALF with the bits of `scalar.halves`, whose text is the definition for every target but computes in 64
bits.  Here float16 is the processor's own conversion where it has one, else that text; of bfloat16, for which few
processors have one, the text is written again in 32 bits, so that twice as many fit a vector.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from ..scalar.target_cpu import cpu
from .processor import converts_float16

device = njit(forceinline=True, error_model="numpy", nogil=True, no_cpython_wrapper=True, no_cfunc_wrapper=True)


@intrinsic
def bits_of(context: Any, x: Any) -> Any:
    """The word of a float32."""
    return types.uint32(types.float32), lambda c, b, s, args: b.bitcast(args[0], ir.IntType(32))


@intrinsic
def float_of(context: Any, word: Any) -> Any:
    """The float32 of a word."""
    return types.float32(types.uint32), lambda c, b, s, args: b.bitcast(args[0], ir.FloatType())


@device
def bf16_decode(pattern: Any) -> Any:
    """Exact: the upper half of a float32."""
    return float_of(np.uint32(pattern) << np.uint32(16))


@device
def bf16_encode(x: Any) -> Any:
    """To nearest even: a carry out of the mantissa is the next exponent, and infinity at the end."""
    word = bits_of(x)
    rounded = (word + np.uint32(0x7FFF) + ((word >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    return np.uint16(rounded) if x == x else np.uint16(0x7FC0)


@intrinsic
def _f16_encode(context: Any, x: Any) -> Any:
    """The processor's rounding to nearest even."""

    def build(context: Any, b: Any, signature: Any, args: Any) -> Any:
        return b.bitcast(b.fptrunc(args[0], ir.HalfType()), ir.IntType(16))

    return types.uint16(types.float32), build


@intrinsic
def _f16_decode(context: Any, pattern: Any) -> Any:
    """The processor's widening, which is exact."""

    def build(context: Any, b: Any, signature: Any, args: Any) -> Any:
        word = args[0] if args[0].type.width == 16 else b.trunc(args[0], ir.IntType(16))
        return b.fpext(b.bitcast(word, ir.HalfType()), ir.FloatType())

    return types.float32(pattern), build


_text_encode, _text_decode = cpu()["f16_encode"], cpu()["f16_decode"]


@device
def _wide_decode(pattern: Any) -> Any:
    """The text's patterns are int64."""
    return _text_decode(np.int64(pattern))


f16_encode = _f16_encode if converts_float16() else _text_encode
f16_decode = _f16_decode if converts_float16() else _wide_decode
