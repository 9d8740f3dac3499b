"""One text, many targets: the scalar sources with a target's meaning of the primitives they name.

Implements ACC-SCALAR of spec/text/acceleration.md.  Every function of the source modules is copied with a scope in
which the names it calls are the target's compiled functions (`types.FunctionType(code, scope)`); the text is shared.
"""

from __future__ import annotations

import importlib
import types
from collections.abc import Callable, Mapping
from functools import lru_cache, wraps
from typing import Any, Protocol

import numpy as np

from . import dialect

SOURCES = (
    "pairs",
    "exponentials",
    "logarithms",
    "circular",
    "gaussians",
    "powers",
    "halves",
    "casts",
    "order",
    "integral",
    "philox",
)

# Primitives of refflow whose float32 form is one scalar function of like arguments, by that function's name.
FLOAT32 = {
    **{name: name for name in ("exp", "expm1", "sigmoid", "tanh", "log", "log1p", "softplus", "sin", "cos", "erf")},
    **{name: name for name in ("gelu", "sqrt", "rsqrt", "pow")},
    **{name: f"{name}32" for name in ("floor", "ceil", "trunc", "round", "sign", "relu", "maximum", "minimum")},
    **{name: f"{name}32" for name in ("floor_divide", "remainder")},
}


class Target(Protocol):
    """What a back end brings.

    `primitives` has a callable for each name in dialect.PRIMITIVES: bits64, from64, bits32, from32 (bit patterns are
    int64; of from32 the low 32 bits count), sqrt64, sqrt32, fma32 (one rounding).  `jit` compiles a function that calls
    other compiled ones (it may be lazy: when it is called, not every name of the scope is there yet).  `table` turns a
    read-only one-dimensional array into what `table[int64]` reads in compiled code.
    """

    primitives: Mapping[str, Any]

    def jit(self, function: types.FunctionType) -> Any:
        """Return the compiled form of a function."""

    def table(self, array: Any) -> Any:
        """Return the form of a constant array that compiled code reads."""


def copied(function: Any, scope: dict[str, Any], name: str | None = None) -> types.FunctionType:
    """Return `function` with the globals `scope`; `name` keeps copies of one text apart (in Numba's cache too)."""
    copy = types.FunctionType(function.__code__, scope, name or function.__name__, function.__defaults__)
    copy.__module__ = function.__module__
    copy.__qualname__ = name or function.__qualname__
    copy.__doc__ = function.__doc__
    return copy


def instantiate(target: Target) -> Mapping[str, Any]:
    """Return every function of the sources, by name, compiled for `target`."""
    scope: dict[str, Any] = {"__builtins__": __builtins__, "__name__": __name__, **target.primitives}
    functions: dict[str, types.FunctionType] = {}
    tables: dict[int, Any] = {}
    for name in SOURCES:
        module = importlib.import_module(f".{name}", __package__)
        for key, value in vars(module).items():
            if isinstance(value, types.FunctionType):
                if value.__module__ == module.__name__:
                    functions[key] = value
            elif isinstance(value, np.ndarray):
                scope[key] = tables.setdefault(id(value), target.table(value))
            elif isinstance(value, (int, float, np.generic)) or value in (dialect.f32, dialect.f64, dialect.i64):
                known = scope.setdefault(key, value)
                if known is not value and known != value:
                    raise AssertionError(f"scalar sources: {key} has two meanings")
    for key, function in functions.items():
        scope[key] = target.jit(copied(function, scope))
    return {key: scope[key] for key in functions}


class Python:
    """Plain Python on NumPy scalars: the dialect as it stands, for tests and simulators."""

    primitives: Mapping[str, Any] = {name: getattr(dialect, name) for name in dialect.PRIMITIVES}

    def jit(self, function: types.FunctionType) -> Callable[..., Any]:
        """Return the function itself."""
        return function

    def table(self, array: Any) -> Any:
        """Return the array itself."""
        return array


def quiet(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return `function` without NumPy's warnings: wrapping and infinities are meant."""

    @wraps(function)
    def call(*args: Any) -> Any:
        with np.errstate(all="ignore"):
            return function(*args)

    return call


@lru_cache(maxsize=1)
def python() -> Mapping[str, Callable[..., Any]]:
    """Return the functions in plain Python; integers are np.int64, floats np.float32 and np.float64."""
    return {name: quiet(function) for name, function in instantiate(Python()).items()}
