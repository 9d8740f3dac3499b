"""The reference back end: the kernels that define every value, as one back end among others.

Implements KER-BITS of spec/text/kernels.md.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...errors import BackendError
from ..protocol import Array, Kernel
from .registry import KERNELS


class ReferenceBackend:
    """The kernels that define every value, on NumPy arrays (KER-BITS)."""

    name = "reference"

    def __init__(self) -> None:
        self._kernels = {name: _quiet(kernel) for name, kernel in KERNELS.items()}

    def kernel(self, name: str) -> Kernel:
        try:
            return self._kernels[name]
        except KeyError:
            raise BackendError(f"the back end 'reference' has no kernel named '{name}'") from None

    def from_host(self, array: np.ndarray[Any, Any]) -> Array:
        return array

    def to_host(self, array: Array) -> np.ndarray[Any, Any]:
        return np.asarray(array)

    def shape(self, array: Array) -> tuple[int, ...]:
        return tuple(array.shape)


def _quiet(kernel: Kernel) -> Kernel:
    """inf and NaN are values like any other here: no warnings."""

    def run(*arrays: Array, **attrs: Any) -> Any:
        with np.errstate(all="ignore"):
            return kernel(*arrays, **attrs)

    return run
