"""`python -m refflow_accel.gpu_check.through_mpi`: does MPI read and write the memory of this device, as its switches say?

Part of ACC-GPU-CHECK of spec/text/acceleration.md.  A process of its own asks, because an MPI that cannot do it ends the
process that tries.  It sends arrays to itself; how messages go from device to device of two machines is not tried.
"""

from __future__ import annotations

import subprocess
import sys
import time
from typing import Any

import numpy as np

from refflow.world.direct import cuda_aware

_BYTES = (1, 4097, (4 << 20) + 3)  # MPI has several ways, by size
_PATIENCE = 60.0  # seconds


def probe() -> dict[str, Any]:
    """A row of the report; `passed` is None where no switch says that MPI can.

    Errors: `WorldError` for a wrong value of REFFLOW_CUDA_AWARE.
    """
    support, started = cuda_aware(), time.monotonic()
    row: dict[str, Any] = {"name": "MPI on device memory", "passed": None, "found": support.how}
    if not support.found:
        return row
    try:
        done = subprocess.run([sys.executable, "-m", __name__], capture_output=True, text=True, timeout=_PATIENCE, check=False)
        told = done.stderr.strip().splitlines()[-1:] or [f"the process ended with status {done.returncode}"]
        row.update(passed=done.returncode == 0, found=support.how if done.returncode == 0 else f"{support.how}; {told[0]}")
    except subprocess.TimeoutExpired:
        row.update(passed=False, found=f"{support.how}; no answer within {_PATIENCE:g} s")
    return {**row, "seconds": round(time.monotonic() - started, 3)}


def wrong() -> str | None:
    """Sends arrays of the device to this process itself; what came out as another."""
    from mpi4py import MPI

    from ..cuda.backend import CudaBackend

    backend, alone = CudaBackend(), MPI.COMM_SELF
    for size in _BYTES:
        array = np.random.default_rng(size).integers(0, 256, size).astype(np.uint8)
        sent = backend.wire(backend.from_host(array))
        made, landing = backend.landing(array.shape, array.dtype)
        alone.Sendrecv([sent, MPI.BYTE], dest=0, recvbuf=[landing, MPI.BYTE], source=0)
        if not np.array_equal(backend.to_host(made), array):
            return f"{size} bytes came out as others"
    return None


if __name__ == "__main__":
    sys.exit(wrong())
