"""Writing into tensors: a cell gets a new value; a view writes through to its base.

Implements TENSOR-INPLACE of spec/text/tensors.md.  Values never change, so what the tape saved is safe (AUTO-SAVED); a
written value takes the dtype and the layout that the cell has.  How views read is tensor.py's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import AutogradError, LocalGlobalError, ShapeError
from ..ir import Value, to_global
from ..ops.elementwise import cast
from ..state import settings
from .view import DETACHED

if TYPE_CHECKING:
    from .tensor import Tensor


def write(tensor: Tensor, value: Value) -> Tensor:
    """`Tensor.write`: checks that the value fits and may be written, then stores it."""
    old = tensor.value
    if value.meta is old.meta:  # as in every step of a graph: nothing to compare
        _refuse_write(tensor)
        return _store(tensor, value)
    if value.meta.shape != old.meta.shape:
        raise ShapeError(
            f"in-place: the result has shape {value.meta.shape}, the tensor {old.meta.shape}; in-place cannot grow it"
        )
    if (value.meta.placement is None) != (old.meta.placement is None):
        kinds = ("a local", "a global") if value.meta.placement is None else ("a global", "a local")
        raise LocalGlobalError(
            f"in-place: {kinds[0]} result cannot be written into {kinds[1]} tensor; bring it over with to_global() or to_local()"
        )
    _refuse_write(tensor)
    return _store(tensor, value)


def _store(tensor: Tensor, value: Value) -> Tensor:
    """Puts a value that may be written into the cell, or through the view into its base, in the layout they have."""
    cell, views = tensor, []
    value = _fitted(cell, value)
    while cell._base is not None:
        assert cell._lens is not None and cell._lens.put is not None
        views.append((cell, value))
        value = _fitted(cell._base, cell._lens.put(cell._base.value, value))
        cell = cell._base
    old = cell._value
    if old.requires_grad and old.node is None and value.node is None:
        value = Value(value.meta, value.shards, ragged=value.ragged)  # never the value of another cell
        cell._own(value)
        value.hooks = old.hooks
    cell._value = value
    cell._version += 1
    for view, part in views:
        view._value, view._seen = part, cell._version
    return tensor


def _fitted(cell: Tensor, value: Value) -> Value:
    """`value` in the dtype and the layout of the cell it is going to go into."""
    old = cell.value
    for interpreter in settings().interpreters:
        if hasattr(interpreter, "writes"):  # a graph's tracer knows which cells it may leave changed
            interpreter.writes(old)
    if value.meta is old.meta:
        return value
    if value.meta.dtype != old.meta.dtype:
        value = cast(value, dtype=old.meta.dtype)
    layout = (old.meta.placement, old.meta.sbp)
    if value.meta.placement is not None and (value.meta.placement, value.meta.sbp) != layout:
        value = to_global(value, placement=old.meta.placement, sbp=old.meta.sbp)
    return value


def _refuse_write(tensor: Tensor) -> None:
    """`AutogradError` where a write would be ambiguous, or change what a gradient stands on."""
    cell: Tensor | None = tensor
    while cell is not None:
        if cell._lens is not None and cell._lens.put is None:
            raise AutogradError(
                "in-place: writing through an expanded view would write one element many times; clone() it first"
            )
        if cell._lens is DETACHED:
            assert cell._base is not None
            if cell._base.value.node is not None:
                raise AutogradError(
                    "in-place: writing through detach() would change the result of an operation behind its gradient;"
                    " detach().clone() gives a tensor of its own"
                )
            return
        if cell._base is None and cell.value.requires_grad:
            if settings().grad and cell.value.node is None:
                raise AutogradError(
                    "in-place: a leaf that requires a gradient cannot be changed in grad mode; use flow.no_grad()"
                )
            if not settings().grad and cell.value.node is not None:
                raise AutogradError(
                    "in-place: under no_grad() this would change the result of an operation behind its gradient;"
                    " detach().clone() gives a tensor of its own"
                )
        cell = cell._base
