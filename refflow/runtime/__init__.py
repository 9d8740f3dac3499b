"""The actor runtime: registers, messages and actors, one thread of control, and a schedule that decides what is next.

Implements ACT-* of spec/text/actors.md.  `actor` holds the rules, `work` what kinds of task do with contents, `run`
the bus and the loop, `schedules` and `clock` the choices, `explore` all of them, `events` what happened.
"""

from __future__ import annotations

from .actor import Actor, At, InvariantError
from .clock import CostModel, Machine, TaskTimes, VirtualClock, in_virtual_time
from .events import Event, chrome_trace, text_trace, vector_clocks
from .explore import Exploration, explore
from .run import Packet, Result, Run, Transport, run
from .schedules import Canonical, Newest, Random, Schedule, Starve

__all__ = [
    "Actor", "At", "InvariantError", "CostModel", "Machine", "TaskTimes", "VirtualClock", "in_virtual_time", "Event",
    "chrome_trace", "text_trace", "vector_clocks", "Exploration", "explore", "Packet", "Result", "Run", "Transport", "run",
    "Canonical", "Newest", "Random", "Schedule", "Starve",
]  # fmt: skip
