"""Balance equations: how often each task acts in one iteration.

Implements PROOF-RATES of spec/text/plan.md (Lee and Messerschmitt, Synchronous Data Flow, 1987): for a register from
p to c, cycles(p) gives(p) = cycles(c) takes(c); for two tasks in a stream's static order, their actions are as
their entries.
"""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction

from ..plan import Plan, PlanError

_ONE = Fraction(1)


def actions(plan: Plan) -> tuple[int, ...]:
    """The actions of each task in one iteration: the least whole solution; `PlanError` names two rates that clash."""
    links = _links(plan)
    cycles: list[Fraction | None] = [None] * len(plan.tasks)
    result = [0] * len(plan.tasks)
    for root in range(len(plan.tasks)):
        if cycles[root] is None:
            group = _spread(plan, links, root, cycles)
            values = [cycles[t] or _ONE for t in group]
            scale = Fraction(math.lcm(*(v.denominator for v in values)), 1)
            scale /= math.gcd(*(int(v * scale) for v in values))
            for task, value in zip(group, values):
                result[task] = int(value * scale) * plan.tasks[task].count
    return tuple(result)


def _links(plan: Plan) -> list[list[tuple[int, Fraction, str]]]:
    """For each task its neighbours, their cycles per cycle of its own, and why."""
    links: list[list[tuple[int, Fraction, str]]] = [[] for _ in plan.tasks]

    def link(a: int, b: int, ratio: Fraction, why: str) -> None:
        links[a].append((b, ratio, why))
        links[b].append((a, _ONE / ratio if ratio != 1 else ratio, why))

    for register in plan.registers:
        gives = plan.tasks[register.producer].gives
        for consumer in register.consumers:
            takes = plan.tasks[consumer].takes
            ratio = _ONE if gives == takes else Fraction(gives, takes)
            link(register.producer, consumer, ratio, f"register '{register.name}'")
    for stream in plan.streams:
        entries = Counter(stream.order)
        first = next(iter(entries), 0)
        for other in list(entries)[1:]:
            ratio = Fraction(entries[other] * plan.tasks[first].count, entries[first] * plan.tasks[other].count)
            link(first, other, ratio, f"the order of stream '{stream.name}' of rank {stream.rank}")
    return links


def _spread(
    plan: Plan, links: list[list[tuple[int, Fraction, str]]], root: int, cycles: list[Fraction | None]
) -> list[int]:
    """Solves one connected component from `root`; returns its tasks."""
    cycles[root] = _ONE
    group = [root]
    for task in group:  # grows while it is read
        mine = cycles[task] or _ONE
        for other, ratio, why in links[task]:
            wanted = mine if ratio is _ONE else mine * ratio
            found = cycles[other]
            if found is None:
                cycles[other] = wanted
                group.append(other)
            elif found is not wanted and found != wanted:
                raise PlanError(
                    f"PROOF-RATES: '{plan.tasks[task].name}' and '{plan.tasks[other].name}' cannot keep pace: {why} asks "
                    f"for {wanted} cycles of '{plan.tasks[other].name}' where the other edges ask for {found}, so registers "
                    f"would pile up or run out"
                )
    return group
