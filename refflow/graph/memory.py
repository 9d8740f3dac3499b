"""The memory planner: which registers of a rank may lie in the same bytes, and where.

Implements PLAN-MEMORY of spec/text/plan.md.  Two registers share bytes only if every reader of one always comes before
the writer of the other, this iteration and the next, whatever the schedule; the planner looks for such pairs, and
PROOF-SHARE checks what it found without trusting it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from .plan import Memory, Plan
from .proofs.expansion import Events, expand
from .proofs.liveness import order
from .proofs.memory import roots

LIMIT = 10_000  # events: the planner keeps a row of bits for each


@dataclass
class Slot:
    """A stretch of a rank's memory and the registers that take turns in it, first to last."""

    size: int
    held: list[int] = field(default_factory=list)


def place(plan: Plan) -> Plan:
    """The plan with a place for each register that shares: one block a rank, first fit in order of writing.

    Registers that pass on what they read, start full, or have several in flight keep memory of their own, and so do
    those in plans of more than `LIMIT` events.
    """
    events = expand(plan)
    if len(events.task) > LIMIT:
        return plan
    reach = _Always(events)
    root = roots(plan)
    taken_over = {into for task in plan.tasks for into, _ in task.in_place}
    shareable = [
        r.id
        for r in plan.registers
        if (r.kind, r.number, r.initial) == ("data", 1, 0)
        and r.bytes
        and r.consumers
        and root[r.id] == r.id
        and r.id not in taken_over
        and events.filled_by(r.id) == 1
    ]
    shareable.sort(key=lambda r: reach.place[events.fills(r, 0)[0]])
    slots: dict[int, list[Slot]] = {}
    for register in shareable:
        rank = plan.tasks[plan.registers[register].producer].rank
        _settle(register, plan.registers[register].bytes, slots.setdefault(rank, []), reach)
    return _with_places(plan, slots)


def _settle(register: int, size: int, slots: list[Slot], reach: _Always) -> None:
    """Puts a register into the free slot that wastes least, else into a new one."""
    free = [
        slot
        for slot in slots
        if reach.takes_turns(slot.held[-1], register) and reach.comes_round(register, slot.held[0])
    ]
    if free:
        best = min(free, key=lambda slot: abs(slot.size - size))
        best.held.append(register)
        best.size = max(best.size, size)
    else:
        slots.append(Slot(size, [register]))


def _with_places(plan: Plan, slots: dict[int, list[Slot]]) -> Plan:
    memory: dict[int, Memory] = {}
    for block, rank in enumerate(sorted(slots)):
        offset = 0
        for slot in slots[rank]:
            if len(slot.held) > 1:
                memory.update({register: Memory(block, offset) for register in slot.held})
                offset += slot.size
    registers = tuple(replace(r, memory=memory[r.id]) if r.id in memory else r for r in plan.registers)
    return replace(plan, registers=registers)


class _Always:
    """What always comes after an event: rows of bits, `now` within the iteration, `next` also one iteration later."""

    def __init__(self, events: Events) -> None:
        self.events = events
        sequence = order(events)
        self.place = {event: position for position, event in enumerate(sequence)}
        self.now = [0] * len(sequence)
        for event in reversed(sequence):
            for edge in events.outgoing[event]:
                if not events.tokens[edge]:
                    self.now[event] |= self.now[events.target[edge]] | 1 << events.target[edge]
        self.next = [0] * len(sequence)
        for event in reversed(sequence):
            row = 0
            for edge in events.outgoing[event]:
                target = events.target[edge]
                if events.tokens[edge] == 0:
                    row |= self.next[target]
                elif events.tokens[edge] == 1:
                    row |= self.now[target] | 1 << target
            self.next[event] = row

    def takes_turns(self, first: int, second: int) -> bool:
        """Every reader of `first` is always done before `second` is written."""
        return self._released_before(first, self.events.fills(second, 0)[0], self.now)

    def comes_round(self, last: int, first: int) -> bool:
        """Every reader of `last` is always done before `first` is written in the next iteration."""
        return self._released_before(last, self.events.fills(first, 0)[0], self.next)

    def _released_before(self, register: int, write: int, rows: list[int]) -> bool:
        consumers = self.events.plan.registers[register].consumers
        return all(rows[self.events.released_by(register, c, 0)] >> write & 1 for c in consumers)
