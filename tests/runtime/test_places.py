"""The memory planner against its rule, tried out slot by slot on random plans."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refflow.graph.memory import place
from refflow.graph.order import ordered
from refflow.graph.plan import Memory, Plan, PlanBuilder
from refflow.graph.proofs.expansion import expand
from refflow.graph.proofs.liveness import order
from refflow.graph.proofs.memory import _Reach, roots


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


@st.composite
def one_at_a_time(draw: Any) -> Plan:
    """A random plan on two ranks, some streams in order, whose sources begin again only when the sinks are done."""
    b = PlanBuilder("one at a time")
    load, held = b.task("load", kind="source", stream="copy"), list[tuple[int, int]]()
    held.append((0, b.register("x", load, bytes=8)))
    for i in range(draw(st.integers(1, 12))):
        rank = draw(st.integers(0, 1))
        chosen = draw(st.lists(st.sampled_from(held[-4:]), min_size=1, max_size=2, unique=True))
        inputs = [id if at == rank else b.message(id, rank, name=f"m{i}.{id}") for at, id in chosen]
        stream = draw(st.sampled_from(["compute", "compute2"]))
        task = b.task(f"t{i}", rank=rank, inputs=inputs, stream=stream)
        held += [
            (rank, b.register(f"y{i}.{j}", task, bytes=8 * draw(st.integers(1, 3))))
            for j in range(draw(st.integers(1, 2)))
        ]
    here = [id if at == 0 else b.message(id, 0, name=f"out {id}") for at, id in held]
    end = b.task("store", kind="sink", inputs=draw(st.sampled_from([here, here[-2:]])), stream="copy")
    b.feed(b.register("again", end, kind="ctrl", initial=1), load)
    plan = b.plan()
    if not draw(st.booleans()):
        return plan
    return ordered(plan, [0] * len(plan.tasks))


def placed(plan: Plan) -> dict[int, Memory]:
    return {r.id: r.memory for r in place(plan).registers if r.memory is not None}


@given(one_at_a_time())
def test_random_plans_are_placed_by_the_rule(plan):
    """PLAN-MEMORY: rows of bits find the places that trying each slot and searching each way finds."""
    assert placed(plan) == slowly(plan)


@pytest.mark.parametrize("length", [0, 1, 2, 9])
@pytest.mark.parametrize("gated", [True, False])
def test_chains_are_placed_by_the_rule(length, gated):
    """PLAN-MEMORY: registers of several sizes; gated, the source loads again only when the sink is done."""
    b = PlanBuilder("chain")
    load = b.task("load", kind="source")
    here = b.register("r0", load, bytes=8)
    for i in range(length):
        here = b.register(f"r{i + 1}", b.task(f"t{i}", inputs=[here]), bytes=8 * (1 + i % 3))
    end = b.task("store", kind="sink", inputs=[here])
    if gated:
        b.feed(b.register("again", end, kind="ctrl", initial=1), load)
    plan = b.plan()
    assert placed(plan) == slowly(plan)
