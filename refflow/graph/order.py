"""The order of a plan: which action comes next on each stream, decided before it runs.

Implements PLAN-ORDER and PLAN-1F1B of spec/text/plan.md.  All streams take their orders from one order of all actions that keeps
what the plan makes them wait for, so ordering a live plan leaves it live.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from .plan import Plan
from .proofs.expansion import expand
from .proofs.liveness import least_first

Rank = Callable[[int, int], tuple[int, int]]

ORDERS: Mapping[str, Rank | None] = {
    "1f1b": lambda wave, step: (2 * step + wave, wave),
    "gpipe": lambda wave, step: (wave, step),
    "free": None,
}
"""What goes first, by wave (how many borders between stages the data has crossed) and micro-step: the least.

Of S stages, stage s goes forward in wave s and back in wave 2 S - 2 - s.  So by 2 step + wave, forward first, step m goes
forward there before step k goes back if m - k <= S - 1 - s: one forward, one backward (PIPE-1F1B).
"""


def ordered(plan: Plan, waves: Sequence[int], how: str = "1f1b") -> Plan:
    """The plan with a static order for every stream that does more than receive; `waves` gives the wave of each task.

    Receives stay free: they take what has arrived, and no time.  `how`: a name in `ORDERS`.
    """
    rank = ORDERS[how]
    if rank is None:
        return plan
    events = expand(plan)
    keys = [(*rank(waves[task], index), task) for task, index in zip(events.task, events.index)]
    orders: dict[tuple[int, str], list[int]] = {}
    for event in least_first(events, keys):
        task = plan.tasks[events.task[event]]
        if task.kind != "recv" and events.is_action(event):
            orders.setdefault((task.rank, task.stream), []).append(task.id)
    mixed = {(task.rank, task.stream) for task in plan.tasks if task.kind == "recv"}
    streams = tuple(
        stream if (at := (stream.rank, stream.name)) in mixed else replace(stream, order=tuple(orders.get(at, ())))
        for stream in plan.streams
    )
    return replace(plan, streams=streams)
