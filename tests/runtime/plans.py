"""Plans the runtime's tests are about: small named ones, and random ones."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from refflow.graph.plan import Memory, Plan, PlanBuilder, TaskKind
from refflow.graph.proofs import actions
from refflow.graph.proofs.expansion import expand
from refflow.graph.proofs.liveness import order
from refflow.graph.proofs.memory import roots


def chain(length: int = 1, number: int = 2, iterations: int = 1) -> Plan:
    """source -> c0 -> c1 ... -> sink."""
    b = PlanBuilder(f"chain of {length}")
    x = b.register("x", b.task("source", kind="source", payload="source"), number=number)
    for i in range(length):
        x = b.register(f"y{i}", b.task(f"c{i}", inputs=[x], payload="c", time=1), number=number)
    b.task("sink", kind="sink", inputs=[x])
    return b.plan(iterations=iterations)


def diamond(number: int = 1) -> Plan:
    """One register with two readers whose outputs meet again."""
    b = PlanBuilder("diamond")
    x = b.register("x", b.task("source", kind="source", payload="source"), number=number)
    left = b.register("left", b.task("l", inputs=[x], payload="l"), number=number)
    right = b.register("right", b.task("r", inputs=[x], payload="r"), number=number)
    b.task("sink", kind="sink", inputs=[left, right])
    return b.plan()


def accumulation(count: int = 4, number: int = 2) -> Plan:
    """A weight repeated, `count` micro-batches, their gradients accumulated: repeat, unpack, acc and pack together."""
    b = PlanBuilder(f"accumulation {count}")
    w = b.register("w", b.task("weights", kind="source", payload="weights"))
    each = b.register("w each", b.task("repeat", kind="repeat", inputs=[w], count=count), number=count, in_place=w)
    x = b.register("x", b.task("load", kind="source", payload="load"))
    micro = b.register("x each", b.task("unpack", kind="unpack", inputs=[x], count=count, payload="cut"), number=number)
    work = b.task("work", inputs=[micro, each], payload="work")
    g = b.register("g", work, number=number, time_shape=(1, count))
    y = b.register("y", work, number=number, time_shape=(1, count))
    total = b.register("sum", b.task("acc", kind="acc", inputs=[g], count=count, payload="add"))
    whole = b.register("ys", b.task("pack", kind="pack", inputs=[y], count=count, payload="join"))
    b.task("update", kind="sink", inputs=[total])
    b.task("output", kind="sink", inputs=[whole])
    return b.plan()


def cut_and_gather(cut: TaskKind, gather: TaskKind, count: int = 2) -> Plan:
    """source -> repeat or unpack -> acc or pack -> sink."""
    b = PlanBuilder(f"{cut} {gather}")
    x = b.register("x", b.task("source", kind="source", payload="source"))
    place = x if cut == "repeat" else None
    each = b.register(
        "each", b.task(cut, kind=cut, inputs=[x], count=count, payload="cut"), number=count, in_place=place
    )
    all = b.register("all", b.task(gather, kind=gather, inputs=[each], count=count, payload="gather"))
    b.task("sink", kind="sink", inputs=[all])
    return b.plan()


def loop(delay: int = 1, number: int = 2) -> Plan:
    """State that goes round: step reads the state the step before left, `delay` of them full at the start."""
    b = PlanBuilder("loop")
    x = b.register("x", b.task("source", kind="source", payload="source"))
    step = b.task("step", inputs=[x], payload="step")
    state = b.register("state", step, number=number, initial=delay)
    b.register("y", step)
    b.feed(state, step)
    b.task("sink", kind="sink", inputs=[2])
    return b.plan()


def in_place_chain() -> Plan:
    """Two tasks that work in place, one after the other, on one register's memory."""
    b = PlanBuilder("in place")
    x = b.register("x", b.task("source", kind="source", payload="source"), bytes=4, memory=Memory(0, 0))
    y = b.register("y", b.task("first", inputs=[x], payload="f"), bytes=4, memory=Memory(0, 0), in_place=x)
    z = b.register("z", b.task("second", inputs=[y], payload="g"), bytes=4, memory=Memory(0, 0), in_place=y)
    b.task("sink", kind="sink", inputs=[z])
    return b.plan()


def crossing(capacity: int = 0, number: int = 1) -> Plan:
    """Rank 0 makes, rank 1 uses."""
    b = PlanBuilder(f"crossing, capacity {capacity}")
    x = b.register("x", b.task("source", kind="source", payload="source"), number=number)
    b.task("sink", rank=1, kind="sink", inputs=[b.message(x, 1, capacity=capacity, number=number)])
    return b.plan()


@st.composite
def plans(draw: Any, *, ranks: int = 2, most: int = 7, static: bool = False, sharing: bool = False) -> Plan:
    """Well-formed plans with consistent rates that may deadlock: too few registers, loops without a token, static
    orders that contradict the data, rendezvous.  `static`: every stream has an order;
    `sharing`: registers lie at drawn offsets of one block.
    """
    b = PlanBuilder("random")
    ints = lambda low, high: draw(st.integers(low, high))  # noqa: E731
    live: list[tuple[int, int, int]] = []  # register, rank, how many in an iteration
    tasks: list[tuple[int, int, int]] = []  # task, rank, actions in an iteration
    base = draw(st.sampled_from([1, 2, 4]))
    for s in range(ints(1, 2)):
        task = b.task(f"source {s}", rank=ints(0, ranks - 1), kind="source", payload="p", time=ints(0, 2))
        tasks.append((task, b._tasks[task].rank, base))
        live.append((b.register(f"s{s}", task, number=ints(1, 3)), b._tasks[task].rank, base))
    for t in range(ints(1, most)):
        register, rank, rate = live[ints(0, len(live) - 1)]
        kind = draw(st.sampled_from(["compute"] * 4 + ["buffer", "repeat", "acc", "pack", "unpack", "cross"]))
        if kind == "cross":
            if ranks == 1:
                continue
            got = b.message(register, 1 - rank, capacity=ints(0, 2), number=ints(1, 2), name=f"m{t}", time=ints(0, 1))
            live.append((got, 1 - rank, rate))
            tasks += [(b.named(f"send m{t}"), rank, rate), (b.named(f"recv m{t}"), 1 - rank, rate)]
            continue
        inputs = [register]
        if kind == "compute":
            more = [r for r, where, pace in live if (where, pace) == (rank, rate) and r not in inputs]
            inputs += more[: ints(0, 1)]
        count = 2 if kind in ("repeat", "unpack") or (kind in ("acc", "pack") and rate % 2 == 0) else 1
        kind = "compute" if kind in ("acc", "pack") and count == 1 else kind
        payload = "" if kind in ("buffer", "repeat") else "p"
        stream = draw(st.sampled_from(["compute", "copy"]))
        task = b.task(
            f"{kind} {t}",
            rank=rank,
            stream=stream,
            kind=kind,
            inputs=inputs,
            count=count,
            payload=payload,
            time=ints(0, 2),
        )
        after = rate * count if kind in ("repeat", "unpack") else rate // count
        tasks.append((task, rank, max(rate, after)))
        alone = len(b._consumers[register]) == 1
        place = register if kind in ("compute", "buffer", "repeat") and alone and draw(st.booleans()) else None
        number = 1 if place is not None and kind != "repeat" else ints(1, 3)
        live.append((b.register(f"r{t}", task, number=number, in_place=place), rank, after))
    _controls(b, draw, tasks)
    plan = b.plan(messages=[])
    orders = _orders(plan, draw, static)
    return _placed(b.plan(orders=orders), draw) if sharing else b.plan(orders=orders)


def _placed(plan: Plan, draw: Any) -> Plan:
    """Some registers of number 1 that start empty get four or eight bytes in a block of 16; aliases follow."""
    root = roots(plan)
    with_aliases = {r for r, other in enumerate(root) if other != r} | {o for r, o in enumerate(root) if o != r}
    places: dict[int, tuple[int, int]] = {}
    unread = 0  # two that nobody reads may overwrite each other unseen: refused, though nothing shows it
    for register in plan.registers:
        free = register.kind == "data" and register.number == 1 and not register.initial
        free = free and (bool(register.consumers) or unread == 0)
        if free and register.id not in with_aliases and draw(st.integers(0, 2)):
            unread += not register.consumers
            places[register.id] = (draw(st.sampled_from([4, 8])), draw(st.sampled_from([0, 4, 8])))
    return replace(
        plan,
        registers=tuple(
            replace(r, bytes=places[r.id][0], memory=Memory(0, places[r.id][1])) if r.id in places else r
            for r in plan.registers
        ),
    )


def _controls(b: PlanBuilder, draw: Any, tasks: list[tuple[int, int, int]]) -> None:
    """Control edges between tasks that act equally often, forward, or back with or without a token."""
    plain = [(task, rate) for task, _, rate in tasks if b._tasks[task].count == 1 and b._tasks[task].kind != "source"]
    for _ in range(draw(st.integers(0, 2))):
        pairs = [(p, q) for p, m in plain for q, n in plain if p < q and m == n]
        if not pairs:
            return
        one, two = draw(st.sampled_from(pairs))
        if draw(st.booleans()):
            b.control(one, two, number=draw(st.integers(1, 2)))
        else:
            number = draw(st.integers(1, 2))
            initial = draw(st.sampled_from([0, 1, 1]))
            back = b.register(f"back {len(b._registers)}", two, kind="ctrl", number=number, initial=initial)
            b.feed(back, one)


def _orders(plan: Plan, draw: Any, static: bool) -> dict[tuple[int, str], list[int]]:
    """Static orders for some streams: one that works without them, with a few neighbours swapped; or any at all."""
    try:
        events = expand(plan)
        placed = order(events)
    except Exception:
        return {}
    orders: dict[tuple[int, str], list[int]] = {}
    for stream in plan.streams:
        if not static and not draw(st.booleans()):
            continue
        here = [
            v for v in placed
            if events.base[events.task[v]] <= v < events.base[events.task[v]] + events.actions[events.task[v]]
            and (plan.tasks[events.task[v]].rank, plan.tasks[events.task[v]].stream) == (stream.rank, stream.name)
        ]  # fmt: skip
        entries = [events.task[v] for v in here]
        for _ in range(draw(st.integers(0, 4))):
            if len(entries) > 1:
                i = draw(st.integers(0, len(entries) - 2))
                entries[i], entries[i + 1] = entries[i + 1], entries[i]
        orders[stream.rank, stream.name] = entries
    return orders


def acted(plan: Plan) -> int:
    """Actions in an iteration."""
    return sum(actions(plan))
