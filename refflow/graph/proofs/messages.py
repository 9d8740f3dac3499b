"""Messages: one total order, from which both ends read what they send and expect.

Implements PLAN-MESSAGE and PROOF-MESSAGES of spec/text/plan.md.  Take a send and its receive as one event: the orders
that static streams put on them must fit one total order, or two ranks criss-cross; a transport that matches messages
by order between two ranks then never takes one for another.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush

from ..plan import Message, Plan
from .expansion import DATA, Events, expand
from .rates import actions

Crossing = tuple[int, int]  # (register, index in the iteration)


def derive(plan: Plan) -> tuple[Message, ...]:
    """One iteration's messages in the order in which the sends act when the least task id goes first (PLAN-MESSAGE).

    If the plan deadlocks, those that are stuck come last, by register: `faults` and the proof of liveness tell.
    """
    events = expand(plan)
    sends = {}
    for register in plan.registers:
        if register.kind == "message":
            for index in range(events.filled_by(register.id)):
                sends[events.fills(register.id, index)[1]] = (register.id, index)
    placed = [sends.pop(event) for event in _by_least_id(events) if event in sends]
    return tuple(_message(plan, crossing) for crossing in placed + sorted(sends.values()))


def _message(plan: Plan, crossing: Crossing) -> Message:
    register = plan.registers[crossing[0]]
    return Message(*crossing, plan.tasks[register.producer].rank, plan.tasks[register.consumers[0]].rank)


def _by_least_id(events: Events) -> Iterator[int]:
    """Events of one iteration, each after those it waits for; of those free, the one of the least action, then task.

    A message is one event for both its ends: its send and its receive come before anything later on either stream.
    """
    free = [0] * len(events.task)
    edges = list(zip(events.source, events.target, events.tokens))
    edges += list(_after_receive(events))
    following: list[list[int]] = [[] for _ in events.task]
    for source, target, tokens in edges:
        if not tokens:
            free[target] += 1
            following[source].append(target)
    heap = [(events.index[v], events.task[v], v) for v, waits in enumerate(free) if not waits]
    heapify(heap)
    while heap:
        event = heappop(heap)[2]
        yield event
        for target in following[event]:
            free[target] -= 1
            if not free[target]:
                heappush(heap, (events.index[target], events.task[target], target))


def _after_receive(events: Events) -> Iterator[tuple[int, int, int]]:
    """What precedes a receive on its static comm stream precedes the send too, as messages are matched by order."""
    for stream in events.plan.streams:
        entries = _actions_in_order(events, stream.order)
        for before, after in zip(entries, entries[1:]):
            task = events.plan.tasks[events.task[after]]
            if task.kind == "recv":
                for edge in events.incoming[after]:
                    if events.why[edge] == DATA and events.plan.registers[events.via[edge]].kind == "message":
                        if events.source[edge] != before:
                            yield before, events.source[edge], events.tokens[edge]


def _actions_in_order(events: Events, order: tuple[int, ...]) -> list[int]:
    done = dict.fromkeys(order, 0)
    result = []
    for task in order:
        result.append(events.base[task] + done[task])
        done[task] += 1
    return result


def faults(plan: Plan, counts: tuple[int, ...] | None = None) -> list[str]:
    """What is wrong with the messages, in words; empty if nothing is (PROOF-MESSAGES)."""
    counts = counts or actions(plan)
    lists = {
        (s.rank, s.name): crossings
        for s in plan.streams
        if s.order and (crossings := list(_crossings(plan, s.order, counts)))
    }
    found = _ends_differ(plan, lists)
    listed = [(m.register, m.index) for m in plan.messages]
    wanted = {
        (r.id, i)
        for r in plan.registers
        if r.kind == "message"
        for i in range(counts[r.producer])
    }  # fmt: skip
    if sorted(listed) != sorted(wanted):
        missing, extra = sorted(wanted - set(listed)), sorted(set(listed) - wanted)
        odd = missing or extra or [next(m for m in listed if listed.count(m) > 1)]
        how = "is not listed" if missing else "is listed but never sent" if extra else "is listed twice"
        return [*found, f"PROOF-MESSAGES: message '{_name(plan, odd[0])}' {how}"]
    for message in plan.messages:
        if message != _message(plan, (message.register, message.index)):
            found.append(
                f"PROOF-MESSAGES: message '{_name(plan, (message.register, message.index))}' is between other ranks"
            )
    place = {crossing: position for position, crossing in enumerate(listed)}
    for (rank, name), crossings in lists.items():
        for one, two in zip(crossings, crossings[1:]):
            if place[one] > place[two]:
                found.append(
                    f"PROOF-MESSAGES: stream '{name}' of rank {rank} takes '{_name(plan, one)}' before '{_name(plan, two)}', "
                    f"the plan's total order has them the other way round: the ranks criss-cross"
                )
                break
    return found


def _crossings(plan: Plan, order: tuple[int, ...], counts: tuple[int, ...]) -> Iterator[Crossing]:
    """The messages that a static order sends or receives, in that order."""
    done = dict.fromkeys(order, 0)
    for id in order:
        task = plan.tasks[id]
        if task.kind in ("send", "recv"):
            ends = task.outputs if task.kind == "send" else task.inputs
            for register in ends:
                if plan.registers[register].kind == "message":
                    yield register, done[id]
        done[id] += 1


def _ends_differ(plan: Plan, lists: dict[tuple[int, str], list[Crossing]]) -> list[str]:
    """A pair of static streams that carries all between two ranks must have equal lists at both ends."""
    found = []
    for (rank, name), crossings in lists.items():
        sent: dict[tuple[int, str], list[Crossing]] = {}
        for crossing in crossings:
            register = plan.registers[crossing[0]]
            if plan.tasks[register.producer].rank == rank:
                reader = plan.tasks[register.consumers[0]]
                sent.setdefault((reader.rank, reader.stream), []).append(crossing)
        for place, mine in sent.items():
            theirs = [c for c in lists.get(place, mine) if c in set(mine)]
            for one, two in zip(mine, theirs):
                if one != two:
                    found.append(
                        f"PROOF-MESSAGES: rank {rank} sends '{_name(plan, one)}' where rank {place[0]} expects "
                        f"'{_name(plan, two)}'"
                    )
                    break
    return found


def _name(plan: Plan, crossing: Crossing) -> str:
    return f"{plan.registers[crossing[0]].name} #{crossing[1]}"
