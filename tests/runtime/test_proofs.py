"""PROOF-*: rates, liveness, messages, memory, period and register numbers, on plans whose answers are known by hand."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import assume, given, settings

from refflow.graph.plan import DeadlockError, Memory, Plan, PlanBuilder, PlanError
from refflow.graph.proofs import actions, best_period, bubble, derive, irreducible, period, verify
from refflow.runtime.pipelines import buffer_on_forward_stream, gpipe, one_f_one_b, sends_that_meet

from .plans import accumulation, chain, crossing, diamond, in_place_chain, loop, plans

# --- rates ----------------------------------------------------------------------------------------------------------


def test_rates_of_repeat_unpack_acc_and_pack() -> None:
    """PROOF-RATES: one cycle of each is `count` actions."""
    plan = accumulation(4)
    named = {task.name: count for task, count in zip(plan.tasks, actions(plan))}
    assert named == {
        "weights": 1, "repeat": 4, "load": 1, "unpack": 4, "work": 4, "acc": 4, "pack": 4, "update": 1, "output": 1,
    }  # fmt: skip


def test_rates_that_clash_are_named() -> None:
    """PROOF-RATES."""
    b = PlanBuilder()
    x = b.register("x", b.task("source", kind="source"))
    many = b.register("many", b.task("repeat", kind="repeat", inputs=[x], count=3), number=3)
    b.task("join", kind="sink", inputs=[x, many])
    report = verify(b.plan())
    assert not report.live and "cannot keep pace" in report.faults[0] and "'join'" in report.faults[0]


def test_rates_that_an_order_breaks_are_named() -> None:
    """PROOF-RATES: an order that lists an action too often."""
    b = PlanBuilder()
    x = b.register("x", b.task("source", kind="source"))
    b.task("sink", kind="sink", inputs=[x])
    assert "cannot keep pace: the order of stream" in verify(b.plan(orders={(0, "compute"): [0, 1, 1]})).faults[0]


# --- liveness -------------------------------------------------------------------------------------------------------


def test_a_loop_needs_a_token() -> None:
    """PROOF-LIVE: a cycle of data without a token, in words; with one, sound."""
    assert verify(loop(delay=1)).sound
    assert verify(loop(delay=2, number=3)).sound
    assert not verify(loop(delay=0)).live
    assert "gives back" in verify(loop(delay=2, number=2)).deadlock  # all full, so none is free to be filled
    b = PlanBuilder()
    x = b.register("x", b.task("source", kind="source"))
    one = b.task("one", inputs=[x])
    two = b.task("two", inputs=[b.register("y", one)])
    b.feed(b.register("z", two), one)
    with pytest.raises(
        DeadlockError,
        match=r"'one' waits for a register 'z' of 'two',\n  which 'two' waits for a register 'y' of 'one'",
    ):
        verify(b.plan()).check()


def test_libai_232_is_reproduced_explained_and_cured() -> None:
    """PIPE-DEADLOCK-BUFFER (Oneflow-Inc/libai#232): a buffer on the forward stream, a repeat with register number 1."""
    report = verify(buffer_on_forward_stream())
    assert report.deadlock == (
        "PROOF-LIVE: deadlock: 'backward 0' #0 waits for a register 'g buffered' of 'buffer' #0,\n"
        "  which 'buffer' #0 waits for its turn on stream 'forward' of rank 0, behind 'forward 0' #1,\n"
        "  which 'forward 0' #1 waits for a register 'w each' of 'repeat' #1,\n"
        "  which 'repeat' #1 waits for a free register 'w each' (it has 1) that only 'backward 0' #0 gives back, and so "
        "nobody ever acts"
    )
    assert verify(buffer_on_forward_stream(buffer_stream="backward")).sound
    assert verify(buffer_on_forward_stream(buffer_stream="buffer")).sound
    assert [n for n in (1, 2, 3, 4) if verify(buffer_on_forward_stream(repeat_number=n)).sound] == [2, 3, 4]
    assert (
        period(buffer_on_forward_stream(repeat_number=4)).time
        < period(buffer_on_forward_stream(buffer_stream="buffer")).time
    )


def test_two_sends_that_meet_are_reproduced_explained_and_cured() -> None:
    """PIPE-DEADLOCK-RENDEZVOUS (PyTorch, NCCL): both ranks send first, on channels of capacity 0."""
    report = verify(sends_that_meet())
    assert report.deadlock == (
        "PROOF-LIVE: deadlock: 'send x0' waits for 'recv x0' to be posted, because 'x0 0>1' has capacity 0,\n"
        "  which 'recv x0' waits for its turn on stream 'comm' of rank 1, behind 'send x1',\n"
        "  which 'send x1' waits for 'recv x1' to be posted, because 'x1 1>0' has capacity 0,\n"
        "  which 'recv x1' waits for its turn on stream 'comm' of rank 0, behind 'send x0', and so nobody ever acts"
    )
    assert any("criss-cross" in fault for fault in report.faults)
    for cured in (sends_that_meet(capacity=1), sends_that_meet(cure="order"), sends_that_meet(cure="streams")):
        assert verify(cured).sound


# --- messages -------------------------------------------------------------------------------------------------------


def two_messages(swap: bool = False) -> Plan:
    b = PlanBuilder("two messages")
    made = [b.register(n, b.task(f"make {n}", kind="source")) for n in ("a", "b")]
    got = [b.message(r, 1) for r in made]
    b.task("use", rank=1, kind="sink", inputs=got)
    sends = [b.named("send a"), b.named("send b")]
    receives = [b.named("recv a"), b.named("recv b")]
    return b.plan(orders={(0, "comm"): sends, (1, "comm"): receives[::-1] if swap else receives})


def test_messages_are_derived_in_one_order() -> None:
    """PLAN-MESSAGE: by action, then task; what a stream receives in some order is sent in it."""
    assert verify(two_messages()).sound
    plan = one_f_one_b(3, 4)
    assert plan.messages == derive(plan) and len(plan.messages) == 2 * 2 * 4
    ways = {(m.source, m.target): [] for m in plan.messages}
    for message in plan.messages:
        ways[message.source, message.target].append(message.index)
    assert all(indices == [0, 1, 2, 3] for indices in ways.values())


def test_ends_that_differ_are_named() -> None:
    """PROOF-MESSAGES: one end sends a, b and the other expects b, a."""
    faults = verify(two_messages(swap=True)).faults
    assert any("one end sends what the other does not expect" in fault for fault in faults), faults


def test_message_lists_must_be_complete() -> None:
    """PROOF-MESSAGES."""
    plan = two_messages()
    for messages, words in (
        (plan.messages[:1], "is not listed"),
        (plan.messages + plan.messages[:1], "is listed twice"),
        ((plan.messages[0], replace(plan.messages[1], target=0)), "between other ranks"),
        ((*plan.messages, replace(plan.messages[1], index=5)), "never sent"),
    ):
        assert any(words in fault for fault in verify(replace(plan, messages=messages)).faults)


# --- memory ---------------------------------------------------------------------------------------------------------


def line(order: bool, *, number: int = 1, places: tuple[int, int, int] = (0, 8, 0)) -> Plan:
    """source -a-> f -b-> g -c-> sink, with a and c in the same bytes unless `places` says otherwise."""
    b = PlanBuilder("line")
    source = b.task("source", kind="source")
    a = b.register("a", source, bytes=8, memory=Memory(0, places[0]), number=number)
    f = b.task("f", inputs=[a])
    y = b.register("b", f, bytes=8, memory=Memory(0, places[1]))
    g = b.task("g", inputs=[y])
    c = b.register("c", g, bytes=8, memory=Memory(0, places[2]))
    sink = b.task("sink", kind="sink", inputs=[c])
    return b.plan(orders={(0, "compute"): [source, f, g, sink]} if order else None)


def test_sharing_bytes_across_iterations() -> None:
    """PROOF-SHARE: without an order, the source of the next iteration may overwrite what the sink still reads."""
    assert verify(line(order=True)).sound
    faults = verify(line(order=False)).faults
    assert any("'source' may write for the next iteration while 'sink' still reads" in fault for fault in faults), (
        faults
    )
    assert verify(line(order=False, places=(0, 8, 16))).sound


def test_overlapping_offsets_are_found() -> None:
    """PROOF-SHARE: a byte is enough."""
    assert not verify(line(order=True, places=(0, 7, 16))).sound
    assert verify(line(order=True, places=(0, 8, 7))).faults
    assert "has number 2" in " ".join(verify(line(order=True, number=2, places=(0, 16, 0))).faults)


def test_a_control_edge_makes_sharing_safe() -> None:
    """PROOF-SHARE: an explicit order edge, with one token, is as good as a stream's order."""
    b = PlanBuilder("guarded")
    source = b.task("source", kind="source")
    a = b.register("a", source, bytes=8, memory=Memory(0, 0))
    f = b.task("f", inputs=[a])
    g = b.task("g", inputs=[b.register("b", f, bytes=8)])
    c = b.register("c", g, bytes=8, memory=Memory(0, 0))
    sink = b.task("sink", kind="sink", inputs=[c])
    assert not verify(b.plan()).sound
    b.feed(b.register("guard", sink, kind="ctrl", initial=1), source)
    assert verify(b.plan()).sound


def test_in_place_writes_come_last() -> None:
    """PROOF-INPLACE: who writes over a register comes after all others that read it."""
    assert verify(in_place_chain()).sound

    def two_readers(ordered: bool) -> Plan:
        b = PlanBuilder("two readers")
        x = b.register("x", b.task("source", kind="source"))
        other = b.task("other", kind="sink", inputs=[x])
        writer = b.task("writer", inputs=[x])
        y = b.register("y", writer, in_place=x)
        b.task("sink", kind="sink", inputs=[y])
        if ordered:
            b.control(other, writer)
        return b.plan()

    assert verify(two_readers(True)).sound
    assert "while 'other' may still read it" in verify(two_readers(False)).faults[0]


def test_memory_bound() -> None:
    """PROOF-BYTES: blocks once, registers by number, aliases not at all, channels at the receiver."""
    assert verify(line(order=True)).bytes[0].total == 16
    assert verify(line(order=False, places=(0, 8, 16))).bytes[0].blocks == 24
    b = PlanBuilder()
    w = b.register("w", b.task("source", kind="source", workspace=5), bytes=10)
    each = b.register("each", b.task("repeat", kind="repeat", inputs=[w], count=4), number=4, bytes=10, in_place=w)
    y = b.register("y", b.task("f", inputs=[each]), number=3, bytes=7)
    b.task("sink", rank=1, kind="sink", inputs=[b.message(y, 1, capacity=2)])
    need = verify(b.plan()).bytes
    assert (need[0].total, need[1].total) == (5 + 10 + 3 * 7, 2 * 7 + 7)
    assert "needs 36 bytes and has 35" in verify(b.plan(), {0: 35}).faults[0]


# --- period ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stages", [1, 2, 3, 4])
@pytest.mark.parametrize("micro", [1, 2, 4, 8])
def test_pipelines_have_the_known_bubble(stages: int, micro: int) -> None:
    """PROOF-BUBBLE: (S-1)/(M+S-1), by the event graph alone."""
    for make in (gpipe, one_f_one_b):
        plan = make(stages, micro)
        assert verify(plan).sound
        assert period(plan).time == (micro + stages - 1) * 3
        assert bubble(plan, period(plan).time) == Fraction(stages - 1, micro + stages - 1)


def test_period_of_a_ring() -> None:
    """PROOF-PERIOD: time around a loop over the tokens on it."""
    b = PlanBuilder("ring")
    x = b.register("x", b.task("source", kind="source", stream="copy"))
    one = b.task("one", inputs=[x], time=3, stream="compute 1")
    two = b.task("two", inputs=[b.register("y", one, number=2)], time=4, stream="compute 2")
    b.feed(b.register("z", two, number=3, initial=2), one)
    assert period(b.plan()).time == 4  # two alone: 4; the ring: 7/2
    assert [name for name, _ in period(b.plan()).critical] == [two]
    b.retime(two, 3)
    assert period(b.plan()).time == 3
    slow = replace(b.plan(), registers=tuple(replace(r, initial=min(r.initial, 1)) for r in b.plan().registers))
    assert period(slow).time == 6


def test_one_register_serialises_two_overlap() -> None:
    """PROOF-PERIOD: double buffering; PROOF-NUMBERS: and no more than that is needed."""

    def stages(number: int) -> Plan:
        b = PlanBuilder()
        x = b.register("x", b.task("s", kind="source", time=2, stream="copy"), number=number)
        b.task("t", kind="sink", inputs=[x], time=3)
        return b.plan()

    assert (period(stages(1)).time, period(stages(2)).time) == (5, 3)
    assert irreducible(stages(1)) == {0: 2}


@pytest.mark.parametrize("plan", [one_f_one_b(3, 4), gpipe(2, 4), accumulation(4), chain(3)], ids=lambda p: p.name)
def test_register_numbers_are_irreducible(plan: Plan) -> None:
    """PROOF-NUMBERS: they reach the best period, and none can drop by one."""
    numbers = irreducible(plan)
    best = best_period(plan)
    assert period(plan.with_numbers(numbers)).time == best
    for register, number in numbers.items():
        if number == 1 and plan.registers[register].kind == "message":
            continue  # 0 would be another thing: a rendezvous
        fewer = plan.with_numbers({**numbers, register: number - 1})
        assert not verify(fewer).live or period(fewer).time > best


def test_1f1b_needs_fewer_registers_than_gpipe() -> None:
    """PROOF-NUMBERS: the stash of stage s is S - s under 1F1B, M under GPipe (and one fewer nowhere)."""
    stages, micro = 3, 6
    for make, wanted in ((one_f_one_b, [3, 2, 1]), (gpipe, [6, 6, 6])):
        plan = make(stages, micro)
        numbers = irreducible(plan)
        assert [numbers[plan.register(f"stash {s}").id] for s in range(stages)] == wanted


@settings(max_examples=40)
@given(plans(most=4, static=True))
def test_more_registers_never_slow_a_plan(plan: Plan) -> None:
    """PROOF-NUMBERS: fewer registers never help, so irreducible numbers are found one by one."""
    report = verify(plan)
    assume(report.live)
    taken = {out for task in plan.tasks for _, out in task.in_place}
    for register in plan.registers:
        if register.number and register.id not in taken:
            more = plan.with_numbers({register.id: register.number + 1})
            assert period(more).time <= period(plan).time


def test_impossible_periods_are_refused() -> None:
    """PROOF-BUBBLE, PROOF-NUMBERS."""
    with pytest.raises(PlanError, match="no time"):
        bubble(diamond(), Fraction(1))
    with pytest.raises(DeadlockError):
        period(loop(delay=0))
    assert period(crossing(), lambda register: Fraction(2)).time == 4  # post there, message back
