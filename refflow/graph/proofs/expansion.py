"""One iteration of a plan as events and what each waits for: the graph that liveness, period and memory are read from.

Implements PROOF-EVENTS of spec/text/plan.md.  An event is one action (or the post of a rendezvous, or the return of a
register that was passed on in place).  An edge u -> v with d tokens: v in iteration t waits for u in iteration t - d.
Every iteration is the same (Reiter, Scheduling Parallel Computations, 1968), so a finite graph tells all of them.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from itertools import pairwise

import numpy as np

from ..plan import Plan, PlanError, RegisterDesc
from .rates import actions

SELF, DATA, CREDIT, TURN, POST, HELD = range(6)


class Adjacent:
    """The edges at each event, in two flat lists: a hundred thousand small ones would cost more than the proof."""

    def __init__(self, ends: list[int], events: int) -> None:
        column = np.asarray(ends, dtype=np.int64)
        self.edges: list[int] = np.argsort(column, kind="stable").tolist()
        self.start: list[int] = np.concatenate(([0], np.cumsum(np.bincount(column, minlength=events)))).tolist()

    def __getitem__(self, event: int) -> list[int]:
        return self.edges[self.start[event] : self.start[event + 1]]


@dataclass
class Events:
    """The events of a plan: `task[v]` and `index[v]` (which action of the iteration); edges as parallel lists.

    `why` is SELF (an actor acts one action at a time), DATA, CREDIT, TURN (static stream order), POST (rendezvous)
    or HELD (an in-place input is still out); `via` is the register it is about, or -1.
    """

    plan: Plan
    actions: tuple[int, ...]
    base: list[int] = field(default_factory=list)
    filling: list[int] = field(default_factory=list)  # of each task, how many actions fill one register of an output
    reading: list[int] = field(default_factory=list)  # and how many read one of an input
    task: list[int] = field(default_factory=list)
    index: list[int] = field(default_factory=list)
    source: list[int] = field(default_factory=list)
    target: list[int] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    why: list[int] = field(default_factory=list)
    via: list[int] = field(default_factory=list)
    posts: dict[int, int] = field(default_factory=dict)  # receive action -> its post
    returns: dict[tuple[int, int], int] = field(default_factory=dict)  # (register, token) -> its return

    def edge(self, source: int, target: int, tokens: int, why: int, via: int = -1) -> None:
        """Adds an edge."""
        self.source.append(source)
        self.target.append(target)
        self.tokens.append(tokens)
        self.why.append(why)
        self.via.append(via)

    def event(self, task: int, index: int) -> int:
        """Adds an event."""
        self.task.append(task)
        self.index.append(index)
        return len(self.task) - 1

    @cached_property
    def outgoing(self) -> Adjacent:
        """Edge numbers by source event."""
        return Adjacent(self.source, len(self.task))

    @cached_property
    def incoming(self) -> Adjacent:
        """Edge numbers by target event."""
        return Adjacent(self.target, len(self.task))

    def is_action(self, event: int) -> bool:
        """Whether an event is an action, not a post or a return."""
        first = self.base[task := self.task[event]]
        return first <= event < first + self.actions[task]

    def time(self, event: int) -> Fraction:
        """How long the event takes: an action its task's time, posts and returns nothing."""
        return self.plan.tasks[self.task[event]].time if self.is_action(event) else Fraction(0)

    def filled_by(self, register: int) -> int:
        """Registers of this descriptor filled in an iteration."""
        task = self.plan.registers[register].producer
        return self.actions[task] // self.filling[task]

    def fills(self, register: int, token: int) -> tuple[int, int]:
        """The first and the last action that write the token-th register of an iteration."""
        task = self.plan.registers[register].producer
        step = self.filling[task]
        first = self.base[task] + token * step
        return first, first + step - 1

    def reads(self, consumer: int, token: int) -> tuple[int, int]:
        """The first and the last action that read a consumer's token-th register of an iteration."""
        step = self.reading[consumer]
        first = self.base[consumer] + token * step
        return first, first + step - 1

    def released_by(self, register: int, consumer: int, token: int) -> int:
        """The event that gives a consumer's token-th register back: its last reading, or the return of what it became."""
        passed_on = _passed_on(self, register, consumer)
        return self.reads(consumer, token)[1] if passed_on is None else self.returns[passed_on, token]


def expand(
    plan: Plan, counts: tuple[int, ...] | None = None, *, credits: bool = True, ample: Collection[int] = ()
) -> Events:
    """The events of one iteration; `PlanError` for clashing rates.

    `credits=False` leaves register numbers out, `ample` those of some registers: as if nobody ever waited for one.
    """
    events = Events(plan, counts or actions(plan))
    for task in plan.tasks:
        events.base.append(len(events.task))
        events.filling.append(task.count // task.gives)
        events.reading.append(task.count // task.takes)
        count = events.actions[task.id]
        events.task.extend([task.id] * count)
        events.index.extend(range(count))
        first = events.base[-1]
        for act in range(first, first + count - 1):
            events.edge(act, act + 1, 0, SELF)
        events.edge(first + count - 1, first, 1, SELF)
    _posts(events)
    _returns(events)
    for register in plan.registers:
        for position, consumer in enumerate(register.consumers):
            _data(events, register.id, consumer)
            if credits and register.id not in ample:
                _credit(events, register.id, consumer, position)
    _turns(events)
    return events


def _posts(events: Events) -> None:
    """A rendezvous: the receive is posted once all but the message is there; only then may the send act."""
    for register in events.plan.registers:
        if register.kind == "message" and register.number == 0:
            receive = register.consumers[0]
            first = events.base[receive]
            for act in range(first, first + events.actions[receive]):
                post = events.event(receive, act - first)
                events.posts[act] = post
                events.edge(post, act, 0, POST, register.id)
            for act in range(first, first + events.actions[receive]):
                before = act - 1 if act > first else first + events.actions[receive] - 1
                events.edge(before, events.posts[act], int(act == first), SELF)
            for token in range(events.filled_by(register.id)):
                post = events.posts[events.reads(receive, token)[0]]
                events.edge(post, events.fills(register.id, token)[0], 0, POST, register.id)


def _wait(events: Events, source: int, target: int, tokens: int, why: int, via: int = -1) -> None:
    """An edge to an action; where the action is posted first, the post waits too."""
    events.edge(source, events.posts.get(target, target), tokens, why, via)


def _returns(events: Events) -> None:
    """Outputs that took over an input's memory: the input is back when they are; one event each keeps the graph small.

    A cycle's outputs must all be back before the next cycle, for the input is held until then.
    """
    pairs = {out: task.id for task in events.plan.tasks for _, out in task.in_place}
    for out, task in pairs.items():
        cycles = events.actions[task] // events.plan.tasks[task].count
        for cycle in range(cycles):
            events.returns[out, cycle] = events.event(task, cycle)
    for out, task in pairs.items():
        register, step = events.plan.registers[out], events.plan.tasks[task].gives
        cycles = events.actions[task] // events.plan.tasks[task].count
        for cycle in range(cycles):
            back, (start, _) = events.returns[out, cycle], events.fills(out, cycle * step)
            events.edge(start + events.plan.tasks[task].count - 1, back, 0, HELD, out)
            for token in range(cycle * step, (cycle + 1) * step):
                for consumer in register.consumers:
                    event, distance = _release(events, out, consumer, token)
                    events.edge(event, back, -distance, HELD, out)
            following = events.fills(out, (cycle + 1) % cycles * step)[0]
            _wait(events, back, following, int(cycle + 1 == cycles), HELD, out)


def _release(events: Events, register: int, consumer: int, token: int) -> tuple[int, int]:
    """The event that releases a token (counted from the first ever, the initial ones included), and its iteration."""
    taken = events.filled_by(register)
    iteration, token = divmod(token, taken)
    return events.released_by(register, consumer, token), iteration


def _data(events: Events, register: int, consumer: int) -> None:
    """The consumer's first action on a token waits for the last action that fills it."""
    desc, filled = events.plan.registers[register], events.filled_by(register)
    posts = {} if _is_rendezvous(desc) else events.posts
    source, written, target, read = _strides(events, desc.producer, consumer)
    for token in range(filled):
        iteration, made = divmod(token - desc.initial, filled)
        first = target + token * read
        events.edge(source + (made + 1) * written - 1, posts.get(first, first), -iteration, DATA, register)


def _credit(events: Events, register: int, consumer: int, position: int) -> None:
    """The first action that fills a token waits until the token `number` before it is back."""
    desc, filled = events.plan.registers[register], events.filled_by(register)
    if _is_rendezvous(desc):
        return  # posts are the credits
    posts, passed_on = events.posts, _passed_on(events, register, consumer)
    target, written, source, read = _strides(events, desc.producer, consumer)
    for token in range(filled):
        iteration, released = divmod(token + desc.initial - desc.number, filled)
        back = source + (released + 1) * read - 1 if passed_on is None else events.returns[passed_on, released]
        first = target + token * written
        events.edge(back, posts.get(first, first), -iteration, CREDIT, register)


def _is_rendezvous(desc: RegisterDesc) -> bool:
    return desc.kind == "message" and desc.number == 0


def _strides(events: Events, producer: int, consumer: int) -> tuple[int, int, int, int]:
    """The first action of each, and how many of its actions there are to a register."""
    return events.base[producer], events.filling[producer], events.base[consumer], events.reading[consumer]


def _passed_on(events: Events, register: int, consumer: int) -> int | None:
    """The output that takes over the register's memory at a consumer, if somebody reads it."""
    for into, out in events.plan.tasks[consumer].in_place:
        if into == register and events.plan.registers[out].consumers:
            return out
    return None


def _turns(events: Events) -> None:
    """Static order: each entry waits for the one before it, the first for the last of the iteration before."""
    for stream in events.plan.streams:
        if len(stream.order) < 2:
            continue
        done = dict.fromkeys(stream.order, 0)
        acts = []
        for task in stream.order:
            acts.append(events.base[task] + done[task])
            done[task] += 1
        for task, count in done.items():
            if count != events.actions[task]:
                raise PlanError(
                    f"PROOF-RATES: stream '{stream.name}' of rank {stream.rank} orders {count} actions of "
                    f"'{events.plan.tasks[task].name}', which acts {events.actions[task]} times in an iteration"
                )
        for before, after in pairwise(acts):
            _wait(events, before, after, 0, TURN)
        _wait(events, acts[-1], acts[0], 1, TURN)
