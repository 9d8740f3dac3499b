"""The functions of refflow.functional as methods and operators of Tensor.

Implements TENSOR-METHODS of spec/text/tensors.md: one table, so a method is its function.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..errors import DtypeError, ShapeError
from ..functional import arithmetic, composed, creation, movement, reduction, softmax
from ..layout import broadcast
from ..numerics import bfloat16, bool_, float16, float32, float64, int8, int32, int64, is_bool, uint8
from ..random import Generator
from .indexing import getitem, setitem
from .tensor import Tensor

METHODS: dict[str, Callable[..., Any]] = {
    **{
        n: getattr(arithmetic, n)
        for n in (
            "add", "sub", "mul", "div", "floor_divide", "remainder", "pow", "maximum", "minimum", "eq", "ne", "lt",
            "le", "gt", "ge", "logical_and", "logical_or", "logical_xor", "logical_not", "neg", "abs", "sign",
            "floor", "ceil", "trunc", "round", "sqrt", "rsqrt", "exp", "log", "log1p", "expm1", "tanh", "sigmoid",
            "erf", "sin", "cos", "isnan", "isinf", "isfinite", "relu", "square", "reciprocal", "masked_fill", "clamp",
            "clip", "cast", "to", "isclose", "is_floating_point",
        )
    },
    **{
        n: getattr(movement, n)
        for n in (
            "reshape", "view", "flatten", "ravel", "unflatten", "view_as", "reshape_as", "squeeze", "unsqueeze",
            "permute", "transpose", "swapaxes", "t", "movedim", "expand", "expand_as", "broadcast_to", "repeat",
            "narrow", "select", "split", "chunk", "unbind", "flip", "roll", "tril", "triu", "clone", "contiguous",
        )
    },
    **{
        n: getattr(reduction, n)
        for n in (
            "sum", "mean", "var", "std", "norm", "amax", "amin", "max", "min", "argmax", "argmin", "prod", "any",
            "all", "matmul", "mm", "bmm", "mv", "dot", "outer", "cumsum", "cumprod", "argsort", "sort", "topk",
            "index_select", "gather", "scatter_add", "index_add", "allclose", "equal",
        )
    },
    **{n: getattr(composed, n) for n in ("addmm", "diag", "lerp", "repeat_interleave", "tile")},
    **{n: getattr(softmax, n) for n in ("softmax", "log_softmax", "logsumexp")},
}  # fmt: skip


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
IN_PLACE = ("add", "sub", "mul", "div")  # as operators too
IN_PLACE_METHODS = (
    "neg", "abs", "exp", "log", "sqrt", "tanh", "sigmoid", "relu", "floor",
    "ceil", "round", "clamp", "masked_fill", "pow", "square", "clip", "scatter_add", "index_add",
)  # fmt: skip


def _in_place(function: Callable[..., Any]) -> Callable[..., Tensor]:
    """x.f_(…): the result of x.f(…), written into x, which keeps its dtype, placement and sbp (TENSOR-INPLACE)."""

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


def _caster(dtype: Any) -> Callable[[Tensor], Tensor]:
    return lambda self: arithmetic.cast(self, dtype)


def _type_as(self: Tensor, other: Tensor) -> Tensor:
    return arithmetic.cast(self, other.dtype)


def _new_zeros(self: Tensor, *size: Any, dtype: Any = None, requires_grad: bool = False) -> Tensor:
    """+0 in another shape, with the dtype of this tensor; local, or where this one is under B."""
    return _new_full(self, movement.sizes_of(size), 0, dtype=dtype, requires_grad=requires_grad)


def _new_ones(self: Tensor, *size: Any, dtype: Any = None, requires_grad: bool = False) -> Tensor:
    """1 in another shape, with the dtype of this tensor; local, or where this one is under B."""
    return _new_full(self, movement.sizes_of(size), 1, dtype=dtype, requires_grad=requires_grad)


def _new_full(
    self: Tensor, size: Any, fill_value: float, *, dtype: Any = None, requires_grad: bool = False
) -> Tensor:
    """`fill_value` in another shape, with the dtype of this tensor; local, or where this one is under B."""
    layout: dict[str, Any] = {}
    if self.is_global:
        layout = {"placement": self.placement, "sbp": (broadcast,) * self.placement.ndim}
    wanted = self.dtype if dtype is None else dtype
    return creation.full(size, fill_value, dtype=wanted, requires_grad=requires_grad, **layout)


def _normal(self: Tensor, mean: float = 0.0, std: float = 1.0, *, generator: Generator | None = None) -> Tensor:
    """Writes randn * std + mean, drawn by logical index."""
    drawn = creation.randn_like(self.detach(), generator=generator)
    return self.write(arithmetic.add(arithmetic.mul(drawn, std), mean).value)


def _uniform(self: Tensor, low: float = 0.0, high: float = 1.0, *, generator: Generator | None = None) -> Tensor:
    """Writes rand * (high - low) + low, drawn by logical index."""
    drawn = creation.rand_like(self.detach(), generator=generator)
    return self.write(arithmetic.add(arithmetic.mul(drawn, high - low), low).value)


def _cpu(self: Tensor) -> Tensor:
    """to("cpu")."""
    return arithmetic.to(self, "cpu")


def _cuda(self: Tensor) -> Tensor:
    """to("cuda"): for global tensors, and where a back end is bound to that device type (`bind_device`)."""
    return arithmetic.to(self, "cuda")


def _transposed(self: Tensor) -> Tensor:
    """The transpose of a matrix; `mT` transposes the last two of more dimensions."""
    if self.ndim > 2:
        raise ShapeError(f"T: needs at most 2 dimensions, found shape {self.shape}; mT transposes the last two")
    return movement.t(self)


def _last_two(self: Tensor) -> Tensor:
    """The last two dimensions exchanged."""
    if self.ndim < 2:
        raise ShapeError(f"mT: needs at least 2 dimensions, found shape {self.shape}")
    return movement.transpose(self, -2, -1)


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
    for name in IN_PLACE_METHODS:
        setattr(Tensor, f"{name}_", _in_place(METHODS[name]))
    extra: dict[str, Any] = {
        "__neg__": arithmetic.neg,
        "__abs__": arithmetic.abs,
        "__invert__": _of_bools("~", arithmetic.logical_not),
        "__getitem__": getitem,
        "__setitem__": setitem,
        "fill_": _fill,
        "copy_": _copy,
        "normal_": _normal,
        "uniform_": _uniform,
        "type_as": _type_as,
        "zero_": lambda self: _fill(self, 0),
        "T": property(_transposed),
        "mT": property(_last_two),
        "new_zeros": _new_zeros,
        "new_ones": _new_ones,
        "new_full": _new_full,
        "new_empty": _new_zeros,
        "cpu": _cpu,
        "cuda": _cuda,
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
