"""What build must leave alone outside the graph: its inputs, what modules hold, hyper-parameters, gradients.

Implements the refusals of GRAPH-STATE and GRAPH-OPTIMIZER of spec/text/graph.md.  Build runs when a call is traced only,
so what it does to these would be done once, or be lost with the lazy values.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ..errors import GraphError
from ..ir.lower import frozen
from ..nn.module import Module
from ..tensor.tensor import Tensor
from .logical import key
from .trace import is_lazy


class Outside:
    """Remembers it before build, for the graph called `name`; `handed` are the tensors that build is given."""

    def __init__(
        self, name: str, handed: Sequence[Tensor], modules: Sequence[Sequence[tuple[str, Module]]], optimizers: Sequence[Any]
    ) -> None:
        self._name, self._handed, self._optimizers = name, handed, optimizers
        tables: list[dict[str, Any]] = [t for found in modules for _, m in found for t in (m._parameters, m._buffers)]
        self._tables = [(table, dict(table)) for table in tables]
        self._hyper = self._hyper_parameters()

    def _hyper_parameters(self) -> list[Any]:
        groups = [group for optimizer in self._optimizers for group in optimizer.param_groups]
        return [frozen({name: value for name, value in group.items() if name != "params"}) for group in groups]

    def require_unchanged(self, twins: Collection[int]) -> None:
        """`GraphError` if build changed something; `twins` are the ids of the cells with lazy values of the graph."""
        for i, tensor in enumerate(self._handed):
            if tensor.version:
                raise GraphError(f"{self._name}: build() writes to input {i}, which the caller would not see; clone() it first")
        for table, before in self._tables:
            for name, cell in table.items():
                if cell is not None and is_lazy(cell.value) and id(cell) not in twins:
                    how = "write into it, as copy_() does" if name in before else "make it before the call"
                    raise GraphError(
                        f"{self._name}: build() makes {name!r} of a module anew, which would have no numbers; {how}"
                    )
        if self._hyper != self._hyper_parameters():
            raise GraphError(
                f"{self._name}: build() changes a hyper-parameter of an optimizer, which later calls would not do again;"
                " change it before a call, or by a schedule"
            )

    def put_back(self) -> None:
        """Modules hold what they held."""
        for table, before in self._tables:
            table.clear()
            table.update(before)

    def require_none_lost(self, cells: Mapping[str, Tensor], read: Collection[int]) -> None:
        """`GraphError` for a gradient of an input or a cell that build left and, by key, nobody reads."""
        left = {f"input {i}": tensor for i, tensor in enumerate(self._handed)} | dict(cells)
        for name, tensor in left.items():
            if tensor.grad is not None and key(tensor.grad.value) not in read:
                raise GraphError(
                    f"{self._name}: build() leaves a gradient for {name}, which would be lost: a graph fills no .grad outside;"
                    " return the gradient from build(), or give the optimizer that steps with it to add_optimizer()"
                )
