"""Messages: one total order, from which both ends read what they send and expect.

Implements PLAN-MESSAGE and PROOF-MESSAGES of spec/text/plan.md.  What goes one way between two ranks is taken there in
the order in which it was sent.  A rendezvous is one event for both its ends, so all that a stream orders of them fits
one total order, or two ranks criss-cross.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from ..plan import Message, Plan
from .expansion import Events, expand
from .liveness import least_first
from .rates import actions

Crossing = tuple[int, int]  # (register, index in the iteration)


def derive(plan: Plan) -> tuple[Message, ...]:
    """One iteration's messages, in the order of the sends when the least action, then task id, goes first.

    What a static stream receives in some order is sent in that order (PLAN-MESSAGE).  Where that cannot be, the rest
    comes last, by register: `faults` or the proof of liveness will tell.
    """
    events = expand(plan)
    sends = {_send(events, crossing): crossing for crossing in _all(plan, events.actions)}
    placed = [sends.pop(event) for event in _by_least_id(events) if event in sends]
    return tuple(_message(plan, crossing) for crossing in placed + sorted(sends.values()))


def _all(plan: Plan, counts: tuple[int, ...]) -> list[Crossing]:
    return [(r.id, i) for r in plan.registers if r.kind == "message" for i in range(counts[r.producer])]


def _send(events: Events, crossing: Crossing) -> int:
    return events.fills(*crossing)[1]


def _message(plan: Plan, crossing: Crossing) -> Message:
    register = plan.registers[crossing[0]]
    return Message(*crossing, plan.tasks[register.producer].rank, plan.tasks[register.consumers[0]].rank)


def _by_least_id(events: Events) -> Iterator[int]:
    """Events of one iteration, each after those it waits for; of those free, the one of the least action, then task."""
    more: list[tuple[int, int]] = []
    for stream in events.plan.streams:
        for group in _groups(events.plan, stream.order).values():
            more += pairwise(_send(events, crossing) for crossing in group)
    return least_first(events, list(zip(events.index, events.task)), more)


def _groups(plan: Plan, order: tuple[int, ...]) -> dict[tuple[int, ...], list[Crossing]]:
    """The messages of a static order whose mutual order matters: of each way between two ranks, and all rendezvous."""
    done = dict.fromkeys(order, 0)
    groups: dict[tuple[int, ...], list[Crossing]] = {}
    for id in order:
        task = plan.tasks[id]
        for end in task.outputs if task.kind == "send" else task.inputs if task.kind == "recv" else ():
            register = plan.registers[end]
            if register.kind == "message":
                crossing = (end, done[id])
                message = _message(plan, crossing)
                groups.setdefault((message.source, message.target), []).append(crossing)
                if not register.number:
                    groups.setdefault((), []).append(crossing)
        done[id] += 1
    return groups


def faults(plan: Plan, counts: tuple[int, ...] | None = None) -> list[str]:
    """What is wrong with the messages, in words; empty if nothing is (PROOF-MESSAGES)."""
    listed = [(m.register, m.index) for m in plan.messages]
    wanted = _all(plan, counts or actions(plan))
    if sorted(listed) != wanted:
        missing, extra = sorted(set(wanted) - set(listed)), sorted(set(listed) - set(wanted))
        odd = missing or extra or [next(m for m in listed if listed.count(m) > 1)]
        how = "is not listed" if missing else "is listed but never sent" if extra else "is listed twice"
        return [f"PROOF-MESSAGES: message '{_name(plan, odd[0])}' {how}"]
    found = [
        f"PROOF-MESSAGES: message '{_name(plan, (m.register, m.index))}' is listed between other ranks than its own"
        for m in plan.messages
        if m != _message(plan, (m.register, m.index))
    ]
    place = {crossing: position for position, crossing in enumerate(listed)}
    for stream in plan.streams:
        for way, group in _groups(plan, stream.order).items():
            for one, two in pairwise(group):
                if place[one] > place[two]:
                    found.append(_crossed(plan, f"stream '{stream.name}' of rank {stream.rank}", one, two, bool(way)))
                    break
    return found


def _crossed(plan: Plan, where: str, one: Crossing, two: Crossing, same_way: bool) -> str:
    why = "one end sends what the other does not expect" if same_way else "the ranks criss-cross"
    return (
        f"PROOF-MESSAGES: {where} has '{_name(plan, one)}' before '{_name(plan, two)}', the plan's total order has them the "
        f"other way round: {why}"
    )


def _name(plan: Plan, crossing: Crossing) -> str:
    return f"{plan.registers[crossing[0]].name} #{crossing[1]}"
