"""Reductions, contractions, scans and orders for users.

Implements OPS-REDUCTION, OPS-CONTRACTION and OPS-ORDER under PyTorch's names; composites are stated sequences of
primitives (OPS-COMPOSITE), among them OPS-MATMUL, OPS-MEAN, OPS-VAR and OPS-NORM.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ..errors import AttributeValueError, DtypeError, ShapeError
from ..numerics import bool_, float32, float64, int64, is_bool, is_float, is_half, is_integer
from ..ops import contraction, elementwise, order
from ..ops import indexing as index_ops
from ..ops import reduction as ops
from ..ops import shape as shape_ops
from ..tensor.tensor import Tensor
from .arithmetic import (
    absolute,
    cast,
    cast_value,
    div,
    dtype_named,
    eq,
    maximum,
    minimum,
    mul,
    require_tensor,
    result_type,
    sqrt,
    sub,
    takes_tensors,
    where,
)
from .movement import dim_of, narrow, reshape, unsqueeze, whole_number
from .precision import floating, in_float32

Dims = int | Sequence[int] | None


class MaxResult(NamedTuple):
    """Values and the lowest index that holds each."""

    values: Tensor
    indices: Tensor


def dims_of(name: str, x: Tensor, dim: Dims) -> tuple[int, ...]:
    """`dim` as a tuple of distinct dimensions of `x`; None or () is all of them.

    Errors: `AttributeValueError`; `DtypeError` if `x` is no tensor.
    """
    ndim = require_tensor(name, x).ndim
    if dim is None or (isinstance(dim, Sequence) and not dim):
        return tuple(range(ndim))
    dims = tuple(dim_of(name, d, ndim) for d in (dim if isinstance(dim, Sequence) else [dim]))
    if len(set(dims)) != len(dims):
        raise AttributeValueError(f"{name}: a dimension may appear once, found {dim}")
    return dims


def _kept(name: str, x: Tensor, result: Tensor, dims: tuple[int, ...], keepdim: bool) -> Tensor:
    if not isinstance(keepdim, (bool, np.bool_)):
        raise AttributeValueError(
            f"{name}: keepdim must be True or False, found {keepdim!r}; several dims are a tuple, dim=(0, 1)"
        )
    return reshape(result, tuple(1 if d in dims else n for d, n in enumerate(x.shape))) if keepdim else result


def sum(x: Tensor, dim: Dims = None, keepdim: bool = False, *, dtype: np.dtype[Any] | None = None) -> Tensor:
    """The tree over the flat range of `dim` (in that order); integers and bools sum in int64, halves in float32."""
    dims = dims_of("sum", x, dim)
    wanted = dtype_named("sum", dtype or (x.dtype if is_float(x.dtype) else int64))
    inner = float32 if is_half(wanted) else wanted
    result = Tensor(cast_value(shape_ops.sum_(cast_value(x.value, inner), dims=dims), wanted))
    return _kept("sum", x, result, dims, keepdim)


@in_float32
def mean(x: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """sum / number of elements, one division (OPS-MEAN)."""
    dims = dims_of("mean", floating("mean", x), dim)
    return div(sum(x, dims, keepdim) if dims else x, math.prod(x.shape[d] for d in dims))


@in_float32
def var(
    x: Tensor, dim: Dims = None, correction: int = 1, keepdim: bool = False, *, unbiased: bool | None = None
) -> Tensor:
    """sum((x - mean)^2) / (n - correction); `unbiased` is the older name: correction 1 if true, else 0 (OPS-VAR)."""
    dims = dims_of("var", x, dim)
    correction = correction if unbiased is None else int(unbiased)
    centred = sub(x, mean(x, dims, keepdim=True))
    count = math.prod(x.shape[d] for d in dims)
    return div(sum(mul(centred, centred), dims, keepdim), float(count - correction) if count > correction else 0.0)


@in_float32
def std(
    x: Tensor, dim: Dims = None, correction: int = 1, keepdim: bool = False, *, unbiased: bool | None = None
) -> Tensor:
    """The square root of `var`; its gradient at 0 is 0."""
    return _root(var(x, dim, correction, keepdim, unbiased=unbiased))


def _root(x: Tensor) -> Tensor:
    """The square root, with gradient 0 instead of infinity at 0."""
    zero = eq(x, 0.0)
    return where(zero, 0.0, sqrt(where(zero, 1.0, x)))


@in_float32
def norm(x: Tensor, p: float = 2.0, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """The p-norm over `dim`, p = 1, 2 or inf; sums are folded before the root is taken (OPS-NORM).

    The gradient of the 2-norm at 0 is 0.
    """
    if p == 2:
        return _root(sum(mul(x, x), dim, keepdim))
    if p == 1:
        return sum(absolute(x), dim, keepdim)
    if p == math.inf:
        return amax(absolute(x), dim, keepdim)
    raise AttributeValueError(f"norm: p must be 1, 2 or inf, found {p}")


def amax(x: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """The largest element; the gradient is shared equally among ties."""
    dims = dims_of("amax", x, dim)
    return _kept("amax", x, Tensor(ops.amax(x.value, dims=dims)), dims, keepdim)


def amin(x: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """The least element; the gradient is shared equally among ties."""
    dims = dims_of("amin", x, dim)
    return _kept("amin", x, Tensor(ops.amin(x.value, dims=dims)), dims, keepdim)


def max(x: Tensor, dim: Any = None, keepdim: bool = False) -> Any:
    """The largest element of all; or along `dim` (values, indices), with the gradient to the chosen; or `maximum`."""
    return _extreme("max", x, dim, keepdim)


def min(x: Tensor, dim: Any = None, keepdim: bool = False) -> Any:
    """The least element of all; or along `dim` (values, indices), with the gradient to the chosen; or `minimum`."""
    return _extreme("min", x, dim, keepdim)


def _extreme(name: str, x: Tensor, dim: Any, keepdim: bool) -> Any:
    if isinstance(dim, Tensor):
        return (maximum if name == "max" else minimum)(x, dim)
    if dim is None:
        return (amax if name == "max" else amin)(x)
    d = dim_of(name, dim, x.ndim)
    indices = (argmax if name == "max" else argmin)(x, d, keepdim=True)
    values = Tensor(index_ops.gather(x.value, indices.value, dim=d))
    if keepdim:
        return MaxResult(values, indices)
    shape = (*x.shape[:d], *x.shape[d + 1 :])
    return MaxResult(reshape(values, shape), reshape(indices, shape))


def argmax(x: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """The lowest index of the largest element, along `dim` or in the flat tensor; a NaN comes first."""
    return _argument(ops.argmax, x, dim, keepdim)


def argmin(x: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """The lowest index of the least element, along `dim` or in the flat tensor; a NaN comes first."""
    return _argument(ops.argmin, x, dim, keepdim)


def _argument(primitive: Any, x: Tensor, dim: int | None, keepdim: bool) -> Tensor:
    if dim is None:
        flat = Tensor(primitive(reshape(x, (-1,)).value, dim=0))
        return _kept(primitive.name, x, flat, tuple(range(x.ndim)), keepdim)
    d = dim_of(primitive.name, dim, x.ndim)
    return _kept(primitive.name, x, Tensor(primitive(x.value, dim=d)), (d,), keepdim)


def prod(x: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """The product, a pure tree over `dim`; integers in int64."""
    dims = dims_of("prod", x, dim)
    wanted = x.dtype if is_float(x.dtype) else int64
    return _kept("prod", x, Tensor(ops.prod(cast_value(x.value, wanted), dims=dims)), dims, keepdim)


def _truth(x: Tensor) -> Any:
    return x.value if is_bool(x.dtype) else elementwise.cast(x.value, dtype=bool_)


def any(x: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """Whether some element is true (non-zero)."""
    dims = dims_of("any", x, dim)
    return _kept("any", x, Tensor(ops.any_(_truth(x), dims=dims)), dims, keepdim)


def all(x: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """Whether every element is true (non-zero)."""
    dims = dims_of("all", x, dim)
    return _kept("all", x, Tensor(ops.all_(_truth(x), dims=dims)), dims, keepdim)


def matmul(x: Tensor, y: Tensor) -> Tensor:
    """x @ y: canonical-tree contraction of the last dimension of x with the last but one of y, batches broadcast.

    1-d operands count as a row (x) or a column (y).  Halves compute in float32 and round once.  Errors: `ShapeError`,
    `DtypeError`.  Source: OPS-MATMUL.
    """
    require_tensor("matmul", x)
    require_tensor("matmul", y)
    if x.ndim == 0 or y.ndim == 0:
        raise ShapeError(f"matmul: needs at least 1 dimension on both sides, found {x.shape} and {y.shape}")
    if x.ndim == 1:
        result = matmul(unsqueeze(x, 0), y)
        return reshape(result, (*result.shape[:-2], result.shape[-1]) if y.ndim > 1 else ())
    if y.ndim == 1:
        result = matmul(x, unsqueeze(y, 1))
        return reshape(result, result.shape[:-1])
    wanted = result_type(x, y)
    inner = float32 if is_half(wanted) else wanted
    return Tensor(cast_value(contraction.matmul(cast_value(x.value, inner), cast_value(y.value, inner)), wanted))


mm = bmm = matmul


def dot(x: Tensor, y: Tensor) -> Tensor:
    """The contraction of two vectors."""
    if x.ndim != 1 or y.ndim != 1:
        raise ShapeError(f"dot: needs two vectors, found shapes {x.shape} and {y.shape}")
    return matmul(x, y)


def mv(x: Tensor, y: Tensor) -> Tensor:
    """A matrix times a vector."""
    if x.ndim != 2 or y.ndim != 1:
        raise ShapeError(f"mv: needs a matrix and a vector, found shapes {x.shape} and {y.shape}")
    return matmul(x, y)


def outer(x: Tensor, y: Tensor) -> Tensor:
    """x[i] y[j] of two vectors."""
    if x.ndim != 1 or y.ndim != 1:
        raise ShapeError(f"outer: needs two vectors, found shapes {x.shape} and {y.shape}")
    return mul(unsqueeze(x, 1), unsqueeze(y, 0))


def cumsum(x: Tensor, dim: int) -> Tensor:
    """Running sums along `dim`, in ascending order; integers and bools in int64."""
    wanted = x.dtype if is_float(x.dtype) else int64
    return Tensor(order.cumsum(cast_value(x.value, wanted), dim=dim_of("cumsum", dim, x.ndim)))


def cumprod(x: Tensor, dim: int) -> Tensor:
    """Running products along `dim`, in ascending order; integers and bools in int64."""
    wanted = x.dtype if is_float(x.dtype) else int64
    return Tensor(order.cumprod(cast_value(x.value, wanted), dim=dim_of("cumprod", dim, x.ndim)))


def argsort(x: Tensor, dim: int = -1, descending: bool = False) -> Tensor:
    """The stable order along `dim`: lowest index first among equals, NaN largest, -0 equal to +0."""
    return Tensor(order.argsort(x.value, dim=dim_of("argsort", dim, x.ndim), descending=bool(descending)))


def sort(x: Tensor, dim: int = -1, descending: bool = False) -> MaxResult:
    """(values, indices) in stable order along `dim`."""
    d = dim_of("sort", dim, x.ndim)
    indices = argsort(x, d, descending)
    return MaxResult(Tensor(index_ops.gather(x.value, indices.value, dim=d)), indices)


def topk(x: Tensor, k: int, dim: int = -1, largest: bool = True) -> MaxResult:
    """The first k (values, indices) of the stable order along `dim`."""
    d = dim_of("topk", dim, x.ndim)
    if not 0 <= whole_number("topk", "k", k) <= x.shape[d]:
        raise AttributeValueError(f"topk: k must be in [0, {x.shape[d]}], found {k}")
    indices = narrow(argsort(x, d, largest), d, 0, k)
    return MaxResult(Tensor(index_ops.gather(x.value, indices.value, dim=d)), indices)


def index_select(x: Tensor, dim: int, index: Tensor) -> Tensor:
    """x at the 1-d integer tensor `index` along `dim`; `IndexOutOfRange` on every rank for a bad index."""
    if index.ndim > 1:
        raise ShapeError(f"index_select: the index must have at most 1 dimension, found shape {index.shape}")
    flat = index if index.ndim else reshape(index, (1,))
    return Tensor(index_ops.index_select(x.value, flat.value, dim=dim_of("index_select", dim, x.ndim)))


def gather(x: Tensor, dim: int, index: Tensor) -> Tensor:
    """out[.., j, ..] = x[.., index[.., j, ..], ..] along `dim`."""
    return Tensor(index_ops.gather(x.value, index.value, dim=dim_of("gather", dim, x.ndim)))


def scatter_add(x: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    """x plus, at each place, the tree over the source index of what goes there; x is added last (NUM-SCATTER)."""
    d = dim_of("scatter_add", dim, x.ndim)
    return _plus("scatter_add", x, index_ops.scatter_add(index.value, src.value, dim=d, size=x.shape[d]), d)


def _plus(name: str, x: Tensor, moved: Any, d: int) -> Tensor:
    """x + moved; `ShapeError` unless they have one shape: what is added does not broadcast."""
    if moved.meta.shape != x.shape:
        raise ShapeError(
            f"{name}: the index and what is added must have the shape of x, {x.shape}, in every dimension but {d}; found {moved.meta.shape}"
        )
    return Tensor(elementwise.add(x.value, moved))


def index_add(x: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """x plus, at each place of `dim`, the tree over the positions of `index` of what goes there; x is added last."""
    d = dim_of("index_add", dim, x.ndim)
    return _plus("index_add", x, index_ops.index_add(index.value, source.value, dim=d, size=x.shape[d]), d)


def one_hot(index: Tensor, num_classes: int = -1) -> Tensor:
    """int64 with a new last dimension of `num_classes`: 1 at the index, else 0.

    Errors: `AttributeValueError` without num_classes (PyTorch's default would make the shape depend on data).
    """
    if whole_number("one_hot", "num_classes", num_classes) == -1:
        raise AttributeValueError("one_hot: give num_classes; the largest index would make the shape depend on data")
    if not is_integer(index.dtype):
        raise DtypeError(f"one_hot: needs integers, found {index.dtype.name}")
    return Tensor(index_ops.one_hot(index.value, num_classes=num_classes))


def allclose(x: Tensor, y: Tensor, rtol: float = 1e-5, atol: float = 1e-8) -> bool:
    """Whether |x - y| <= atol + rtol |y| everywhere; for looking, not for tests of bits."""
    return bool(
        np.allclose(
            cast(x, float64).detach().numpy(), cast(y, float64).detach().numpy(), rtol, atol
        )
    )


def equal(x: Tensor, y: Tensor) -> bool:
    """Whether two tensors have one shape and equal values (-0 equals +0, NaN nothing)."""
    return x.shape == y.shape and bool(all(eq(x, y)))


__all__ = [  # what `from refflow import *` and `flow.` offer; the rest is for refflow itself
    "MaxResult", "sum", "mean", "var", "std", "norm", "amax", "amin", "max", "min", "argmax", "argmin", "prod",
    "any", "all", "matmul", "mm", "bmm", "mv", "dot", "outer", "cumsum", "cumprod", "argsort", "sort", "topk",
    "index_select", "gather", "scatter_add", "index_add", "one_hot", "allclose", "equal",
]  # fmt: skip
takes_tensors(globals(), __all__)
