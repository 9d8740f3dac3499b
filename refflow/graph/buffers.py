"""Pipeline buffers: how many registers each descriptor needs so that nobody ever waits for one.

Implements PLAN-BUFFER of spec/text/plan.md.  A steady state at the best period is laid down, and every descriptor gets as
many registers as are in use at once (Govindarajan and Gao, 1993; Ning and Gao, A Novel Framework of Register
Allocation for Software Pipelining, 1993).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction

from .plan import Plan
from .proofs.expansion import Events, expand
from .proofs.liveness import order
from .proofs.period import cycle_ratio, weights_of
from .proofs.rates import actions


def buffered(plan: Plan, times: Mapping[int, Fraction] | None = None) -> Plan:
    """The plan with the register numbers of a steady state at the best period its static orders allow (PLAN-BUFFER).

    Chosen are those of registers filled several times an iteration: what varies over micro-steps.  `times` of an action,
    by task; default: their own.  Errors: `DeadlockError` if no such numbers make the plan live.
    """
    timed = replace(plan, tasks=tuple(replace(t, time=times[t.id]) for t in plan.tasks)) if times else plan
    counts = actions(plan)
    chosen = _chosen(plan, counts)
    if not chosen:
        return plan
    state = SteadyState(expand(timed, counts, ample=chosen))
    return plan.with_numbers({register: state.in_use(register) for register in chosen})


def _chosen(plan: Plan, counts: tuple[int, ...]) -> frozenset[int]:
    """Read several times an iteration; rendezvous, control registers and what takes over memory (but by repeat) stay."""
    kept = {out for task in plan.tasks if task.kind != "repeat" for _, out in task.in_place}
    return frozenset(
        r.id for r in plan.registers
        if r.kind != "ctrl" and r.number and r.consumers and r.id not in kept
        and counts[r.producer] // plan.tasks[r.producer].count * plan.tasks[r.producer].gives > 1
    )  # fmt: skip


class SteadyState:
    """When each event begins in an iteration that is repeated every `period`, all times in units of 1 / `scale`.

    Everything begins as soon as it can, but sources, which begin as late as they may: what is loaded early is held long.
    """

    def __init__(self, events: Events) -> None:
        self.events = events
        weights, scale = weights_of(events)
        ratio = cycle_ratio(events).time * scale
        self.period, self.scale = max(ratio.numerator, 0), scale * ratio.denominator
        sequence = order(events)
        self.place = {event: position for position, event in enumerate(sequence)}
        self.lasts = [int(events.time(v) * self.scale) for v in range(len(events.task))]
        gaps = [w * ratio.denominator - self.period * d for w, d in zip(weights, events.tokens)]
        self.begin = [0] * len(sequence)
        self._early(sequence, gaps)
        self._late(sequence, gaps)

    def _early(self, sequence: list[int], gaps: list[int]) -> None:
        """Longest ways; no cycle is longer than the period allows, so rounds end."""
        begin, target, outgoing, moved = self.begin, self.events.target, self.events.outgoing, True
        while moved:
            moved = False
            for event in sequence:
                for edge in outgoing[event]:
                    if begin[event] + gaps[edge] > begin[target[edge]]:
                        begin[target[edge]], moved = begin[event] + gaps[edge], True

    def _late(self, sequence: list[int], gaps: list[int]) -> None:
        events, begin = self.events, self.begin
        for event in reversed(sequence):
            if events.plan.tasks[events.task[event]].kind == "source":
                edges = events.outgoing[event]
                others = [begin[events.target[e]] - gaps[e] for e in edges if events.target[e] != event]
                begin[event] = min(others, default=begin[event])

    def in_use(self, register: int) -> int:
        """The most registers of a descriptor that are filled, or being filled, and not yet given back."""
        filled, initial = self.events.filled_by(register), self.events.plan.registers[register].initial
        return max(
            [self._until_free(register, consumer, token, filled, initial)
             for consumer in self.events.plan.registers[register].consumers for token in range(filled)]
        )  # fmt: skip

    def _until_free(self, register: int, consumer: int, token: int, filled: int, initial: int) -> int:
        """How many are filled from a token on before its register can be filled again, itself included.

        What happens at one instant happens in one order of the events, so that no cycle is left without a token.
        """
        last = self.events.released_by(register, consumer, token)
        free = self.begin[last] + self.lasts[last]
        number = max(1, initial)
        while True:
            iteration, made = divmod(token + number - initial, filled)
            write = self.events.fills(register, made)[0]
            again = self.begin[write] + iteration * self.period
            if again > free or (again == free and (iteration > 0 or self.place[write] > self.place[last])):
                return number
            number += 1
