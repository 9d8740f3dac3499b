"""Laws over random plans: what the proofs say is what happens, under every schedule."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st

from refflow.graph.plan import DeadlockError, Plan, PlanError
from refflow.graph.proofs import Report, period, verify
from refflow.runtime import (
    Canonical,
    InvariantError,
    Newest,
    Random,
    Starve,
    VirtualClock,
    explore,
    in_virtual_time,
    run,
)
from refflow.runtime.explore import fingerprints, symbols
from refflow.runtime.pipelines import gpipe, one_f_one_b

from .plans import acted, plans


def overwrites(report: Report) -> bool:
    """A task works in place on what others may still read; of plans that deadlock the proof does not say."""
    if report.live:
        return any(fault.startswith("PROOF-INPLACE") for fault in report.faults)
    inputs = [report.plan.registers[into] for task in report.plan.tasks for into, _ in task.in_place]
    return any(len(register.consumers) > 1 for register in inputs)


@settings(max_examples=100)
@given(plans(), st.integers(0, 2**16))
def test_deadlock_if_and_only_if_proved(plan: Plan, seed: int) -> None:
    """PROOF-LIVE, ACT-STUCK: verify's verdict is that of execution, whatever the schedule."""
    report = verify(plan)
    assume(report.actions and not overwrites(report))
    event("live" if report.live else "deadlock")
    for schedule in (Canonical(), Newest(), Random(seed), Starve([seed % len(plan.tasks)])):
        if report.live:
            assert run(plan, iterations=3, schedule=schedule).actions == 3 * acted(plan)
        else:
            with pytest.raises(DeadlockError, match="waits for"):
                run(plan, iterations=3, schedule=schedule)


@settings(max_examples=60)
@given(plans(), st.integers(0, 2**16))
def test_every_schedule_gives_the_same_results(plan: Plan, seed: int) -> None:
    """ACT-STEP: contents tell all they were made from, and are equal under any schedule, and in virtual time."""
    report = verify(plan)
    assume(report.live and not overwrites(report))
    kernels = symbols(plan)
    wanted = run(plan, kernels, iterations=2)
    for schedule in (Newest(), Random(seed), Starve([seed % len(plan.tasks)])):
        found = run(plan, kernels, iterations=2, schedule=schedule)
        assert (found.outputs, found.final) == (wanted.outputs, wanted.final)
    timed = in_virtual_time(plan, kernels, iterations=2).result
    assert (timed.outputs, timed.final) == (wanted.outputs, wanted.final)


@settings(max_examples=30)
@given(plans(ranks=1, most=3, sharing=True))
def test_sharing_is_safe_if_and_only_if_proved(plan: Plan) -> None:
    """PROOF-SHARE, PROOF-INPLACE, ACT-SHARE: refused plans do overwrite in some interleaving, others in none."""
    report = verify(plan)
    assume(report.live and acted(plan) <= 8)
    try:
        explore(plan, iterations=3, limit=800)
        overwritten = ""
    except PlanError:
        assume(False)
    except InvariantError as error:
        overwritten = str(error)
    event("overwritten" if overwritten else "safe")
    assert bool(overwritten) == (not report.sound), (overwritten, report.faults)


@pytest.mark.parametrize("make", [gpipe, one_f_one_b])
def test_large_plans_under_random_schedules(make: Callable[..., Plan]) -> None:
    """ACT-STEP: 12 stages, 8 micro-batches: the same fingerprints whatever the order."""
    plan = make(12, 8)
    wanted = run(plan, fingerprints(plan), iterations=2).outputs
    assert len(wanted) == 12
    for schedule in (Random(1), Random(2), Newest(), Starve([plan.task("B5").id]), VirtualClock(plan)):
        assert run(plan, fingerprints(plan), iterations=2, schedule=schedule).outputs == wanted


@settings(max_examples=40)
@given(plans(ranks=1, most=2))
def test_all_interleavings_agree_with_the_proof(plan: Plan) -> None:
    """ACT-EXPLORE, PROOF-LIVE: every interleaving ends, or every one is stuck."""
    report = verify(plan)
    assume(report.actions and acted(plan) <= 8 and not overwrites(report))
    try:
        seen = explore(plan, symbols(plan), limit=4000, keep_going=True)
    except PlanError:
        assume(False)
    event("live" if report.live else "deadlock")
    assert (seen.deadlocks, len(seen.outcomes)) == ((0, 1) if report.live else (1, 0))


@settings(max_examples=80)
@given(plans(most=5, static=True))
def test_the_period_is_what_the_clock_measures(plan: Plan) -> None:
    """PROOF-PERIOD, CLOCK-STREAM: with static orders the event graph is all there is, so the maximum cycle ratio is exact."""
    report = verify(plan)
    assume(report.live and not overwrites(report))
    wanted = period(plan).time
    times = [in_virtual_time(plan, iterations=n).time for n in (24, 24 + 12, 24 + 24)]
    assert wanted * 12 == times[1] - times[0] == times[2] - times[1]
