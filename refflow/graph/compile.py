"""The compiler: a logical graph becomes a plan of tasks, registers and messages, and the payloads its tasks run.

Implements PLAN-COMPILE, PLAN-TIME and TIME-REFUSED of spec/text/plan.md.  A node becomes one task a rank; a
boxing becomes cuts, messages and assemblies; the axis of micro-steps becomes rates: what varies along it acts once a
micro-step, the rest once a call, with repeat, acc and pack between them.
"""

from __future__ import annotations

import gc
import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

from ..boxing.run import Moved
from ..errors import GraphError
from ..ir import Node, Value, lower
from ..kernels import Array
from ..random import Generator
from ..runtime.clock import Machine
from ..state import settings
from .buffers import buffered
from .flops import flops
from .logical import LogicalGraph, key
from .memory import place
from .moves import Moves
from .order import ORDERS, ordered
from .plan import Plan
from .proofs.messages import derive
from .tasks import Payload, backend_of, ranks_of
from .time import varies

UNIT = Machine(Fraction(1), Fraction(1), Fraction(1))
"""What register numbers are chosen for: a unit of time for a flop, for a byte moved, and for every action."""


@dataclass
class Call:
    """What one call of the graph brings along: the shards of inputs, variables and constants, scalars, the generator."""

    shards: dict[int, Mapping[int, Array]] = field(default_factory=dict)  # by key of the lazy value, on [ranks, steps]
    scalars: dict[int, float] = field(default_factory=dict)
    generator: Generator | None = None


@dataclass(frozen=True, eq=False)
class Compiled:
    """A plan, its payloads, and where the results come out: (sink name, rank) of each result, by key of the value.

    What is refused is refused before; the plan is decided when it is first asked for, since a program needs none.
    """

    decide: Callable[[], Plan]
    kernels: Mapping[str, Payload]
    sinks: Mapping[int, Mapping[int, str]]
    call: Call
    moves: tuple[Moved, ...] = ()  # what travels between ranks in a call: what a communication log lists

    @cached_property
    def plan(self) -> Plan:
        """The tasks in order, with register numbers, messages and places in memory."""
        with _nothing_is_garbage():
            return self.decide()

    @cached_property
    def digest(self) -> str:
        """A checksum of the plan: processes that run parts of it must have the same."""
        return hashlib.sha256(str(self.plan).encode()).hexdigest()


def compile_graph(graph: LogicalGraph, *, order: str = "1f1b", buffers: bool = True) -> Compiled:
    """The plan of `graph`, its streams in this order (`ORDERS`).  Without `buffers` all register numbers are 1.

    Errors: `GraphError` where a value would have to be known over all micro-steps in the middle of the graph.
    """
    if order not in ORDERS:
        raise GraphError(f"{graph.name}: the order of a plan is one of {', '.join(ORDERS)}, found {order!r}")
    with _nothing_is_garbage():
        return _Compiler(graph, order, buffers).run()


@contextmanager
def _nothing_is_garbage() -> Iterator[None]:
    """All that compiling makes stays: to look through it for garbage, again and again, would take longer than to make it."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


class _Compiler(Moves):
    def __init__(self, graph: LogicalGraph, order: str, buffers: bool) -> None:
        super().__init__(graph, graph.steps if buffers else 1)
        self.order, self.buffers = order, buffers
        self.call = Call()
        self.scalars = frozenset(map(key, graph.scalars))
        self.starts: dict[int, list[int]] = {}  # rank -> the tasks that load what is loaded once a call
        self.ends: dict[int, list[int]] = {}  # rank -> the tasks that store results

    def run(self) -> Compiled:
        known = {key(v) for n in self.graph.nodes for v in n.outputs}
        sources = {key(value): value for value in self.graph.scalars}
        sources |= {key(v): v for n in self.graph.nodes for v in n.inputs if key(v) not in known}
        sources |= {key(v): v for v in self.graph.results() if key(v) not in known}
        for i, value in enumerate(sources.values()):
            self._source(value, i)
        for node in self.graph.nodes:
            self._enter(max((self.reached.get(key(value), 0) for value in node.inputs), default=0))
            self.reached.update(dict.fromkeys(map(key, node.outputs), self._wave_of(node)))
            special = {"to_global": self._boxing, "at_step": self._at_step}
            special.get(node.primitive.name, self._compute)(node)
        results = {key(value): value for value in self.graph.results()}
        sinks = {mark: self._sink(value, i) for i, (mark, value) in enumerate(results.items())}
        self._one_call_at_a_time()
        self._enter(0)
        return Compiled(self._decided, self.kernels, sinks, self.call, tuple(self.moves))

    def _decided(self) -> Plan:
        """The plan with what is decided of it as a whole: orders, register numbers, messages, places in memory."""
        plan = ordered(self.builder.plan(messages=()), self.waves, self.order)
        if self.buffers:
            plan = buffered(plan, {task.id: 1 + UNIT.action(plan, task) for task in plan.tasks})
        return place(replace(plan, messages=derive(plan)))

    def _one_call_at_a_time(self) -> None:
        """A rank loads for the next call only when it has stored this one's results: so memory can be used again."""
        for rank, ends in self.ends.items():
            if rank not in self.starts:
                continue  # all it loads, it loads once a micro-step
            end = self.builder.task(f"end@{rank}", rank=rank, kind="tick", stream="copy")
            for task in ends:
                self.builder.control(task, end)
            again = self.builder.register(f"again@{rank}", end, kind="ctrl", initial=1)
            for task in self.starts[rank]:
                self.builder.feed(again, task)

    def _source(self, value: Value, index: int) -> None:
        """Inputs, variables, constants and scalars enter the plan (once a micro-step if they vary over them)."""
        call, mark, meta = self.call, key(value), value.meta
        scalar = mark in self.scalars
        for rank in ranks_of(meta):

            def payload(at: Any, rank: int = rank) -> Array:
                if scalar:
                    make = backend_of(meta).kernel("full")
                    return make(shape=(), value=call.scalars[mark], dtype=meta.dtype)
                return call.shards[mark][rank * self.steps + at.position]

            name = f"load {index} {self._name(value)}@{rank}"
            task = self._task(name, rank, payload, kind="source", stream="copy")
            self._holds(value, rank, task)
            if not varies(meta) or self.steps == 1:
                self.starts.setdefault(rank, []).append(task)

    def _sink(self, value: Value, index: int) -> dict[int, str]:
        """A result leaves the plan: rank -> name of the sink."""
        found = {}
        for rank in ranks_of(value.meta):
            name = f"store {index} {self._name(value)}@{rank}"
            held = self.at[key(value), rank]
            task = self.builder.task(name, rank=rank, kind="sink", stream="copy", inputs=[held])
            self.ends.setdefault(rank, []).append(task)
            found[rank] = name
        return found

    def _compute(self, node: Node) -> None:
        """A primitive becomes a task on each rank: once a micro-step if anything of it varies, else once a call."""
        metas = tuple(value.meta for value in node.inputs)
        state = settings()
        lowered = lower(node.primitive, metas, node.attrs, state.signatures, False)
        (output,) = node.outputs
        micro = self.steps > 1 and any(varies(m) for m in (*metas, output.meta))
        kernel = backend_of(output.meta).kernel(node.primitive.name)
        call, steps, random = self.call, self.steps, node.primitive.random
        for rank in ranks_of(output.meta):
            reads = [self._read(value, rank, micro) for value in node.inputs]
            registers = list(dict.fromkeys(reads))  # x * x reads one register, once
            places = tuple(registers.index(register) for register in reads)

            def payload(at: Any, *held: Array, rank: int = rank, places: tuple[int, ...] = places) -> Array:
                arrays = [held[place] for place in places]
                attrs = lowered.calls[rank * steps + (at.position if micro else 0)]
                return kernel(*arrays, **(drawn(attrs, call.generator) if random else attrs))

            name = f"{node.primitive.name} {self._name(output)}@{rank}"
            kind = "compute" if reads else "source"  # what is made is made once: nothing made varies over micro-steps
            task = self._task(name, rank, payload, registers, kind=kind, flops=flops(node, rank * steps))
            self._holds(output, rank, task)
            if not self.late.isdisjoint(registers):
                self.late.add(self.at[key(output), rank])


def drawn(attrs: Mapping[str, Any], generator: Generator | None) -> dict[str, Any]:
    """A traced draw, moved from the ordinal it was traced at to the generator's present one (GRAPH-RANDOM)."""
    assert generator is not None
    base = generator.next_local if attrs["stream"] % 2 else generator.next_global
    return {**attrs, "seed": generator.seed, "stream": attrs["stream"] + 2 * base}
