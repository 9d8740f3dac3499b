"""The dialect of the scalar sources, and its meaning in plain Python.

A source file of this package holds undecorated functions on scalars of three types: float32, float64 and int64 (bool
where a comparison is used at once).  An integer of fewer bits is an int64 with its value.  A bare literal such as 0.5
is a float64 and meets float64 only; every float32 constant is named with `f32`.  Arithmetic is + - * / (of integers: + - *
// and bits) and what stands below; nothing is contracted.  `instantiate` gives the same text other meanings of these names: compiled ones.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

F32: TypeAlias = Any
F64: TypeAlias = Any
I64: TypeAlias = Any
Truth: TypeAlias = Any

f32: Any = np.float32  # conversions: to nearest even
f64: Any = np.float64
i64: Any = np.int64  # of a float: an integral value in range only

INF32 = np.float32(np.inf)
NAN32 = np.float32(np.nan)
ZERO32 = np.float32(0.0)
ONE32 = np.float32(1.0)
INF64 = float("inf")
NAN64 = float("nan")


def bits64(x: F64) -> I64:
    """Return the bits of a float64 as an int64."""
    return np.float64(x).view(np.int64)


def from64(i: I64) -> F64:
    """Return the float64 with the bits of an int64."""
    return np.int64(i).view(np.float64)


def bits32(x: F32) -> I64:
    """Return the bits of a float32 as an int64 in [0, 2^32)."""
    return np.int64(np.float32(x).view(np.uint32))


def from32(i: I64) -> F32:
    """Return the float32 whose bits are the low 32 of an int64."""
    return np.uint32(int(i) & 0xFFFFFFFF).view(np.float32)


def sqrt64(x: F64) -> F64:
    """Return the square root of a float64, correctly rounded."""
    return np.sqrt(np.float64(x))


def sqrt32(x: F32) -> F32:
    """Return the square root of a float32, correctly rounded."""
    return np.sqrt(np.float32(x))


def muladd(a: F64, b: F64, c: F64) -> F64:
    """Return a * b + c of float64 numbers, rounded once or twice: for `fast` only, where it is no matter which."""
    return a * b + c


def fma32(a: F32, b: F32, c: F32) -> F32:
    """Return a * b + c of float32 numbers, rounded once (NUM-FMA)."""
    from refflow.numerics.rounding import fma32 as exact

    return np.float32(exact(a, b, c))


PRIMITIVES = ("bits64", "from64", "bits32", "from32", "sqrt64", "sqrt32", "fma32")  # what a target must bring
