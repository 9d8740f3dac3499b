"""How fast the device is: training steps, memory-bound kernels and products, beside PyTorch's where that is installed.

Part of ACC-GPU-CHECK of spec/text/acceleration.md.  Nothing here decides whether the check passes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from .clock import Clock
from .report import Row
from .training import language_model

if TYPE_CHECKING:  # its module needs numba-cuda
    from ..cuda.backend import CudaBackend

SIZES = {"vocabulary": 65, "context": 64, "layers": 4, "width": 128, "rows": 16}  # as `refflow train gpt` has them


def _seconds(action: Callable[[], Any], wait: Callable[[], Any], repeats: int) -> float:
    """The least of a few timings of `action`, after one to warm up; `wait` waits for the device."""
    best = float("inf")
    for repeat in range(repeats + 1):
        wait()
        started = time.perf_counter()
        action()
        wait()
        if repeat:
            best = min(best, time.perf_counter() - started)
    return best


def _torch() -> Any:
    """PyTorch with a GPU and without TF32, or None."""
    try:
        import torch  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        return None
    if not torch.cuda.is_available():
        return None
    torch.backends.cuda.matmul.allow_tf32 = False
    return torch


# name, unit, how much of it is in one call, a call of ours and one of PyTorch's
Measurement = tuple[str, str, float, Callable[[], Any], Callable[[], Any] | None]


def speed(backend: CudaBackend, clock: Clock, simulated: bool) -> Iterator[Row]:
    """A row for each measurement, training steps first, until the clock stops the rest.

    A row has name, unit, refflow's rate in that unit, and PyTorch's where it is installed with a GPU.
    """
    from refflow.world import backend as computes

    from ..cuda import memory

    torch = _torch()
    wait = memory.current_stream().synchronize if not simulated else (lambda: None)
    with computes(backend):
        measurements = chain(_steps(simulated), _bandwidths(backend, torch, simulated), _products(backend, torch, simulated))
        while clock.left > 0:
            found = next(measurements, None)
            if found is None:
                return
            name, unit, work, ours, theirs = found
            row: Row = {"name": name, "unit": unit, "refflow": round(work / _seconds(ours, wait, 1 if simulated else 5), 2)}
            if theirs is not None:
                row["torch"] = round(work / _seconds(theirs, torch.cuda.synchronize, 5), 2)
            yield row


def _steps(simulated: bool) -> Iterator[Measurement]:
    """Steps of training a second, on the back end in force."""
    sizes = {"vocabulary": 3, "context": 2, "layers": 1, "width": 4, "rows": 1} if simulated else SIZES
    for way, graph in (("eager", False), ("compiled", True)):
        _, step = language_model(graph, **sizes)
        yield f"gpt step, {way}", "steps/s", 1.0, step, None


def _bandwidths(backend: CudaBackend, torch: Any, simulated: bool) -> Iterator[Measurement]:
    """Bytes that memory-bound kernels read and write, on 2^26 numbers of float32."""
    n = 1 << (10 if simulated else 26)
    x = np.random.default_rng(0).standard_normal(n).astype(np.float32)
    a, square = backend.from_host(x), backend.from_host(x.reshape(-1, 1 << (n.bit_length() // 2)))
    t: Any = None if torch is None else torch.from_numpy(x).cuda()
    add, exp, add_up = (backend.kernel(name) for name in ("add", "exp", "sum"))
    calls: list[tuple[str, int, Callable[[], Any], Callable[[], Any]]] = [
        ("add", 12, lambda: add(a, a), lambda: t + t),
        ("exp", 8, lambda: exp(a), lambda: torch.exp(t)),
        ("sum of rows", 4, lambda: add_up(square, dims=(1,)), lambda: t.view(square.shape).sum(1)),
        ("sum of columns", 4, lambda: add_up(square, dims=(0,)), lambda: t.view(square.shape).sum(0)),
    ]
    for name, size, ours, theirs in calls:
        yield name, "GB/s", size * n / 1e9, ours, None if torch is None else theirs


def _products(backend: CudaBackend, torch: Any, simulated: bool) -> Iterator[Measurement]:
    """Operations of float32 in products of square matrices."""
    rng = np.random.default_rng(0)
    for m in (4,) if simulated else (512, 1024, 2048, 4096):
        host = rng.standard_normal((m, m)).astype(np.float32)
        p = backend.from_host(host)
        theirs = None if torch is None else partial(torch.matmul, *[torch.from_numpy(host).cuda()] * 2)
        yield f"matmul {m}", "GFLOP/s", 2.0 * m**3 / 1e9, partial(backend.kernel("matmul"), p, p), theirs
