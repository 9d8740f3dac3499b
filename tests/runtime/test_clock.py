"""CLOCK-*, PIPE-*: the same actors under a clock; bubbles, fewer registers and slow links."""

from __future__ import annotations

from fractions import Fraction

import pytest

from refflow.graph.plan import DeadlockError, PlanBuilder
from refflow.graph.proofs import irreducible, period, verify
from refflow.runtime import Machine, TaskTimes, VirtualClock, in_virtual_time, run
from refflow.runtime.explore import symbols
from refflow.runtime.pipelines import gpipe, one_f_one_b

from .plans import accumulation, chain, crossing


@pytest.mark.parametrize("stages", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("micro", [1, 2, 4, 8])
@pytest.mark.parametrize("make", [gpipe, one_f_one_b])
def test_the_measured_bubble_is_the_known_one(make: object, stages: int, micro: int) -> None:
    """PIPE-GPIPE, PIPE-1F1B: equal stages, free messages, enough registers: (S-1)/(M+S-1), exactly."""
    plan = make(stages, micro)  # type: ignore[operator]
    timed = in_virtual_time(plan)
    assert timed.time == 3 * (micro + stages - 1)
    assert timed.bubble(plan) == Fraction(stages - 1, micro + stages - 1)
    assert in_virtual_time(plan, iterations=3).time == 3 * timed.time


def test_thirds_stay_exact() -> None:
    """CLOCK-STREAM: times are exact rationals."""
    plan = one_f_one_b(3, 4, forward_time=Fraction(1, 3), backward_time=Fraction(2, 7))
    assert in_virtual_time(plan).time == 6 * (Fraction(1, 3) + Fraction(2, 7))
    assert in_virtual_time(plan).bubble(plan) == Fraction(1, 3)


def test_what_fewer_registers_do() -> None:
    """PIPE-1F1B: the time by the register numbers, a table checked in; too few for the order is a deadlock.

    On slow links a second register in flight lets GPipe send while it computes; 1F1B waits for the way there and back
    anyway, and loses more.
    """
    table = {
        (make, link): [in_virtual_time(make(3, 6, in_flight=number, link_time=link)).time for number in (1, 2, 3)]
        for make in (gpipe, one_f_one_b)
        for link in (0, Fraction(1, 2), 2)
    }
    assert table == {
        (gpipe, 0): [24, 24, 24], (gpipe, Fraction(1, 2)): [31, 26, 26], (gpipe, 2): [52, 37, 37],
        (one_f_one_b, 0): [24, 24, 24], (one_f_one_b, Fraction(1, 2)): [29, 29, 29], (one_f_one_b, 2): [44, 44, 44],
    }  # fmt: skip
    for stash in (1, 2):
        assert not verify(one_f_one_b(3, 6, stash=stash)).live
        with pytest.raises(DeadlockError, match=r"'F0' waits for a free register 'stash 0' \(it has"):
            in_virtual_time(one_f_one_b(3, 6, stash=stash))
    assert in_virtual_time(one_f_one_b(3, 6, stash=3)).time == 24
    assert not verify(gpipe(2, 4, stash=3)).live and verify(gpipe(2, 4, stash=4)).live


def test_slow_links_grow_the_bubble() -> None:
    """CLOCK-MESSAGE: a latency L costs GPipe 2 (S-1) L in all; 1F1B twice that, for it waits for backwards as it goes."""
    for latency in (0, 1, 2, 4):
        cost = TaskTimes(Fraction(latency))
        assert in_virtual_time(gpipe(3, 4), cost=cost).time == 18 + 4 * latency
        assert in_virtual_time(one_f_one_b(3, 4), cost=cost).time == 18 + 8 * latency


def test_the_best_register_numbers_lose_nothing() -> None:
    """PROOF-NUMBERS, CLOCK-STREAM."""
    plan = one_f_one_b(4, 6)
    few = plan.with_numbers(irreducible(plan))
    assert sum(r.number for r in few.registers) < sum(r.number for r in plan.registers)
    assert in_virtual_time(few, iterations=4).time == 4 * period(plan).time == 4 * 27


def test_cost_model() -> None:
    """CLOCK-COST: flops, bytes, links and latency."""
    b = PlanBuilder()
    x = b.register("x", b.task("load", kind="source", stream="copy"), bytes=100)
    y = b.register("y", b.task("f", inputs=[x], flops=600), bytes=50)
    b.task("sink", rank=1, kind="sink", inputs=[b.message(y, 1)])
    cost = Machine(flops=Fraction(200), memory=Fraction(50), link=Fraction(10), latency=Fraction(7))
    assert in_virtual_time(b.plan(), cost=cost).time == 100 / 50 + 600 / 200 + 50 / 10 + 7


def test_priorities_decide_on_streams_in_free_order() -> None:
    """CLOCK-STREAM: of those that wait, the least priority begins; results do not change."""
    b = PlanBuilder()
    x = b.register("x", b.task("source", kind="source", stream="copy", payload="s"))
    for name in ("one", "two"):
        b.task(name, kind="sink", inputs=[x], time=1)
    plan = b.plan()
    for priority, first in ((None, "one"), ({1: 5, 2: 0}, "two")):
        timed = in_virtual_time(plan, symbols(plan), priority=priority, log=True)
        acts = [plan.tasks[e.task].name for e in timed.result.events if e.what == "act"]
        assert acts == ["source", first, "two" if first == "one" else "one"]
        assert timed.result.outputs == run(plan, symbols(plan)).outputs


def test_results_are_those_without_a_clock() -> None:
    """ACT-STEP: the clock is a schedule."""
    for plan in (chain(3), accumulation(4), crossing(), crossing(2, 2)):
        wanted = run(plan, symbols(plan), iterations=3).outputs
        clock = VirtualClock(plan, TaskTimes(Fraction(1, 7)))
        assert run(plan, symbols(plan), iterations=3, schedule=clock).outputs == wanted
