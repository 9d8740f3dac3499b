"""Elementwise kernels: one output element from the elements at its own index (NumPy broadcasting).

Implements NUM-RNE, NUM-MAX, NUM-ELEMENTARY and NUM-DIVISION of spec/text/numerics.md.  Which functions are correctly
rounded, and how, is refflow.numerics.elementary's; conversions are refflow.numerics.dtypes's.
Tables first: an operation that IEEE 754 defines is NumPy's own, which rounds it once (float16 and bfloat16 included).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ...errors import DataError
from ...numerics import dtypes, elementary, order
from .registry import Array, Dtype, kernel, register, widen

NATIVE: dict[str, Callable[..., Any]] = {
    "neg": np.negative,
    "abs": np.absolute,
    "isnan": np.isnan,
    "isinf": np.isinf,
    "isfinite": np.isfinite,
    "logical_not": np.logical_not,
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "logical_and": np.logical_and,
    "logical_or": np.logical_or,
    "logical_xor": np.logical_xor,
    "maximum": order.maximum,
    "minimum": order.minimum,
}

TO_INTEGRAL: dict[str, Callable[..., Any]] = {  # integers pass through; "round" takes ties to even
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
    "round": np.rint,
}

CORRECTLY_ROUNDED = (
    "rsqrt",
    "exp",
    "log",
    "log1p",
    "expm1",
    "tanh",
    "sigmoid",
    "softplus",
    "gelu",
    "erf",
    "sin",
    "cos",
)


def native(function: Callable[..., Any]) -> Callable[..., Array]:
    """Return `function` giving an array always: NumPy answers 0-d arrays with scalars."""
    return lambda *xs: np.asarray(function(*xs))


def to_integral(function: Callable[..., Any]) -> Callable[[Array], Array]:
    """Return the rounding to integral values that leaves integers and booleans alone."""
    return lambda x: np.asarray(function(x)) if dtypes.is_float(x.dtype) else x


for _name, _function in NATIVE.items():
    register(_name, native(_function))
for _name, _function in TO_INTEGRAL.items():
    register(_name, to_integral(_function))
for _name in CORRECTLY_ROUNDED:
    register(_name, partial(elementary.apply, _name))


@kernel
def sqrt(x: Array) -> Array:
    """Return the square root, correctly rounded (IEEE 754)."""
    return dtypes.cast(np.asarray(np.sqrt(widen(x))), x.dtype)


@kernel
def sign(x: Array) -> Array:
    """Return -1, 0 or 1; a float zero keeps its sign and NaN stays NaN."""
    if not dtypes.is_float(x.dtype):
        return x if dtypes.is_bool(x.dtype) else np.asarray(np.sign(x))
    return np.where((x == 0) | np.isnan(x), x, np.copysign(x.dtype.type(1), x))


@kernel
def relu(x: Array) -> Array:
    """Return maximum(x, +0): NaN stays NaN, -0 becomes +0."""
    return np.asarray(np.maximum(x, 0) + 0)  # np.maximum may keep -0; adding +0 changes nothing else


@kernel
def pow(x: Array, y: Array) -> Array:
    """Return x to the power y: floats correctly rounded, integers wrap.

    Raises DataError for a negative integer exponent.
    """
    if dtypes.is_float(x.dtype):
        return elementary.apply("pow", x, y)
    refuse("pow", "integers have no negative powers: exponent", y, y < 0)
    return np.asarray(np.power(x, y))


@kernel
def floor_divide(x: Array, y: Array) -> Array:
    """Return the greatest integral value not above x / y (as Python's //); floats from the exact remainder.

    Raises DataError for an integer divided by zero.
    """
    if not dtypes.is_float(x.dtype):
        refuse("floor_divide", "integers cannot be divided by: divisor", y, y == 0)
        return np.asarray(np.floor_divide(x, y))
    return dtypes.cast(float_divmod(widen(x), widen(y))[0], x.dtype)


@kernel
def remainder(x: Array, y: Array) -> Array:
    """Return x - y * floor(x / y), with the sign of the divisor (as Python's %); floats exact but for one addition.

    Raises DataError for an integer divided by zero.
    """
    if not dtypes.is_float(x.dtype):
        refuse("remainder", "integers cannot be divided by: divisor", y, y == 0)
        return np.asarray(np.remainder(x, y))
    return dtypes.cast(float_divmod(widen(x), widen(y))[1], x.dtype)


def float_divmod(x: Array, y: Array) -> tuple[Array, Array]:
    """Return (floor quotient, remainder) as Python's float divmod defines them; y = 0 gives (x / y, NaN)."""
    rest = np.fmod(x, y)  # exact, sign of x
    quotient = (x - rest) / y  # near an integer: off by its rounding only
    wrong_side = (rest != 0) & ((rest < 0) != (y < 0))
    rest = np.where(wrong_side, rest + y, np.where(rest == 0, np.copysign(rest, y), rest))
    quotient = np.where(wrong_side, quotient - 1, quotient)
    below = np.floor(quotient)
    nearest = np.where(quotient - below > 0.5, below + 1, below)
    whole = np.where(quotient == 0, np.copysign(nearest, x / y), nearest)
    return np.where(y == 0, x / y, whole), rest


def refuse(name: str, what: str, values: Array, bad: Array) -> None:
    """Raise DataError naming the first bad value, row-major, and where it stands."""
    if np.any(bad):
        where = np.unravel_index(int(np.argmax(bad)), values.shape)
        raise DataError(f"{name}: {what} {int(values[where])} at position {tuple(int(i) for i in where)}")


@kernel
def where(c: Array, x: Array, y: Array) -> Array:
    """Return x where the bool `c` is true, y elsewhere."""
    return np.where(c, x, y)


@kernel
def cast(x: Array, *, dtype: Dtype) -> Array:
    """Return `x` converted to `dtype` with one rounding (NUM-CAST)."""
    return dtypes.cast(x, dtype)
