"""Elements as CUDA kernels meet them: how each dtype is stored, read, computed in and written, and how two are combined.

Part of ACC-CUDA-KERNELS of spec/text/acceleration.md.  float16 and bfloat16 are 16-bit words, computed in float32 and
rounded once (NUM-HALF); integers and booleans are computed in 64 bits and cut, which wraps as their own arithmetic does.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from ..expressions import FLOATS, HALVES, INTEGERS
from .target import S, device, f32, f64, i8, i64, pointer, s32, s64, u8, u16

DTYPES = (*FLOATS, *INTEGERS, "bool")
CELL: dict[str, Any] = {
    "float32": f32, "float64": f64, "float16": u16, "bfloat16": u16,
    "int64": s64, "int32": s32, "int8": i8, "uint8": u8, "bool": u8,
}  # fmt: skip
_WIDE = {"float32": "float32", "float16": "float32", "bfloat16": "float32", "float64": "float64"}
NUMBER = {"float32": f32, "float64": f64, "int64": i64}  # the types that are computed in
ZERO = {"float32": f32(0.0), "float64": f64(0.0), "int64": i64(0)}
NEUTRAL = {  # of a sum, by the type computed in
    "float32": f32(-0.0), "float64": f64(-0.0), "int64": i64(0)
}  # fmt: skip


def wide(dtype: str) -> str:
    """The dtype in which elements of `dtype` are computed."""
    return _WIDE.get(dtype, "int64")


def cells(dtype: str) -> Any:
    """The type of a kernel's argument that holds elements of `dtype`."""
    return pointer(CELL[dtype])


f16_decode, f16_encode, bf16_decode, bf16_encode = S.f16_decode, S.f16_encode, S.bf16_decode, S.bf16_encode


@device
def _load_same(x, i):  # type: ignore[no-untyped-def]
    return x[i]


@device
def _load_integer(x, i):  # type: ignore[no-untyped-def]
    return i64(x[i])


@device
def _load_float16(x, i):  # type: ignore[no-untyped-def]
    return f16_decode(i64(x[i]))


@device
def _load_bfloat16(x, i):  # type: ignore[no-untyped-def]
    return bf16_decode(i64(x[i]))


@device
def _store_same(x, i, value):  # type: ignore[no-untyped-def]
    x[i] = value


@device
def _store_float16(x, i, value):  # type: ignore[no-untyped-def]
    x[i] = u16(f16_encode(value))


@device
def _store_bfloat16(x, i, value):  # type: ignore[no-untyped-def]
    x[i] = u16(bf16_encode(value))


@cache
def loader(dtype: str) -> Any:
    """load(array, i) -> the element in its wide form."""
    named = {"float16": _load_float16, "bfloat16": _load_bfloat16, "float32": _load_same, "float64": _load_same}
    return named.get(dtype, _load_integer)


@cache
def storer(dtype: str) -> Any:
    """store(array, i, value): a wide value rounded, or cut, to the element."""
    if dtype in HALVES:
        return _store_float16 if dtype == "float16" else _store_bfloat16
    if dtype in ("float32", "float64", "int64"):
        return _store_same
    cell = CELL[dtype]

    def store(x, i, value):  # type: ignore[no-untyped-def]
        x[i] = cell(value)

    return device(store)


# --- combining --------------------------------------------------------------------------------------------------------


@device
def _plus(a, b):  # type: ignore[no-untyped-def]
    return a + b


@device
def _times(a, b):  # type: ignore[no-untyped-def]
    return a * b


@device
def _greater(a, b):  # type: ignore[no-untyped-def]
    return a if a > b else b


@device
def _lesser(a, b):  # type: ignore[no-untyped-def]
    return a if a < b else b


def combiner(kind: str, dtype: str) -> Any:
    """What the fold `kind` does with two elements in their wide form; on booleans a sum is "or", a product "and"."""
    if dtype == "bool":
        return {"sum": _greater, "max": _greater, "prod": _lesser, "min": _lesser}[kind]
    if kind in ("sum", "prod"):
        return _plus if kind == "sum" else _times
    if dtype in FLOATS:
        digits = "64" if dtype == "float64" else "32"
        return getattr(S, ("maximum" if kind == "max" else "minimum") + digits)
    return _greater if kind == "max" else _lesser
