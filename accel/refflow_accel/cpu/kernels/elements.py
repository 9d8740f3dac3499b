"""Elements as CPU kernels meet them: how each dtype is read, computed in and written, and the four ways of combining.

Part of ACC-KERNELS of spec/text/acceleration.md.  float16 and bfloat16 are read as 16-bit words, computed in float32 and
rounded once, by `cpu.halves` (NUM-HALF); integers are computed in 64 bits and cut, which wraps as their own arithmetic
does.  Kernels are written once, against the names `load`, `store`, `combine`, ...; `specialise` gives them their meaning
for a dtype.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from types import FunctionType
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from refflow.numerics.dtypes import DTYPES

from ...expressions import FLOATS
from .. import abi
from ..abi import Entry
from ..halves import bf16_decode, bf16_encode, device, f16_decode, f16_encode

# --- one text, many dtypes --------------------------------------------------------------------------------------------


def specialise(functions: tuple[Callable[..., Any], ...], scope: dict[str, Any]) -> dict[str, Any]:
    """Compiles `functions`, in which the names of `scope` and of each other have that meaning; returns the scope."""
    inside = {**functions[0].__globals__, **scope}
    for function in functions:
        inside[function.__name__] = device(FunctionType(function.__code__, inside, function.__name__))
    return inside


def entry_of(function: Callable[[Any, int, int], int], suffix: str, scope: dict[str, Any]) -> Entry:
    """A kernel for the meaning `scope` gives its names; Numba's cache tells such kernels apart by their names."""
    name = f"{function.__name__}_{suffix}"
    made = FunctionType(function.__code__, {**function.__globals__, **scope}, name)
    made.__qualname__ = name
    return Entry(made)


# --- bits and memory --------------------------------------------------------------------------------------------------


@intrinsic
def word_of(context: Any, x: Any) -> Any:
    """The word of a float64."""
    return types.uint64(types.float64), lambda c, b, s, args: b.bitcast(args[0], ir.IntType(64))


@intrinsic
def get(context: Any, x: Any, i: Any) -> Any:
    """x[i], where a negative i lies before the array's first element, as steps backwards need."""

    def build(context: Any, b: Any, signature: Any, args: Any) -> Any:
        return b.load(b.gep(context.make_array(x)(context, b, args[0]).data, [args[1]]))

    return x.dtype(x, types.int64), build


@intrinsic
def put(context: Any, x: Any, i: Any, value: Any) -> Any:
    """x[i] = value, likewise; an integer is cut to fit."""

    def build(context: Any, b: Any, signature: Any, args: Any) -> Any:
        made = context.cast(b, args[2], value, x.dtype)
        b.store(made, b.gep(context.make_array(x)(context, b, args[0]).data, [args[1]]))
        return context.get_dummy_value()

    return types.void(x, types.int64, value), build


def _binary(name: str) -> Any:
    """LLVM's function of two equal numbers."""

    @intrinsic
    def function(context: Any, a: Any, b: Any) -> Any:
        def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            kind = args[0].type
            return builder.call(builder.module.declare_intrinsic(name, [kind], ir.FunctionType(kind, [kind, kind])), args)

        return a(a, a), build

    return function


maximum, minimum = _binary("llvm.maximum"), _binary("llvm.minimum")  # IEEE 754-2019's, which are NUM-MAX's


@intrinsic
def key_of(context: Any, x: Any) -> Any:
    """The int32 that stands among integers as a float32 does in NUM-MAX's order: -0 < +0, NaNs at both ends."""

    def build(context: Any, b: Any, signature: Any, args: Any) -> Any:
        word = b.bitcast(args[0], ir.IntType(32))
        return b.xor(word, b.lshr(b.ashr(word, word.type(31)), word.type(1)))

    return types.int32(types.float32), build


@intrinsic
def of_key(context: Any, key: Any) -> Any:
    """The float32 of a key."""

    def build(context: Any, b: Any, signature: Any, args: Any) -> Any:
        word = b.xor(args[0], b.lshr(b.ashr(args[0], args[0].type(31)), args[0].type(1)))
        return b.bitcast(word, ir.FloatType())

    return types.float32(types.int32), build


highest, lowest = _binary("llvm.smax"), _binary("llvm.smin")  # of two integers, in their own width


def buffer(dtype: Any, count: int) -> Any:
    """The intrinsic () -> a work array of `count` elements on the thread's stack."""
    kind = types.Array(dtype, 1, "C")

    @intrinsic
    def array(context: Any) -> Any:
        def build(context: Any, b: Any, signature: Any, args: Any) -> Any:
            element = context.get_data_type(dtype)
            with b.goto_entry_block():  # not `alloca_once`, which fills with zeros
                data = b.alloca(element, size=ir.Constant(ir.IntType(32), count))
            made = context.make_array(kind)(context, b)
            size = context.get_constant(types.intp, context.get_abi_sizeof(element))
            shape = cgutils.pack_array(b, [context.get_constant(types.intp, count)])
            strides = cgutils.pack_array(b, [size])
            context.populate_array(made, data=data, shape=shape, strides=strides, itemsize=size, meminfo=None)
            return made._getvalue()

        return kind(), build

    return array


# --- reading and writing ----------------------------------------------------------------------------------------------


@device
def load_same(x, i):
    return get(x, i)


@device
def load_integer(x, i):
    return np.int64(get(x, i))


@device
def load_bfloat16(x, i):
    return bf16_decode(get(x, i))


@device
def load_float16(x, i):
    return f16_decode(get(x, i))


@device
def store_same(out, i, value):
    put(out, i, value)


@device
def store_bfloat16(out, i, value):
    put(out, i, bf16_encode(value))


@device
def store_float16(out, i, value):
    put(out, i, f16_encode(value))


READ = {
    "float32": abi.f32s, "float64": abi.f64s, "float16": abi.u16s, "bfloat16": abi.u16s, "bool": abi.u8s,
    "uint8": abi.u8s, "int8": abi.i8s, "int32": abi.i32s, "int64": abi.i64s,
}  # fmt: skip
LOAD = {
    "float32": load_same, "float64": load_same, "float16": load_float16, "bfloat16": load_bfloat16, "bool": load_same,
    "uint8": load_integer, "int8": load_integer, "int32": load_integer, "int64": load_same,
}  # fmt: skip
STORE = {**dict.fromkeys(LOAD, store_same), "float16": store_float16, "bfloat16": store_bfloat16}
WIDE = {"float32": "float32", "float16": "float32", "bfloat16": "float32", "float64": "float64", "bool": "bool"}
NUMBA = {"float32": types.float32, "float64": types.float64, "int64": types.int64, "bool": types.uint8}
WORDS = {1: abi.u8s, 2: abi.u16s, 4: abi.u32s, 8: abi.i64s}  # for copying: elements as what they weigh


_NAMES = {dtype: dtype.name for dtype in DTYPES}


def name_of(dtype: np.dtype[Any]) -> str:
    """A dtype's name: NumPy makes it anew each time, which is a tenth of a small call."""
    return _NAMES.get(dtype) or dtype.name


def wide(dtype: str) -> str:
    """The dtype in which elements of `dtype` are computed."""
    return WIDE.get(dtype, "int64")


# --- combining --------------------------------------------------------------------------------------------------------


@device
def plus(a, b):
    return a + b


@device
def times(a, b):
    return a * b


@device
def greater(a, b):
    return a if a > b else b


@device
def lesser(a, b):
    return a if a < b else b


@device
def either(a, b):
    return a | b


@device
def both(a, b):
    return a & b


def combine(kind: str, dtype: str) -> Any:
    """What the fold `kind` does with two elements in their wide form."""
    if dtype == "bool":
        return {"sum": either, "max": either, "prod": both, "min": both}[kind]
    floats = {"sum": plus, "prod": times, "max": maximum, "min": minimum}
    return (floats if dtype in FLOATS else {**floats, "max": greater, "min": lesser})[kind]


def nothing(dtype: str) -> Any:
    """What no term sums to, in its wide form."""
    return {"float32": np.float32(-0.0), "float64": np.float64(-0.0), "bool": np.uint8(0)}.get(dtype, np.int64(0))


@cache
def itemstrides(strides: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """Strides in elements."""
    return tuple(stride // itemsize for stride in strides)
