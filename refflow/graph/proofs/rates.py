"""Balance equations: how often each task acts in one iteration.

Implements PROOF-RATES of spec/text/plan.md (Lee and Messerschmitt, Synchronous Data Flow, 1987): for a register from
p to c, cycles(p) gives(p) = cycles(c) takes(c); for two tasks in a stream's static order, their actions are as
their entries.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator

from ..plan import Plan, PlanError

_Cycles = tuple[int, int]  # a fraction, above and below, in lowest terms
_ONE: _Cycles = (1, 1)


def actions(plan: Plan) -> tuple[int, ...]:
    """The actions of each task in one iteration: the least whole solution; `PlanError` names two rates that clash."""
    paces = _stream_paces(plan)
    cycles: list[_Cycles | None] = [None] * len(plan.tasks)
    result = [0] * len(plan.tasks)
    for root in range(len(plan.tasks)):
        if cycles[root] is None:
            group = _spread(plan, paces, root, cycles)
            values = [cycles[t] or _ONE for t in group]
            whole = math.lcm(*{below for _, below in values})
            least = math.gcd(*{above * whole // below for above, below in values})
            for task, (above, below) in zip(group, values):
                result[task] = above * whole // below // least * plan.tasks[task].count
    return tuple(result)


_Pace = tuple[int, int, int, str]  # a neighbour, its cycles for so many of one's own, and why


def _stream_paces(plan: Plan) -> dict[int, list[_Pace]]:
    """What static orders ask of the tasks in them, each against the first."""
    paces: dict[int, list[_Pace]] = {}
    for stream in plan.streams:
        entries = Counter(stream.order)
        first = next(iter(entries), 0)
        why = f"the order of stream '{stream.name}' of rank {stream.rank}"
        for other in list(entries)[1:]:
            his, mine = entries[other] * plan.tasks[first].count, entries[first] * plan.tasks[other].count
            paces.setdefault(first, []).append((other, his, mine, why))
            paces.setdefault(other, []).append((first, mine, his, why))
    return paces


def _paces(plan: Plan, task: int) -> Iterator[tuple[int, int, int, int]]:
    """What the registers of a task ask of its neighbours: neighbour, its cycles, for so many of the task's, register."""
    me = plan.tasks[task]
    for id in me.outputs:
        for consumer in plan.registers[id].consumers:
            yield consumer, me.gives, plan.tasks[consumer].takes, id
    for id in me.inputs:
        producer = plan.registers[id].producer
        yield producer, me.takes, plan.tasks[producer].gives, id


def _spread(plan: Plan, paces: dict[int, list[_Pace]], root: int, cycles: list[_Cycles | None]) -> list[int]:
    """Solves one connected component from `root`; returns its tasks."""
    cycles[root] = _ONE
    group = [root]
    for task in group:  # grows while it is read
        for other, his, mine, register in _paces(plan, task):
            _meet(plan, cycles, group, (task, other), (his, mine), register)
        for other, his, mine, why in paces.get(task, ()):
            _meet(plan, cycles, group, (task, other), (his, mine), why)
    return group


def _meet(
    plan: Plan,
    cycles: list[_Cycles | None],
    group: list[int],
    pair: tuple[int, int],
    pace: tuple[int, int],
    why: int | str,
) -> None:
    task, other = pair
    his, mine = pace
    wanted = cycles[task] or _ONE
    if his != mine:
        above, below = wanted[0] * his, wanted[1] * mine
        common = math.gcd(above, below)
        wanted = above // common, below // common
    found = cycles[other]
    if found is None:
        cycles[other] = wanted
        group.append(other)
    elif found != wanted:
        reason = why if isinstance(why, str) else f"register '{plan.registers[why].name}'"
        raise PlanError(
            f"PROOF-RATES: '{plan.tasks[task].name}' and '{plan.tasks[other].name}' cannot keep pace: {reason} asks for "
            f"{_said(wanted)} cycles of '{plan.tasks[other].name}' where the other edges ask for {_said(found)}, so registers would pile "
            f"up or run out"
        )


def _said(cycles: _Cycles) -> str:
    above, below = cycles
    return f"{above}/{below}" if below > 1 else str(above)
