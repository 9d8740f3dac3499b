"""A stopwatch for machines that do other work: rounds in which every contender runs in turn, until five are quiet.

One thread is timed by the process's CPU time, which others' turns on the processor do not enter; more threads by the
wall clock, in blocks of rounds with a rest before each, because the idle workers of one library's pool spin for a while
on the processors that the next one needs.  Either way others still share caches and clock rate.  So rounds go on until
the five quickest of each contender lie within `QUIET` of each other, or `LIMIT` rounds are done; the median of those
five is the time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from math import inf
from statistics import median
from typing import Any

import numpy as np

from ..cpu import abi

QUIET, FEWEST, LIMIT = 0.05, 5, 40
BLOCK, REST = 8, 0.3  # rounds at a stretch and seconds before them, with several threads


@dataclass(frozen=True)
class Time:
    """Seconds of one run, and by how much of it the five quickest rounds differed."""

    seconds: float
    spread: float


def race(
    contenders: Mapping[str, Callable[[], Any]], threads: int, seconds: float = 0.02, patience: float = inf
) -> dict[str, Time]:
    """Time the contenders in turns, each for about `seconds` a round; no new round after `patience` seconds, but for five."""
    begin = time.perf_counter()
    clock = time.process_time if threads == 1 else time.perf_counter
    runs, taken = {}, {name: list[float]() for name in contenders}
    for name, run in contenders.items():
        run()
        start = clock()
        run()
        runs[name] = max(1, int(seconds / max(clock() - start, 1e-7)))
    stretch = BLOCK if threads > 1 else 1
    for number in range(stretch, LIMIT + 1, stretch):
        for name, run in contenders.items():
            if threads > 1:
                time.sleep(REST)
            for _ in range(stretch):
                run()  # wakes its threads, warms its caches
                start = clock()
                for _ in range(runs[name]):
                    run()
                taken[name].append((clock() - start) / runs[name])
        times = {name: _five(found) for name, found in taken.items() if number >= FEWEST}
        late = time.perf_counter() - begin > patience
        if times and (late or all(found.spread < QUIET for found in times.values())):
            break
    return times


def _five(found: list[float]) -> Time:
    best = sorted(found)[:FEWEST]
    return Time(median(best), (best[-1] - best[0]) / best[0])


@contextmanager
def pinned(threads: int) -> Iterator[str]:
    """Give NumPy's BLAS and these kernels `threads` threads each; yields which BLAS kernels run."""
    try:
        from threadpoolctl import threadpool_info, threadpool_limits
    except ImportError:
        limits, name = nullcontext(), "BLAS not pinned (no threadpoolctl)"
    else:
        limits = threadpool_limits(threads)
        found = [info for info in threadpool_info() if info["user_api"] == "blas"]
        name = ", ".join(f"{info['internal_api']} {info['version']} {info.get('architecture', '')}" for info in found)
    before = abi.set_threads(threads)
    try:
        with limits:
            yield name
    finally:
        abi.set_threads(before)


class Recorded(abi.Call):
    """Keeps the launches of a kernel, to repeat them without Python between: what a compiled program costs."""

    def __init__(self) -> None:
        self._rows: list[list[int]] = []
        self._kept: list[Any] = []

    def launch(self, kernel: abi.Entry, *arguments: Any, tasks: int, cost: float) -> None:
        words = np.array([abi.word(argument) for argument in arguments], np.int64)
        self._kept.append((words, arguments))
        self._rows.append([kernel.address, abi.address(words), tasks, abi.parts(tasks, cost)])

    def program(self) -> Callable[[], Any]:
        """Runs the launches again."""
        rows, kept = np.array(self._rows, np.int64), self._kept

        def again(_alive: Any = kept) -> int:  # what the rows point to lives as long as this function
            return abi.run(rows)

        return again
