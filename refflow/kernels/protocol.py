"""The protocol of a back end: opaque arrays, kernels by name, host copies.

Implements KER-PROTOCOL of spec/text/kernels.md.  Everything above this package treats arrays as opaque: it reads them only
through a back end, so another back end (or a test's loopback one) can replace the reference without a line changed
elsewhere.  What a back end may have beyond it: `wire.Wired`, and `program(graph)` (refflow.graph.programs).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

Array = Any  # a back end's own array type
Kernel = Callable[..., Any]


class Backend(Protocol):
    """What computes on the local arrays of one device type.

    Local arrays are values: no kernel writes into its operands, and results may be views of them.
    """

    name: str

    def kernel(self, name: str) -> Kernel:
        """The kernel of a primitive, or ``slice_box``, ``assemble`` or ``fold``; `BackendError` if there is none."""
        ...

    def from_host(self, array: np.ndarray[Any, Any]) -> Array:
        """A local array with the bits of a NumPy array, of its shape and dtype; it may share its memory."""
        ...

    def to_host(self, array: Array) -> np.ndarray[Any, Any]:
        """A NumPy array with the bits of a local array, once they are computed; it may share its memory."""
        ...

    def shape(self, array: Array) -> tuple[int, ...]:
        """The shape of a local array."""
        ...
