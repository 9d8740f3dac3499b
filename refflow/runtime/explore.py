"""All runs of a small plan: every interleaving of deliveries and actions.

Implements ACT-EXPLORE of spec/text/actors.md.  States are compared whole, contents included, so equal states are met
once; every rule is checked at every step.  A sound plan has one last state: whatever the schedule, the same results.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from ..graph.plan import DeadlockError, Plan, PlanError
from .actor import Actor, At, Edge, InvariantError
from .run import Run
from .schedules import Step
from .work import Kernels, Payload


@dataclass(frozen=True)
class Exploration:
    """How many states and steps there are, the last states' outputs (one entry each), and how many are deadlocks."""

    states: int
    steps: int
    outcomes: tuple[dict[str, list[Any]], ...]
    deadlocks: int


class _NoSchedule:
    """Exploration takes its steps itself."""

    def add(self, step: Step) -> None:
        """Nothing: the possible steps are read off the state."""

    def take(self) -> Step | None:
        """Nothing."""
        return None


def symbols(plan: Plan) -> Kernels:
    """Kernels for every payload of a plan: a content is (task, action, what was read), so a wrong one shows (ACT-SYMBOL)."""
    outputs = [sum(plan.registers[out].kind != "ctrl" for out in task.outputs) for task in plan.tasks]

    def symbol(at: At, *values: Any) -> Any:
        content = (at.task.name, at.act, values)
        return (content,) * outputs[at.task.id] if outputs[at.task.id] > 1 else content

    return {task.payload: symbol for task in plan.tasks}


def fingerprints(plan: Plan) -> Kernels:
    """Like `symbols`, but a content is a hash of what it was made from: for large plans (ACT-SYMBOL)."""

    def fingerprint(content: Any) -> Any:
        return blake2b(repr(content).encode(), digest_size=16).hexdigest()

    def hashed(kernel: Payload) -> Payload:
        def payload(at: At, *values: Any) -> Any:
            content = kernel(at, *values)
            several = isinstance(content[0], tuple)
            return (fingerprint(content[0]),) * len(content) if several else fingerprint(content)

        return payload

    return {name: hashed(kernel) for name, kernel in symbols(plan).items()}


def explore(
    plan: Plan, kernels: Kernels | None = None, *, limit: int = 1_000_000, keep_going: bool = False, **options: Any
) -> Exploration:
    """Takes every step possible in every state.  Options as `Run`; contents must be hashable.

    Errors: the first `InvariantError` with the steps that lead to it; `DeadlockError` likewise unless `keep_going`;
    `PlanError` if there are more than `limit` states.
    """
    run = Run(plan, kernels, schedule=_NoSchedule(), **options)
    frames = Frames(run)
    first = frames.take()
    seen: dict[Hashable, tuple[Hashable, str] | None] = {first: None}
    stack, steps, deadlocks = [first], 0, 0
    outcomes: list[dict[str, list[Any]]] = []
    while stack:
        state = stack.pop()
        frames.put(state)
        possible = frames.possible()
        if not possible:
            if run.done:
                outcomes.append({name: list(values) for name, values in run.result().outputs.items()})
                continue
            deadlocks += 1
            if not keep_going:
                _raise_stuck(run, _way(seen, state))
            continue
        for position, step in enumerate(possible):
            if position:
                frames.put(state)
            steps += 1
            try:
                run.deliver(step) if isinstance(step, Edge) else run.act(step)
            except InvariantError as error:
                raise InvariantError(
                    f"{error}\n  after: {', '.join([*_way(seen, state), frames.name(step)])}"
                ) from None
            after = frames.take()
            if after not in seen:
                if len(seen) >= limit:
                    raise PlanError(f"plan '{plan.name}' has more than {limit} states")
                seen[after] = (state, frames.name(step))
                stack.append(after)
    return Exploration(len(seen), steps, tuple(outcomes), deadlocks)


def _raise_stuck(run: Run, way: list[str]) -> None:
    try:
        run.check_done()
    except (DeadlockError, InvariantError) as error:
        raise type(error)(f"{error}\n  after: {', '.join(way)}") from None


def _way(seen: dict[Hashable, tuple[Hashable, str] | None], state: Hashable) -> list[str]:
    """The steps from the start to a state."""
    way = []
    while (before := seen[state]) is not None:
        state, step = before
        way.append(step)
    return way[::-1]


class Frames:
    """Takes a run's state down as a tuple, and puts it back.  Clocks are left out: they tell histories apart."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.actors = [actor for actor in run.actors if actor is not None]
        self.ins = [end for actor in self.actors for end in actor.inputs]
        self.outs = [end for actor in self.actors for end in actor.outputs]
        self.registers = [register for family in run.registers for register in family]
        self.turns = list({id(a.stream): a.stream for a in self.actors if a.stream is not None}.values())

    def possible(self) -> list[Step]:
        """The steps that may be taken now."""
        edges: list[Step] = [edge for edge in self.run.edges if edge.queue]
        return edges + [actor for actor in self.actors if actor.can_act()]

    def name(self, step: Step) -> str:
        """A step in words."""
        if isinstance(step, Actor):
            return f"{step.task.name} acts"
        reader = self.run.plan.tasks[step.sender if step.id % 2 else step.receiver].name
        return f"'{step.desc.name}' {'back from' if step.id % 2 else 'to'} {reader}"

    def take(self) -> Hashable:
        """The state as a hashable value."""
        return (
            tuple(
                (a.handler, a.lacking, a.reading, a.acts, a.ended, a.posted, tuple(a.parts)) for a in self.actors
            ),
            tuple(
                (tuple(e.fifo), e.ended, e.held, e.arrived, e.taken, tuple(e.leftover)) for e in self.ins
            ),
            tuple((tuple(e.free), e.in_flight, e.filled, e.returned) for e in self.outs),
            tuple((r.readers, r.unread, r.token, r.writing, r.owner, r.lent, r.content) for r in self.registers),
            tuple((tuple((k, r, n) for k, r, n, _ in e.queue), e.sent, e.received) for e in self.run.edges),
            tuple(t.at for t in self.turns),
            tuple(tuple(values) for values in self.run.results.values()),
        )  # fmt: skip

    def put(self, state: Any) -> None:
        """Sets the run to a state."""
        actors, ins, outs, registers, edges, turns, results = state
        for actor, was in zip(self.actors, actors):
            actor.handler, actor.lacking, actor.reading, actor.acts, actor.ended, actor.posted, parts = was
            actor.parts, actor.queued = list(parts), False
        for into, was in zip(self.ins, ins):
            fifo, into.ended, into.held, into.arrived, into.taken, leftover = was
            into.fifo.clear()
            into.fifo.extend(fifo)
            into.leftover = list(leftover)
        for out, was in zip(self.outs, outs):
            free, out.in_flight, out.filled, out.returned = was
            out.free.clear()
            out.free.extend(free)
        for register, was in zip(self.registers, registers):
            register.readers, register.unread, register.token, register.writing = was[:4]
            register.owner, register.lent, register.content = was[4:]
        for edge, was in zip(self.run.edges, edges):
            queue, edge.sent, edge.received = was
            edge.queue.clear()
            edge.queue.extend((kind, register, number, 0) for kind, register, number in queue)
        for turn, at in zip(self.turns, turns):
            turn.at, turn.now = at, turn.order[at]
        for task, values in zip(self.run.results, results):
            self.run.results[task] = list(values)
