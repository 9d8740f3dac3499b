"""Parameter: a tensor that a module owns and an optimizer changes.

Implements NN-PARAMETER of spec/text/nn.md.
"""

from __future__ import annotations

from typing import Any, Self

from ..errors import DtypeError
from ..functional.arithmetic import cast
from ..ir import Value
from ..layout import Placement, broadcast, reduced
from ..state import Override
from ..tensor.tensor import Tensor


class Parameter(Tensor):
    """A leaf cell with the value of `data`; assigned to a module it is found by `parameters()`.

    Args: `data` a tensor (its value is taken, not its cell), `requires_grad` whether a gradient is wanted.
    Errors: `DtypeError` if `data` is not a tensor, `AutogradError` if its dtype has no gradient.  Source: NN-PARAMETER.
    """

    __slots__ = ()

    def __init__(self, data: Tensor, requires_grad: bool = True) -> None:
        if not isinstance(data, Tensor):
            raise DtypeError(f"Parameter: needs a tensor, found {type(data).__name__}; flow.tensor(...) makes one")
        super().__init__(_fresh(data.value))
        if requires_grad:
            self.requires_grad_()

    def relocate(self, moved: Tensor, grad: Tensor | None) -> None:
        """Gives the cell the value of `moved`, of the same logical shape, with its layout and dtype, and this gradient.

        Unlike `write`, which keeps layout and dtype.  A leaf stays a leaf: no gradient crosses the move (NN-TO-GLOBAL).
        """
        wanted = self.requires_grad
        self._value = _fresh(moved.value)
        self._version += 1
        if wanted:
            self._own(self._value)
        self.grad = grad

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        copy = type(self)(self.snapshot(), self.requires_grad)
        copy.name = self.name
        if self.grad is not None:
            copy.grad = self.grad.snapshot()
        memo[id(self)] = copy
        return copy

    def __repr__(self) -> str:
        return f"Parameter containing:\n{super().__repr__()}"


def _fresh(value: Value) -> Value:
    """The same value with no history."""
    return Value(value.meta, value.shards, ragged=value.ragged)


def laid_out(tensor: Tensor, placement: Placement, sbp: Any) -> Tensor:
    """The logical value of `tensor` in a layout; of a local tensor that is its value, equal on all ranks (checked)."""
    whole = tensor if tensor.is_global else tensor.to_global(placement, (broadcast,) * placement.ndim)
    return whole.to_global(placement, sbp)


def like(grad: Tensor, cell: Tensor) -> Tensor:
    """A gradient in the dtype of `cell` and in its layout with P reduced (AUTO-LEAF)."""
    with Override(grad=False):
        grad = cast(grad.detach(), cell.dtype)
        if cell.is_global:
            return laid_out(grad, cell.placement, reduced(cell.sbp))
        return grad.to_local() if grad.is_global else grad
