"""The element types of refflow, how they combine, and how a value is converted from one to another.

Implements NUM-DTYPE, NUM-PROMOTE, NUM-CAST and NUM-IDENTITY of spec/text/numerics.md.  A dtype is a `np.dtype`;
bfloat16 comes from ml_dtypes.  Which operation promotes, and when, is left to `functional`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from ..errors import DtypeError, NumericsError

Array = npt.NDArray[Any]
DType = np.dtype[Any]

bool_: DType = np.dtype(np.bool_)
uint8: DType = np.dtype(np.uint8)
int8: DType = np.dtype(np.int8)
int32: DType = np.dtype(np.int32)
int64: DType = np.dtype(np.int64)
float16: DType = np.dtype(np.float16)
bfloat16: DType = np.dtype(ml_dtypes.bfloat16)
float32: DType = np.dtype(np.float32)
float64: DType = np.dtype(np.float64)

DTYPES: tuple[DType, ...] = (bool_, uint8, int8, int32, int64, float16, bfloat16, float32, float64)
_FLOATS = frozenset((float16, bfloat16, float32, float64))
_INTEGERS = frozenset((uint8, int8, int32, int64))


def is_float(dtype: npt.DTypeLike) -> bool:
    """True for float16, bfloat16, float32 and float64."""
    return np.dtype(dtype) in _FLOATS


def is_integer(dtype: npt.DTypeLike) -> bool:
    """True for uint8, int8, int32 and int64 (bool is not an integer)."""
    return np.dtype(dtype) in _INTEGERS


def is_bool(dtype: npt.DTypeLike) -> bool:
    """True for bool."""
    return np.dtype(dtype) == bool_


def is_half(dtype: npt.DTypeLike) -> bool:
    """True for the storage floats float16 and bfloat16, whose arithmetic is done in float32 and rounded once."""
    return np.dtype(dtype) in (float16, bfloat16)


def finfo(dtype: npt.DTypeLike) -> Any:
    """The limits of a floating point dtype: `min`, `max`, `eps`, `tiny`, `bits`; `DtypeError` for another."""
    if not is_float(dtype):
        raise DtypeError(f"finfo: needs a floating point dtype, found {np.dtype(dtype).name}; iinfo is for integers")
    return ml_dtypes.finfo(np.dtype(dtype))  # type: ignore[no-untyped-call]


def iinfo(dtype: npt.DTypeLike) -> Any:
    """The limits of an integer dtype: `min`, `max`, `bits`; `DtypeError` for another."""
    if not is_integer(dtype):
        raise DtypeError(f"iinfo: needs an integer dtype, found {np.dtype(dtype).name}; finfo is for floats")
    return np.iinfo(np.dtype(dtype))


# Rows and columns in the order of the header.  The one cell that is not PyTorch's is uint8 with int8: PyTorch answers
# int16, which refflow does not have, so the next type that holds both is used.
_PROMOTION = """
      b1   u1   i1   i4   i8   f2   bf   f4   f8
b1    b1   u1   i1   i4   i8   f2   bf   f4   f8
u1    u1   u1   i4   i4   i8   f2   bf   f4   f8
i1    i1   i4   i1   i4   i8   f2   bf   f4   f8
i4    i4   i4   i4   i4   i8   f2   bf   f4   f8
i8    i8   i8   i8   i8   i8   f2   bf   f4   f8
f2    f2   f2   f2   f2   f2   f2   f4   f4   f8
bf    bf   bf   bf   bf   bf   f4   bf   f4   f8
f4    f4   f4   f4   f4   f4   f4   f4   f4   f8
f8    f8   f8   f8   f8   f8   f8   f8   f8   f8
"""


def _read_promotion(text: str) -> dict[tuple[DType, DType], DType]:
    header, *rows = (line.split() for line in text.strip().splitlines())
    of = dict(zip(header, DTYPES, strict=True))
    return {(of[row[0]], of[column]): of[cell] for row in rows for column, cell in zip(header, row[1:], strict=True)}


PROMOTION: dict[tuple[DType, DType], DType] = _read_promotion(_PROMOTION)


def promote(a: npt.DTypeLike, b: npt.DTypeLike) -> DType:
    """The dtype in which values of dtypes `a` and `b` meet: a table, as data.

    Raises DtypeError for a dtype refflow does not have.  Source: NUM-PROMOTE (PyTorch's categories).
    """
    try:
        return PROMOTION[np.dtype(a), np.dtype(b)]
    except KeyError:
        raise DtypeError(f"promote: {np.dtype(a).name} with {np.dtype(b).name}; refflow has {_names()}") from None


def promote_scalar(dtype: npt.DTypeLike, scalar: object) -> DType:
    """The dtype in which a tensor of `dtype` meets a Python scalar: only a scalar of a higher category changes it.

    Categories: bool < integer < float.  A float with an integer or bool tensor gives float32, an int with a bool
    tensor int64.  Raises DtypeError for anything that is not a bool, int or float.  Source: NUM-PROMOTE.
    """
    tensor = np.dtype(dtype)
    if isinstance(scalar, (bool, np.bool_)):
        return tensor
    if isinstance(scalar, (int, np.integer)):
        return int64 if is_bool(tensor) else tensor
    if isinstance(scalar, (float, np.floating)):
        return tensor if is_float(tensor) else float32
    raise DtypeError(f"promote_scalar: {type(scalar).__name__} is not a Python scalar (bool, int or float)")


def cast(x: Array, dtype: npt.DTypeLike) -> Array:
    """`x` converted to `dtype`, each element rounded at most once, to nearest even.

    Float to integer truncates toward zero, NaN gives 0, out of range saturates; integer to integer wraps; anything to
    bool is `x != 0`.  Returns `x` itself when nothing changes.  Raises DtypeError for a dtype refflow does not have.
    Source: NUM-CAST.
    """
    to = np.dtype(dtype)
    x = np.asarray(x)
    if x.dtype == to:
        return x
    if to not in DTYPES:
        raise DtypeError(f"cast: to {to.name}; refflow has {_names()}")
    if to == bool_:
        return np.asarray(x != 0)
    with np.errstate(all="ignore"):
        if is_float(x.dtype):
            return _float_to_float(x, to) if is_float(to) else _float_to_integer(x, to)
        if to == bfloat16:
            return _float_to_float(_odd_float64(x), to)
        if to == float16:
            # Integers below float16's overflow threshold are exact in float32, those above are infinite either way.
            return x.astype(float32).astype(float16)
        return x.astype(to)


def _float_to_float(x: Array, to: DType) -> Array:
    if x.dtype == float64 and is_half(to):
        return _odd_float32(x).astype(to)
    if is_half(x.dtype) and is_half(to):
        return x.astype(float32).astype(to)
    return x.astype(to)


def _odd_float32(x: Array) -> Array:
    """Binary64 to binary32 by rounding to odd, so that a second rounding to 16 bits is as if it were the only one.

    Source: Boldo and Melquiond, "Emulation of FMA and correctly rounded sums", 2008.
    """
    near = x.astype(float32)
    bits = np.atleast_1d(near).view(np.int32).reshape(near.shape)
    back = near.astype(float64)
    # Towards zero first (the bit pattern of a magnitude decreases by one), then set the last bit.
    inexact = (back != x) & np.isfinite(x)
    down = bits - ((np.abs(back) > np.abs(x)) & inexact)
    odd = np.where(inexact, down | 1, bits).astype(np.int32)
    return odd.view(np.float32)


def _odd_float64(x: Array) -> Array:
    """Integers to binary64 by rounding to odd (only |x| >= 2^53 is not exact)."""
    wide = x.astype(np.int64)
    large = (wide >= 1 << 53) | (wide <= -(1 << 53))
    sticky = (wide >> 11 | ((wide & 2047) != 0)) << 11
    return np.where(large, sticky, wide).astype(np.float64)


def _float_to_integer(x: Array, to: DType) -> Array:
    info = np.iinfo(to)
    whole = np.trunc(x.astype(float64))
    above = whole >= float(info.max + 1)  # a power of two: exact, where float(max) is not for int64
    below = whole <= float(info.min)
    inside = np.where(above | below | np.isnan(whole), 0.0, whole).astype(to)
    return np.where(above, to.type(info.max), np.where(below, to.type(info.min), inside))


def identity(kind: str, dtype: npt.DTypeLike) -> Any:
    """The neutral NumPy scalar of fold `kind` ("sum", "prod", "max" or "min") for `dtype`.

    A float sum's is -0.0, because x + -0.0 is x to the bit for every x.  Raises NumericsError for another kind and
    DtypeError for another dtype.  Source: NUM-IDENTITY.
    """
    to: np.dtype[Any] = np.dtype(dtype)
    scalar: Callable[[float], Any] = to.type
    if to not in DTYPES:
        raise DtypeError(f"identity: of {to.name}; refflow has {_names()}")
    if kind == "sum":
        return scalar(-0.0) if is_float(to) else scalar(0)
    if kind == "prod":
        return scalar(1)
    if kind not in ("max", "min"):
        raise NumericsError(f"identity: no fold is called {kind!r}; there are sum, prod, max and min")
    if is_float(to):
        return scalar(-np.inf if kind == "max" else np.inf)
    if is_bool(to):
        return scalar(kind == "min")
    return scalar(np.iinfo(to).min if kind == "max" else np.iinfo(to).max)


def _names() -> str:
    return ", ".join(dtype.name for dtype in DTYPES)
