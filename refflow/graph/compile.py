"""The compiler: a logical graph becomes a plan of tasks, registers and messages, and the payloads its tasks run.

Implements PLAN-COMPILE, PLAN-TIME, PLAN-BOXING and TIME-REFUSED of spec/text/plan.md.  A node becomes one task a rank; a
boxing becomes cuts, messages and assemblies; the axis of micro-steps becomes rates: what varies along it acts once a
micro-step, the rest once a call, with repeat, acc and pack between them.
"""

from __future__ import annotations

import gc
import hashlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, cast

from ..boxing import Layout, Step
from ..boxing import plan as boxing_plan
from ..boxing.plan import Piece
from ..boxing.run import Moved, assembled
from ..errors import GraphError
from ..ir import Meta, Node, Value, lower
from ..kernels import Array
from ..layout import Partial, Placement, Split, broadcast
from ..numerics import identity
from ..random import Generator
from ..runtime.clock import Machine
from ..state import settings
from .buffers import buffered
from .flops import flops
from .logical import LogicalGraph, key
from .memory import place
from .order import ORDERS, ordered
from .plan import Plan, PlanBuilder
from .proofs.messages import derive
from .refusal import needed_at_once
from .time import TimedPlacement

Payload = Callable[..., Any]

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
    """A plan, its payloads, and where the results come out: (sink name, rank) of each result, by key of the value."""

    plan: Plan
    kernels: Mapping[str, Payload]
    sinks: Mapping[int, Mapping[int, str]]
    call: Call
    moves: tuple[Moved, ...] = ()  # what travels between ranks in a call: what a communication log lists

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


class _Compiler:
    def __init__(self, graph: LogicalGraph, order: str, buffers: bool) -> None:
        self.graph, self.steps, self.order, self.buffers = graph, graph.steps, order, buffers
        self.number = graph.steps if buffers else 1  # of what varies over micro-steps, until `buffered` knows better
        self.builder = PlanBuilder(graph.name)
        self.wave = 0  # of the tasks that are being made: how many borders between stages were crossed (PLAN-ORDER)
        self.waves: list[int] = []  # of each task
        self.reached: dict[int, int] = {}  # key of a value -> the wave in which it is made
        self.kernels: dict[str, Payload] = {}
        self.call = Call()
        self.at: dict[tuple[int, int], int] = {}  # (key of a value, rank) -> register that holds it
        self.repeated: dict[int, int] = {}  # register filled once a call -> the one that repeats it each micro-step
        self.late: set[int] = set()  # registers that are filled only once all micro-steps are over
        self.packed: dict[int, int] = {}  # register filled each micro-step -> the one with the list of all it held
        self.names = graph.names()
        self.moves: list[Moved] = []
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
        return Compiled(self._decided(), self.kernels, sinks, self.call, tuple(self.moves))

    def _decided(self) -> Plan:
        """The plan with what is decided of it as a whole: orders, register numbers, messages, places in memory."""
        plan = ordered(self.builder.plan(messages=()), self.waves, self.order)
        if self.buffers:
            plan = buffered(plan, {task.id: 1 + UNIT.action(plan, task) for task in plan.tasks})
        return place(replace(plan, messages=derive(plan)))

    def _enter(self, wave: int) -> None:
        """The tasks made from now on are of this wave."""
        self.waves += [self.wave] * (self.builder.size - len(self.waves))
        self.wave = wave

    def _wave_of(self, node: Node) -> int:
        """The wave of a node's output: that of its inputs, one later if it lies elsewhere than they."""
        (output,) = node.outputs
        moved = any(value.meta.placement != output.meta.placement for value in node.inputs)
        return self.wave + moved

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

    # --- naming and registers -----------------------------------------------------------------------------------------

    def _name(self, value: Value) -> str:
        return self.names.get(key(value), "constant")

    def _bytes(self, meta: Meta, rank: int) -> int:
        """Bytes of one register of a value on a rank: its part in micro-step 0, the largest."""
        from ..layout import boxes, volume

        placement, sbp = _layout(meta)
        return volume(boxes(meta.shape, placement, sbp)[rank * self.steps]) * meta.dtype.itemsize

    def _task(self, name: str, rank: int, payload: Payload | None, inputs: Sequence[int] = (), **more: Any) -> int:
        if payload is not None:
            self.kernels[name] = payload
        return self.builder.task(name, rank=rank, payload=name if payload else "", inputs=inputs, **more)

    def _holds(self, value: Value, rank: int, task: int) -> None:
        """Declares the register in which `task` leaves a value."""
        number = self.number if varies(value.meta) else 1
        name = f"{self._name(value)}@{rank}"
        self.at[key(value), rank] = self.builder.register(
            name, task, number=number, bytes=self._bytes(value.meta, rank)
        )

    def _read(self, value: Value, rank: int, micro: bool) -> int:
        """The register to read a value from, once a micro-step or once a call."""
        register = self.at[key(value), rank]
        if not micro or varies(value.meta) or self.steps == 1:
            return register
        if register in self.late:
            raise needed_at_once(self.graph, value)
        if register not in self.repeated:
            name = f"repeat {self._name(value)}@{rank}"
            task = self._task(name, rank, None, [register], kind="repeat", count=self.steps)
            self.repeated[register] = self.builder.register(
                name, task, number=self.number, bytes=self._bytes(value.meta, rank), in_place=register
            )
        return self.repeated[register]

    # --- tasks ------------------------------------------------------------------------------------------------------

    def _source(self, value: Value, index: int) -> None:
        """Inputs, variables, constants and scalars enter the plan (once a micro-step if they vary over them)."""
        call, mark, meta = self.call, key(value), value.meta
        scalar = mark in {key(s) for s in self.graph.scalars}
        for rank in _ranks(meta):

            def payload(at: Any, rank: int = rank) -> Array:
                if scalar:
                    make = _backend(meta).kernel("full")
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
        for rank in _ranks(value.meta):
            name = f"store {index} {self._name(value)}@{rank}"
            held = self.at[key(value), rank]
            task = self.builder.task(name, rank=rank, kind="sink", stream="copy", inputs=[held])
            self.ends.setdefault(rank, []).append(task)
            found[rank] = name
        return found

    def _compute(self, node: Node) -> None:
        metas = tuple(value.meta for value in node.inputs)
        state = settings()
        lowered = lower(node.primitive, metas, node.attrs, state.signatures, False)
        (output,) = node.outputs
        micro = self.steps > 1 and any(varies(m) for m in (*metas, output.meta))
        kernel = _backend(output.meta).kernel(node.primitive.name)
        call, steps, random = self.call, self.steps, node.primitive.random
        for rank in _ranks(output.meta):
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

    def _boxing(self, node: Node) -> None:
        """A move: over micro-steps first (acc, pack), then between ranks, then into micro-steps again (a cut)."""
        (value,), (output,) = node.inputs, node.outputs
        before, after = _time_sbp(value.meta), _time_sbp(output.meta)
        if before == after or self.steps == 1:
            self._space(node, value, output)
            return
        if isinstance(before, Split):
            self._refuse_middle(node, output)
        whole = self._over_time(node, value) if before != broadcast else value
        if after == broadcast:
            self._space(node, whole, output)
            return
        placement, sbp = _layout(output.meta)
        moved = Value(output.meta.with_layout(placement, (*sbp[:-1], broadcast)), type(output.shards)())
        self.names[key(moved)] = f"{self._name(output)}.whole"
        self._space(node, whole, moved)
        self._into_time(moved, output)

    def _over_time(self, node: Node, value: Value) -> Value:
        """A value that varies over micro-steps, made one: P folds by the canonical tree (acc), S is put together (pack)."""
        placement, sbp = _layout(value.meta)
        along = sbp[-1]
        whole = Value(value.meta.with_layout(placement, (*sbp[:-1], broadcast)), type(value.shards)())
        self.names[key(whole)] = f"{self._name(value)}.all"
        backend = _backend(value.meta)
        for rank in _ranks(value.meta):
            name = f"{'acc' if isinstance(along, Partial) else 'pack'} {self._name(value)}@{rank}"
            if isinstance(along, Partial):

                def add(at: Any, left: Array, right: Array, kind: str = along.kind) -> Array:
                    return backend.kernel("fold")(left, right, kind=kind)

                kind, payload = "acc", cast(Payload, add)
            else:

                def join(at: Any, *parts: Array, rank: int = rank) -> Array:
                    return _joined(parts, value.meta, rank, self.steps)

                kind, payload = "pack", cast(Payload, join)
            task = self._task(name, rank, payload, [self.at[key(value), rank]], kind=kind, count=self.steps)
            self._holds(whole, rank, task)
            self.late.add(self.at[key(whole), rank])
        return whole

    def _at_step(self, node: Node) -> None:
        """What one micro-step holds, taken out of a list of what all hold (TIME-PARTS)."""
        (value,), (output,), step = node.inputs, node.outputs, node.attrs["step"]
        for rank in _ranks(value.meta):
            register = self.at[key(value), rank]
            if register not in self.packed:
                name = f"steps {self._name(value)}@{rank}"
                task = self._task(name, rank, lambda at, *parts: list(parts), [register], kind="pack", count=self.steps)
                size = self.steps * self._bytes(value.meta, rank)
                self.packed[register] = self.builder.register(name, task, bytes=size)
            name = f"at_step {self._name(output)}@{rank}"
            task = self._task(name, rank, lambda at, parts: parts[step], [self.packed[register]])
            self._holds(output, rank, task)
            self.late.add(self.at[key(output), rank])

    def _into_time(self, whole: Value, output: Value) -> None:
        """Each micro-step takes its part of a value that is whole."""
        from ..layout import boxes, within

        placement, sbp = _layout(output.meta)
        parts, all_of = boxes(output.meta.shape, placement, sbp), boxes(output.meta.shape, *_layout(whole.meta))
        cut = _backend(output.meta).kernel("slice_box")
        fill = _backend(output.meta).kernel("full")
        along = sbp[-1]
        for rank in _ranks(output.meta):

            def payload(at: Any, array: Array, rank: int = rank) -> Array:
                here = rank * self.steps + at.position
                if isinstance(along, Partial):
                    shape = tuple(hi - lo for lo, hi in parts[here])
                    neutral = identity(along.kind, output.meta.dtype)
                    return array if at.position == 0 else fill(shape=shape, value=neutral, dtype=output.meta.dtype)
                return cut(array, slices=within(parts[here], all_of[here]))

            inputs = [self._read(whole, rank, True)]
            self._holds(output, rank, self._task(f"part {self._name(output)}@{rank}", rank, payload, inputs))

    def _space(self, node: Node, value: Value, output: Value) -> None:
        """A move between ranks, alike in every micro-step: cuts and messages at the source, an assembly at the target."""
        micro = self.steps > 1 and varies(value.meta)
        moves = boxing_plan(value.meta.shape, Layout(*_layout(value.meta)), Layout(*_layout(output.meta)))
        if not moves.steps:
            for rank in _ranks(value.meta):
                self.at[key(output), rank] = self.at[key(value), rank]
            return
        if micro and any(piece.source % self.steps != rank % self.steps for s in moves.steps for rank, piece in s.pieces()):
            raise needed_at_once(self.graph, output, node)
        here = {rank: self.at[key(value), rank] for rank in _ranks(value.meta)}
        source, target = (Layout(before.placement.base, before.sbp[:-1]) for before in (moves.source, moves.target))
        for i, step in enumerate(moves.steps):
            self.moves += [
                Moved(step.kind, travelling(step, m, self.steps) * value.meta.dtype.itemsize, source, target)
                for m in range(self.steps if micro else 1)
            ]
            late = not self.late.isdisjoint(here.values())
            wave = self.reached[key(output)] if i + 1 == len(moves.steps) and key(output) in self.reached else self.wave
            here = self._step(f"{step.kind} {self._name(output)}.{i}", step, here, output.meta, micro, wave)
            self.late.update(here.values() if late else ())
        for rank in _ranks(output.meta):
            self.at[key(output), rank] = here[rank]

    def _step(
        self, name: str, step: Step, here: Mapping[int, int], meta: Meta, micro: bool, wave: int
    ) -> dict[int, int]:
        steps, backend = self.steps, _backend(meta)
        wanted: dict[tuple[int, int], None] = {}
        for target, assembly in step.assemblies.items():
            if not micro and target % steps:
                continue
            for addend in assembly.addends:
                for piece in addend:
                    wanted[piece.source // steps, target // steps] = None
        reached = {target for _, target in wanted}
        for rank in dict.fromkeys(target // steps for target in step.assemblies):
            if rank not in reached:  # it makes only the identity: an empty bundle tells it when
                wanted[rank if rank in here else next(iter(here)), rank] = None
        arrived: dict[tuple[int, int], int] = {}
        for source, target in wanted:
            arrived[source, target] = self._cut(name, step, here[source], source, target, micro, meta)
        made = {}
        self._enter(wave)
        for rank in dict.fromkeys(t // steps for t in step.assemblies):
            sources = [source for source, target in wanted if target == rank]

            def payload(at: Any, *bundles: Any, rank: int = rank, sources: list[int] = sources) -> Array:
                target = rank * steps + (at.position if micro else 0)
                queues = {source: iter(bundle) for source, bundle in zip(sources, bundles, strict=True)}
                assembly = step.assemblies[target]
                parts = [next(queues[piece.source // steps]) for addend in assembly.addends for piece in addend]
                return assembled(step, assembly, parts, meta.dtype, backend)

            inputs = [arrived[source, rank] for source in sources]
            task = self._task(f"{name}@{rank}", rank, payload, inputs)
            number = self.number if micro else 1
            size = max(math.prod(step.assemblies[rank * steps + m].shape) for m in range(steps if micro else 1))
            made[rank] = self.builder.register(f"{name}@{rank}", task, number=number, bytes=size * meta.dtype.itemsize)
        return made

    def _cut(self, name: str, step: Step, register: int, source: int, target: int, micro: bool, meta: Meta) -> int:
        """The pieces of `source` that `target` needs, cut and sent; the register they arrive in."""
        steps, cut, itemsize = self.steps, _backend(meta).kernel("slice_box"), meta.dtype.itemsize

        def pieces(m: int) -> list[Piece]:
            addends = step.assemblies[target * steps + m].addends
            return [piece for addend in addends for piece in addend if piece.source // steps == source]

        def payload(at: Any, array: Array) -> list[Array]:
            return [cut(array, slices=piece.source_slices) for piece in pieces(at.position if micro else 0)]

        number = self.number if micro else 1
        title = f"{name} cut {source}>{target}"
        task = self._task(title, source, payload, [register])
        size = max(sum(piece.elements for piece in pieces(m)) for m in range(steps if micro else 1))
        moved = self.builder.register(title, task, number=number, bytes=size * itemsize)
        if source == target:
            return moved
        return self.builder.message(
            moved, target, capacity=number, number=number, name=title, streams=("comm>", "comm<")
        )

    def _refuse_middle(self, node: Node, output: Value) -> None:
        """Only a result may be put together over micro-steps: anything else would wait for the whole batch (TIME-REFUSED)."""
        results = {key(value) for value in self.graph.results()}
        used = any(key(output) in map(key, other.inputs) for other in self.graph.nodes)
        if used or key(output) not in results:
            raise needed_at_once(self.graph, output, node)


def travelling(step: Step, micro: int, steps: int) -> int:
    """The elements that a step moves between different ranks in one micro-step."""
    return sum(
        piece.elements
        for target, assembly in step.assemblies.items()
        if target % steps == micro
        for addend in assembly.addends
        for piece in addend
        if piece.source // steps != target // steps
    )


def varies(meta: Meta) -> bool:
    """Whether a value differs from micro-step to micro-step."""
    return bool(_time_sbp(meta) != broadcast)


def _time_sbp(meta: Meta) -> Any:
    return _layout(meta)[1][-1]


def _layout(meta: Meta) -> tuple[Placement, Any]:
    assert meta.placement is not None and meta.sbp is not None
    return meta.placement, meta.sbp


def _ranks(meta: Meta) -> tuple[int, ...]:
    assert isinstance(meta.placement, TimedPlacement)
    return meta.placement.base.ranks


def _backend(meta: Meta) -> Any:
    return settings().backend(_layout(meta)[0].type)


def _joined(parts: Sequence[Array], meta: Meta, rank: int, steps: int) -> Array:
    """What one rank holds of a value in all its micro-steps, put together; their parts tile it."""
    from ..layout import box_shape, boxes, within

    placement, sbp = _layout(meta)
    here = boxes(meta.shape, placement, sbp)
    whole = boxes(meta.shape, placement, (*sbp[:-1], broadcast))[rank * steps]
    places = [within(here[rank * steps + m], whole) for m in range(steps)]
    assemble = _backend(meta).kernel("assemble")
    fill = identity("sum", meta.dtype)
    return assemble(*parts, shape=box_shape(whole), slices=places, fill=fill, dtype=meta.dtype)


def drawn(attrs: Mapping[str, Any], generator: Generator | None) -> dict[str, Any]:
    """A traced draw, moved from the ordinal it was traced at to the generator's present one (GRAPH-RANDOM)."""
    assert generator is not None
    base = generator.next_local if attrs["stream"] % 2 else generator.next_global
    return {**attrs, "seed": generator.seed, "stream": attrs["stream"] + 2 * base}
