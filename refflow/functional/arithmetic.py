"""Elementwise functions: type promotion, Python scalars, then a primitive.

Implements NUM-PROMOTE and OPS-ELEMENTWISE for users: PyTorch's names and promotion, scalars weak and rounded once to
the tensor's dtype.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import wraps
from inspect import signature
from types import FunctionType
from typing import Any

import numpy as np

from ..errors import DataError, DtypeError, LocalGlobalError
from ..ir import Primitive, Value
from ..layout import Placement, nested
from ..numerics import DTYPES, bool_, float32, int64, is_bool, is_float, is_integer, promote, promote_scalar
from ..ops import elementwise as ops
from ..ops.constant import full, whole_beside
from ..tensor.tensor import Tensor

Dtype = np.dtype[Any]
Into = Callable[[str, Dtype], Dtype]  # (name of the function, dtype of its operands) -> dtype it is computed in
Operand = Tensor | bool | int | float


def cast_value(value: Value, dtype: Dtype) -> Value:
    """`value` in `dtype`."""
    return value if value.meta.dtype == dtype else ops.cast(value, dtype=dtype)


def number_for(name: str, number: Any, dtype: Dtype) -> bool | int | float:
    """`number` as a Python number that rounds to `dtype` once.

    Errors: `DtypeError` for what is none, `DataError` for an int beyond int64 where integers are wanted.
    """
    plain = number.item() if isinstance(number, np.generic) else number
    if not isinstance(plain, (bool, int, float)):
        raise DtypeError(f"{name}: needs a Python number, found {type(number).__name__}; item() makes one of a tensor")
    if isinstance(plain, float) or -(2**63) <= plain < 2**63:
        return plain
    if is_integer(dtype):
        raise DataError(f"{name}: an int of {plain.bit_length()} bits does not fit into int64")
    cut = plain.bit_length() - 53  # to odd: the rounding to `dtype`, at most 53 bits, is then as if it were the only one
    size = -plain if plain < 0 else plain
    odd = size >> cut | bool(size & ((1 << cut) - 1))
    try:
        return float(plain) if dtype.itemsize == 8 else math.copysign(math.ldexp(odd, cut), plain)
    except OverflowError:
        return math.inf if plain > 0 else -math.inf


def scalar_like(number: bool | int | float, value: Value, dtype: Dtype, name: str = "operand") -> Value:
    """A 0-d constant of `dtype` beside `value` (`number_for`)."""
    return full(shape=(), value=number_for(name, number, dtype), dtype=dtype, **whole_beside(value))


def result_type(x: Operand, y: Operand) -> Dtype:
    """The dtype two operands meet in; a 0-d tensor and a scalar give way to a tensor with dimensions (NUM-PROMOTE)."""
    if not isinstance(x, Tensor):
        x, y = y, x
    assert isinstance(x, Tensor)
    if not isinstance(y, Tensor):
        return promote_scalar(x.dtype, y)
    if x.dtype == y.dtype:
        return x.dtype
    if (x.ndim == 0) != (y.ndim == 0):
        strong, weak = (y, x) if x.ndim == 0 else (x, y)
        if category(weak.dtype) <= category(strong.dtype):
            return strong.dtype
    return promote(x.dtype, y.dtype)


def category(dtype: Dtype) -> int:
    """0 bool, 1 integer, 2 float: what promotion goes by (NUM-PROMOTE)."""
    return 0 if is_bool(dtype) else 1 if is_integer(dtype) else 2


def _as_it_is(name: str, dtype: Dtype) -> Dtype:
    return dtype


def operands(name: str, x: Operand, y: Operand, to: Into = _as_it_is) -> tuple[Value, Value]:
    """Two operands as values of one dtype; `DtypeError` unless they are tensors and numbers, one a tensor at least."""
    if isinstance(x, Tensor) and isinstance(y, Tensor):
        a, b = x.value, y.value
        if a.meta.dtype == b.meta.dtype:
            dtype = to(name, a.meta.dtype)
            return cast_value(a, dtype), cast_value(b, dtype)
        dtype = to(name, result_type(x, y))
        return cast_value(a, dtype), cast_value(b, dtype)
    for one in (x, y):
        if not isinstance(one, (Tensor, bool, int, float, np.generic)):
            raise DtypeError(
                f"{name}: operands must be tensors or Python numbers, found {type(one).__name__}; flow.tensor(...) makes a tensor"
            )
    if isinstance(x, Tensor):
        number: Any = y.item() if isinstance(y, np.generic) else y
        dtype = to(name, promote_scalar(x.dtype, number))
        return cast_value(x.value, dtype), scalar_like(number, x.value, dtype, name)
    if isinstance(y, Tensor):
        number = x.item() if isinstance(x, np.generic) else x
        dtype = to(name, promote_scalar(y.dtype, number))
        return scalar_like(number, y.value, dtype, name), cast_value(y.value, dtype)
    raise DtypeError(f"{name}: at least one operand must be a tensor, found two numbers; flow.tensor(...) makes a tensor")


def _to_float(name: str, dtype: Dtype) -> Dtype:
    return dtype if is_float(dtype) else float32


def _binary(primitive: Primitive, to: Into = _as_it_is) -> Callable[[Operand, Operand], Tensor]:
    name = primitive.name

    def function(x: Operand, y: Operand) -> Tensor:
        return Tensor(primitive(*operands(name, x, y, to)))

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{primitive.doc}; operands broadcast, scalars are weak (OPS-ELEMENTWISE)."
    return function


def _unary(primitive: Primitive, to: Into = _as_it_is) -> Callable[[Tensor], Tensor]:
    def function(x: Tensor) -> Tensor:
        value = require_tensor(primitive.name, x).value
        return Tensor(primitive(cast_value(value, to(primitive.name, value.meta.dtype))))

    function.__name__ = function.__qualname__ = primitive.name
    function.__doc__ = f"{primitive.doc} (OPS-ELEMENTWISE)."
    return function


def require_tensor(name: str, x: Any) -> Tensor:
    """`x`, or `DtypeError` if it is not a tensor."""
    if not isinstance(x, Tensor):
        raise DtypeError(f"{name}: needs a tensor, found {type(x).__name__}; flow.tensor(...) makes one")
    return x


def takes_tensors(namespace: dict[str, Any], names: Sequence[str]) -> None:
    """Lets the named functions of a module refuse, in words, all but a tensor where they are annotated `Tensor` (or
    None).
    """
    for name in names:
        if isinstance(namespace[name], FunctionType):
            namespace[name] = _refusing(name, namespace[name])


def _refusing(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    parameters = signature(function).parameters.values()
    allowed = {"Tensor": Tensor, "Tensor | None": Tensor | None}
    places = [(i, p.name, allowed[p.annotation]) for i, p in enumerate(parameters) if p.annotation in allowed]

    @wraps(function)
    def checked(*args: Any, **kwargs: Any) -> Any:
        for i, place, kinds in places:
            if i < len(args):
                if not isinstance(args[i], kinds):
                    require_tensor(name, args[i])
            elif place in kwargs and not isinstance(kwargs[place], kinds):
                require_tensor(name, kwargs[place])
        return function(*args, **kwargs)

    return checked if places else function


def _to_number(name: str, dtype: Dtype) -> Dtype:
    if is_bool(dtype):
        raise DtypeError(f"{name}: not for bool tensors; use logical functions, or cast to an integer type first")
    return dtype


def _to_bool(name: str, dtype: Dtype) -> Dtype:
    return bool_


add, mul = _binary(ops.add), _binary(ops.mul)
sub = _binary(ops.sub, _to_number)
div = true_divide = _binary(ops.div, _to_float)
floor_divide, remainder = _binary(ops.floor_divide, _to_number), _binary(ops.remainder, _to_number)
pow = _binary(ops.pow_, _to_number)
maximum, minimum = _binary(ops.maximum), _binary(ops.minimum)
eq, ne, lt, le, gt, ge = map(_binary, (ops.eq, ops.ne, ops.lt, ops.le, ops.gt, ops.ge))
logical_and, logical_or, logical_xor = (
    _binary(p, _to_bool) for p in (ops.logical_and, ops.logical_or, ops.logical_xor)
)

neg, absolute, sign = _unary(ops.neg, _to_number), _unary(ops.absolute), _unary(ops.sign)
abs = absolute
floor, ceil, trunc, round = map(_unary, (ops.floor, ops.ceil, ops.trunc, ops.rounded))
sqrt, rsqrt, exp, log, log1p, expm1, tanh, sigmoid, erf, sin, cos = (
    _unary(p, _to_float)
    for p in (
        ops.sqrt,
        ops.rsqrt,
        ops.exp,
        ops.log,
        ops.log1p,
        ops.expm1,
        ops.tanh,
        ops.sigmoid,
        ops.erf,
        ops.sin,
        ops.cos,
    )
)
isnan, isinf, isfinite = map(_unary, (ops.isnan, ops.isinf, ops.isfinite))
logical_not = _unary(ops.logical_not, _to_bool)
relu = _unary(ops.relu, _to_number)


def square(x: Tensor) -> Tensor:
    """x * x."""
    return mul(x, x)


def reciprocal(x: Tensor) -> Tensor:
    """1 / x."""
    return div(1.0, x)


def where(condition: Tensor, x: Operand, y: Operand) -> Tensor:
    """x where the bool `condition` holds, else y; all three broadcast (OPS-ELEMENTWISE)."""
    require_tensor("where", condition)
    if not isinstance(x, Tensor) and not isinstance(y, Tensor):
        kinds = {type(one) for one in (x, y)}
        dtype = float32 if float in kinds else int64 if kinds != {bool} else bool_
        a, b = scalar_like(x, condition.value, dtype), scalar_like(y, condition.value, dtype)
    else:
        a, b = operands("where", x, y)
    return Tensor(ops.where(condition.value, a, b))


def masked_fill(x: Tensor, mask: Tensor, value: float) -> Tensor:
    """x with `value` where `mask` holds."""
    require_tensor("masked_fill", x)
    require_tensor("masked_fill", mask)
    return Tensor(ops.where(mask.value, scalar_like(value, x.value, x.dtype, "masked_fill"), x.value))


def clamp(x: Tensor, min: float | None = None, max: float | None = None) -> Tensor:
    """x, not below `min` and not above `max` (None: no bound); gradient 1 inside and on the bounds, 0 outside."""
    dtype = require_tensor("clamp", x).dtype
    for bound in (min, max):
        dtype = dtype if bound is None else promote_scalar(dtype, bound)
    value = cast_value(x.value, dtype)
    low = None if min is None else scalar_like(min, value, dtype)
    high = None if max is None else scalar_like(max, value, dtype)
    result = value
    if low is not None:
        result = ops.where(ops.lt(result, low), low, result)
    if high is not None:
        result = ops.where(ops.gt(result, high), high, result)
    return Tensor(result)


clip = clamp


def isclose(x: Tensor, y: Tensor, rtol: float = 1e-5, atol: float = 1e-8) -> Tensor:
    """Whether |x - y| <= atol + rtol |y|, or x == y (as equal infinities are); for looking, not for tests of bits."""
    near = le(absolute(sub(x, y)), add(mul(absolute(y), rtol), atol))
    return logical_or(logical_and(near, isfinite(y)), eq(x, y))


def is_tensor(x: Any) -> bool:
    """Whether `x` is a tensor."""
    return isinstance(x, Tensor)


def numel(x: Tensor) -> int:
    """The number of elements of the logical tensor."""
    return require_tensor("numel", x).numel()


def is_floating_point(x: Tensor) -> bool:
    """Whether the elements are floating point numbers."""
    return is_float(require_tensor("is_floating_point", x).dtype)


def dtype_named(name: str, dtype: Any) -> Dtype:
    """One of refflow's dtypes, given as itself, as a NumPy type or by name; `DtypeError` for anything else."""
    try:
        wanted: Dtype | None = None if dtype is None else np.dtype(dtype)
    except TypeError:
        wanted = None
    if wanted is None or wanted not in DTYPES:
        raise DtypeError(f"{name}: dtype must be one of {', '.join(d.name for d in DTYPES)}, found {dtype}")
    return wanted


def cast(x: Tensor, dtype: Dtype) -> Tensor:
    """x in `dtype`, rounded once, x itself if it has it; P(sum) is reduced first unless both are floats (NUM-CAST)."""
    wanted = dtype_named("cast", dtype)
    return x if require_tensor("cast", x).dtype == wanted else Tensor(cast_value(x.value, wanted))


def to(x: Tensor, target: Any = None, *, dtype: Dtype | None = None) -> Tensor:
    """x in another dtype, or on another device type (``x.to("cuda")``: the same ranks and sbp)."""
    wanted = dtype if dtype is not None else target
    if isinstance(wanted, str):
        if not x.is_global:
            if wanted == "cpu":
                return x
            raise LocalGlobalError(
                f"to: local tensors live on 'cpu'; to_global(placement('{wanted}', ...), sbp) moves one to '{wanted}'"
            )
        return x.to_global(Placement(wanted, nested(x.placement.ranks, x.placement.mesh)))
    return cast(x, dtype_named("to", wanted))


__all__ = [  # what `from refflow import *` and `flow.` offer; the rest is for refflow itself
    "result_type", "add", "mul", "sub", "div", "true_divide", "floor_divide", "remainder", "pow", "maximum",
    "minimum", "eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_xor", "neg", "absolute",
    "sign", "abs", "floor", "ceil", "trunc", "round", "sqrt", "rsqrt", "exp", "log", "log1p", "expm1", "tanh",
    "sigmoid", "erf", "sin", "cos", "isnan", "isinf", "isfinite", "logical_not", "relu", "square", "reciprocal",
    "where", "masked_fill", "clamp", "clip", "cast", "to", "isclose",
    "is_floating_point", "is_tensor", "numel",
]  # fmt: skip
