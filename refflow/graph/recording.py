"""What happened in a run of a plan, to look at: for Perfetto, as a picture, as text.

Implements EVT-REPLAY of spec/text/actors.md.  Actors decide nothing by what registers hold, so a run without contents,
under the schedule of a call, has that call's events.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..runtime.clock import CostModel, in_virtual_time
from ..runtime.events import Event, save, text_trace
from ..runtime.run import run
from .plan import Plan

if TYPE_CHECKING:
    from ..pictures import Picture


@dataclass(frozen=True)
class Recording:
    """The events of one run of `plan`; times are numbers of steps, or of the cost model's unit."""

    plan: Plan
    events: Sequence[Event] = field(repr=False)

    def save(self, path: str | Path) -> None:
        """Writes the trace to a JSON file that Perfetto and chrome://tracing open (EVT-TRACE)."""
        save(self.plan, self.events, path)

    def timeline(self, **options: Any) -> Picture:
        """Actors against time with register occupancy; options as `pictures.timeline.timeline` (PIC-TIMELINE)."""
        from ..pictures.timeline import timeline

        return timeline(self.plan, self.events, **options)

    def __len__(self) -> int:
        return len(self.events)

    def __str__(self) -> str:
        return text_trace(self.plan, self.events)

    def _repr_svg_(self) -> str:
        return self.timeline().svg


def record(plan: Plan, cost: CostModel | None = None, schedule: Any = None) -> Recording:
    """The events of a run of the whole plan without contents, in virtual time if there is a cost model (EVT-REPLAY).

    There, of the actors that wait for one stream the last in the plan begins: a micro-batch goes on before the next
    one enters, and backward comes before forward.
    """
    if cost is not None:
        later_first = {task.id: -task.id for task in plan.tasks}
        return Recording(plan, tuple(in_virtual_time(plan, cost=cost, priority=later_first, log=True).result.events))
    return Recording(plan, tuple(run(plan, schedule=schedule, log=True).events))
