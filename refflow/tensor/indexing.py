"""Indexing: x[key] and x[key] = value.

Implements x[key] of OPS-INDEXING in spec/text/primitives.md.  Keys of ints, slices, None and "..." are views, which
functional/movement.py makes; here are index tensors and masks.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import AttributeValueError, DtypeError, ShapeError
from ..functional import arithmetic, movement
from ..numerics import is_bool, is_integer
from ..ops.indexing import index_select
from .tensor import Tensor


def getitem(self: Tensor, key: Any) -> Tensor:
    """x[key]: ints, slices, None and "..." give views; one integer tensor among them selects along its dimension.

    The dimensions of the index take the place of that dimension.  Errors: `AttributeValueError` for a bool mask or a
    second index tensor, `DtypeError` for floats, `IndexOutOfRange`.
    """
    keys = key if isinstance(key, tuple) else (key,)
    tensors = [i for i, k in enumerate(keys) if isinstance(k, Tensor)]
    if not tensors:
        return movement.index_at(self, keys)
    if len(tensors) > 1:
        raise AttributeValueError(
            f"index: one index tensor at most, found {len(tensors)}; x.gather(dim, index) picks an element per row"
        )
    at = tensors[0]
    index = keys[at]
    rest = (*keys[:at], slice(None), *keys[at + 1 :])
    part = self if all(isinstance(k, slice) and k == slice(None) for k in rest) else movement.index_at(self, rest)
    if Ellipsis in keys[:at]:
        dim = part.ndim - 1 - _kept_dims(keys[at + 1 :])
    else:
        dim = _kept_dims(keys[:at])
    return _select(part, dim, index)


def _kept_dims(keys: tuple[Any, ...]) -> int:
    """How many dimensions of the result come from `keys`, none of them "...": an int takes one away, None adds one."""
    return sum(isinstance(k, slice) or k is None for k in keys)


def _select(self: Tensor, dim: int, index: Tensor) -> Tensor:
    if is_bool(index.dtype):
        raise AttributeValueError("index: a bool mask gives a shape that depends on data; use where() or masked_fill()")
    if not is_integer(index.dtype):
        raise DtypeError(f"index: needs an integer tensor, found {index.dtype.name}; index.long() converts")
    return Tensor(index_select(self.value, index.value, dim=dim))


def setitem(self: Tensor, key: Any, value: Any) -> None:
    """x[key] = value, a tensor or number, broadcast; keys are ints and slices, or a mask over leading dimensions."""
    if not isinstance(value, Tensor):
        value = Tensor(arithmetic.scalar_like(_number("index", value), self.value, self.dtype))
    if isinstance(key, Tensor) and is_bool(key.dtype):
        self.write(arithmetic.where(_row_mask(self, key), arithmetic.cast(value, self.dtype), self).value)
        return
    if any(isinstance(k, Tensor) for k in (key if isinstance(key, tuple) else (key,))):
        raise AttributeValueError(
            "index: assignment takes ints, slices or a bool mask; use scatter_add() or index_add() for index tensors"
        )
    part = getitem(self, key)
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
