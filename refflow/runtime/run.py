"""A run of a plan: actors, the bus between them, and the loop; one thread of control.

Implements ACT-BUS, ACT-START, ACT-QUIET and ACT-INITIAL of spec/text/actors.md.  A run may hold the actors of some ranks
only; a `Transport` then carries the messages to and from the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from ..graph.plan import DeadlockError, Plan, PlanError
from ..graph.proofs.memory import roots, size
from ..graph.proofs.rates import actions
from .actor import ACK, DONE, EORD, POST, READY, Actor, Edge, In, InvariantError, Out, Register, Turns
from .events import Event
from .schedules import Canonical, Schedule
from .stuck import why_stuck
from .work import Kernels, work_of


class Packet(NamedTuple):
    """A message between processes (ACT-PACKET): `edge` and `register` as numbered by the plan, the same everywhere."""

    edge: int
    kind: int
    register: int
    token: int
    number: int
    clock: int
    content: Any


class Transport(Protocol):
    """Carries packets between processes: each edge's in order, across edges in any."""

    def send(self, rank: int, packet: Packet) -> None:
        """Takes a packet for the process that owns `rank`; never waits."""
        ...

    def receive(self) -> Iterable[Packet]:
        """What has arrived; never waits."""
        ...


@dataclass
class Result:
    """What a run gave: `outputs` of each task that has results, by name, in order; `final` contents of registers that
    started full, by register name; the number of steps and actions; the events, if they were asked for.
    """

    outputs: dict[str, list[Any]]
    final: dict[str, list[Any]]
    steps: int
    actions: int
    events: list[Event] = field(repr=False, default_factory=list)


class Run:
    """A plan in action.

    `kernels` maps payloads to callables (None: null kernels, contents are None).  `initial` gives, by register name, the
    contents of registers that start full.  `ranks` and `transport`: the part of the plan that this process runs.
    `actor` may be another class of actor: how deliberate faults are made.
    """

    def __init__(
        self,
        plan: Plan,
        kernels: Kernels | None = None,
        *,
        iterations: int | None = None,
        schedule: Schedule | None = None,
        initial: Mapping[str, Sequence[Any]] | None = None,
        log: bool = False,
        ranks: Iterable[int] | None = None,
        transport: Transport | None = None,
        actor: Callable[[Run, Any, int, int], Actor] = Actor,
    ) -> None:
        self.plan, self.kernels = plan, kernels
        self.iterations = plan.iterations if iterations is None else iterations
        if self.iterations < 1:
            raise PlanError(f"plan '{plan.name}' cannot run {self.iterations} iterations")
        self.schedule: Schedule = schedule if schedule is not None else Canonical()
        self.transport = transport
        self.log: list[Event] | None = [] if log else None
        self.steps = self.acted = 0
        self.results: dict[int, list[Any]] = {task.id: [] for task in plan.tasks}
        self.registers = [[Register(d, i) for i in range(max(1, d.number))] for d in plan.registers]
        owned = set(plan.ranks if ranks is None else ranks)
        counts = actions(plan)
        self.actors = [
            actor(self, task, counts[task.id], counts[task.id] * self.iterations) if task.rank in owned else None
            for task in plan.tasks
        ]
        self.edges = self._connect()
        self._attach(initial or {})
        self._start()

    # -- making --------------------------------------------------------------------------------------------------

    def _connect(self) -> list[Edge]:
        """Two edges for each consumer of each register, numbered by the plan: there and back (ACT-BUS)."""
        edges: list[Edge] = []
        for desc in self.plan.registers:
            producer, there = self.actors[desc.producer], []
            for consumer in desc.consumers:
                far = self.plan.tasks[desc.producer].rank != self.plan.tasks[consumer].rank
                out = Edge(len(edges), desc, desc.producer, consumer, far)
                back = Edge(len(edges) + 1, desc, consumer, desc.producer, far)
                edges += [out, back]
                there.append(out)
                reader = self.actors[consumer]
                out.target, back.target = reader, producer
                out.remote, back.remote = reader is None, producer is None
                if reader is not None:
                    out.end = In(desc, back)
                    reader.inputs.append(out.end)
            if producer is not None:
                end = Out(desc, self.registers[desc.id], there)
                producer.outputs.append(end)
                for edge in there:
                    edges[edge.id + 1].end = end
        return edges

    def _attach(self, initial: Mapping[str, Sequence[Any]]) -> None:
        """Gives actors their queues in the plan's order, pairs, streams and work; fills what starts full."""
        for actor in self.actors:
            if actor is None:
                continue
            task = actor.task
            actor.inputs.sort(key=lambda end: task.inputs.index(end.desc.id))
            actor.outputs.sort(key=lambda end: task.outputs.index(end.desc.id))
            actor.data_in = [end for end in actor.inputs if end.desc.kind != "ctrl"]
            actor.data_out = [end for end in actor.outputs if end.desc.kind != "ctrl"]
            for into, out in task.in_place:
                one, other = actor.inputs[task.inputs.index(into)], actor.outputs[task.outputs.index(out)]
                one.out, other.into = other, one
            actor.meets = next((end for end in actor.inputs if not end.desc.number), None)
            if self.kernels is not None:
                actor.work = work_of(task, len(actor.data_out), self.kernels)
        self._fill(initial)
        self._share_bytes()
        for stream in self.plan.streams:
            here = [actor for id in stream.order if (actor := self.actors[id]) is not None]
            if here:
                turns = Turns(here)
                for actor in here:
                    actor.stream = turns
        for actor in self.actors:
            if actor is not None:
                actor.lacking = sum(not e.fifo for e in actor.inputs) + sum(not e.free for e in actor.outputs)

    def _fill(self, initial: Mapping[str, Sequence[Any]]) -> None:
        """Registers that start full lie with their consumers (ACT-INITIAL)."""
        for desc in self.plan.registers:
            contents = (
                initial.get(desc.name, [None] * desc.initial) if self.kernels is not None else [None] * desc.initial
            )
            if len(contents) != desc.initial:
                raise PlanError(
                    f"register '{desc.name}' starts with {desc.initial} full, {len(contents)} contents are given"
                )
            readers = [actor for id in desc.consumers if (actor := self.actors[id]) is not None]
            producer = self.actors[desc.producer]
            for token, content in enumerate(contents):
                register = self.registers[desc.id][token]
                register.token, register.content = token, content
                register.readers = len(desc.consumers)
                register.unread = len(readers)
                for reader in readers:
                    end = reader.inputs[reader.task.inputs.index(desc.id)]
                    end.fifo.append(register)
                    end.arrived += 1
                if producer is not None:
                    out = producer.outputs[producer.task.outputs.index(desc.id)]
                    out.free.popleft()
                    out.in_flight, out.filled = token + 1, token + 1
                    producer.reading += len(desc.consumers)

    def _share_bytes(self) -> None:
        """Tells every output which registers lie in the same bytes (ghost of ACT-SHARE)."""
        plan, root = self.plan, roots(self.plan)
        placed: dict[int, list[tuple[int, int, int]]] = {}
        for desc in plan.registers:
            if desc.memory is not None and desc.bytes:
                start = desc.memory.offset
                placed.setdefault(desc.memory.block, []).append((start, start + size(plan, desc.id), desc.id))
        for spans in placed.values():
            spans.sort()
            for at, (_, end, one) in enumerate(spans):
                for start, _, other in spans[at + 1 :]:
                    if start >= end:
                        break
                    if root[one] != root[other]:
                        self._overlap(one, other)
                        self._overlap(other, one)

    def _overlap(self, writer: int, other: int) -> None:
        actor = self.actors[self.plan.registers[writer].producer]
        if actor is not None:
            out = actor.outputs[actor.task.outputs.index(writer)]
            out.overlaps.extend(self.registers[other])

    def _start(self) -> None:
        """All actors stand; those that lack nothing may act (ACT-START)."""
        for actor in self.actors:
            if actor is not None:
                self.consider(actor)

    # -- stepping ------------------------------------------------------------------------------------------------

    def post(self, edge: Edge, kind: int, register: Register | None, clock: int) -> None:
        """Puts a message on an edge (ACT-BUS)."""
        number = edge.sent
        edge.sent = number + 1
        if self.log is not None:
            self._note("send", edge, kind, register, number, clock)
        if not edge.remote:
            edge.queue.append((kind, register, number, clock))
            self.schedule.add(edge)
            return
        if self.transport is None:
            raise PlanError(f"'{edge.desc.name}' leaves this process and there is no transport")
        content = register.content if register is not None and kind == READY else None
        index, token = (register.index, register.token) if register is not None else (-1, -1)
        if register is not None and kind == READY:
            register.unread -= 1  # the copy that arrives is another
        self.transport.send(
            self.plan.tasks[edge.receiver].rank, Packet(edge.id, kind, index, token, number, clock, content)
        )

    def arrive(self, packet: Packet) -> None:
        """A message from another process joins its edge; this process's copy of the register takes the content."""
        edge = self.edges[packet.edge]
        register = self.registers[edge.desc.id][packet.register] if packet.register >= 0 else None
        if register is not None and packet.kind == READY:
            if register.unread:
                raise InvariantError(f"ACT-WRITE: '{edge.desc.name}' arrives over one that is still read")
            register.token, register.content, register.unread = packet.token, packet.content, 1
        edge.queue.append((packet.kind, register, packet.number, packet.clock))
        self.schedule.add(edge)

    def consider(self, actor: Actor) -> None:
        """Adds an actor that can act to the possible steps; posts a receive that lacks only its message."""
        if not actor.queued and actor.can_act():
            actor.queued = True
            self.schedule.add(actor)
        elif actor.meets is not None and actor.may_post():
            actor.post()

    def deliver(self, edge: Edge) -> None:
        """The oldest message of an edge reaches its actor (ACT-FIFO)."""
        kind, register, number, clock = edge.queue.popleft()
        actor: Any = edge.target
        if number != edge.received:
            actor.broken("ACT-FIFO", f"got message {number} of '{edge.desc.name}', not {edge.received}")
        edge.received = number + 1
        actor.clock = (clock if clock > actor.clock else actor.clock) + 1
        if self.log is not None:
            self._note("receive", edge, kind, register, number, actor.clock)
        if actor.handler == DONE:
            actor.broken("ACT-FINISH", f"is done and got a message about '{edge.desc.name}'")
        if kind == READY:
            actor.receive_ready(edge.end, register)
        elif kind == ACK:
            actor.receive_ack(edge.end, register)
        elif kind == POST:
            actor.receive_post(edge.end, register)
        elif kind == EORD:
            actor.receive_end(edge.end, register)
        if self.log is not None and edge.id % 2:
            self._note_free(actor, [edge.end])
        if actor.ended or actor.handler:
            actor.settle()
        if not actor.lacking or actor.meets is not None:
            self.consider(actor)

    def act(self, actor: Actor) -> None:
        """An actor acts, and its stream's turn passes on (ACT-ACT, ACT-TURN)."""
        actor.queued = False
        self.acted += 1
        if self.log is not None:
            self._note_act(actor)
        actor.act()
        if self.log is not None:
            self._note_free(actor, actor.outputs)
        if actor.stream is not None:
            actor.stream.advance()
            self.consider(actor.stream.now)
        if actor.ended or actor.handler:
            actor.settle()
        if not actor.lacking or actor.meets is not None:
            self.consider(actor)

    def step(self) -> bool:
        """Takes one step; False if none is possible."""
        step = self.schedule.take()
        if step is None:
            return False
        self.steps += 1
        if isinstance(step, Edge):
            self.deliver(step)
        else:
            self.act(step)
        return True

    def _drain(self) -> None:
        """Takes steps until none is possible."""
        take, deliver, act = self.schedule.take, self.deliver, self.act
        while (step := take()) is not None:
            self.steps += 1
            if isinstance(step, Edge):
                deliver(step)
            else:
                act(step)

    def run(self) -> Result:
        """Steps until all is quiet, then checks that all is done; `DeadlockError` tells who waits for whom."""
        self._drain()
        self.check_done()
        return self.result()

    def exchange(self) -> bool:
        """Takes every packet that has arrived and every step that is possible; False once this part is done."""
        if self.transport is not None:
            for packet in self.transport.receive():
                self.arrive(packet)
        self._drain()
        return not self.done

    @property
    def done(self) -> bool:
        """Every actor of this process has finished."""
        return all(actor is None or actor.handler == DONE for actor in self.actors)

    def check_done(self) -> None:
        """Nothing is possible any more: all actors are done, or the plan is stuck, or an end was lost (ACT-QUIET)."""
        waiting = [actor for actor in self.actors if actor is not None and actor.handler != DONE]
        if not waiting:
            return
        lost = next((actor for actor in waiting if actor.acts == actor.limit), None)
        if lost is not None and all(actor.acts == actor.limit for actor in waiting):
            lost.broken("ACT-END", "acted as often as it should, and never heard that its inputs have ended")
        raise DeadlockError(why_stuck(self))

    def result(self) -> Result:
        """What the run gave."""
        outputs = {self.plan.tasks[id].name: values for id, values in self.results.items() if values}
        final: dict[str, list[Any]] = {}
        for actor in self.actors:
            for end in actor.inputs if actor is not None else []:
                if end.desc.initial:
                    final.setdefault(end.desc.name, end.leftover)
        return Result(outputs, final, self.steps, self.acted, self.log or [])

    # -- noting --------------------------------------------------------------------------------------------------

    def _times(self, actor: Actor | None = None) -> tuple[Any, Any]:
        """When the current step began and ended: by the clock if the schedule has one, else its number."""
        clock: Any = self.schedule
        if not hasattr(clock, "now"):
            return self.steps, self.steps
        return (clock.now - clock.duration(actor) if actor is not None else clock.now), clock.now

    def _note_act(self, actor: Actor) -> None:
        start, finish = self._times(actor)
        assert self.log is not None
        self.log.append(Event("act", actor.task.id, actor.task.rank, start, finish, actor.clock + 1, actor.acts))

    def _note(self, what: str, edge: Edge, kind: int, register: Register | None, number: int, clock: int) -> None:
        now = self._times()[1]
        who = self.plan.tasks[edge.sender if what == "send" else edge.receiver]
        token = register.token if register is not None else -1
        assert self.log is not None
        self.log.append(Event(what, who.id, who.rank, now, now, clock, -1, edge.desc.id, token, kind, edge.id, number))

    def _note_free(self, actor: Actor, ends: Iterable[Any]) -> None:
        now = self._times()[1]
        assert self.log is not None
        for end in ends:
            if isinstance(end, Out):
                free = len(end.free)
                self.log.append(
                    Event("free", actor.task.id, actor.task.rank, now, now, actor.clock, -1, end.desc.id, free)
                )


def run(plan: Plan, kernels: Kernels | None = None, **options: Any) -> Result:
    """Runs a plan to its end in this process; options as `Run`.

    Errors: `DeadlockError` if it gets stuck, `InvariantError` if a rule is broken, `PlanError` for a missing payload.
    """
    return Run(plan, kernels, **options).run()
