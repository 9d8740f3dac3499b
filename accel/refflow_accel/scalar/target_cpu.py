"""The CPU's target: Numba without contraction or fast arithmetic, functions small enough to be inlined by LLVM."""

from __future__ import annotations

import math
import types
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numba
from llvmlite import ir
from numba.core import types as nt
from numba.extending import intrinsic

from .. import cache
from .instantiate import instantiate

cache.use()

OPTIONS: dict[str, Any] = {"error_model": "numpy", "cache": True, "nogil": True, "fastmath": False}


@intrinsic
def bits64(typing: Any, x: Any) -> Any:
    """Return the bits of a float64."""
    return nt.int64(nt.float64), lambda context, b, signature, args: b.bitcast(args[0], ir.IntType(64))


@intrinsic
def from64(typing: Any, i: Any) -> Any:
    """Return the float64 of these bits."""
    return nt.float64(nt.int64), lambda context, b, signature, args: b.bitcast(args[0], ir.DoubleType())


@intrinsic
def bits32(typing: Any, x: Any) -> Any:
    """Return the bits of a float32 in an int64."""

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        return b.zext(b.bitcast(args[0], ir.IntType(32)), ir.IntType(64))

    return nt.int64(nt.float32), generate


@intrinsic
def from32(typing: Any, i: Any) -> Any:
    """Return the float32 of the low 32 bits."""

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        return b.bitcast(b.trunc(args[0], ir.IntType(32)), ir.FloatType())

    return nt.float32(nt.int64), generate


@intrinsic
def muladd(typing: Any, a: Any, b: Any, c: Any) -> Any:
    """Return a * b + c of float64 numbers, fused if the processor can."""

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        double = ir.DoubleType()
        kind = ir.FunctionType(double, [double, double, double])
        return b.call(b.module.declare_intrinsic("llvm.fmuladd", [double], kind), args)

    return nt.float64(nt.float64, nt.float64, nt.float64), generate


@intrinsic
def fma32(typing: Any, a: Any, b: Any, c: Any) -> Any:
    """Return a * b + c, rounded once."""
    return nt.float32(nt.float32, nt.float32, nt.float32), lambda context, b, signature, args: b.fma(*args)


def _sqrt64(x: Any) -> Any:
    return math.sqrt(x)


def _sqrt32(x: Any) -> Any:
    return math.sqrt(x)


class Cpu:
    """Functions for other njit functions, compiled when first called and kept on disk."""

    primitives: Mapping[str, Any] = {
        "bits64": bits64,
        "from64": from64,
        "bits32": bits32,
        "from32": from32,
        "fma32": fma32,
        "sqrt64": numba.njit(**OPTIONS)(_sqrt64),
        "sqrt32": numba.njit(**OPTIONS)(_sqrt32),
    }

    def jit(self, function: types.FunctionType) -> Any:
        """Return the compiled form of a function."""
        return numba.njit(**OPTIONS)(function)

    def table(self, array: Any) -> Any:
        """Return the array: a read-only global is a constant of the code."""
        return array


@lru_cache(maxsize=1)
def cpu() -> Mapping[str, Any]:
    """Return the scalar functions compiled for this CPU, by name."""
    return instantiate(Cpu())
