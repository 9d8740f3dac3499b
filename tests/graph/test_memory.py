"""The memory planner: it shares bytes, what it shares is proved safe, and the bits stay."""

from __future__ import annotations

import pytest
from hypothesis import assume, given

import refflow as flow
from refflow.graph.memory import place
from refflow.graph.plan import DeadlockError, Memory, Plan, PlanBuilder
from refflow.graph.proofs import verify
from refflow.graph.proofs.expansion import expand
from refflow.graph.proofs.liveness import order
from refflow.graph.proofs.memory import _Reach, roots
from refflow.runtime import schedules
from refflow.runtime.run import Run

from ..runtime.plans import plans


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


def slowly(plan: Plan) -> dict[int, Memory]:
    """The places by PLAN-MEMORY to the letter: for each register each slot is tried, and each way searched."""
    events = expand(plan)
    sequence = order(events)
    reach = _Reach(events, sequence)
    taken_over = {into for task in plan.tasks for into, _ in task.in_place}

    def write(register: int) -> int:
        return events.fills(register, 0)[0]

    def turn(one: int, two: int, tokens: int) -> bool:
        released = {events.released_by(one, consumer, 0) for consumer in plan.registers[one].consumers}
        before = [reach.before(event, write(two), tokens) for event in released]
        return all(before) and (one != two or tokens > 0)

    wanted = [
        r for r in plan.registers
        if r.kind == "data" and r.number == 1 and not r.initial and r.bytes and r.consumers
        and roots(plan)[r.id] == r.id and r.id not in taken_over and events.filled_by(r.id) == 1
    ]  # fmt: skip
    slots: dict[int, list[list[int]]] = {}
    for register in sorted(wanted, key=lambda r: sequence.index(write(r.id))):
        here = slots.setdefault(plan.tasks[register.producer].rank, [])
        free = [slot for slot in here if turn(slot[-1], register.id, 0) and turn(register.id, slot[0], 1)]
        if not free:
            here.append([register.id])
        else:
            min(free, key=lambda slot: abs(size(plan, slot) - register.bytes)).append(register.id)
    places = {}
    for block, rank in enumerate(sorted(slots)):
        offset = 0
        for slot in slots[rank]:
            if len(slot) > 1:
                places.update(dict.fromkeys(slot, Memory(block, offset)))
                offset += size(plan, slot)
    return places


def size(plan: Plan, slot: list[int]) -> int:
    return max(plan.registers[register].bytes for register in slot)


@given(plans(ranks=2, most=7, static=True))
def test_random_plans_are_placed_by_the_rule(plan):
    """PLAN-MEMORY: rows of bits find the places that trying each slot and searching each way finds."""
    single = plan.with_numbers({r.id: 1 for r in plan.registers if r.kind == "data" and not r.initial})
    try:
        expected = slowly(single)
    except DeadlockError:
        assume(False)
    assert {r.id: r.memory for r in place(single).registers if r.memory is not None} == expected


@pytest.mark.parametrize("length", [0, 1, 2, 9])
@pytest.mark.parametrize("gated", [True, False])
def test_chains_are_placed_by_the_rule(length, gated):
    """PLAN-MEMORY."""
    plan = chain(length, gated=gated).plan()
    assert {r.id: r.memory for r in place(plan).registers if r.memory is not None} == slowly(plan)
