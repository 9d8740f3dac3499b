"""ACT-*: what actors do with contents, and how they end."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import refflow as flow
from refflow.graph.plan import DeadlockError, Plan, PlanBuilder, PlanError
from refflow.numerics import trees
from refflow.runtime import Canonical, Newest, Random, Run, Starve, run
from refflow.runtime.actor import DONE
from refflow.runtime.pipelines import buffer_on_forward_stream, sends_that_meet
from refflow.runtime.work import nodes_closed

from .plans import accumulation, chain, crossing, diamond, in_place_chain, loop

SCHEDULES = [Canonical, Newest, lambda: Random(1), lambda: Random(2), lambda: Starve([0]), lambda: Starve([3])]


def kernels(batch: np.ndarray[Any, Any], weight: Any) -> dict[str, Any]:
    """Micro-batches of `batch`, each times `weight` + iteration; gradients are added, outputs joined."""
    return {
        "weights": lambda at: weight + np.float32(at.iteration),
        "load": lambda at: batch,
        "cut": lambda at, x: x[at.phase :: at.task.count],
        "work": lambda at, x, w: (x.sum() * w, x * w),
        "add": lambda at, a, b: a + b,
        "join": lambda at, *parts: np.stack(parts),
    }


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("count", [1, 2, 3, 4, 7])
def test_repeat_unpack_acc_pack(count: int, schedule: Any) -> None:
    """ACT-REPEAT, ACT-UNPACK, ACT-ACC, ACT-PACK: every micro-batch in its place, gradients by the canonical tree."""
    batch = np.random.default_rng(count).standard_normal(84).astype(np.float32)
    found = run(accumulation(count), kernels(batch, np.float32(0.1)), iterations=2, schedule=schedule())
    for iteration in (0, 1):
        w = np.float32(0.1) + np.float32(iteration)
        parts = [batch[phase::count] for phase in range(count)]
        wanted = trees.fold_parts([np.asarray(part.sum() * w) for part in parts], "sum")
        assert flow.same_bits(np.asarray(found.outputs["update"][iteration]), wanted)
        assert flow.same_bits(found.outputs["output"][iteration], np.stack([part * w for part in parts]))


@given(st.integers(1, 70))
def test_nodes_close_as_the_canonical_tree_says(n: int) -> None:
    """ACT-ACC, NUM-TREE: adding what has closed gives the tree's own brackets."""

    def tree(low: int, high: int) -> Any:
        middle = low + (high - low + 1) // 2
        return low if high - low == 1 else (tree(low, middle), tree(middle, high))

    parts: list[Any] = []
    most = 0
    for position, closed in enumerate(nodes_closed(n)):
        parts.append(position)
        most = max(most, len(parts))
        for _ in range(closed):
            right, left = parts.pop(), parts.pop()
            parts.append((left, right))
    assert parts == [tree(0, n)]
    assert most <= trees.depth(n, 1) + 1


def test_state_goes_round() -> None:
    """ACT-INITIAL: what starts full is read first, and what is left is the run's final state."""
    adds = {"source": lambda at: at.act, "step": lambda at, x, s: (s + x, s)}
    found = run(loop(), adds, iterations=5, initial={"state": [100]})
    assert found.final == {"state": [110]}
    assert found.outputs["sink"] == [100, 100, 101, 103, 106]
    with pytest.raises(PlanError, match="starts with 1 full, 2 contents"):
        run(loop(), adds, initial={"state": [1, 2]})


def test_at_tells_where_and_when() -> None:
    """ACT-LAUNCH."""
    seen: list[tuple[int, ...]] = []

    def cut(at: Any, x: Any) -> int:
        seen.append((at.rank, at.act, at.iteration, at.position, at.phase))
        return 0

    plan = accumulation(2)
    run(plan, {**kernels(np.zeros(2), 1), "cut": cut, "work": lambda at, x, w: (x, w)}, iterations=2)
    assert seen == [(0, 0, 0, 0, 0), (0, 1, 0, 1, 1), (0, 2, 1, 0, 0), (0, 3, 1, 1, 1)]


@pytest.mark.parametrize(
    "plan", [chain(), diamond(), in_place_chain(), crossing(), crossing(2, 2), loop()], ids=lambda p: p.name
)
def test_everything_ends_and_comes_home(plan: Plan) -> None:
    """ACT-EORD, ACT-FINISH, ACT-QUIET: all actors are done, all registers free, all edges empty."""
    for schedule in SCHEDULES:
        running = Run(plan, iterations=3, schedule=schedule())
        running.run()
        assert all(actor is not None and actor.handler == DONE for actor in running.actors)
        assert not any(edge.queue for edge in running.edges)
        assert all(
            register.readers == register.unread == register.lent == 0
            for family in running.registers
            for register in family
        )


def test_payloads_are_checked() -> None:
    """ACT-LAUNCH."""
    with pytest.raises(PlanError, match="no payload 'c' among source"):
        run(chain(), {"source": lambda at: 0})
    with pytest.raises(PlanError, match="must return 2 contents"):
        run(accumulation(2), {**kernels(np.zeros(2), 1), "work": lambda at, x, w: x})
    with pytest.raises(PlanError, match="cannot run 0 iterations"):
        run(chain(), iterations=0)


def test_a_task_without_data_outputs_gives_results() -> None:
    """ACT-LAUNCH: what a sink's payload returns is the run's output."""
    b = PlanBuilder()
    x = b.register("x", b.task("source", kind="source", payload="s"))
    b.task("loss", kind="sink", inputs=[x], payload="half")
    found = run(b.plan(), {"s": lambda at: at.act, "half": lambda at, x: x / 2}, iterations=3)
    assert found.outputs == {"loss": [0, 0.5, 1]} and found.actions == 6


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_real_deadlocks_are_told_when_they_happen(schedule: Any) -> None:
    """ACT-STUCK: the words of the run name the same cycle as the proof's."""
    with pytest.raises(DeadlockError) as told:
        run(buffer_on_forward_stream(), schedule=schedule())
    for words in ("'buffer' waits for its turn on stream 'forward'", "'forward 0' waits for a register 'w each' of 'repeat'",
                  "'repeat' waits for a free register 'w each' (it has 1) from 'backward 0'"):  # fmt: skip
        assert words in str(told.value)
    with pytest.raises(DeadlockError, match="'send x0' waits for the post of 'recv x0'"):
        run(sends_that_meet(), schedule=schedule())
    for cured in (buffer_on_forward_stream(repeat_number=4), buffer_on_forward_stream(buffer_stream="backward")):
        run(cured, iterations=3, schedule=schedule())
    for cured in (sends_that_meet(capacity=1), sends_that_meet(cure="order"), sends_that_meet(cure="streams")):
        run(cured, iterations=3, schedule=schedule())


@pytest.mark.parametrize("behind", [1, 2, 3])
def test_a_reader_may_be_a_fixed_number_of_iterations_behind(behind: int) -> None:
    """ACT-KINDS: what OneFlow's ssp proxy leaves to timing, under every schedule the same."""
    b = PlanBuilder("stale")
    x = b.register("x", b.task("load", kind="source", payload="load"), number=behind + 1, initial=behind)
    y = b.register("y", b.task("pace", kind="source", payload="load"))
    b.task("store", kind="sink", inputs=[x, y])
    plan, old = b.plan(), [-n for n in range(behind, 0, -1)]
    assert plan.verify().sound
    for schedule in (None, Newest(), Random(1), Starve([0])):
        found = run(plan, {"load": lambda at: at.act}, iterations=5, schedule=schedule, initial={"x": old})
        assert found.outputs["store"] == [(i - behind, i) for i in range(5)]
        assert found.final["x"] == list(range(5 - behind, 5))


def test_other_kinds_are_refused() -> None:
    """ACT-KINDS, PLAN-FORM"""
    b = PlanBuilder("odd")
    x = b.register("x", b.task("load", kind="source"))
    b.task("esac", kind="esac", inputs=[x])  # type: ignore[arg-type]
    assert "unknown kind 'esac'" in b.plan().verify().faults[0]
