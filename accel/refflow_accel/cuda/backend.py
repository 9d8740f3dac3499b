"""The back end "cuda": device arrays, compiled kernels, and the reference on host copies for what HOST lists.

Implements ACC-CUDA-BACKEND and ACC-CUDA-DEVICE of spec/text/acceleration.md, and KER-WIRE of kernels.md.  Collectives of a
world move host copies, through the protocol, unless MPI reads the device's memory.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import numpy as np

from refflow.errors import BackendError
from refflow.kernels import Kernel, ReferenceBackend
from refflow.kernels.wire import Wire

from ..launchers import number_here
from . import (
    kernels,  # noqa: F401  (fills the tables)
    memory,
)
from .kernels.movement import contiguous
from .memory import DeviceArray
from .registry import PRIMITIVES, Refused
from .target import SIMULATED, cuda

if TYPE_CHECKING:
    from refflow.graph.logical import LogicalGraph

    from ..program import CompiledProgram


class CudaBackend:
    """One CUDA device: processes of one machine take its devices in turn; under NUMBA_ENABLE_CUDASIM=1 the simulated one.

    Errors: `BackendError` without a device, or with a release of numba-cuda that is not the supported one.
    """

    name = "cuda"
    exchanges = True  # programs serve ranks in several processes (ACC-EXCHANGE)

    def __init__(self) -> None:
        if not SIMULATED and not cuda.is_available():
            raise BackendError(
                "the back end 'cuda' found no CUDA device or driver; NUMBA_ENABLE_CUDASIM=1 simulates one, slowly"
            )
        if not SIMULATED:
            cuda.select_device(own_device(os.environ, len(cuda.gpus)))
        self._reference = ReferenceBackend()
        self._kernels: dict[str, Kernel] = {}

    def kernel(self, name: str) -> Kernel:
        if name not in self._kernels:
            reference = on_host(self._reference.kernel(name))
            native = PRIMITIVES.get(name)
            self._kernels[name] = reference if native is None else _else(native, reference)
        return self._kernels[name]

    def program(self, graph: LogicalGraph) -> CompiledProgram:
        """The calls of a traced graph, launched again from the second one on (ACC-CUDA-PROGRAM)."""
        from ..program import CompiledProgram
        from .program import Replay, optimized

        return CompiledProgram(graph, self, Replay, optimized)

    def from_host(self, array: np.ndarray[Any, Any]) -> DeviceArray:
        return memory.from_host(array)

    def to_host(self, array: DeviceArray) -> np.ndarray[Any, Any]:
        return to_host(array)

    def shape(self, array: DeviceArray) -> tuple[int, ...]:
        return array.shape

    def wire(self, array: DeviceArray) -> Wire:
        """The memory of an array for MPI to read (KER-WIRE)."""
        return memory.wire(contiguous(array))

    def landing(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> tuple[DeviceArray, Wire]:
        """A fresh array, and its memory for MPI to write (KER-WIRE)."""
        made = memory.empty(shape, dtype)
        return made, memory.wire(made)

    def stream(self, name: str) -> AbstractContextManager[None]:
        """A context whose kernels and copies go to the device's stream of this name (KER-STREAM)."""
        return memory.using(memory.named_stream(name))


def own_device(environ: Mapping[str, str], devices: int) -> int:
    """The number of this process's device among those it can see."""
    return number_here(environ) % devices


def to_host(array: DeviceArray) -> np.ndarray[Any, Any]:
    """A NumPy array with the bits of a device array; waits for the current stream."""
    return memory.read(contiguous(array))


def on_host(reference: Kernel) -> Kernel:
    """The reference's kernel between a copy to the host and one back."""

    def run(*arrays: DeviceArray, **attrs: Any) -> Any:
        made = reference(*map(to_host, arrays), **attrs)
        return tuple(map(memory.from_host, made)) if isinstance(made, tuple) else memory.from_host(made)

    return run


def _else(native: Callable[..., Any], reference: Kernel) -> Kernel:
    """The native kernel; the reference's for operands it does not serve, and to tell what is wrong with bad data."""

    def run(*arrays: DeviceArray, **attrs: Any) -> Any:
        try:
            made = native(*arrays, **attrs)
        except Refused:
            return reference(*arrays, **attrs)
        return reference(*arrays, **attrs) if made is NotImplemented else made

    return run
