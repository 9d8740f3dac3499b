"""Static orders and register numbers of compiled plans.  PLAN-ORDER, PLAN-1F1B, PLAN-BUFFER, PROOF-PERIOD."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import refflow as flow
from refflow.errors import GraphError
from refflow.graph.buffers import buffered
from refflow.graph.compile import UNIT, compile_graph
from refflow.graph.logical import LogicalGraph
from refflow.graph.order import ORDERS, ordered
from refflow.graph.plan import Plan
from refflow.graph.proofs import actions, best_period, period, verify
from refflow.runtime import Newest, Random, in_virtual_time
from refflow.runtime.pipelines import gpipe, one_f_one_b
from tests.graph.nets import Told, attention, mlp, run
from tests.graph.running import Of, S, every_way
from tests.runtime.plans import plans

PIPELINES = [(2, 4), (4, 4), (4, 8)]


@cache
def traced(stages: int, micro: int) -> LogicalGraph:
    """A training step of the perceptron as a pipeline."""
    with flow.virtual_world(stages):
        graph = run(mlp, Told(stages=stages, micro=micro), steps=1).graph
    assert graph is not None
    return graph.graph


def plan_of(stages: int, micro: int, **options: object) -> Plan:
    with flow.virtual_world(stages):
        return compile_graph(traced(stages, micro), **options).plan  # type: ignore[arg-type]


def with_times(plan: Plan) -> Plan:
    """The plan with the times its register numbers were chosen for."""
    return replace(plan, tasks=tuple(replace(t, time=1 + UNIT.action(plan, t)) for t in plan.tasks))


def letters(plan: Plan, rank: int, micro: int) -> str:
    """The order of a stage as F and B: the first and the last matmul that act once a micro-step."""
    counts = actions(plan)
    here = [t for t in plan.on_rank(rank) if t.name.startswith("matmul") and counts[t.id] == micro]
    ends = {here[0].id: "F", here[-1].id: "B"}
    return "".join(ends.get(task, "") for task in plan.stream_of[rank, "compute"].order)


@pytest.mark.parametrize(("stages", "micro"), PIPELINES)
def test_pipelines_are_1f1b(stages: int, micro: int) -> None:
    """PLAN-1F1B gives every stage the order of PIPE-1F1B."""
    plan, model = plan_of(stages, micro), one_f_one_b(stages, micro)
    for stage in range(stages):
        wanted = "".join(model.tasks[task].name[0] for task in model.stream_of[stage, "compute"].order)
        assert letters(plan, stage, micro) == wanted


def test_gpipe_on_request() -> None:
    """PLAN-1F1B: all forwards first, but on the last stage, which turns back at once."""
    plan = plan_of(4, 4, order="gpipe")
    assert [letters(plan, stage, 4) for stage in range(4)] == ["FFFFBBBB"] * 3 + ["FBFBFBFB"]
    assert plan.verify().sound


def test_without_stages_micro_steps_follow_one_another() -> None:
    """PLAN-ORDER"""
    with flow.virtual_world(2):
        graph = run(mlp, Told((2,), micro=4), steps=1).graph
    assert graph is not None and [letters(graph.plan, rank, 4) for rank in (0, 1)] == ["FBFBFBFB"] * 2


@pytest.mark.parametrize("how", ORDERS)
def test_every_order_keeps_the_bits(how: str) -> None:
    """PLAN-ORDER, ACT-SAME: under every schedule, and proved sound."""
    with flow.virtual_world(4):
        row = flow.placement("cpu", [0, 1, 2, 3])
        told = lambda x: (flow.relu(x * 2).sum(), x - 1)  # noqa: E731
        graph = Of(told, steps=2)
        graph.config.order = how
        x = flow.randn(16, 8, placement=row, sbp=S(0))
        found = [entry[-1] for entry in every_way(graph, x)]
        assert found == [flow.numerics.digest(tensor.numpy()) for tensor in told(x)]


@pytest.mark.parametrize("schedule", [None, Newest, lambda: Random(5)])
def test_orders_train_the_same(schedule: object) -> None:
    """PLAN-ORDER, ACT-SAME: dropout, attention, two stages of two ranks."""
    with flow.virtual_world(4):
        found = run(attention, Told((2,), stages=2, micro=2, schedule=schedule), steps=1)
    with flow.virtual_world(1):
        assert found == run(attention, steps=1)


def test_other_orders_are_refused() -> None:
    """PLAN-ORDER"""
    with flow.virtual_world(1):
        graph = Of(lambda x: x * 2)
        graph.config.order = "backwards"
        with pytest.raises(GraphError, match="the order of a plan is one of 1f1b, gpipe, free, found 'backwards'"):
            graph(flow.ones(2, placement=flow.placement("cpu", [0]), sbp=flow.sbp.broadcast))


def test_every_stream_that_takes_time_is_ordered() -> None:
    """PLAN-ORDER: so PROOF-PERIOD is exact; receives stay free."""
    plan = plan_of(4, 4)
    assert all(bool(stream.order) == (stream.name != "comm<") for stream in plan.streams)
    assert all(task.stream == "comm<" for task in plan.tasks if task.kind == "recv")


@pytest.mark.parametrize(("stages", "micro"), PIPELINES)
def test_the_proved_period_is_what_the_clock_shows(stages: int, micro: int) -> None:
    """PROOF-PERIOD on compiled plans: an iteration more takes a period more."""
    plan = with_times(plan_of(stages, micro))
    times = [in_virtual_time(plan, iterations=n).time for n in (2, 3)]
    assert times[1] - times[0] == period(plan).time


@pytest.mark.parametrize(("stages", "micro"), PIPELINES)
def test_buffers_reach_the_best_period(stages: int, micro: int) -> None:
    """PLAN-BUFFER: with them, and not with one register each, where a repeat alone serialises the micro-steps."""
    plan = with_times(plan_of(stages, micro))
    best = best_period(plan)
    assert period(plan).time == best == in_virtual_time(plan).time
    without = with_times(plan_of(stages, micro, buffers=False))
    assert without.verify().sound and period(without).time > best
    repeats = [r for r in plan.registers if plan.tasks[r.producer].kind == "repeat"]
    alone = tuple(replace(r, memory=None) for r in plan.registers)  # bytes were shared by the orders' leave
    free = replace(plan, registers=alone, streams=tuple(replace(s, order=()) for s in plan.streams))
    serial = free.with_numbers({r.id: 1 for r in repeats})
    assert verify(serial).sound and period(serial).time > period(free).time  # Oneflow-Inc/libai#232, without its deadlock


@pytest.mark.parametrize(("stages", "micro"), PIPELINES)
def test_stages_keep_what_1f1b_keeps(stages: int, micro: int) -> None:
    """PLAN-BUFFER: at most S - s activations at stage s, as many weights at once, and nowhere one for each micro-step."""
    plan = plan_of(stages, micro)
    for stage in range(stages):
        numbers = [r.number for r in plan.registers if plan.tasks[r.producer].rank == stage and r.kind == "data"]
        repeats = [r.number for r in plan.registers if r.name.startswith("repeat") and r.name.endswith(f"@{stage}")]
        assert max(repeats) == stages - stage and max(numbers) <= max(2, stages - stage)
    more = plan_of(stages, micro, order="gpipe").verify().bytes
    assert sum(b.total for b in plan.verify().bytes.values()) < sum(b.total for b in more.values())


@pytest.mark.parametrize("stages", [2, 3, 4])
@pytest.mark.parametrize("make", [one_f_one_b, gpipe])
def test_textbook_pipelines_get_their_stash(stages: int, make: object) -> None:
    """PLAN-BUFFER finds the stash of PROOF-NUMBERS: S - s under 1F1B, M under GPipe."""
    micro = 2 * stages
    plan = buffered(make(stages, micro))  # type: ignore[operator]
    wanted = [stages - s if make is one_f_one_b else micro for s in range(stages)]
    assert [plan.register(f"stash {s}").number for s in range(stages)] == wanted
    assert plan.verify().sound and period(plan).time == best_period(plan)


@settings(max_examples=60, deadline=None)
@given(plans(ranks=2, static=True))
def test_buffers_keep_any_plan_live_and_fast(plan: Plan) -> None:
    """PLAN-BUFFER on random plans: live, and an iteration takes as long as with more registers than it can use."""
    assume(verify(plan).sound)
    chosen = buffered(plan)
    assert chosen.verify().live
    changed = [r.id for r, other in zip(plan.registers, chosen.registers) if r.number != other.number]
    ample = chosen.with_numbers(dict.fromkeys(changed, 20))
    assert in_virtual_time(chosen).time == in_virtual_time(ample).time <= in_virtual_time(plan).time



@settings(max_examples=60, deadline=None)
@given(plans(ranks=2), st.data())
def test_any_order_of_all_actions_leaves_a_plan_live(plan: Plan, data: st.DataObject) -> None:
    """PLAN-ORDER: whatever the waves."""
    free = replace(plan, streams=tuple(replace(s, order=()) for s in plan.streams))
    assume(verify(free).live)
    waves = data.draw(st.lists(st.integers(0, 3), min_size=len(plan.tasks), max_size=len(plan.tasks)))
    for how in ORDERS:
        assert verify(ordered(free, waves, how)).live
