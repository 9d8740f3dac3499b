"""What a call of a graph may change, held while it runs, so that a call that fails leaves everything as it was.

Implements the last part of GRAPH-STATE of spec/text/graph.md (ERR-UNCHANGED).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ..ir import Value
from ..state import put_in_force, settings
from ..tensor.tensor import Tensor


class Before:
    """The cells, the states and hyper-parameters of the optimizers, the settings, and where the default generator was.

    Of the states: which entries they have, cells and numbers (a power of beta).
    """

    def __init__(self, cells: Iterable[Tensor], optimizers: Sequence[Any]) -> None:
        self._cells: list[tuple[Tensor, Value, Tensor | None, int, int]] = []
        for each in cells:
            cell: Tensor | None = each
            while cell is not None:  # a view is written through
                self._cells.append((cell, cell._value, cell._grad, cell._version, cell._seen))
                cell = cell._base
        self._states = [(optimizer, {p: dict(state) for p, state in optimizer.state.items()}) for optimizer in optimizers]
        self._groups = [(group, dict(group)) for optimizer in optimizers for group in optimizer.param_groups]
        self._settings = settings()
        self._draws = self._settings.generator.state

    def put_back(self) -> None:
        """Everything as it was; a second time changes nothing."""
        put_in_force(self._settings)
        for cell, value, grad, version, seen in self._cells:
            cell._value, cell._grad, cell._version, cell._seen = value, grad, version, seen
        self._settings.generator.state = self._draws
        for group, hyper in self._groups:
            group.clear()
            group.update(hyper)
        self.put_back_states()

    def put_back_states(self) -> None:
        """The optimizers' states as they were."""
        for optimizer, state in self._states:
            optimizer.state = {p: dict(entries) for p, entries in state.items()}
