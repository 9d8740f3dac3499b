"""The functions of refflow.functional as methods and operators of Tensor.

Implements TENSOR-METHODS of spec/text/tensors.md: one table, so a method is its function.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..errors import AttributeValueError, DtypeError, ShapeError
from ..functional import arithmetic, creation, movement, reduction
from ..numerics import bfloat16, bool_, float16, float32, float64, int8, int32, int64, is_bool, uint8
from .tensor import Tensor

METHODS: dict[str, Callable[..., Any]] = {
    **{
        n: getattr(arithmetic, n)
        for n in (
            "add",
            "sub",
            "mul",
            "div",
            "floor_divide",
            "remainder",
            "pow",
            "maximum",
            "minimum",
            "eq",
            "ne",
            "lt",
            "le",
            "gt",
            "ge",
            "logical_and",
            "logical_or",
            "logical_xor",
            "logical_not",
            "neg",
            "abs",
            "sign",
            "floor",
            "ceil",
            "trunc",
            "round",
            "sqrt",
            "rsqrt",
            "exp",
            "log",
            "log1p",
            "expm1",
            "tanh",
            "sigmoid",
            "erf",
            "sin",
            "cos",
            "isnan",
            "isinf",
            "isfinite",
            "relu",
            "square",
            "reciprocal",
            "masked_fill",
            "clamp",
            "cast",
            "to",
        )
    },
    **{
        n: getattr(movement, n)
        for n in (
            "reshape",
            "view",
            "flatten",
            "squeeze",
            "unsqueeze",
            "permute",
            "transpose",
            "swapaxes",
            "t",
            "movedim",
            "expand",
            "expand_as",
            "broadcast_to",
            "repeat",
            "narrow",
            "select",
            "split",
            "chunk",
            "unbind",
            "flip",
            "roll",
            "tril",
            "triu",
            "clone",
            "contiguous",
        )
    },
    **{
        n: getattr(reduction, n)
        for n in (
            "sum",
            "mean",
            "var",
            "std",
            "norm",
            "amax",
            "amin",
            "max",
            "min",
            "argmax",
            "argmin",
            "prod",
            "any",
            "all",
            "matmul",
            "mm",
            "bmm",
            "dot",
            "cumsum",
            "cumprod",
            "argsort",
            "sort",
            "topk",
            "index_select",
            "gather",
            "scatter_add",
            "index_add",
            "allclose",
            "equal",
        )
    },
}


def _reflected(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, other: function(other, self)


def _or_not(function: Callable[..., Any]) -> Callable[..., Any]:
    """A binary operator: foreign operands are left to the other side."""

    def operator(self: Tensor, other: Any) -> Any:
        return (
            function(self, other)
            if isinstance(other, (Tensor, bool, int, float)) or hasattr(other, "item")
            else NotImplemented
        )

    return operator


def _of_bools(sign: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Operators that PyTorch applies to the bits of integers: here for bools only."""

    def operator(*operands: Any) -> Any:
        for one in operands:
            if not (is_bool(one.dtype) if isinstance(one, Tensor) else isinstance(one, bool)):
                found = one.dtype.name if isinstance(one, Tensor) else type(one).__name__
                raise DtypeError(f"{sign}: is for bool tensors, found {found}; {function.__name__}() takes any dtype")
        return function(*operands)

    return operator


OPERATORS: dict[str, Callable[..., Any]] = {
    "__add__": arithmetic.add,
    "__sub__": arithmetic.sub,
    "__mul__": arithmetic.mul,
    "__truediv__": arithmetic.div,
    "__floordiv__": arithmetic.floor_divide,
    "__mod__": arithmetic.remainder,
    "__pow__": arithmetic.pow,
    "__matmul__": reduction.matmul,
    "__eq__": arithmetic.eq,
    "__ne__": arithmetic.ne,
    "__lt__": arithmetic.lt,
    "__le__": arithmetic.le,
    "__gt__": arithmetic.gt,
    "__ge__": arithmetic.ge,
    "__and__": _of_bools("&", arithmetic.logical_and),
    "__or__": _of_bools("|", arithmetic.logical_or),
    "__xor__": _of_bools("^", arithmetic.logical_xor),
}
REFLECTED = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow")
IN_PLACE = ("add", "sub", "mul", "div")


def _in_place(function: Callable[..., Any]) -> Callable[..., Tensor]:
    """x.f_(…): the result of x.f(…), written into x; the left side keeps its dtype, placement and sbp
    (TENSOR-INPLACE).
    """

    def method(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        result = function(self, *args, **kwargs)
        if arithmetic.category(result.dtype) > arithmetic.category(self.dtype):
            raise DtypeError(
                f"{function.__name__}_: a {result.dtype.name} result does not go into a {self.dtype.name} tensor; cast it first"
            )
        return self.write(result.value)

    method.__doc__ = f"In-place form of {function.__name__}."
    return method


def _fill(self: Tensor, value: float) -> Tensor:
    """Writes the logical value `value` everywhere."""
    return self.write(creation.full_like(self.detach(), value).value)


def _copy(self: Tensor, source: Tensor) -> Tensor:
    """Writes the values of `source`, broadcast."""
    return self.write(movement.expand(source, self.shape).value)


def _getitem(self: Tensor, key: Any) -> Tensor:
    """x[key]: ints, slices, None and "..." give views; one integer tensor selects along the first dimension; a bool
    mask is refused.
    """
    if isinstance(key, Tensor):
        return _select(self, key)
    return movement.index_at(self, key if isinstance(key, tuple) else (key,))


def _select(self: Tensor, index: Tensor) -> Tensor:
    from ..ops.indexing import index_select

    if is_bool(index.dtype):
        raise AttributeValueError("index: a bool mask gives a shape that depends on data; use where() or masked_fill()")
    return Tensor(index_select(self.value, index.value, dim=0))


def _setitem(self: Tensor, key: Any, value: Any) -> None:
    if not isinstance(value, Tensor):
        value = Tensor(arithmetic.scalar_like(_number("index", value), self.value, self.dtype))
    if isinstance(key, Tensor) and is_bool(key.dtype):
        self.write(arithmetic.where(_row_mask(self, key), arithmetic.cast(value, self.dtype), self).value)
        return
    if isinstance(key, Tensor):
        raise AttributeValueError(
            "index: assignment takes ints, slices or a bool mask; use scatter_add() or index_add() for index tensors"
        )
    part = _getitem(self, key)
    part.write(movement.expand(value, part.shape).value)


def _number(name: str, value: Any) -> bool | int | float:
    """`value` as a Python number; `DtypeError` for anything else."""
    plain = value.item() if isinstance(value, np.generic) else value
    if not isinstance(plain, (bool, int, float)):
        raise DtypeError(
            f"{name}: needs a tensor or a Python number, found {type(value).__name__}; flow.tensor(...) makes a tensor"
        )
    return plain


def _row_mask(x: Tensor, mask: Tensor) -> Tensor:
    """A mask over the leading dimensions of x, with size 1 for the rest."""
    if mask.shape != x.shape[: mask.ndim]:
        raise ShapeError(f"index: a mask of shape {mask.shape} does not fit the leading dimensions of {x.shape}")
    return movement.reshape(mask, (*mask.shape, *[1] * (x.ndim - mask.ndim)))


def _caster(dtype: Any) -> Callable[[Tensor], Tensor]:
    return lambda self: arithmetic.cast(self, dtype)


def _type_as(self: Tensor, other: Tensor) -> Tensor:
    return arithmetic.cast(self, other.dtype)


def attach() -> None:
    """Gives Tensor its methods and operators; called once, at import."""
    for name, function in METHODS.items():
        setattr(Tensor, name, function)
    for name, function in OPERATORS.items():
        setattr(Tensor, name, _or_not(function))
    for name in REFLECTED:
        setattr(Tensor, f"__r{name}__", _or_not(_reflected(OPERATORS[f"__{name}__"])))
    for name in IN_PLACE:
        method = _in_place(METHODS[name])
        setattr(Tensor, f"{name}_", method)
        setattr(Tensor, f"__i{'truediv' if name == 'div' else name}__", method)
    for name in (
        "neg",
        "abs",
        "exp",
        "log",
        "sqrt",
        "tanh",
        "sigmoid",
        "relu",
        "floor",
        "ceil",
        "round",
        "clamp",
        "masked_fill",
        "pow",
        "square",
    ):
        setattr(Tensor, f"{name}_", _in_place(METHODS[name]))
    extra: dict[str, Any] = {
        "__neg__": arithmetic.neg,
        "__abs__": arithmetic.abs,
        "__invert__": _of_bools("~", arithmetic.logical_not),
        "__getitem__": _getitem,
        "__setitem__": _setitem,
        "fill_": _fill,
        "copy_": _copy,
        "type_as": _type_as,
        "zero_": lambda self: _fill(self, 0),
        "T": property(movement.t),
        "mT": property(lambda self: movement.transpose(self, -2, -1)),
        "float": _caster(float32),
        "double": _caster(float64),
        "half": _caster(float16),
        "bfloat16": _caster(bfloat16),
        "int": _caster(int32),
        "long": _caster(int64),
        "bool": _caster(bool_),
        "char": _caster(int8),
        "byte": _caster(uint8),
    }
    for name, function in extra.items():
        setattr(Tensor, name, function)
