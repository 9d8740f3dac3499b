"""Boxing: a tensor from one (placement, sbp) to another; `plan` decides, `run` moves (spec/text/boxing.md)."""

from __future__ import annotations

from .plan import Layout, Plan, Step, elements_moved, format_sbp, plan
from .run import CommLog, Moved, comm_log, run

__all__ = ["CommLog", "Layout", "Moved", "Plan", "Step", "comm_log", "elements_moved", "format_sbp", "plan", "run"]
