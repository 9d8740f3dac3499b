"""The sequential interpreter of a logical graph: its meaning, node by node, in program order.

Implements GRAPH-RUN of spec/text/graph.md.  The actor runtime must give the same bits (ACT-SAME).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from ..errors import DataError
from ..ir import Value
from ..ir.bind import EAGER
from ..kernels import Array
from ..layout import broadcast
from ..ops.constant import full
from ..random import Generator
from ..runtime.run import Result, Run
from ..runtime.transport import MpiTransport, run_part
from ..state import Override, settings
from .compile import Compiled, drawn
from .logical import LogicalGraph, key
from .tasks import Payload
from .time import TimedPlacement, TimeWorld, gathered, input_sbp, spread
from .trace import Unborn


def execute(
    graph: LogicalGraph, inputs: Sequence[Value], scalars: Sequence[float] = ()
) -> tuple[list[Value], dict[int, Value]]:
    """Runs the graph once: its outputs, and the next value of each variable that has an update, by index.

    Draws of the generator start at its present ordinal, and it advances by the number of draws traced (GRAPH-RANDOM).
    """
    state = {i: v.cell.value for i, v in enumerate(graph.variables) if v.value is not None}
    return carry_out(graph, inputs, state, numbered(graph, scalars))


def numbered(graph: LogicalGraph, scalars: Sequence[float]) -> list[Value]:
    """The graph's scalars as values, for the numbers of one call (GRAPH-SCALARS)."""
    with Override(grad=False, interpreters=(), world=TimeWorld(settings().world, graph.steps)):
        metas = [lazy.meta for lazy in graph.scalars]
        return [
            full(shape=(), value=number, dtype=meta.dtype, placement=meta.placement, sbp=meta.sbp)
            for meta, number in zip(metas, scalars, strict=True)
        ]


def carry_out(
    graph: LogicalGraph, inputs: Sequence[Value], state: Mapping[int, Value], scalars: Sequence[Value]
) -> tuple[list[Value], dict[int, Value]]:
    """As `execute`, from the values of the variables (by index) and of the scalars."""
    steps = graph.steps
    known = {
        key(lazy): spread(real, steps, input_sbp(real.meta, steps))
        for lazy, real in zip(graph.inputs, inputs, strict=True)
    }
    for i, value in state.items():
        variable = graph.variables[i].value
        assert variable is not None
        known[key(variable)] = spread(value, steps, broadcast)
    known.update({key(lazy): real for lazy, real in zip(graph.scalars, scalars, strict=True)})
    last = _last_uses(graph)
    generator = settings().generator
    assert isinstance(generator, Generator)
    with Override(grad=False, interpreters=(), world=TimeWorld(settings().world, steps)):
        for i, node in enumerate(graph.nodes):
            operands = tuple(known.get(key(value), value) for value in node.inputs)
            attrs = drawn(node.attrs, generator) if node.primitive.random else node.attrs
            for lazy, real in zip(node.outputs, EAGER.bind(node.primitive, operands, attrs), strict=True):
                known[key(lazy)] = real
            for gone in last.get(i, ()):
                known.pop(gone, None)
    generator.next_global += graph.draws[0]
    generator.next_local += graph.draws[1]
    outputs = [gathered(known.get(key(value), value)) for value in graph.outputs]
    updates = {
        i: gathered(known.get(key(v.update), v.update)) for i, v in enumerate(graph.variables) if v.update is not None
    }
    return outputs, updates


def _last_uses(graph: LogicalGraph) -> dict[int, list[int]]:
    """node index -> the values (by id) nobody needs afterwards."""
    final = {key(value) for value in graph.results()}
    where: dict[int, int] = {}
    for i, node in enumerate(graph.nodes):
        for value in (*node.inputs, *node.outputs):
            where[key(value)] = i
    freed: dict[int, list[int]] = {}
    for mark, i in where.items():
        if mark not in final:
            freed.setdefault(i, []).append(mark)
    return freed


def run_plan(
    graph: LogicalGraph, compiled: Compiled, inputs: Sequence[Value], scalars: Sequence[float], **options: Any
) -> tuple[list[Value], dict[int, Value], Result]:
    """As `execute`, by the actors of the compiled plan; `options` are the run's (schedule, log …) (ACT-SAME).

    Errors: the `DataError` that `execute` raises, on every rank (ERR-AGREED).
    """
    call = compiled.call
    generator = settings().generator
    assert isinstance(generator, Generator)
    call.generator = generator
    call.scalars = {key(lazy): number for lazy, number in zip(graph.scalars, scalars, strict=True)}
    call.shards = _entering(graph, inputs)
    try:
        with Override(grad=False, interpreters=()):
            result = _act(compiled, options)
    except DataError as error:
        raise _in_program_order(graph, inputs, scalars, error) from None
    generator.next_global += graph.draws[0]
    generator.next_local += graph.draws[1]

    def left(value: Value) -> Value:
        sinks = compiled.sinks[key(value)]
        shards = {rank: result.outputs[sinks[rank]][-1] for rank in settings().world.owned if rank in sinks}
        placement = value.meta.placement
        assert isinstance(placement, TimedPlacement) and value.meta.sbp is not None
        return Value(value.meta.with_layout(placement.base, value.meta.sbp[:-1]), shards)

    updates = {i: left(v.update) for i, v in enumerate(graph.variables) if v.update is not None}
    return [left(value) for value in graph.outputs], updates, result


def _in_program_order(
    graph: LogicalGraph, inputs: Sequence[Value], scalars: Sequence[float], error: DataError
) -> DataError:
    """The error of the first operation in the program, and rank, that refuses its data: which actor met one first is chance.

    Every process comes here, and the interpreter agrees on the error as it goes.
    """
    generator = settings().generator
    assert isinstance(generator, Generator)
    draws = generator.next_global, generator.next_local
    try:
        execute(graph, inputs, scalars)
    except DataError as first:
        return first
    generator.next_global, generator.next_local = draws
    return error


def _act(compiled: Compiled, options: Mapping[str, Any]) -> Result:
    """Runs the actors of the owned ranks; with processes beside this one, packets travel between them (ACT-MPI)."""
    world, kernels = settings().world, on_streams(compiled)
    if len(world.owned) == world.size:
        return Run(compiled.plan, kernels, **options).run()
    world.agree(f"graph {compiled.plan.name}, plan {compiled.digest[:16]}", dict.fromkeys(world.owned))  # the rendezvous compares
    transport = MpiTransport(world, f"running plan {compiled.plan.name}")
    here = [rank for rank in world.owned if rank in compiled.plan.ranks]
    run = Run(compiled.plan, kernels, ranks=here, transport=transport, **options)
    return run_part(run, world, transport)


def on_streams(compiled: Compiled) -> Mapping[str, Payload]:
    """The payloads of a plan, each carried out on its task's stream by the back ends that have streams (KER-STREAM)."""
    backends = {id(b): b for b in settings().backends.values() if hasattr(b, "stream")}.values()
    if not backends:
        return compiled.kernels

    def placed(kernel: Payload, stream: str) -> Payload:
        def run(*arguments: Any) -> Any:
            with ExitStack() as streams:
                for backend in backends:
                    streams.enter_context(backend.stream(stream))
                return kernel(*arguments)

        return run

    tasks = (task for task in compiled.plan.tasks if task.payload)
    return {task.payload: placed(compiled.kernels[task.payload], task.stream) for task in tasks}


def _entering(graph: LogicalGraph, inputs: Sequence[Value]) -> dict[int, Mapping[int, Array]]:
    """The shards of everything the graph reads, on [ranks, steps], by key of the lazy value."""
    steps = graph.steps
    given = {key(v): spread(r, steps, input_sbp(r.meta, steps)) for v, r in zip(graph.inputs, inputs, strict=True)}
    given.update({key(v.value): spread(v.cell.value, steps, broadcast) for v in graph.variables if v.value is not None})
    constants = {key(v): v for n in graph.nodes for v in n.inputs if not isinstance(v.shards, Unborn)}
    constants.update({key(v): v for v in graph.results() if not isinstance(v.shards, Unborn)})
    return {mark: value.shards for mark, value in {**constants, **given}.items()}
