"""Virtual time: the same actors under a clock, with a cost model.

Implements CLOCK-ACTION, CLOCK-STREAM, CLOCK-MESSAGE and CLOCK-COST of spec/text/actors.md.  The clock is a schedule: steps
come in order of time, exact.  An action begins when it is possible and its stream is idle, and its messages leave
when it ends; between ranks they travel for a while.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from heapq import heappop, heappush
from typing import Any, Protocol

from ..graph.plan import Plan, RegisterDesc, Task
from .actor import Actor, Edge
from .run import Result, Run
from .schedules import Step
from .work import Kernels


class CostModel(Protocol):
    """How long things take, in the reader's unit."""

    def action(self, plan: Plan, task: Task) -> Fraction:
        """One action of a task."""
        ...

    def travel(self, plan: Plan, register: RegisterDesc) -> Fraction:
        """One message about a register between two ranks, either way."""
        ...


@dataclass(frozen=True)
class TaskTimes:
    """The times written in the plan; messages travel for `latency` between ranks."""

    latency: Fraction = Fraction(0)

    def action(self, plan: Plan, task: Task) -> Fraction:
        """The task's own time."""
        return task.time

    def travel(self, plan: Plan, register: RegisterDesc) -> Fraction:
        """The latency."""
        return self.latency


@dataclass(frozen=True)
class Machine:
    """CLOCK-COST: a computation takes flops / `flops`, a copy bytes / `memory`, a send bytes / `link`; then `latency`.

    Units: flops and bytes a unit of time.  A task's own time is added.
    """

    flops: Fraction
    memory: Fraction
    link: Fraction
    latency: Fraction = Fraction(0)

    def action(self, plan: Plan, task: Task) -> Fraction:
        """From the task's flops, or the bytes of its data outputs if it moves them."""
        cost = task.time + Fraction(task.flops) / self.flops
        bytes = sum(plan.registers[out].bytes for out in task.outputs)
        if task.kind == "send":
            return cost + bytes / self.link
        moves = plan.stream_of[task.rank, task.stream].kind == "copy"
        return cost + bytes / self.memory if moves else cost

    def travel(self, plan: Plan, register: RegisterDesc) -> Fraction:
        """The latency."""
        return self.latency


class VirtualClock:
    """A schedule that keeps time (CLOCK-STREAM).

    Of the actors that wait for one idle stream in free order the one of least `priority` begins (its task id if none is
    given); all that happens at one instant happens before any action begins at it.
    """

    def __init__(self, plan: Plan, cost: CostModel | None = None, priority: Mapping[int, int] | None = None) -> None:
        model = cost or TaskTimes()
        times = [model.action(plan, task) for task in plan.tasks]
        travels = [model.travel(plan, register) for register in plan.registers]
        self.scale = math.lcm(*(t.denominator for t in times), *(t.denominator for t in travels))
        self._durations = [int(t * self.scale) for t in times]
        self._travels = [int(t * self.scale) for t in travels]
        places = {(s.rank, s.name): number for number, s in enumerate(plan.streams)}
        self._stream = [places[task.rank, task.stream] for task in plan.tasks]
        self._idle = [True] * len(plan.streams)
        self._waiting: list[list[tuple[int, int, Actor]]] = [[] for _ in plan.streams]
        self._ready: list[int] = []  # streams that may be idle with somebody waiting
        self._priority = [task.id if priority is None else priority.get(task.id, task.id) for task in plan.tasks]
        self._heap: list[tuple[int, int, Step]] = []
        self._number = 0
        self._now = self._acted = 0

    @property
    def now(self) -> Fraction:
        """The time."""
        return Fraction(self._now, self.scale)

    @property
    def acted(self) -> Fraction:
        """When the last action ended; messages may still travel."""
        return Fraction(self._acted, self.scale)

    def duration(self, actor: Actor) -> Fraction:
        """How long an action of the actor takes."""
        return Fraction(self._durations[actor.task.id], self.scale)

    def add(self, step: Step) -> None:
        """A message sets off now; an actor that can act waits for its stream."""
        if isinstance(step, Edge):
            self._at(self._now + (self._travels[step.desc.id] if step.far else 0), step)
        else:
            id = step.task.id
            stream = self._stream[id]
            heappush(self._waiting[stream], (self._priority[id], id, step))
            if self._idle[stream]:
                self._ready.append(stream)

    def take(self) -> Step | None:
        """What happens next: a message arrives, or an action ends."""
        heap = self._heap
        if self._ready and not (heap and heap[0][0] == self._now):
            self._begin()
        if not heap:
            return None
        self._now, _, step = heappop(heap)
        if not isinstance(step, Edge):
            self._acted = self._now
            stream = self._stream[step.task.id]
            self._idle[stream] = True
            self._ready.append(stream)
        return step

    def _begin(self) -> None:
        """Every idle stream begins the first action that waits for it."""
        ready, self._ready = self._ready, []
        for stream in ready:
            waiting = self._waiting[stream]
            if waiting and self._idle[stream]:
                self._idle[stream] = False
                actor = heappop(waiting)[2]
                self._at(self._now + self._durations[actor.task.id], actor)

    def _at(self, time: int, step: Step) -> None:
        self._number += 1
        heappush(self._heap, (time, self._number, step))


@dataclass(frozen=True)
class Timed:
    """A run in virtual time: when the last action ended, and how long each stream was busy."""

    result: Result
    time: Fraction
    busy: Mapping[tuple[int, str], Fraction]

    def bubble(self, plan: Plan, kind: str = "compute") -> Fraction:
        """The part of the time in which streams of a kind stood idle, on average over those that worked (PROOF-BUBBLE)."""
        here = [busy for s in plan.streams if s.kind == kind and (busy := self.busy[s.rank, s.name])]
        return 1 - sum(here, Fraction(0)) / (len(here) * self.time)


def in_virtual_time(
    plan: Plan,
    kernels: Kernels | None = None,
    *,
    cost: CostModel | None = None,
    priority: Mapping[int, int] | None = None,
    **options: Any,
) -> Timed:
    """Runs a plan under the clock; other options as `Run`."""
    clock = VirtualClock(plan, cost, priority)
    run = Run(plan, kernels, schedule=clock, **options)
    result = run.run()
    busy = {(stream.rank, stream.name): Fraction(0) for stream in plan.streams}
    for actor in run.actors:
        if actor is not None:
            busy[actor.task.rank, actor.task.stream] += actor.acts * clock.duration(actor)
    return Timed(result, clock.acted, busy)
