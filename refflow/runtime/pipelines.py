"""Plans to learn from: pipelines under GPipe and 1F1B, and two real deadlocks.

Implements PIPE-GPIPE, PIPE-1F1B, PIPE-DEADLOCK-BUFFER and PIPE-DEADLOCK-RENDEZVOUS of spec/text/actors.md.  The plans
are for virtual time, proofs and pictures; payloads are named, what they compute is nobody's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial

from ..graph.plan import Plan, PlanBuilder


@dataclass(frozen=True)
class Stage:
    """The task ids of one stage, and its stash: the activations that wait for their backward."""

    forward: int
    backward: int
    stash: int


def gpipe(stages: int, micro_batches: int, **options: object) -> Plan:
    """GPipe (Huang et al., 2019): every stage runs all forwards, then all backwards.  Options as `pipeline`."""
    forward = [["F"] * micro_batches + ["B"] * micro_batches for _ in range(stages)]
    return pipeline(f"GPipe {stages}x{micro_batches}", forward, **options)  # type: ignore[arg-type]


def one_f_one_b(stages: int, micro_batches: int, **options: object) -> Plan:
    """1F1B (Narayanan et al., PipeDream, 2019, with a flush): stage s runs S - 1 - s forwards ahead, then alternates."""
    orders = []
    for stage in range(stages):
        ahead = min(stages - 1 - stage, micro_batches)
        steady = micro_batches - ahead
        orders.append(["F"] * ahead + ["F", "B"] * steady + ["B"] * ahead)
    return pipeline(f"1F1B {stages}x{micro_batches}", orders, **options)  # type: ignore[arg-type]


def pipeline(
    name: str,
    orders: Sequence[Sequence[str]],
    *,
    forward_time: Fraction | int = 1,
    backward_time: Fraction | int = 2,
    stash: int | None = None,
    in_flight: int | None = None,
    link_time: Fraction | int = 0,
    bytes: int = 0,
    iterations: int = 1,
) -> Plan:
    """A pipeline with one rank a stage; `orders[s]` is the static order of stage s, "F" and "B".

    `stash` is the register number between a forward and its backward, `in_flight` that of every message's sent and
    received registers and the channel's capacity (both: as many as there are micro-batches); `link_time` is how
    long a message occupies its link; `bytes` that of an activation.
    """
    stages, micro = len(orders), orders[0].count("F")
    b = PlanBuilder(name)
    number = micro if in_flight is None else in_flight
    register = partial(b.register, number=number, bytes=bytes)
    weights, forwards, backwards = _forward_parts(b, stages, micro, Fraction(forward_time))
    x = register("x", b.task("load", stream="copy", kind="source", payload="load"))
    made: list[Stage] = []
    for s in range(stages):  # forwards, and the messages down
        b.feed(x, forwards[s])
        b.feed(weights[s], forwards[s])
        kept = b.register(f"stash {s}", forwards[s], number=micro if stash is None else stash, bytes=bytes)
        made.append(Stage(forwards[s], backwards[s], kept))
        if s + 1 < stages:
            y = register(f"y{s}", forwards[s])
            lanes = (f"comm>{s + 1}", f"comm<{s}")
            x = b.message(y, s + 1, capacity=number, number=number, time=link_time, streams=lanes)
    for s in reversed(range(stages)):  # backwards, and the messages up
        b.feed(made[s].stash, backwards[s])
        _update(b, s, micro, backwards[s], bytes)
        if s > 0:
            g = register(f"g{s}", backwards[s])
            lanes = (f"comm>{s - 1}", f"comm<{s}")
            b.feed(b.message(g, s - 1, capacity=number, number=number, time=link_time, streams=lanes), backwards[s - 1])
    for task in backwards:
        b.retime(task, backward_time)
    static = {
        (s, "compute"): [forwards[s] if letter == "F" else backwards[s] for letter in orders[s]] for s in range(stages)
    }
    return b.plan(orders=static, iterations=iterations)


def _forward_parts(b: PlanBuilder, stages: int, micro: int, time: Fraction) -> tuple[list[int], list[int], list[int]]:
    """For every stage its weights, repeated for each micro-batch, its forward and its backward."""
    weights, forwards, backwards = [], [], []
    for s in range(stages):
        variable = b.task(f"step {s}", rank=s, stream="update", kind="source", payload="weights")
        w = b.register(f"w{s}", variable)
        repeat = b.task(f"repeat {s}", rank=s, stream="update", kind="repeat", inputs=[w], count=micro)
        weights.append(b.register(f"w{s} each", repeat, number=micro, in_place=w))
        forwards.append(b.task(f"F{s}", rank=s, payload="forward", time=time))
        backwards.append(b.task(f"B{s}", rank=s, payload="backward"))
    return weights, forwards, backwards


def _update(b: PlanBuilder, s: int, micro: int, backward: int, bytes: int) -> None:
    """The gradient of a stage, accumulated over the micro-batches, and the update, which the next weights wait for."""
    g = b.register(f"grad {s}", backward, number=2, bytes=bytes)
    acc = b.task(f"acc {s}", rank=s, stream="update", kind="acc", payload="add", inputs=[g], count=micro)
    update = b.task(
        f"update {s}", rank=s, stream="update", kind="sink", inputs=[b.register(f"sum {s}", acc, bytes=bytes)]
    )
    done = b.register(f"updated {s}", update, kind="ctrl", initial=1)
    b.feed(done, b.named(f"step {s}"))


def buffer_on_forward_stream(*, repeat_number: int = 1, buffer_stream: str = "forward") -> Plan:
    """Oneflow-Inc/libai#232 in small: two stages, accumulation 4.

    The buffer that takes gradients into stage 0 was put on the stream of its forwards, in an order that lets two
    forwards run ahead; the repeat of the weights had register number 1, so a second forward needs the first
    backward, which reads the same weights, which needs the buffer, whose turn is after that forward.
    """
    b, micro = PlanBuilder("libai#232"), 4
    w = b.register("w", b.task("variable", stream="update", kind="source"))
    repeat = b.task("repeat", stream="update", kind="repeat", inputs=[w], count=micro)
    each = b.register("w each", repeat, number=repeat_number, in_place=w)
    x = b.register("x", b.task("load", stream="copy", kind="source"), number=micro)
    forward = b.task("forward 0", stream="forward", inputs=[x, each], time=1)
    y = b.register("y", forward, number=micro)
    stash = b.register("stash", forward, number=micro)
    there = b.message(y, 1, capacity=micro, number=micro, streams=("comm>1", "comm<0"))
    turn = b.register("g", b.task("forward and backward 1", rank=1, inputs=[there], time=3), number=micro)
    back = b.message(turn, 0, capacity=micro, number=micro, streams=("comm>0", "comm<1"))
    buffer = b.task("buffer", stream=buffer_stream, kind="buffer", inputs=[back])
    held = b.register("g buffered", buffer)
    backward = b.task("backward 0", stream="backward", inputs=[held, stash, each], time=2)
    acc = b.task("acc", stream="update", kind="acc", inputs=[b.register("grad", backward)], count=micro)
    b.task("update", stream="update", kind="sink", inputs=[b.register("sum", acc)])
    f, g = forward, buffer
    order = [f, f, g, f, g, f, g, g] if buffer_stream == "forward" else [f] * micro
    orders = {(0, "forward"): order}
    if buffer_stream == "backward":
        orders[0, "backward"] = [buffer, backward] * micro
    return b.plan(orders=orders)


def sends_that_meet(*, capacity: int = 0, cure: str = "") -> Plan:
    """Two ranks exchange a register; each orders its send before its receive (PyTorch's and NCCL's classic hang).

    With capacity 0 both sends wait for the other's receive.  Cures: a capacity of 1, or cure="order" (rank 1 receives
    first), or cure="streams" (sends and receives on streams of their own).
    """
    b = PlanBuilder("sends that meet")
    lanes = ("comm send", "comm recv") if cure == "streams" else ("comm", "comm")
    for rank in (0, 1):
        made = b.register(f"x{rank}", b.task(f"make {rank}", rank=rank, kind="source"))
        got = b.message(made, 1 - rank, capacity=capacity, streams=lanes, time=1)
        b.task(f"use {rank}", rank=1 - rank, kind="sink", inputs=[got])
    sends = [b.named("send x0"), b.named("send x1")]
    receives = [b.named("recv x1"), b.named("recv x0")]
    orders = {(rank, "comm"): [sends[rank], receives[rank]] for rank in (0, 1)} if cure != "streams" else {}
    if cure == "order":
        orders[1, "comm"] = [receives[1], sends[1]]
    return b.plan(orders=orders)
