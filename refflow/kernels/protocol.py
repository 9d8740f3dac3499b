"""The protocol of a back end: opaque arrays, kernels by name, host copies.

Implements KER-PROTOCOL and KER-BITS of spec/text/kernels.md.  Everything above this package treats arrays as opaque: it
reads them only through a back end, so another back end (or a test's loopback one) can replace the reference without a
line changed elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from ..errors import BackendError
from .reference import KERNELS

Array = Any  # a back end's own array type
Kernel = Callable[..., Any]


class Backend(Protocol):
    """What computes on the local arrays of one device type."""

    name: str

    def kernel(self, name: str) -> Kernel:
        """The kernel of a primitive, or ``slice_box``, ``assemble`` or ``fold``; `BackendError` if there is none."""
        ...

    def from_host(self, array: np.ndarray[Any, Any]) -> Array:
        """A local array with the bits of a NumPy array."""
        ...

    def to_host(self, array: Array) -> np.ndarray[Any, Any]:
        """A NumPy array with the bits of a local array."""
        ...

    def shape(self, array: Array) -> tuple[int, ...]:
        """The shape of a local array."""
        ...


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
