"""Can every iteration run to its end?  Implements PROOF-LIVE of spec/text/plan.md.

A plan is live if and only if no cycle of its events is without a token (Commoner, Holt, Even and Pnueli, Marked
Directed Graphs, 1971): then one iteration can be put in an order, else the events of a cycle wait for one another for
ever, whatever the schedule.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Any

from ..plan import DeadlockError
from .expansion import CREDIT, DATA, HELD, POST, SELF, TURN, Events


@dataclass(frozen=True)
class Wait:
    """One task waits for another: which action, for what."""

    waiter: int
    action: int
    awaited: int
    awaited_action: int
    why: int
    register: int


def order(events: Events) -> list[int]:
    """One iteration's events, each after all it waits for; `DeadlockError` tells the cycle if there is none."""
    free = [0] * len(events.task)
    for target, tokens in zip(events.target, events.tokens):
        if not tokens:
            free[target] += 1
    queue = deque(event for event, waits in enumerate(free) if not waits)
    placed = []
    outgoing, all_tokens, targets = events.outgoing, events.tokens, events.target
    while queue:
        event = queue.popleft()
        placed.append(event)
        for number in outgoing[event]:
            if not all_tokens[number]:
                target = targets[number]
                free[target] -= 1
                if not free[target]:
                    queue.append(target)
    if len(placed) < len(free):
        raise DeadlockError(explain(events, waiting_cycle(events, {v for v, waits in enumerate(free) if waits})))
    return placed


def least_first(events: Events, rank: Sequence[Any], more: Iterable[tuple[int, int]] = ()) -> Iterator[int]:
    """One iteration's events, each after all it waits for (and after `more`, pairs of events); of those free, the one
    of least `rank` first.  Events of a cycle without a token never come.
    """
    free = [0] * len(events.task)
    following: list[list[int]] = [[] for _ in events.task]
    waits = [(s, t) for s, t, tokens in zip(events.source, events.target, events.tokens) if not tokens]
    for source, target in [*waits, *more]:
        free[target] += 1
        following[source].append(target)
    heap = [(rank[v], v) for v, count in enumerate(free) if not count]
    heapify(heap)
    while heap:
        event = heappop(heap)[1]
        yield event
        for target in following[event]:
            free[target] -= 1
            if not free[target]:
                heappush(heap, (rank[target], target))


def waiting_cycle(events: Events, stuck: set[int]) -> list[Wait]:
    """A shortest cycle of token-free edges through an event found by walking back from the first stuck one."""
    before = {v: [e for e in events.incoming[v] if not events.tokens[e] and events.source[e] in stuck] for v in stuck}
    event = min(stuck)
    seen: dict[int, int] = {}
    while event not in seen:
        seen[event] = len(seen)
        event = events.source[before[event][0]]
    reached, queue = {event: -1}, deque([event])
    while queue:
        here = queue.popleft()
        for edge in before[here]:
            source = events.source[edge]
            if source == event:
                return _waits(events, [edge, *_path(events, reached, here)])
            if source not in reached:
                reached[source] = edge
                queue.append(source)
    raise AssertionError("a stuck event is on no cycle")  # impossible: `event` was met twice


def _path(events: Events, reached: dict[int, int], event: int) -> list[int]:
    """The edges from `event` to the start of a walk along incoming edges."""
    edges = []
    while (edge := reached[event]) >= 0:
        edges.append(edge)
        event = events.target[edge]
    return edges


def _waits(events: Events, edges: list[int]) -> list[Wait]:
    return [
        Wait(
            events.task[events.target[e]], events.index[events.target[e]], events.task[events.source[e]],
            events.index[events.source[e]], events.why[e], events.via[e],
        )
        for e in reversed(edges)
    ]  # fmt: skip


def explain(events: Events, waits: list[Wait]) -> str:
    """The cycle in words, starting with who waits for data, if anybody does."""
    first = next((i for i, wait in enumerate(waits) if wait.why == DATA), 0)
    turned = [
        wait for wait in waits[first:] + waits[:first] if wait.awaited != wait.waiter or wait.why not in (POST, SELF)
    ]
    lines = [_words(events, wait) for wait in turned]
    return "deadlock: " + ",\n  which ".join(lines) + ", and so nobody ever acts"


def _words(events: Events, wait: Wait) -> str:
    plan = events.plan
    task, other = plan.tasks[wait.waiter], plan.tasks[wait.awaited]
    name = plan.registers[wait.register].name if wait.register >= 0 else ""
    number = plan.registers[wait.register].number if wait.register >= 0 else 0
    many = events.actions[wait.waiter] > 1 or events.actions[wait.awaited] > 1
    who, whom = f"'{task.name}'", f"'{other.name}'"
    if many:
        who, whom = f"{who} #{wait.action}", f"{whom} #{wait.awaited_action}"
    reasons = {
        SELF: f"its own action before: {whom}",
        DATA: f"a register '{name}' of {whom}",
        CREDIT: f"a free register '{name}' (it has {number}) that only {whom} gives back",
        TURN: f"its turn on stream '{task.stream}' of rank {task.rank}, behind {whom}",
        POST: f"{whom} to be posted, because '{name}' has capacity 0",
        HELD: f"'{name}', in place of its input, to be given back by {whom}",
    }
    return f"{who} waits for {reasons[wait.why]}"
