"""Memory of a back end's arrays as MPI can read and write it, without a copy on the host.

Implements KER-WIRE of spec/text/kernels.md; the world that uses it is refflow/world/direct.py.
"""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import numpy as np

from .protocol import Array


class Wire:
    """`nbytes` bytes at `address` on a device, for MPI (`__cuda_array_interface__`); `keeper` is what holds them.

    It speaks of bytes, because MPI has no word for bfloat16, and of no stream: whoever made it has waited.
    """

    __slots__ = ("_address", "keeper", "nbytes")

    def __init__(self, keeper: Any, address: int, nbytes: int) -> None:
        self.keeper, self._address, self.nbytes = keeper, address, nbytes

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {"shape": (self.nbytes,), "typestr": "|u1", "data": (self._address, False), "strides": None, "version": 3}


@runtime_checkable
class Wired(Protocol):
    """A back end whose arrays MPI can be pointed at."""

    def wire(self, array: Array) -> Wire:
        """The elements of an array, in row-major order, once all work that makes them is done."""
        ...

    def landing(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> tuple[Array, Wire]:
        """A fresh array and its memory to be written, which no earlier work still reads."""
        ...
