"""The back end "numba": NumPy arrays, compiled kernels, and the reference's own kernels for what they leave out.

Implements ACC-BACKEND of spec/text/acceleration.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from refflow.kernels import Kernel, ReferenceBackend

from . import kernels  # noqa: F401  (fills the table)
from .abi import CALL, Refused
from .registry import NATIVE, Native

if TYPE_CHECKING:
    from refflow.graph.logical import LogicalGraph

    from ..program import CompiledProgram


class NumbaBackend(ReferenceBackend):
    """Compiled kernels on NumPy arrays; where there is none, and for bad data, the reference's kernel."""

    name = "numba"
    exchanges = True  # programs serve ranks in several processes (ACC-EXCHANGE)

    def __init__(self) -> None:
        super().__init__()
        self._native = {name: _fallback(native, super(NumbaBackend, self).kernel(name)) for name, native in NATIVE.items()}

    def program(self, graph: LogicalGraph) -> CompiledProgram:
        """The calls of a traced graph, natively from the second one on (ACC-PROGRAM)."""
        from ..program import CompiledProgram
        from ..program.native import Native

        return CompiledProgram(graph, self, Native)

    def kernel(self, name: str) -> Kernel:
        return self._native[name] if name in self._native else super().kernel(name)


def _fallback(native: Native, reference: Kernel) -> Kernel:
    """The native kernel; the reference's for operands it does not serve, and to tell what is wrong with bad data."""

    def run(*arrays: np.ndarray[Any, Any], **attrs: Any) -> Any:
        try:
            made = native(CALL, *arrays, **attrs)
        except Refused:
            return reference(*arrays, **attrs)
        return reference(*arrays, **attrs) if made is NotImplemented else made

    return run
