"""What could move device arrays between processes without the host, and whether it is here.

Part of ACC-CUDA-BACKEND of spec/text/acceleration.md.  Collectives fold on each rank in the canonical order; a library is
only ever asked to move bytes.  Boxing moves host copies (`to_host`, `from_host`) in every world; these probes say what
else there would be.
"""

from __future__ import annotations

import importlib.util
import os
from dataclasses import dataclass


@dataclass(frozen=True)
class Mover:
    """A way to move device memory between processes: whether it was found, and how that is known."""

    name: str
    found: bool
    detail: str


def probe() -> tuple[Mover, ...]:
    """What is found here; imports nothing that is not there and starts no MPI."""
    return _mpi(), _nccl()


def _mpi() -> Mover:
    """CUDA-aware MPI: no standard call says so, the libraries' own switches do."""
    if importlib.util.find_spec("mpi4py") is None:
        return Mover("CUDA-aware MPI", False, "mpi4py is not installed")
    switches = {"MPICH_GPU_SUPPORT_ENABLED": "1", "MV2_USE_CUDA": "1", "OMPI_MCA_opal_cuda_support": "true"}
    for name, on in switches.items():
        if os.environ.get(name, "").lower() == on:
            return Mover("CUDA-aware MPI", True, f"{name}={on}")
    return Mover("CUDA-aware MPI", False, f"none of {', '.join(switches)} is set")


def _nccl() -> Mover:
    """NCCL through CuPy or nccl4py."""
    for module in ("cupy", "nccl"):
        if importlib.util.find_spec(module) is not None:
            return Mover("NCCL", True, f"the package {module}")
    return Mover("NCCL", False, "neither cupy nor nccl4py is installed")
