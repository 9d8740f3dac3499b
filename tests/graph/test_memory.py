"""The memory planner: it shares bytes, what it shares is proved safe, and the bits stay."""

from __future__ import annotations

import pytest

import refflow as flow
from refflow.graph.memory import place
from refflow.graph.plan import Memory, PlanBuilder
from refflow.graph.proofs import verify
from refflow.runtime import schedules
from refflow.runtime.run import Run


def chain(length: int, *, gated: bool) -> PlanBuilder:
    """load, then `length` tasks in a row, then store; gated: one iteration at a time."""
    b = PlanBuilder("chain")
    load = b.task("load", kind="source", payload="load")
    here = b.register("r0", load, bytes=8)
    for i in range(length):
        here = b.register(f"r{i + 1}", b.task(f"t{i}", payload="t", inputs=[here]), bytes=8)
    end = b.task("store", kind="sink", inputs=[here])
    if gated:
        again = b.register("again", end, kind="ctrl", initial=1)
        b.feed(again, load)
    return b


def test_registers_of_a_gated_chain_take_turns_in_two_places():
    """PLAN-MEMORY."""
    plan = place(chain(6, gated=True).plan())
    assert {r.memory.offset for r in plan.registers if r.memory is not None} == {0, 8}
    assert plan.verify().sound


def test_without_the_gate_the_next_iteration_could_write_too_early():
    """PLAN-MEMORY: across iterations too."""
    bare = chain(1, gated=False).plan()
    assert all(r.memory is None for r in place(bare).registers)


def test_the_proof_does_not_trust_the_planner():
    """PROOF-SHARE refuses neighbours of a chain in one place."""
    import dataclasses

    plan = chain(3, gated=True).plan()
    same = tuple(dataclasses.replace(r, memory=Memory(0, 0)) if r.kind == "data" else r for r in plan.registers)
    assert not verify(dataclasses.replace(plan, registers=same)).sound


@pytest.mark.parametrize("seed", range(3))
def test_shared_bytes_change_nothing(seed):
    """PLAN-MEMORY, ACT-SHARE: the runtime watches the bytes while a random schedule runs."""
    plan = place(chain(5, gated=True).plan())
    kernels = {"load": lambda at: 1, "t": lambda at, x: 2 * x}
    result = Run(plan, kernels, iterations=3, schedule=schedules.Random(seed)).run()
    assert result.outputs["store"] == [32, 32, 32]


def test_a_training_step_needs_fewer_bytes():
    """PLAN-MEMORY on a real plan: proved safe, and smaller than every register for itself."""
    import dataclasses

    with flow.virtual_world(2):
        p = flow.placement("cpu", [0, 1])
        flow.manual_seed(0)
        model = flow.nn.Sequential(flow.nn.Linear(8, 16), flow.nn.ReLU(), flow.nn.Linear(16, 4))
        model.to_global(p, flow.sbp.broadcast)
        optimizer = flow.optim.AdamW(model.parameters())

        class Step(flow.nn.Graph):
            def __init__(self):
                super().__init__()
                self.model = model
                self.add_optimizer(optimizer)

            def build(self, x, y):
                loss = flow.nn.functional.cross_entropy(self.model(x), y)
                loss.backward()
                return loss

        step = Step()
        x = flow.randn(64, 8, placement=p, sbp=flow.sbp.split(0))
        step(x, flow.randint(0, 4, (64,), placement=p, sbp=flow.sbp.split(0)))
        plan = step.plan
        alone = dataclasses.replace(plan, registers=tuple(dataclasses.replace(r, memory=None) for r in plan.registers))
        shared, apart = plan.verify(), alone.verify()
        assert shared.sound and apart.sound
        assert all(shared.bytes[rank].total < apart.bytes[rank].total for rank in plan.ranks)
