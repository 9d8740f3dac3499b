"""Deliberate faults of plans and of the runtime: each is shown to be caught, by a proof, an invariant or the bits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import refflow as flow
from refflow.graph.plan import DeadlockError, Memory, Plan, PlanBuilder
from refflow.graph.proofs import verify
from refflow.numerics import trees
from refflow.runtime import Actor, InvariantError, Newest, Random, Run, Starve, explore, run
from refflow.runtime import run as fault_free
from refflow.runtime.actor import ACK, EORD, POST, READY, In, Out, Register
from refflow.runtime.explore import symbols
from refflow.runtime.pipelines import buffer_on_forward_stream, sends_that_meet

from .plans import accumulation, chain, crossing, cut_and_gather, diamond, in_place_chain
from .test_proofs import line, two_messages


def schedules() -> Iterator[Any]:
    """A few of each kind: a fault may need an adversary to show."""
    yield None
    yield Newest()
    yield from (Starve([task]) for task in range(4))
    yield from (Random(seed) for seed in range(20))


def caught(
    rule: str, plan: Plan, actor: Callable[..., Actor] = Actor, make: Callable[..., Run] = Run, iterations: int = 3
) -> None:
    """Some schedule shows the fault, and the rule that should catch it does."""
    found = []
    for schedule in schedules():
        try:
            make(plan, iterations=iterations, schedule=schedule, actor=actor).run()
        except (InvariantError, DeadlockError) as error:
            found.append(str(error))
    assert found, "no schedule shows the fault"
    assert any(rule in error for error in found), found[0]


# --- faults of actors -----------------------------------------------------------------------------------------------


class OneCreditTooMany(Actor):
    """W holds a register more than the number."""

    def __init__(self, run: Run, *rest: Any) -> None:
        super().__init__(run, *rest)
        for out in self.task.outputs:
            desc = run.plan.registers[out]
            run.registers[out].append(Register(desc, desc.number))


class AcknowledgesBeforeUse(Actor):
    """Gives a register back when it arrives, and reads it later."""

    def receive_ready(self, into: In, register: Register) -> None:
        super().receive_ready(into, register)
        self.run.post(into.back, ACK, register, self.clock)

    def give_back(self, into: In) -> None:
        register = into.fifo.popleft()
        into.taken += 1
        register.unread -= 1
        self.lacking += not into.fifo


class IgnoresCredit(Actor):
    """Acts without a free register: takes one that is still read."""

    def receive_ready(self, into: In, register: Register) -> None:
        super().receive_ready(into, register)
        for out in self.outputs:
            if not out.free:
                self.lacking -= 1
                out.free.append(self.run.registers[out.desc.id][0])


class ForgetsToAcknowledge(Actor):
    """Keeps what it has read."""

    def give_back(self, into: In) -> None:
        register = into.fifo.popleft()
        into.taken += 1
        register.unread -= 1
        self.lacking += not into.fifo


class AcknowledgesTwice(Actor):
    """Gives a register back twice."""

    def give_back(self, into: In) -> None:
        register = into.fifo[0]
        super().give_back(into)
        self.run.post(into.back, ACK, register, self.clock)


class SendsTwice(Actor):
    """A duplicate ready message."""

    def send(self, out: Out) -> None:
        register = out.free[0]
        super().send(out)
        self.run.post(out.edges[0], READY, register, self.clock)


class LosesTheEnd(Actor):
    """Does not tell its consumers that the stream has ended."""

    def end(self) -> None:
        edges, self.outputs = self.outputs, []
        super().end()
        self.outputs = edges


class TellsTheEndTwice(Actor):
    """Two ends of one stream."""

    def end(self) -> None:
        super().end()
        for out in self.outputs:
            for edge in out.edges:
                self.run.post(edge, EORD, None, self.clock)


class EndsAtTheFirstEnd(Actor):
    """Ends when it hears of an end, whatever it has not read yet."""

    def starved(self) -> bool:
        return True


class ReturnsInPlaceInputsAtOnce(Actor):
    """Gives an input back while what took over its memory is still out."""

    def consume(self, into: In) -> None:
        self.give_back(into)

    def receive_ack(self, out: Out, register: Register) -> None:
        into, out.into = out.into, None
        super().receive_ack(out, register)
        out.into = into


class IgnoresItsTurn(Actor):
    """Acts when it can, whatever the stream's order."""

    def can_act(self) -> bool:
        return self.lacking == 0 and self.handler == 0


class ForgetsToSend(Actor):
    """Keeps a filled register to itself at its second action."""

    def send(self, out: Out) -> None:
        if self.acts != 2:
            super().send(out)


class PostsTwice(Actor):
    """A rendezvous whose receive lends its register twice."""

    def post(self) -> None:
        super().post()
        assert self.meets is not None
        self.run.post(self.meets.back, POST, self.run.registers[self.meets.desc.id][0], self.clock)


class ReturnsWholeTooEarly(Actor):
    """An unpack or repeat that gives its input back after the first action of a cycle."""

    def act(self) -> None:
        self.fewer_in = False
        super().act()


ACTORS: dict[str, tuple[str, type[Actor], Plan]] = {
    "credit off by one": ("ACT-CREDIT", OneCreditTooMany, chain(1, number=1)),
    "acknowledge before use": ("ACT-WRITE", AcknowledgesBeforeUse, chain(1, number=1)),
    "write without credit": ("ACT-WRITE", IgnoresCredit, chain(1, number=1)),
    "acknowledge forgotten": ("waits for", ForgetsToAcknowledge, chain(1, number=1)),
    "acknowledge twice": ("ACT-ACK", AcknowledgesTwice, chain(1)),
    "duplicate ready message": ("ACT-FIFO", SendsTwice, chain(1)),
    "lost end of stream": ("ACT-END", LosesTheEnd, chain(1)),
    "two ends of stream": ("ACT-EORD", TellsTheEndTwice, diamond()),
    "end before the last register": ("ACT-END", EndsAtTheFirstEnd, diamond(2)),
    "in-place input returned at once": ("ACT-INPLACE", ReturnsInPlaceInputsAtOnce, in_place_chain()),
    "turn ignored": ("ACT-SHARE", IgnoresItsTurn, line(order=True)),
    "register not sent": ("", ForgetsToSend, chain(1)),
    "rendezvous posted twice": ("ACT-CREDIT", PostsTwice, crossing(0)),
    "unpack returns its input too early": ("", ReturnsWholeTooEarly, cut_and_gather("unpack", "pack")),
}


@pytest.mark.parametrize("name", ACTORS)
def test_faults_of_actors_are_caught(name: str) -> None:
    """The rule named in the table is what catches it."""
    rule, actor, plan = ACTORS[name]
    for schedule in schedules():
        Run(plan, iterations=3, schedule=schedule).run()
    caught(rule, plan, actor)


@pytest.mark.parametrize(
    "name", ["credit off by one", "acknowledge before use", "duplicate ready message", "two ends of stream"]
)
def test_exploration_finds_them_without_luck(name: str) -> None:
    """ACT-EXPLORE: and says which steps lead there."""
    rule, actor, plan = ACTORS[name]
    with pytest.raises(InvariantError, match=rf"(?s){rule}.*after: .* acts"):
        explore(plan, symbols(plan), iterations=2, actor=actor)


# --- faults of the bus ----------------------------------------------------------------------------------------------


class Reorders(Run):
    """An edge delivers its newest message first."""

    def deliver(self, edge: Any) -> None:
        edge.queue.rotate(1)
        super().deliver(edge)


class LosesAMessage(Run):
    """The third message is lost."""

    def post(self, edge: Any, kind: int, register: Any, clock: int) -> None:
        self.posts = getattr(self, "posts", 0) + 1
        if self.posts != 3:
            super().post(edge, kind, register, clock)


def test_reordered_edge() -> None:
    """ACT-FIFO."""
    caught("ACT-FIFO", chain(1), make=Reorders)


def test_lost_message() -> None:
    """ACT-FIFO: the one after it does not follow; ACT-QUIET: if there is none, the run says who waits."""
    caught("ACT-FIFO", chain(1), make=LosesAMessage)
    caught("waits for", chain(1, number=1), make=LosesAMessage)


# --- faults of work: only bits can tell -----------------------------------------------------------------------------


def addends(count: int) -> tuple[dict[str, Any], np.ndarray[Any, Any]]:
    values = np.random.default_rng(0).standard_normal((count, 50)).astype(np.float32)
    kernels = {"source": lambda at: values, "cut": lambda at, x: x[at.phase], "gather": lambda at, a, b: a + b}
    return kernels, trees.fold_parts(list(values), "sum")


@pytest.mark.parametrize("count", [2, 4, 5, 8])
def test_sequential_accumulation_changes_bits(count: int) -> None:
    """ACT-ACC: one after the other is another sum from 4 micro-batches on."""
    kernels, wanted = addends(count)
    plan = cut_and_gather("unpack", "acc", count)
    assert flow.same_bits(run(plan, kernels).outputs["sink"][0], wanted)
    total: list[Any] = []

    def add_as_they_come(at: Any, *parts: Any) -> Any:
        value = parts[0]
        for part in parts[1:]:
            value = value + part
        return value

    sequential = replace(plan, tasks=tuple(replace(t, kind="pack") if t.kind == "acc" else t for t in plan.tasks))
    total = run(sequential, {**kernels, "gather": add_as_they_come}).outputs["sink"]
    assert flow.same_bits(total[0], wanted) == (count < 4)


def test_folding_by_arrival_changes_bits_with_the_schedule() -> None:
    """ACT-STEP: an actor that looks at what came first gives as many results as there are orders."""

    class ByArrival(Actor):
        """Remembers in which order its inputs came."""

        def receive_ready(self, into: In, register: Register) -> None:
            super().receive_ready(into, register)
            self.parts.append(register.content)

        def launch(self, phase: int) -> None:
            if len(self.inputs) > 1:
                self.run.results[self.task.id].append(tuple(self.parts))
                self.parts = []
            else:
                super().launch(phase)

    plan = diamond()
    assert len(explore(plan, symbols(plan)).outcomes) == 1
    assert len(explore(plan, symbols(plan), actor=ByArrival).outcomes) == 2


def test_a_payload_that_counts_calls_is_found() -> None:
    """ACT-STEP: state outside registers makes the result depend on the schedule."""
    plan, results = diamond(), set()
    for seed in range(20):
        calls: list[int] = []

        def count(at: Any, *values: Any, calls: list[int] = calls) -> int:
            calls.append(0)
            return len(calls)

        results.add(str(run(plan, {"source": count, "l": count, "r": count}, schedule=Random(seed)).outputs))
    assert len(results) == 2


# --- faults of plans ------------------------------------------------------------------------------------------------


def _unguarded() -> Plan:
    """An order edge was dropped: what it kept apart may now overlap."""
    return line(order=False)


def _number_zero() -> Plan:
    return chain().with_numbers({0: 0})


def _one_backward_too_few() -> Plan:
    plan = accumulation(4)
    tasks = tuple(replace(t, count=3) if t.kind == "acc" else t for t in plan.tasks)
    return replace(plan, tasks=tasks)


def _gather_missed() -> Plan:
    """A shard is read on a rank that never received it."""
    b = PlanBuilder()
    x = b.register("x", b.task("source", kind="source"))
    b.task("sink", rank=1, kind="sink", inputs=[x])
    return b.plan()


def _same_offset() -> Plan:
    b = PlanBuilder()
    source = b.task("source", kind="source")
    x = b.register("x", source, bytes=8, memory=Memory(0, 0))
    y = b.register("y", source, bytes=8, memory=Memory(0, 0))
    b.task("sink", kind="sink", inputs=[x, y])
    return b.plan()


PLANS: dict[str, tuple[str, Callable[[], Plan]]] = {
    "overlapping offsets": ("PROOF-SHARE", _same_offset),
    "offsets that overlap by a byte": ("PROOF-SHARE", lambda: line(order=True, places=(0, 7, 16))),
    "order edge dropped": ("PROOF-SHARE", _unguarded),
    "buffer on the wrong stream": ("PROOF-LIVE", buffer_on_forward_stream),
    "sends that meet": ("PROOF-LIVE", sends_that_meet),
    "register number 0": ("PLAN-FORM", _number_zero),
    "accumulation of the wrong count": ("PROOF-RATES", _one_backward_too_few),
    "gather missed": ("PLAN-FORM", _gather_missed),
    "receives in another order": ("PROOF-MESSAGES", lambda: two_messages(swap=True)),
}


@pytest.mark.parametrize("name", PLANS)
def test_faults_of_plans_are_caught(name: str) -> None:
    """Before anything runs."""
    rule, make = PLANS[name]
    assert any(rule in fault for fault in verify(make()).faults)


def test_shared_bytes_are_caught_in_the_run_too() -> None:
    """ACT-SHARE, for plans that nobody proved."""
    caught("ACT-SHARE", _same_offset())
    caught("ACT-SHARE", _unguarded())


def test_there_are_enough_faults() -> None:
    """Actors, bus, work, plans."""
    assert len(ACTORS) + 2 + 3 + len(PLANS) >= 25
    assert fault_free(chain()).actions == 3
