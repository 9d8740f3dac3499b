"""What can be proved of a plan before it runs: `verify` gathers it in a `Report`.

Implements PROOF-VERIFY of spec/text/plan.md.  `structure` says whether the plan is well formed, `rates` solves the
balance equations, `expansion` unrolls one iteration into events, from which `liveness`, `period` and `memory` are
read; `messages` compares the two ends of every channel.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from ..plan import DeadlockError, Plan, PlanError
from . import memory, messages, structure
from .expansion import Events, expand
from .liveness import order
from .memory import Bytes, bytes_needed
from .messages import derive
from .period import Period, best_period, bubble, cycle_ratio, irreducible, period
from .rates import actions


@dataclass(frozen=True)
class Report:
    """The proofs on one plan.  `faults` are those of form, rates, liveness, messages and memory, in words."""

    plan: Plan = field(repr=False)
    faults: tuple[str, ...]
    actions: tuple[int, ...]
    bytes: Mapping[int, Bytes]
    deadlock: str = ""

    @property
    def sound(self) -> bool:
        """Nothing is wrong: every schedule runs the plan to its end, with the same result, within `bytes`."""
        return not self.faults

    @property
    def live(self) -> bool:
        """No schedule deadlocks."""
        return bool(self.actions) and not self.deadlock

    def period(self) -> Period:
        """The steady-state period (`period`)."""
        return period(self.plan)

    def check(self) -> Report:
        """Itself if the plan is sound; else `DeadlockError` or `PlanError` with every fault."""
        if self.faults:
            raise (DeadlockError if self.deadlock else PlanError)("\n".join(self.faults))
        return self

    def __str__(self) -> str:
        plan = self.plan
        if self.faults:
            return "\n".join([f"plan '{plan.name}' is refused:", *(f"  {fault}" for fault in self.faults)])
        total = sum(self.actions)
        lines = [
            f"plan '{plan.name}' is sound",
            f"  rates: {len(plan.tasks)} tasks act {total} times in an iteration",
            "  liveness: every cycle holds a token, so no schedule deadlocks",
            f"  messages: {len(plan.messages)} in one total order, the same at both ends",
        ]
        lines += [f"  memory: rank {rank} needs at most {need.total} bytes" for rank, need in self.bytes.items()]
        return "\n".join(lines)


def verify(plan: Plan, limits: Mapping[int, int] | None = None) -> Report:
    """Every proof on a plan; `limits` are the bytes of each rank.  Raises nothing: the report holds the faults."""
    if faults := structure.faults(plan):
        return Report(plan, tuple(faults), (), {})
    need = bytes_needed(plan)
    try:
        counts = actions(plan)
        events = expand(plan, counts)
    except PlanError as error:
        return Report(plan, (str(error),), (), need)
    faults = _time_shapes(events)
    faults += messages.faults(plan, counts)
    deadlock = ""
    try:
        faults += memory.faults(events, order(events))
    except DeadlockError as error:
        deadlock = f"PROOF-LIVE: {error}"
        faults.append(deadlock)
    for rank, limit in (limits or {}).items():
        if rank in need and need[rank].total > limit:
            faults.append(f"PROOF-BYTES: rank {rank} needs {need[rank].total} bytes and has {limit}")
    return Report(plan, tuple(faults), counts, need, deadlock)


def _time_shapes(events: Events) -> list[str]:
    """A stated time shape factors the number of registers filled in an iteration."""
    found = []
    for register in events.plan.registers:
        product = 1
        for factor in register.time_shape:
            product *= factor
        if register.time_shape and product != events.filled_by(register.id):
            found.append(
                f"PROOF-RATES: '{register.name}' has time shape {list(register.time_shape)} but is filled "
                f"{events.filled_by(register.id)} times in an iteration"
            )
    return found
