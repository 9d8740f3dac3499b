"""Where a compiled step spends its time: every row of native kernels timed alone, summed by call and shapes.

Twice, on one thread: again and again on memory that is in the caches then, in the process's processor time; and in the
program's order, by the clock, so with what it costs to fetch memory that other rows have used meanwhile.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
from rich.table import Table

from ..cpu.abi import set_threads
from ..program.compiled import CompiledProgram
from ..program.local import LocalCall, LocalProgram
from ..program.passes import CHAIN

SECONDS, TRIES = 0.001, 3  # of running a row, and how often; the least counts
PRODUCTS = ("matmul", "conv2d", "conv2d_input", "conv2d_filter")


@dataclass
class Cost:
    """What all calls of one kind, on arrays of the same shapes, take in a step."""

    name: str
    shapes: str
    flops: int
    elements: int  # of the results of one call
    calls: set[int] = field(default_factory=set)
    in_order: float = 0.0  # seconds of all of them in the program's order, with about 1 µs a row for the clock
    kernels: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))  # kernel -> seconds

    @property
    def seconds(self) -> float:
        return sum(self.kernels.values())

    @property
    def rate(self) -> str:
        """Gflop/s of a product, ns for each element of the results of anything else."""
        if self.flops:
            return f"{self.flops * len(self.calls) / self.seconds / 1e9:.1f} GF/s"
        return f"{self.seconds * 1e9 / max(1, self.elements * len(self.calls)):.2f} ns/el"


def profile(program: CompiledProgram) -> list[Cost]:
    """The costs of a program that has run natively, greatest first."""
    local, pieces = program.pieces()
    found: dict[tuple[str, str], Cost] = {}
    before = set_threads(1)
    try:
        for (call, kernel, run), in_order in zip(pieces, ordered([run for _, _, run in pieces]), strict=True):
            name, shapes = what(call), shapes_of(local, call)
            elements = sum(local.arrays[number].size for number in call.outputs)
            cost = found.setdefault((name, shapes), Cost(name, shapes, flops(local, call), elements))
            cost.calls.add(id(call))
            cost.in_order += in_order
            cost.kernels[kernel] += least(run)
    finally:
        set_threads(before)
    return sorted(found.values(), key=lambda cost: -cost.seconds)


def ordered(runs: Sequence[Callable[[], Any]], rounds: int = 7) -> list[float]:
    """Seconds of each when all are run one after the other, the least of some rounds."""
    best = [float("inf")] * len(runs)
    for _ in range(rounds):
        for i, run in enumerate(runs):
            start = time.perf_counter()
            run()
            best[i] = min(best[i], time.perf_counter() - start)
    return best


def least(function: Callable[[], Any]) -> float:
    """Seconds of one call, the least of a few stretches."""
    clock, best, times = time.process_time, float("inf"), 1
    function()
    start = clock()
    function()
    times = max(1, int(SECONDS / max(clock() - start, 1e-6)))
    for _ in range(TRIES):
        start = clock()
        for _ in range(times):
            function()
        best = min(best, (clock() - start) / times)
    return best


def what(call: LocalCall) -> str:
    """The primitive, or the steps of a chain."""
    if call.name != CHAIN:
        return call.name
    counted = Counter(step.op for step in call.attrs["chain"].steps)
    return "chain: " + " ".join(op if times == 1 else f"{op}*{times}" for op, times in counted.items())


def shapes_of(program: LocalProgram, call: LocalCall) -> str:
    """The shapes of operands and results; those of a chain's operands counted."""

    def told(numbers: tuple[int, ...]) -> str:
        counted: Mapping[str, int] = Counter(_shape(program.arrays[number]) for number in numbers)
        return ", ".join(shape if times == 1 else f"{times} of {shape}" for shape, times in counted.items())

    return f"{told(call.inputs)} -> {told(call.outputs)}"


def _shape(array: np.ndarray[Any, Any]) -> str:
    size = "x".join(map(str, array.shape)) or "1"
    kind = "" if array.dtype == np.float32 else f" {array.dtype.name}"
    return size + kind + ("" if array.flags.c_contiguous else " strided")


def flops(program: LocalProgram, call: LocalCall) -> int:
    """Two for each product of a contraction; 0 for any other call."""
    if call.name not in PRODUCTS:
        return 0
    shapes: list[tuple[int, ...]] = [program.arrays[number].shape for number in (*call.inputs, *call.outputs)]
    if call.name == "matmul":
        return 2 * prod(shapes[2]) * shapes[0][-1]
    weight, positions = {"conv2d": (1, 2), "conv2d_input": (1, 0), "conv2d_filter": (2, 1)}[call.name]
    n, _, p, q = shapes[positions]
    return 2 * n * p * q * prod(shapes[weight])


def table(costs: list[Cost], title: str, most: int = 25) -> Table:
    """The greatest costs, each with its share and its kernels."""
    whole, cold = sum(cost.seconds for cost in costs), sum(cost.in_order for cost in costs)
    made = Table(title=f"{title}: {whole * 1e6:.0f} µs in native rows, {cold * 1e6:.0f} µs in order, one thread")
    for heading in ("µs", "in order", "%", "calls", "rate", "primitive", "shapes", "kernels, µs"):
        left = heading in ("primitive", "shapes", "kernels, µs")
        made.add_column(heading, justify="left" if left else "right", overflow="fold")
    for cost in costs[:most]:
        kernels = ", ".join(f"{name} {seconds * 1e6:.0f}" for name, seconds in cost.kernels.items())
        times = [f"{seconds * 1e6:.0f}" for seconds in (cost.seconds, cost.in_order)]
        share = f"{100 * cost.seconds / whole:.1f}"
        made.add_row(*times, share, str(len(cost.calls)), cost.rate, cost.name, cost.shapes, kernels)
    return made
