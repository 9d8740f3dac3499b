"""Balance equations: how often each task acts in one iteration.

Implements PROOF-RATES of spec/text/plan.md (Lee and Messerschmitt, Synchronous Data Flow, 1987): for a register from
p to c, cycles(p) gives(p) = cycles(c) takes(c); for two tasks in a stream's static order, their actions are as
their entries.
"""

from __future__ import annotations

import math
from collections import Counter

from ..plan import Plan, PlanError

_Cycles = tuple[int, int]  # a fraction, above and below, in lowest terms
_ONE: _Cycles = (1, 1)


def actions(plan: Plan) -> tuple[int, ...]:
    """The actions of each task in one iteration: the least whole solution; `PlanError` names two rates that clash."""
    paces = _paces(plan)
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


_Pace = tuple[int, int, int, int | str]  # a neighbour, its cycles for so many of one's own, register or words why


def _paces(plan: Plan) -> list[list[_Pace]]:
    """What its registers, and the static orders it is in, ask of each task and its neighbours."""
    paces: list[list[_Pace]] = [[] for _ in plan.tasks]
    takes, gives = [task.takes for task in plan.tasks], [task.gives for task in plan.tasks]
    for task, its in zip(plan.tasks, paces):
        mine = task.gives
        for id in task.outputs:
            its += [(consumer, mine, takes[consumer], id) for consumer in plan.registers[id].consumers]
        mine = task.takes
        for id in task.inputs:
            producer = plan.registers[id].producer
            its.append((producer, mine, gives[producer], id))
    _in_streams(plan, paces)
    return paces


def _in_streams(plan: Plan, paces: list[list[_Pace]]) -> None:
    """What static orders ask of the tasks in them, each against the first."""
    for stream in plan.streams:
        entries = Counter(stream.order)
        first = next(iter(entries), 0)
        why = f"the order of stream '{stream.name}' of rank {stream.rank}"
        for other in list(entries)[1:]:
            his, mine = entries[other] * plan.tasks[first].count, entries[first] * plan.tasks[other].count
            paces[first].append((other, his, mine, why))
            paces[other].append((first, mine, his, why))


def _spread(plan: Plan, paces: list[list[_Pace]], root: int, cycles: list[_Cycles | None]) -> list[int]:
    """Solves one connected component from `root`; returns its tasks."""
    cycles[root] = _ONE
    group = [root]
    for task in group:  # grows while it is read
        own = cycles[task]
        for other, his, mine, why in paces[task]:
            if his != mine or cycles[other] != own:  # else they keep pace
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
