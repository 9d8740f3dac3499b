"""Compiled programs: a graph's call, carried out natively from its second time on.

Implements ACC-PROGRAM, ACC-EXCHANGE and ACC-CUDA-PROGRAM of spec/text/acceleration.md, as far as they are one.  The first
call is the interpreter's, recorded; what it asked of the back end goes through the passes, and later calls are a runner's:
`native` on the CPU, `cuda.program` on CUDA.  Data that a runner refuses are the interpreter's again, which raises the error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol
from zlib import crc32

from refflow.graph.execute import carry_out, execute, numbered
from refflow.graph.logical import LogicalGraph
from refflow.ir import Value
from refflow.kernels import Array, Backend
from refflow.state import Override, settings

from .exchange import RecordingWorld, all_can_compile, alone, enter_history
from .local import Done, LocalCall, LocalProgram, RecordingBackend, Results, Where
from .passes import optimized


class Runner(Protocol):
    """What carries a local program out: each back end has its own."""

    def __call__(self, graph: LogicalGraph, inputs: Sequence[Value], scalars: Sequence[float]) -> Done | None:
        """One call; None if data were refused: nothing has changed then."""


class CompiledProgram:
    """One traced graph on one back end; call it with the inputs and scalars of a call.

    `runner` makes of the recorded call what carries out the later ones, `passes` are the rewrites before.  The first call
    is recorded, the second made ready and run; where processes take part, the first is a collective of all of them.
    Errors: those of the graph's primitives.  Source: ACC-PROGRAM, ACC-EXCHANGE.
    """

    def __init__(
        self,
        graph: LogicalGraph,
        backend: Backend,
        runner: Callable[[LocalProgram, Sequence[Where], Results, Backend], Runner],
        passes: Callable[[LocalProgram], LocalProgram] = optimized,
    ) -> None:
        self.graph, self.backend = graph, backend
        self._make_runner, self._passes = runner, passes
        self._recorded: Recorded | None = None
        self._runner: Runner | None = None
        self._mark = crc32(str(graph).encode())  # the same in every process
        self._interpreted = False  # whether the interpreter must do it for ever

    def __call__(self, inputs: Sequence[Value], scalars: Sequence[float]) -> Done:
        """Outputs, and the next values of the variables by index."""
        if self._interpreted:
            return execute(self.graph, inputs, scalars)
        if self._recorded is None:
            return self._record(inputs, scalars)
        if self._runner is None:
            recorded = self._recorded
            self._runner = self._make_runner(recorded.program, recorded.given, recorded.results, self.backend)
        if not alone():
            enter_history(self.graph, self._mark, scalars)
        done = self._runner(self.graph, inputs, scalars)
        return execute(self.graph, inputs, scalars) if done is None else done  # bad data: the kernels of the reference tell

    def pieces(self) -> tuple[LocalProgram, list[tuple[LocalCall, str, Callable[[], Any]]]]:
        """The local program, and what a native call runs, piece by piece: for profiles, once it has run on the CPU."""
        from .native import Native  # late: it compiles for the CPU

        assert self._recorded is not None and isinstance(self._runner, Native)
        return self._recorded.program, self._runner.pieces()

    def _record(self, inputs: Sequence[Value], scalars: Sequence[float]) -> Done:
        """The first call: the interpreter's, seen by a recording back end and a recording world."""
        graph, generator = self.graph, settings().generator
        state = {i: v.cell.value for i, v in enumerate(graph.variables) if v.value is not None}
        given: dict[Where, Array] = {}
        seen_inputs = [_seen(value, "input", i, given) for i, value in enumerate(inputs)]
        seen_scalars = [_seen(value, "scalar", i, given) for i, value in enumerate(numbered(graph, scalars))]
        seen_state = {i: _seen(value, "variable", i, given) for i, value in state.items()}
        first: dict[int, Where] = {}  # by array: ranks that share one read it once
        for where, array in given.items():
            first.setdefault(id(array), where)
        sources = list(first.values())
        ordinals = generator.next_global, generator.next_local
        recorder = RecordingBackend(self.backend, [given[where] for where in sources], ordinals)
        backends = {type: recorder if one is self.backend else one for type, one in settings().backends.items()}
        world = settings().world
        with Override(backends=backends, world=RecordingWorld(world, recorder)):
            outputs, updates = carry_out(graph, seen_inputs, seen_state, seen_scalars)
        if not all_can_compile(recorder):
            self._interpreted = True
            return outputs, updates
        results = _results(recorder, outputs, updates, state)
        program = recorder.program
        program.results = list(dict.fromkeys(number for _, shards in results.values() for number in shards.values()))
        self._recorded = Recorded(self._passes(program), sources, results)
        return outputs, updates


@dataclass(frozen=True)
class Recorded:
    """A local program after the passes, where its given arrays come from, and what its results are."""

    program: LocalProgram
    given: list[Where]
    results: Results


def _results(
    recorder: RecordingBackend, outputs: Sequence[Value], updates: Mapping[int, Value], state: Mapping[int, Value]
) -> Results:
    """Metas and array numbers of what a recorded call returned; `state` has the variables' values before it."""
    made: dict[tuple[str, int], Value] = {("output", i): value for i, value in enumerate(outputs)}
    made.update({("update", i): value for i, value in updates.items()})
    results = {}
    for key, value in made.items():
        meta = value.meta
        if key[0] == "update" and key[1] in state and state[key[1]].meta == meta:
            meta = state[key[1]].meta  # one object for equal metas: quick to compare
        results[key] = meta, {rank: recorder.number(array) for rank, array in value.shards.items()}
    return results


def _seen(value: Value, kind: str, index: int, given: dict[Where, Array]) -> Value:
    """`value` with arrays of its own identity: no other value's, though they may share memory."""
    views: dict[int, Array] = {}
    shards = {}
    for rank, array in value.shards.items():
        shards[rank] = given[kind, index, rank] = views.setdefault(id(array), array.view())
    return Value(value.meta, shards)
