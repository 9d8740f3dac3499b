"""`refflow bench runtime`: compiling plans of growing size, actions a second with null kernels, a large virtual-time run.

Implements no rule: times are not part of the meaning.  Nothing here decides an exit code, since machines differ.  Times
are those of the process, one thread, so that what else runs here does not count.
"""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable
from functools import partial

from ..functional.arithmetic import add, mul
from ..functional.creation import ones
from ..graph.compile import compile_graph
from ..graph.logical import LogicalGraph, Variable
from ..graph.passes import common_subexpressions, dead_code
from ..graph.plan import Plan
from ..graph.trace import Tracer, lazily, twin_of
from ..layout import Placement, Split, broadcast
from ..runtime.clock import in_virtual_time
from ..runtime.pipelines import one_f_one_b
from ..runtime.run import Run
from ..tensor.tensor import Tensor
from ..world import virtual_world
from .bench import Measure

RANKS = 4
ACTIONS = 100_000  # of the run in virtual time, at least
SIZES = ((1_000, 5), (10_000, 2), (100_000, 1))  # tasks, and how often it is tried
TASKS_OF_A_LAYER = 76  # six operations on each rank; the move to B is cuts, sends, receives and an assembly


def runtime() -> list[Measure]:
    """Seconds and growth of compiling, actions a second, seconds of a run in virtual time."""
    sizes = [(partial(compiled, size), tries) for size, tries in SIZES]
    times = dict(least(make, tries) for make, tries in sizes)
    small, large = min(times), max(times)
    growth = math.log(times[large] / times[small]) / math.log(large / small)
    many = one_f_one_b(8, 64, iterations=8)
    acted, took = least(lambda: Run(many).run().actions, 3)
    wide = one_f_one_b(64, 64)
    wide = one_f_one_b(64, 64, iterations=math.ceil(ACTIONS / actions_of(wide)))
    acted_wide, took_wide = least(lambda: in_virtual_time(wide).result.actions, 1)
    return [
        Measure(f"trace and compile a step of {small:,} tasks, {RANKS} ranks", times[small], 1.0, "s", False),
        Measure(f"tasks traced and compiled a second, step of {large:,}", large / times[large], 1_000, "tasks/s", True),
        Measure(f"growth of that time from {small:,} to {large:,} tasks: n^", growth, 1.1, "", False),
        Measure(f"actions of null kernels, checks on ({acted:,} actions)", acted / took, 60_000, "actions/s", True),
        Measure(f"virtual time: 64 ranks, {acted_wide:,} actions", took_wide, 5.0, "s", False),
    ]


def actions_of(plan: Plan) -> int:
    """How many actions an iteration of a plan takes."""
    return Run(plan).run().actions


def least(function: Callable[[], int], tries: int) -> tuple[int, float]:
    """What the function gives, and the fewest seconds it took."""
    found, took = 0, math.inf
    for _ in range(tries):
        gc.collect()
        begin = time.process_time()
        found = function()
        took = min(took, time.process_time() - begin)
    return found, took


def compiled(tasks: int) -> int:
    """Traces and compiles a graph of about `tasks` tasks (layers of arithmetic, then a move); how many it has."""
    with virtual_world(RANKS):
        return len(compile_graph(layers(tasks)).plan.tasks)


def layers(tasks: int) -> LogicalGraph:
    """A chain of products, sums and moves S -> B -> S over four ranks, traced and cleaned up."""
    where = Placement("cpu", list(range(RANKS)))
    start = ones(64, placement=where, sbp=Split(0))
    tracer = Tracer()
    with lazily([start], tracer) as twins:
        x = Tensor(twin_of(start.value, 1, broadcast))
        given = x.value
        for _ in range(-(-tasks // TASKS_OF_A_LAYER)):
            for i in range(6):
                x = mul(x, start) if i % 2 else add(x, start)
            x = x.to_global(where, broadcast).to_global(where, Split(0))
        variables = (Variable("start", start, twins[id(start)]),)
    graph = LogicalGraph("layers", (given,), variables, tuple(tracer.nodes), (x.value,))
    return dead_code(common_subexpressions(graph))
