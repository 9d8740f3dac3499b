"""state_dict and load_state_dict: the named values of a module, out of it and into it.

Implements NN-STATE of spec/text/nn.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..errors import CheckpointError
from ..functional.creation import tensor as make_tensor
from ..layout import Placement, broadcast
from ..state import Override, settings
from ..tensor.tensor import Tensor

if TYPE_CHECKING:
    from .module import Module


class Loaded(NamedTuple):
    """What load_state_dict(strict=False) passed over."""

    missing_keys: list[str]
    unexpected_keys: list[str]


def saved_cells(module: Module, prefix: str = "") -> Iterator[tuple[str, Tensor]]:
    """(dotted name, cell) of every parameter and persistent buffer, shared ones under each name, parameters first."""
    for name, parameter in module._parameters.items():
        if parameter is not None:
            yield prefix + name, parameter
    for name, buffer in module._buffers.items():
        if buffer is not None and name not in module._transient:
            yield prefix + name, buffer
    for name, child in module._modules.items():
        if child is not None:
            yield from saved_cells(child, f"{prefix}{name}.")


def state_of(module: Module, prefix: str = "", keep_vars: bool = False) -> dict[str, Tensor]:
    """name -> value; values never change, so later training does not alter what was taken (NN-STATE)."""
    return {name: cell if keep_vars else cell.snapshot() for name, cell in saved_cells(module, prefix)}


def load_state(module: Module, state: Mapping[str, Any], strict: bool = True) -> Loaded:
    """Writes the logical values of `state` (tensors or NumPy arrays) into the module's cells, which keep their own
    placement, sbp and dtype.

    Errors: `CheckpointError` that names missing and unexpected keys (if `strict`) and keys whose shape differs, before
    anything is changed.  Source: NN-STATE.
    """
    cells = dict(saved_cells(module))
    missing = [key for key in cells if key not in state]
    unexpected = [key for key in state if key not in cells]
    with Override(grad=False):
        _check(module, cells, state, missing if strict else [], unexpected if strict else [])
        values = {key: _as_cell(cells[key], state[key]) for key in cells if key in state}
        for key, value in values.items():
            cells[key].write(value.value)
    return Loaded(missing, unexpected)


def _check(
    module: Module, cells: Mapping[str, Tensor], state: Mapping[str, Any], missing: list[str], unexpected: list[str]
) -> None:
    faults = [f"{what} keys {keys}" for what, keys in (("missing", missing), ("unexpected", unexpected)) if keys]
    for key, cell in cells.items():
        found = state.get(key)
        if found is None:
            continue
        if not isinstance(found, (Tensor, np.ndarray)):
            faults.append(f"'{key}' must be a tensor, found {type(found).__name__}")
        elif tuple(found.shape) != cell.shape:
            faults.append(f"'{key}' has shape {tuple(found.shape)}, the module needs {cell.shape}")
    if faults:
        raise CheckpointError(f"load_state_dict: does not fit {type(module).__name__}: {'; '.join(faults)}")


def _as_cell(cell: Tensor, found: Tensor | np.ndarray[Any, Any]) -> Tensor:
    """The logical value of `found` where `cell` lives; `write` brings it to the cell's sbp and dtype."""
    value = found.detach() if isinstance(found, Tensor) else make_tensor(found)
    if cell.is_local:
        if value.is_local:
            return value
        everywhere = Placement(value.placement.type, list(range(settings().world.size)))
        return value.to_global(everywhere, broadcast).to_local()
    if value.is_local:
        value = value.to_global(cell.placement, (broadcast,) * cell.placement.ndim)
    return value.to_global(cell.placement, cell.sbp)
