"""A stopwatch for machines that do other work: rounds in which every side runs in turn, until five are quiet.

One thread is timed by its process's CPU time, which others' turns on the processor do not enter; more threads by the
wall clock, several rounds at a stretch.  Either way others still share caches and clock rate.  So rounds go on until the
five quickest of each side lie within `QUIET` of each other, or `LIMIT` rounds are done; the median of those five is the
time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from statistics import median
from typing import Any

import numpy as np

from ..cpu import abi
from .process import Sides

QUIET, FEWEST, LIMIT = 0.05, 5, 40
STRETCH = 8  # rounds of one side before the other's turn, with several threads


@dataclass(frozen=True)
class Time:
    """Seconds of one run, and by how much of it the five quickest rounds differed."""

    seconds: float
    spread: float


def race(sides: Sides, names: Sequence[str], seconds: float = 0.02, patience: float = inf) -> dict[str, Time]:
    """Time the work of sides in turns, for about `seconds` a round; no new round after `patience` seconds, but for five."""
    begin = time.perf_counter()
    runs = {name: sides[name].ask(runs_in, seconds, sides.threads) for name in names}
    taken = {name: list[float]() for name in names}
    stretch = STRETCH if sides.threads > 1 else 1
    for number in range(stretch, LIMIT + 1, stretch):
        for name in names:
            taken[name] += sides[name].ask(timed, runs[name], stretch, sides.threads)
        times = {name: _five(found) for name, found in taken.items() if number >= FEWEST}
        late = time.perf_counter() - begin > patience
        if times and (late or all(found.spread < QUIET for found in times.values())):
            break
    return times


def _five(found: list[float]) -> Time:
    best = sorted(found)[:FEWEST]
    return Time(median(best), (best[-1] - best[0]) / best[0])


# --- where the work is ------------------------------------------------------------------------------------------------


def _clock(threads: int) -> Callable[[], float]:
    return time.process_time if threads == 1 else time.perf_counter


def runs_in(work: Callable[[], Any], seconds: float, threads: int) -> int:
    """How many runs take about as long."""
    clock = _clock(threads)
    work()
    start = clock()
    work()
    return max(1, int(seconds / max(clock() - start, 1e-7)))


def timed(work: Callable[[], Any], runs: int, rounds: int, threads: int) -> list[float]:
    """Seconds of a run in each of some rounds."""
    clock, taken = _clock(threads), []
    work()  # wakes its threads, warms its caches
    for _ in range(rounds):
        start = clock()
        for _ in range(runs):
            work()
        taken.append((clock() - start) / runs)
    return taken


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
