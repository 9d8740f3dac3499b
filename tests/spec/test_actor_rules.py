"""Rules of the chapters plan and actors that no other test names, a short check each on plans of two or three tasks."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from typing import Any

import pytest

import refflow as flow
from refflow.graph.plan import Plan, PlanBuilder, Task
from refflow.graph.proofs.expansion import CREDIT, DATA, TURN, expand
from refflow.runtime import Machine, Newest, Random, TaskTimes, explore, in_virtual_time, run
from refflow.runtime.actor import ACK, EORD, MESSAGE_NAMES, POST, READY
from refflow.runtime.explore import symbols
from refflow.runtime.pipelines import one_f_one_b, sends_that_meet
from refflow.runtime.run import Run

SCHEDULES = [None, Newest, lambda: Random(1), lambda: Random(2)]


def two(number: int = 2, iterations: int = 3, **store: Any) -> Plan:
    """load -> x -> store."""
    b = PlanBuilder("two")
    x = b.register("x", b.task("load", kind="source", payload="load"), number=number)
    b.task("store", kind="sink", inputs=[x], **store)
    return b.plan(iterations=iterations)


def far(capacity: int, time: int = 0) -> Plan:
    """Rank 0 makes what rank 1 keeps."""
    b = PlanBuilder("far")
    x = b.register("x", b.task("load", kind="source", payload="load", time=1))
    b.task("store", rank=1, kind="sink", inputs=[b.message(x, 1, capacity=capacity, time=time)], time=1)
    return b.plan(iterations=3)


LOAD = {"load": lambda at: at.act}


def test_actors_at_the_start() -> None:
    """ACT-STATE, ACT-START, ACT-FIRE: all registers are free, nothing has arrived; only sources lack nothing."""
    fresh = Run(two(3))
    load, store = fresh.actors
    assert load is not None and store is not None
    assert [len(load.outputs[0].free), load.reading, load.acts, load.handler] == [3, 0, 0, 0]
    assert not store.inputs[0].fifo and load.can_act() and not store.can_act()


@pytest.mark.parametrize("make", SCHEDULES)
def test_messages_of_a_run(make: Any) -> None:
    """ACT-MESSAGE, ACT-ACT, ACT-SEND, ACT-READY, ACT-RETURN: each filled register goes there and back once, then the end."""
    events = run(two(), LOAD, schedule=make() if make else None, log=True).events
    sent = Counter((MESSAGE_NAMES[e.kind], e.task) for e in events if e.what == "send")
    assert sent == {("ready", 0): 3, ("ack", 1): 3, ("eord", 0): 1}
    assert Counter((e.edge, e.number) for e in events if e.what == "send") == Counter(
        (e.edge, e.number) for e in events if e.what == "receive"
    )
    order = [(e.what, e.task, e.kind, e.token) for e in events]
    for token in range(3):
        ready, ack = order.index(("receive", 1, READY, token)), order.index(("send", 1, ACK, token))
        assert order.index(("send", 0, READY, token)) < ready < ack
    assert order.index(("send", 0, EORD, -1)) > order.index(("send", 0, READY, 2))


def test_kinds_that_forward_and_sources() -> None:
    """ACT-FORWARD, ACT-SOURCE, ACT-LAUNCH: send, recv and buffer pass contents on; a source acts once for each."""
    b = PlanBuilder("forward")
    x = b.register("x", b.task("load", kind="source", payload="load"))
    y = b.register("y", b.task("buffer", kind="buffer", inputs=[b.message(x, 1)], rank=1))
    b.task("store", rank=1, kind="sink", inputs=[y])
    result = run(b.plan(iterations=2), {"load": lambda at: (at.rank, at.act, at.iteration)})
    assert result.outputs["store"] == [(0, 0, 0), (0, 1, 1)]


def test_a_rendezvous_posts_first() -> None:
    """ACT-POST: each send acts after a post of its receive; with capacity 1 nobody posts."""
    events = run(far(0), LOAD, log=True).events
    posts = [i for i, e in enumerate(events) if e.what == "receive" and e.kind == POST]
    sends = [i for i, e in enumerate(events) if e.what == "act" and e.task == 1]
    assert len(posts) == len(sends) == 3 and all(p < s for p, s in zip(posts, sends, strict=True))
    assert not any(e.kind == POST for e in run(far(1), LOAD, log=True).events)


@pytest.mark.parametrize("make", SCHEDULES)
def test_static_orders_are_kept(make: Any) -> None:
    """ACT-TURN, PLAN-STREAM: whatever the schedule, a stream acts in its order, iteration after iteration."""
    plan = one_f_one_b(2, 3, iterations=2)
    events = run(plan, schedule=make() if make else None, log=True).events
    for stream in plan.streams:
        if stream.order:
            acts = [e.task for e in events if e.what == "act" and (e.rank, plan.tasks[e.task].stream) == (stream.rank, stream.name)]
            assert tuple(acts) == stream.order * 2


def test_what_can_act_stays_able() -> None:
    """ACT-PERSIST: in every state that can be reached, an actor that can act can still do so after any step of another."""
    found = explore(two(1), LOAD, iterations=2)
    assert found.states > 8 and len(found.outcomes) == 1
    assert explore(sends_that_meet(capacity=1), symbols(sends_that_meet(capacity=1))).deadlocks == 0


def test_zombies_drain() -> None:
    """ACT-ZOMBIE: an actor that has ended acts no more, and is done only when its registers are back."""
    going = Run(two(), LOAD, schedule=Newest())
    load = going.actors[0]
    assert load is not None
    while going.step():
        if load.handler == 1:
            assert not load.can_act() and load.acts == load.limit
        if load.handler == 2:
            assert load.reading == 0 and len(load.outputs[0].free) == 2
    assert load.handler == 2


def test_symbols_tell_what_was_read() -> None:
    """ACT-SYMBOL: contents name the task, the action and all that was read."""
    b = PlanBuilder("chain")
    x = b.register("x", b.task("load", kind="source", payload="load"))
    y = b.register("y", b.task("work", inputs=[x], payload="work"))
    b.task("store", kind="sink", inputs=[y])
    plan = b.plan(iterations=2)
    assert run(plan, symbols(plan)).outputs["store"] == [("work", i, (("load", i, ()),)) for i in range(2)]


def test_events_have_their_fields() -> None:
    """EVT-LIST: acts are numbered from 0 for each task, messages on each edge, and free registers are counted."""
    events = run(two(), LOAD, log=True).events
    assert [e.act for e in events if e.what == "act" and e.task == 1] == [0, 1, 2]
    assert [e.number for e in events if e.what == "send" and e.edge == 0] == [0, 1, 2, 3]
    assert {e.token for e in events if e.what == "free"} <= {0, 1, 2}


def test_time_passes_as_the_cost_model_says() -> None:
    """CLOCK-ACTION, CLOCK-MESSAGE, CLOCK-COST: actions in turn, messages both ways, flops and bytes as exact fractions."""
    one = in_virtual_time(far(1, time=2), iterations=1)
    assert one.time == 4 and one.busy[0, "comm"] == 2
    assert in_virtual_time(far(1, time=2), cost=TaskTimes(latency=Fraction(1, 2)), iterations=1).time == Fraction(9, 2)
    # one register on rank 0: the next load waits for the send, which waits for the acknowledgement from the channel
    assert in_virtual_time(far(1), cost=TaskTimes(latency=Fraction(5))).time > 3 * 2 + 5
    machine = Machine(flops=Fraction(3), memory=Fraction(1), link=Fraction(1))
    assert in_virtual_time(two(flops=7), cost=machine, iterations=1).time == Fraction(7, 3)


def test_registers_are_credits() -> None:
    """PLAN-REGISTER, PLAN-RATES, PROOF-EVENTS: number(r) tokens lie on the way back, initial(r) on the way there."""
    assert [(t.takes, t.gives) for t in (Task(0, "u", kind="unpack", count=3), Task(1, "p", kind="pack", count=3))] == [(1, 3), (3, 1)]
    b = PlanBuilder("loop")
    x = b.register("x", b.task("load", kind="source"), number=3)
    step = b.task("step", inputs=[x])
    state = b.register("state", step, number=2, initial=1)
    b.feed(state, step)
    events = expand(b.plan())
    edges = {(events.why[i], events.via[i]): events.tokens[i] for i in range(len(events.why)) if events.via[i] >= 0}
    assert edges == {(DATA, x): 0, (CREDIT, x): 3, (DATA, state): 1, (CREDIT, state): 1}
    turns = expand(one_f_one_b(2, 2))
    closing = [turns.tokens[i] for i in range(len(turns.why)) if turns.why[i] == TURN]
    assert sum(closing) == 2 and len(closing) == 2 * 4  # each order is a ring with one token


def test_nobody_gives_back_what_nobody_reads() -> None:
    """PLAN-FORM: a register that starts full needs a reader, else its producer could never act."""
    b = PlanBuilder("full")
    b.register("x", b.task("load", kind="source"), initial=1)
    assert any("nobody would ever give it back" in fault for fault in b.plan().verify().faults)


def test_a_graph_becomes_a_plan() -> None:
    """PLAN-COMPILE: a task for each node and rank, a source for what enters, a sink for what leaves, and nothing unread."""
    pair = flow.placement("cpu", [0, 1])

    class Sum(flow.nn.Graph):
        def build(self, x: flow.Tensor) -> Any:
            y = flow.exp(x) + x
            return y, y.sum()

    with flow.virtual_world(2):
        graph = Sum()
        graph(flow.ones(4, placement=pair, sbp=flow.sbp.split(0)))
        kinds = Counter((task.kind, task.rank) for task in graph.plan.tasks if task.kind in ("source", "sink"))
        assert kinds == {("source", 0): 1, ("source", 1): 1, ("sink", 0): 2, ("sink", 1): 2}
        names = Counter(task.name.split()[0] for task in graph.plan.tasks)
        assert names["exp"] == names["add"] == names["sum"] == 2
        assert graph.plan.verify().sound
