"""How long the first run takes with nothing compiled, and the second: `refflow train digits` in processes of their own."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass

COLD, WARM = 60.0, 3.0  # seconds that the project allows
TRIES = 3  # of the warm run; the least counts


@dataclass(frozen=True)
class Times:
    """Seconds of a process: of the processor, and of the clock on the wall."""

    processor: float
    wall: float


def measured(steps: int = 3) -> Iterator[tuple[str, float, Times]]:
    """(what, limit in seconds, times): of a run that compiles everything it uses, and of one that finds it kept."""
    with tempfile.TemporaryDirectory() as folder:
        yield "train digits, nothing compiled yet", COLD, run(folder, steps)
        warm = [run(folder, steps) for _ in range(TRIES)]
        yield "train digits, all compiled", WARM, min(warm, key=lambda times: times.processor)


def run(folder: str, steps: int) -> Times:
    """A run of the job with `folder` as the cache, one thread; `CalledProcessError` if it fails."""
    job = ["train", "digits", "--backend", "numba", "--graph", "--steps", str(steps), "--quiet", "--json"]
    environment = {**os.environ, "REFFLOW_CACHE": folder, "REFFLOW_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    before, begin = _processor(), time.perf_counter()
    subprocess.run([sys.executable, "-m", "refflow", *job], env=environment, stdout=subprocess.PIPE, check=True)
    return Times(_processor() - before, time.perf_counter() - begin)


def _processor() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
