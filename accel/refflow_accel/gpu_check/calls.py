"""Every kernel on random operands, on the device and by the reference, in several processes.

Part of ACC-GPU-CHECK of spec/text/acceleration.md.  The cases are `cuda.cases`'.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from .clock import Clock
from .report import Row

KEPT = 40  # differences told in full


def share(worker: int, workers: int, seconds: float, scales: Sequence[int]) -> Row:
    """This worker's part of the cases, at growing scales and with new seeds, until `seconds` are over."""
    from ..cuda import cases
    from ..cuda.backend import CudaBackend

    backend, clock = CudaBackend(), Clock(max(seconds, 1e-3))
    done: Counter[str] = Counter()
    differing, wrong = 0, list[str]()
    seed = 0
    while clock.left > 0:
        for index, (case, how) in enumerate(cases.every_case(seed, scales[min(seed, len(scales) - 1)])):
            if clock.left <= 0:
                break
            if index % workers != worker:
                continue
            try:
                found = cases.difference(backend, case, how)
            except Exception as error:  # a difference like any other: the report goes on
                found = f"{case} ({how}): {type(error).__name__}: {error}"
            done[case.name] += 1
            differing += found is not None
            if found and len(wrong) < KEPT:
                wrong.append(found)
        seed += 1
    return {"cases": dict(done), "differing": differing, "differences": wrong}


def properties(seconds: float, workers: int, scales: Sequence[int]) -> Row:
    """Every kernel on random operands; several processes, since each compiles for itself."""
    if workers == 1:
        parts = [share(0, 1, seconds, scales)]
    else:
        with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
            parts = [f.result() for f in [pool.submit(share, w, workers, seconds, scales) for w in range(workers)]]
    total: Counter[str] = Counter()
    for part in parts:
        total.update(part["cases"])
    from refflow.kernels.reference import KERNELS

    return {
        "cases": sum(total.values()), "by_kernel": dict(sorted(total.items())),
        "untested": sorted(set(KERNELS) - set(total)), "workers": workers,
        "differing": sum(part["differing"] for part in parts),
        "differences": [line for part in parts for line in part["differences"]][:KEPT],
    }  # fmt: skip
