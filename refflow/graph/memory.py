"""The memory planner: which registers of a rank may lie in the same bytes, and where.

Implements PLAN-MEMORY of spec/text/plan.md.  Two registers share bytes only if every reader of one always comes before
the writer of the other, this iteration and the next, whatever the schedule; the planner looks for such pairs, and
PROOF-SHARE checks what it found without trusting it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from .plan import Memory, Plan
from .proofs.expansion import Events, expand
from .proofs.liveness import order
from .proofs.memory import roots

LIMIT = 10_000  # events: the planner keeps a row of bits for each


class Slots:
    """The stretches of a rank's memory, and which registers take turns in each, first to last, by their numbers."""

    def __init__(self, most: int) -> None:
        self.held: list[list[int]] = []
        self.sizes, self.first, self.last = (np.zeros(most, np.int64) for _ in range(3))

    def settle(self, number: int, size: int, always: _Always) -> None:
        """Puts a register into the free slot that wastes least, else into a new one."""
        count = len(self.held)
        turns = always.now[number].take(self.last[:count]) & always.next[number].take(self.first[:count])
        free = turns.nonzero()[0]
        if free.size:
            best = int(free[np.abs(self.sizes[free] - size).argmin()])
            self.held[best].append(number)
            self.sizes[best] = max(int(self.sizes[best]), size)
        else:
            best = count
            self.held.append([number])
            self.sizes[best], self.first[best] = size, number
        self.last[best] = number


def place(plan: Plan) -> Plan:
    """The plan with a place for each register that shares: one block a rank, first fit in order of writing.

    Registers that pass on what they read, start full, or have several in flight keep memory of their own, and so do
    those in plans of more than `LIMIT` events.
    """
    events = expand(plan)
    if len(events.task) > LIMIT:
        return plan
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
    sequence = order(events)
    position = {event: at for at, event in enumerate(sequence)}
    shareable.sort(key=lambda r: position[events.fills(r, 0)[0]])
    always = _Always(events, sequence, shareable)
    slots: dict[int, Slots] = {}
    for number, register in enumerate(shareable):
        rank = plan.tasks[plan.registers[register].producer].rank
        if rank not in slots:
            slots[rank] = Slots(len(shareable))
        slots[rank].settle(number, plan.registers[register].bytes, always)
    return _with_places(plan, slots, shareable)


def _with_places(plan: Plan, slots: dict[int, Slots], shareable: list[int]) -> Plan:
    memory: dict[int, Memory] = {}
    for block, rank in enumerate(sorted(slots)):
        offset = 0
        for size, held in zip(slots[rank].sizes.tolist(), slots[rank].held):
            if len(held) > 1:
                memory.update({shareable[number]: Memory(block, offset) for number in held})
                offset += size
    registers = tuple(replace(r, memory=memory[r.id]) if r.id in memory else r for r in plan.registers)
    return replace(plan, registers=registers)


class _Always:
    """Which registers always take turns, by their numbers, places in `registers`.

    ``now[b, a]``: every reader of a is always done before b is written.  ``next[b, a]``: every reader of b is always done
    before a is written in the next iteration.
    """

    def __init__(self, events: Events, sequence: list[int], registers: list[int]) -> None:
        self.events = events
        writes = [0] * len(sequence)  # the registers that an event writes, a bit for each
        for number, register in enumerate(registers):
            writes[events.fills(register, 0)[0]] |= 1 << number
        now, later = self._after(sequence, writes)
        self.now = np.ascontiguousarray(self._released(now, registers).T)
        self.next = self._released(later, registers)

    def _after(self, sequence: list[int], writes: list[int]) -> tuple[list[int], list[int]]:
        """What is always written after each event, rows of bits: within the iteration, and also one iteration later."""
        outgoing, targets, all_tokens = self.events.outgoing, self.events.target, self.events.tokens
        now, later = [0] * len(sequence), [0] * len(sequence)
        crossing: list[tuple[int, int]] = []
        for event in reversed(sequence):
            row = 0
            for edge in outgoing[event]:
                if not all_tokens[edge]:
                    row |= now[targets[edge]] | writes[targets[edge]]
                elif all_tokens[edge] == 1:
                    crossing.append((event, targets[edge]))
            now[event] = row
        for event, target in crossing:
            later[event] |= now[target] | writes[target]
        for event in reversed(sequence):
            for edge in outgoing[event]:
                if not all_tokens[edge]:
                    later[event] |= later[targets[edge]]
        return now, later

    def _released(self, after: list[int], registers: list[int]) -> np.ndarray[Any, Any]:
        """[a, b]: b is written after each of the events that release a."""
        width = len(registers) // 8 + 1
        rows = b"".join(self._row(after, register).to_bytes(width, "little") for register in registers)
        packed = np.frombuffer(rows, np.uint8).reshape(len(registers), width)
        return np.unpackbits(packed, axis=1, count=len(registers), bitorder="little").view(np.bool_)

    def _row(self, after: list[int], register: int) -> int:
        row = -1
        for consumer in self.events.plan.registers[register].consumers:
            row &= after[self.events.released_by(register, consumer, 0)]
        return row
