"""ACT-PACKET: a plan in parts, one for each rank, with packets between them."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from refflow.graph.plan import Plan, PlanError
from refflow.graph.proofs import verify
from refflow.runtime import Packet, Random, Run, run
from refflow.runtime.explore import symbols
from refflow.runtime.pipelines import one_f_one_b, sends_that_meet

from .plans import crossing, plans


class Post:
    """Mail between the parts: each sender's packets to each rank in order, different senders in any."""

    def __init__(self, rank: int, boxes: dict[tuple[int, int], deque[Packet]], draw: random.Random) -> None:
        self.rank, self.boxes, self.draw = rank, boxes, draw

    def send(self, rank: int, packet: Packet) -> None:
        """Drops it in the box."""
        self.boxes.setdefault((self.rank, rank), deque()).append(packet)

    def receive(self) -> Iterable[Packet]:
        """Takes some of what has come."""
        for (_, target), box in sorted(self.boxes.items()):
            while target == self.rank and box and self.draw.random() < 0.7:
                yield box.popleft()


def run_in_parts(plan: Plan, kernels: Any, iterations: int, seed: int) -> tuple[dict[str, Any], list[Run]]:
    """Every rank's actors in a `Run` of their own, in turns."""
    boxes: dict[tuple[int, int], deque[Packet]] = {}
    draw = random.Random(seed)
    parts = [
        Run(
            plan,
            kernels,
            iterations=iterations,
            schedule=Random(seed + rank),
            ranks=[rank],
            transport=Post(rank, boxes, draw),
        )
        for rank in plan.ranks
    ]
    for _ in range(10_000):
        busy = [part.exchange() for part in parts]
        if not any(busy):
            break
    outputs: dict[str, Any] = {}
    for part in parts:
        part.check_done()
        outputs |= part.result().outputs
    return outputs, parts


PLANS = [crossing(0), crossing(1), crossing(2, 2), one_f_one_b(3, 4), one_f_one_b(2, 2, in_flight=1)]


@pytest.mark.parametrize("plan", [*PLANS, sends_that_meet(cure="order")], ids=lambda plan: plan.name)
@pytest.mark.parametrize("seed", range(5))
def test_parts_give_the_whole(plan: Plan, seed: int) -> None:
    """ACT-PACKET, ACT-BUS: the same results as in one process, whatever the mail's order."""
    found, parts = run_in_parts(plan, symbols(plan), 3, seed)
    assert found == run(plan, symbols(plan), iterations=3).outputs
    assert all(part.done for part in parts)


@settings(max_examples=30)
@given(plans(most=4), st.integers(0, 1000))
def test_random_plans_in_parts(plan: Plan, seed: int) -> None:
    """ACT-PACKET."""
    assume(verify(plan).sound and len(plan.ranks) == 2)
    assert run_in_parts(plan, symbols(plan), 2, seed)[0] == run(plan, symbols(plan), iterations=2).outputs


def test_a_part_needs_a_transport() -> None:
    """ACT-PACKET."""
    with pytest.raises(PlanError, match="leaves this process and there is no transport"):
        Run(crossing(1), ranks=[0]).exchange()
