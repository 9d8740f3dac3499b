"""How fast the runtime and the proofs are: what `refflow bench runtime` prints.  No rules, and no test asserts a time."""

from __future__ import annotations

import math
from collections.abc import Iterator
from time import perf_counter

from ..graph.plan import Plan, PlanBuilder
from ..graph.proofs import verify
from .clock import in_virtual_time
from .pipelines import one_f_one_b
from .run import run


def long_chain(tasks: int) -> Plan:
    """A chain of tasks on one stream, register numbers 1 and 2 in turns."""
    b = PlanBuilder(f"chain of {tasks}")
    x = b.register("x", b.task("source", kind="source"))
    for i in range(tasks - 2):
        x = b.register(f"y{i}", b.task(f"t{i}", inputs=[x]), number=1 + i % 2)
    b.task("sink", kind="sink", inputs=[x])
    return b.plan()


def measure(most: int = 100_000) -> Iterator[str]:
    """Lines: actions a second with null kernels, a 64-rank run in virtual time, and verify on growing plans."""
    plan = long_chain(10)
    begun = perf_counter()
    actions = run(plan, iterations=10_000).actions
    yield f"null kernels, checks on: {actions / (perf_counter() - begun):,.0f} actions/s"
    pipeline = one_f_one_b(64, 28)
    begun = perf_counter()
    timed = in_virtual_time(pipeline, iterations=7)
    yield f"64 ranks in virtual time: {timed.result.actions:,} actions in {perf_counter() - begun:.2f} s"
    sizes, times = [most // 100, most // 10, most], []
    for size in sizes:
        plan = long_chain(size)
        begun = perf_counter()
        verify(plan).check()
        times.append(perf_counter() - begun)
        yield f"verify, {size:,} tasks: {times[-1]:.3f} s"
    grown = math.log(times[-1] / times[1]) / math.log(sizes[-1] / sizes[1])
    yield f"verify grows as n^{grown:.2f} from {sizes[1]:,} to {sizes[-1]:,} tasks"
