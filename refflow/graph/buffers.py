"""Pipeline buffers: how many registers each descriptor needs so that an iteration never waits for one.

Implements PLAN-BUFFER of spec/text/plan.md.  An iteration is laid down in time as if registers were free; every descriptor
then gets as many as are in use at once (the buffers of a given schedule: Ning and Gao, A Novel Framework of Register
Allocation for Software Pipelining, 1993).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction

from .plan import Plan
from .proofs.expansion import Events, expand
from .proofs.liveness import order
from .proofs.period import weights_of
from .proofs.rates import actions


def buffered(plan: Plan, times: Mapping[int, Fraction] | None = None) -> Plan:
    """The plan with the register numbers with which one iteration takes the least time its orders allow (PLAN-BUFFER).

    Chosen are those of registers filled several times an iteration: what varies over micro-steps.  `times` of an action,
    by task; default: their own.  Errors: `DeadlockError` if no such numbers make the plan live.
    """
    timed = replace(plan, tasks=tuple(replace(t, time=times[t.id]) for t in plan.tasks)) if times else plan
    counts = actions(plan)
    chosen = _chosen(plan, counts)
    if not chosen:
        return plan
    laid = LaidDown(expand(timed, counts, ample=chosen))
    return plan.with_numbers({register: laid.in_use(register) for register in chosen})


def _chosen(plan: Plan, counts: tuple[int, ...]) -> frozenset[int]:
    """Read several times an iteration; rendezvous, control registers and what takes over memory (but by repeat) stay."""
    kept = {out for task in plan.tasks if task.kind != "repeat" for _, out in task.in_place}
    return frozenset(
        r.id for r in plan.registers
        if r.kind != "ctrl" and r.number and r.consumers and r.id not in kept
        and counts[r.producer] // plan.tasks[r.producer].count * plan.tasks[r.producer].gives > 1
    )  # fmt: skip


class LaidDown:
    """When each event of an iteration begins; the next iteration begins when this one has ended.

    Everything begins as soon as it can, but sources, which begin as late as they may: what is loaded early is held long.
    """

    def __init__(self, events: Events) -> None:
        self.events = events
        self.gaps, self.scale = weights_of(events)
        self.sequence = order(events)
        self.place = {event: position for position, event in enumerate(self.sequence)}
        lasts = [int(task.time * self.scale) for task in events.plan.tasks]
        self.lasts = [lasts[task] if events.is_action(v) else 0 for v, task in enumerate(events.task)]
        self.begin = [0] * len(self.sequence)
        self._early()
        self.length = max((self.begin[v] + self.lasts[v] for v in self.sequence), default=0)
        self._late()

    def _early(self) -> None:
        begin, tokens, target, gaps = self.begin, self.events.tokens, self.events.target, self.gaps
        for event in self.sequence:
            here = begin[event]
            for edge in self.events.outgoing[event]:
                if not tokens[edge] and here + gaps[edge] > begin[target[edge]]:
                    begin[target[edge]] = here + gaps[edge]

    def _late(self) -> None:
        events, begin = self.events, self.begin
        for event in reversed(self.sequence):
            if events.plan.tasks[events.task[event]].kind == "source":
                edges = [edge for edge in events.outgoing[event] if not events.tokens[edge]]
                others = [begin[events.target[edge]] - self.gaps[edge] for edge in edges]
                begin[event] = min(others, default=begin[event])

    def in_use(self, register: int) -> int:
        """The most registers of a descriptor that are filled, or being filled, and not yet given back."""
        desc = self.events.plan.registers[register]
        filled = range(self.events.filled_by(register))
        return max(self._until_free(register, consumer, token) for consumer in desc.consumers for token in filled)

    def _until_free(self, register: int, consumer: int, token: int) -> int:
        """How many are filled from a token on before its register can be filled again, itself included.

        What happens at one instant happens in one order of the events, so that no cycle is left without a token.
        """
        filled, initial = self.events.filled_by(register), self.events.plan.registers[register].initial
        last = self.events.released_by(register, consumer, token)
        free = self.begin[last] + self.lasts[last]
        number = max(1, initial)
        while True:
            iteration, made = divmod(token + number - initial, filled)
            write = self.events.fills(register, made)[0]
            again = self.begin[write] + iteration * self.length
            if again > free or (again == free and (iteration > 0 or self.place[write] > self.place[last])):
                return number
            number += 1
