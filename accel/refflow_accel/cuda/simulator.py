"""The simulator of Numba-CUDA, its known traps mended, for tests without a device.

Part of ACC-CUDA-SIM of spec/text/acceleration.md.  The traps, and what is done about each:
* `cuda.fma` is a product and a sum, rounded twice: replaced by the exact one;
* `libdevice` functions answer NaN: kernels call none (tests/accel/cuda/test_ptx.py sees to it);
* float32 with a Python float stays float32 here and is float64 on the device: kernels and scalar sources name the type of
  every constant, and the gate on PTX compiles the same text with the device's rules;
* a kernel's own `cuda` has what is for kernels only, and functions of other modules that it calls have not: all have
  `Simulated`;
* two shared arrays made on one source line are one array: kernels make each on a line of its own;
* integer overflow and invalid operations warn in each simulated thread: they are what is meant, so they are silent;
* array arguments are copied in and out of every launch, so aliases would part: `Flat` goes through as it is;
* the main thread spins on what the simulated ones do, and takes most of their time: `Barrier` lets it sleep.
"""

from __future__ import annotations

import struct
import threading
from typing import Any

import numpy as np

i64, f32, f64 = np.int64, np.float32, np.float64
u16 = np.uint16


def u8(value: Any) -> Any:
    """The low 8 bits."""
    return np.uint8(int(value) & 0xFF)


def i8(value: Any) -> Any:
    """The low 8 bits, signed."""
    return u8(value).view(np.int8)


def s32(value: Any) -> Any:
    """The low 32 bits, signed."""
    return np.uint32(int(value) & 0xFFFFFFFF).view(np.int32)


class Simulated:
    """numba.cuda, with what the kernel that runs has of it."""

    def __getattr__(self, name: str) -> Any:
        from numba import cuda
        from numba.cuda.simulator import kernel

        running = kernel._get_kernel_context()
        return getattr(running if hasattr(running, name) else cuda, name)


class Flat:
    """A kernel's view of memory from an address on."""

    __slots__ = ("array",)

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self.array = array

    def __getitem__(self, i: int) -> Any:
        if i < 0:
            raise IndexError(f"index {i} is before the array")
        return self.array[i]

    def __setitem__(self, i: int, value: Any) -> None:
        if i < 0:
            raise IndexError(f"index {i} is before the array")
        self.array[i] = value


def fma(a: Any, b: Any, c: Any) -> Any:
    """a * b + c of float32, rounded once: the reference's, with a short cut for what binary64 cannot round twice."""
    total = float(a) * float(b) + float(c)
    if struct.unpack("<q", struct.pack("<d", total))[0] & 0xFFFFFFF:
        return np.float32(total)
    from refflow.numerics.rounding import fma32

    return np.float32(fma32(a, b, c))


class Barrier:
    """Where the threads of one block meet; those that are through with the kernel are not waited for."""

    def __init__(self, threads: int) -> None:
        self.live, self.waiting, self.round, self.broken = threads, 0, 0, False
        self.changed = threading.Condition()

    def _open(self) -> None:
        self.waiting, self.round = 0, self.round + 1
        self.changed.notify_all()

    def meet(self) -> None:
        """Waits for the others."""
        with self.changed:
            self.waiting += 1
            if self.waiting == self.live:
                self._open()
                return
            here = self.round
            self.changed.wait_for(lambda: self.round != here or self.broken)
            if self.broken:
                raise RuntimeError("another thread of the block failed")

    def leave(self, failed: bool) -> None:
        """One thread less."""
        with self.changed:
            self.live -= 1
            if failed:
                self.broken = True
                self.changed.notify_all()
            elif self.live and self.waiting == self.live:
                self._open()


def run_block(manager: Any, grid_point: Any, *args: Any) -> None:
    """One block of a kernel, a Python thread for each of its threads; an error in one is raised here."""
    from numba.cuda.simulator import kernel

    points = list(np.ndindex(*manager._block_dim))
    barrier = Barrier(len(points))

    def body() -> None:
        failed = True
        try:
            with np.errstate(all="ignore"):
                manager._f(*args)
            failed = False
        finally:
            barrier.leave(failed)

    threads = [kernel.BlockThread(body, manager, grid_point, point, False) for point in points]
    for thread in threads:
        thread.syncthreads = barrier.meet
        thread.start()
    for thread in threads:
        thread.join()
    errors = [thread.exception for thread in threads if thread.exception]
    if errors:
        first = next((e for e in errors if "another thread" not in str(e[0])), errors[0])
        raise first[0].with_traceback(first[1])


def mend() -> None:
    """Puts the remedies in place; once is enough."""
    from numba.cuda.simulator import kernel, kernelapi

    kernelapi.FakeCUDAModule.fma = lambda self, a, b, c: fma(a, b, c)
    kernel.BlockManager.run = run_block
