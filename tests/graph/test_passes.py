"""Each pass keeps every bit and does what it says.

PASS-BITS, PASS-DEAD, PASS-COMMON, PASS-COMPOSE, PASS-RECOMPUTE, PASS-RECOMPUTE-SCOPE, ZERO-SHARD, ZERO-STATE,
ZERO-GRADIENT, ZERO-PARAMETER.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import refflow as flow
from refflow import Tensor, nn
from refflow.graph import api
from refflow.graph.execute import execute
from refflow.graph.explain import explain_graph
from refflow.graph.logical import LogicalGraph, key
from refflow.graph.module import GraphModule
from refflow.graph.passes import common_subexpressions, compose_boxing, dead_code, recompute
from refflow.graph.zero import shard_sbp
from refflow.ir import Value
from refflow.layout import Placement
from refflow.tensor.backward import grad
from tests.graph.nets import NETS, Told, Train, attention, dropped, momentum, rows
from tests.graph.nets import run as train
from tests.graph.running import B, Of, P, S, bits

PAIR, ROW = Placement("cpu", [0, 1]), Placement("cpu", [0, 1, 2, 3])
F = nn.functional
Pass = Callable[[LogicalGraph], LogicalGraph]


@contextmanager
def as_traced() -> Iterator[list[tuple[LogicalGraph, dict[int, int], frozenset[int]]]]:
    """No passes: the graphs as the tracer leaves them, with the scopes and the forward nodes, are collected."""
    found: list[tuple[LogicalGraph, dict[int, int], frozenset[int]]] = []
    names = ("dead_code", "common_subexpressions", "compose_boxing", "recompute")
    before = {name: getattr(api, name) for name in names}

    def collect(graph: LogicalGraph, scopes: Any, forward: Any) -> LogicalGraph:
        found.append((graph, dict(scopes), forward))
        return graph

    for name in names[:3]:
        setattr(api, name, lambda graph: graph)
    api.recompute = collect  # type: ignore[attr-defined]
    try:
        yield found
    finally:
        for name, original in before.items():
            setattr(api, name, original)


def traced(function: Callable[..., Any], *args: Tensor) -> LogicalGraph:
    """The graph of a function without any pass."""
    with as_traced() as found:
        Of(function)(*args)
    return found[0][0]


def outcome(graph: LogicalGraph, *args: Value) -> Any:
    """What a graph gives and writes, node by node, at draws from 0 on; scalars are 0.25, 0.5 and so on."""
    flow.manual_seed(0)
    outputs, updates = execute(graph, args, [0.25 * (i + 1) for i in range(len(graph.scalars))])
    return bits([Tensor(v) for v in outputs]), {i: bits(Tensor(v)) for i, v in updates.items()}


def named(graph: LogicalGraph) -> list[str]:
    return [node.primitive.name for node in graph.nodes]


@pytest.mark.parametrize("told", [Told((2,), micro=2, zero=2), Told((2,), tensor=True), Told(stages=2, micro=4)], ids=str)
@pytest.mark.parametrize("net", [dropped, attention], ids=lambda net: net.__name__)
def test_every_pass_keeps_every_bit_of_a_training_step(net: Any, told: Told) -> None:
    """PASS-BITS: alone, in the usual order and in another."""
    flow.manual_seed(0)
    model = net()
    length = -(-len(model) // told.stages)
    for i, block in enumerate(model):
        block.to_global(told.placement(i // length), told.weight_sbp)
        block.to(GraphModule).set_stage(i // length, told.placement(i // length))
        block.to(GraphModule).activation_checkpointing = True
    x = flow.tensor(NETS[net], placement=told.placement(0), sbp=told.input_sbp())
    y = flow.tensor(np.arange(len(NETS[net])) % 4, placement=told.placement(told.stages - 1), sbp=told.input_sbp())
    with as_traced() as found:
        Train(model, momentum(model.parameters()), None, None, told)(x, y)
    graph, scopes, forward = found[0]
    again: Pass = lambda graph: recompute(graph, scopes, forward)  # noqa: E731
    expected = outcome(graph, x.value, y.value)
    orders: list[list[Pass]] = [
        [dead_code], [common_subexpressions], [compose_boxing], [again],
        [dead_code, common_subexpressions, compose_boxing, again], [again, compose_boxing, dead_code],
    ]  # fmt: skip
    for order in orders:
        passed = graph
        for one in order:
            passed = one(passed)
        assert outcome(passed, x.value, y.value) == expected, [one.__name__ for one in order]


def test_dead_code_leaves_draws_where_they_are() -> None:
    """PASS-DEAD"""

    def wasteful(x: Tensor) -> Tensor:
        flow.rand(4, placement=PAIR, sbp=B)
        flow.exp(x) * 2
        return x + flow.rand(4, placement=PAIR, sbp=B)

    x = flow.ones(4, placement=PAIR, sbp=B)
    graph = traced(wasteful, x)
    less = dead_code(graph)
    assert named(less) == ["rand", "add"] and len(graph.nodes) > 3 and less.draws == graph.draws == (2, 0)
    assert outcome(less, x.value) == outcome(graph, x.value)
    assert dead_code(less).nodes == less.nodes


def test_equal_work_is_done_once_but_never_random_work() -> None:
    """PASS-COMMON: 0.0 and -0.0 are two numbers, two draws are two draws, and so is one draw moved twice."""

    def f(x: Tensor) -> Any:
        one, two = (flow.rand(4, placement=PAIR, sbp=B) for _ in range(2))
        zeros = [flow.full((4,), value, placement=PAIR, sbp=B) for value in (0.0, -0.0, 0.0)]
        moved = [x.to_global(sbp=S(0)) * 2 for _ in range(2)]
        return [one - two, flow.exp(x) + flow.exp(x), *[1 / z for z in zeros], *moved]

    x = flow.ones(4, placement=PAIR, sbp=B)
    graph = traced(f, x)
    less = common_subexpressions(graph)
    names = named(less)
    assert names.count("rand") == 2 and names.count("exp") == 1 and names.count("to_global") == 1
    assert named(graph).count("exp") == 2 and outcome(less, x.value) == outcome(graph, x.value)


def gradient_of_uses(x: Tensor) -> Any:
    """A value made twice: gradients of its uses are added per making, so merging before backward changes bits."""
    x = x.detach().requires_grad_()
    loss = (flow.exp(x) * 0.1 + (flow.exp(x) * 0.7 + flow.exp(x) * 1e-4)).sum()
    return loss, grad(loss, [x])


def test_merging_comes_after_backward() -> None:
    """PASS-COMMON, AUTO-ORDER"""
    x = flow.tensor(rows(64), placement=PAIR, sbp=S(0))
    graph = Of(gradient_of_uses)
    assert bits(graph(x)) == bits(gradient_of_uses(x))
    assert named(graph.graph).count("exp") < named(traced(gradient_of_uses, x)).count("exp")


def test_moves_are_composed_when_nobody_looks_in_between() -> None:
    """PASS-COMPOSE: P -> B -> S is P -> S; three in a row are one; a move that is used or returned stays."""
    x = flow.tensor(rows(8, 4), placement=ROW, sbp=S(0)).to_global(sbp=P)

    def once(x: Tensor) -> Tensor:
        return x.to_global(sbp=B).to_global(sbp=S(0)).to_global(sbp=S(1))

    def used(x: Tensor) -> Any:
        y = x.to_global(sbp=B)
        return y.to_global(sbp=S(0)), y * 2

    def returned(x: Tensor) -> Any:
        y = x.to_global(sbp=B)
        return y.to_global(sbp=S(0)), y

    for function, count in ((once, 1), (used, 2), (returned, 2)):
        graph = traced(function, x)
        less = compose_boxing(graph)
        assert named(less).count("to_global") == count
        assert outcome(less, x.value) == outcome(graph, x.value) and outcome(less, x.value)[0] == bits(function(x))


def bytes_moved(graph: LogicalGraph) -> int:
    """What the moves of a graph send between ranks."""
    return explain_graph(graph, {}, frozenset(), "exact").bytes


TURNED: dict[str, tuple[Callable[[Tensor], Tensor], Any]] = {
    "transposed": (lambda y: y.t(), S(0)), "transposed, other cut": (lambda y: y.t(), S(1)),
    "a size of 1": (lambda y: y.reshape(8, 1, 4), S(0)), "flattened": (lambda y: y.reshape(32), S(0)),
    "permuted twice": (lambda y: y.reshape(4, 2, 4).permute(1, 2, 0).permute(2, 0, 1), S(0)),
    "both": (lambda y: y.t().reshape(4, 8, 1), S(1)),
}  # fmt: skip


@pytest.mark.parametrize("before", [P, S(1), S(0), B], ids=str)
@pytest.mark.parametrize("name", TURNED)
def test_moves_are_composed_through_what_turns(name: str, before: Any) -> None:
    """PASS-COMPOSE: the second move is done first, together with the first one, and less is sent."""
    turn, after = TURNED[name]
    x = flow.tensor(rows(8, 4), placement=ROW, sbp=S(0)).to_global(sbp=before)
    elsewhere = Placement("cpu", [3, 1, 5, 0])
    for where in (ROW, elsewhere):
        graph = traced(lambda x, where=where: turn(x.to_global(where, B)).to_global(ROW, after), x)
        less = compose_boxing(graph)
        assert outcome(less, x.value) == outcome(graph, x.value)
        assert named(less).count("to_global") == (0 if before == B and where == ROW else 1) or before == B
        assert bytes_moved(less) <= bytes_moved(graph)
        if before == P:
            assert bytes_moved(less) < bytes_moved(graph)


def test_what_is_looked_at_is_not_composed_through() -> None:
    """PASS-COMPOSE: neither what is used twice or returned, nor where other work stands between, nor a cut that does not fit."""
    x = flow.tensor(rows(8, 4), placement=ROW, sbp=S(0)).to_global(sbp=P)

    def used(x: Tensor) -> Any:
        y = x.to_global(sbp=B).t()
        return y.to_global(sbp=S(0)), y + 1

    def returned(x: Tensor) -> Any:
        y = x.to_global(sbp=B)
        return y.t().to_global(sbp=S(0)), y

    def worked(x: Tensor) -> Any:
        return (x.to_global(sbp=B).t() * 2).to_global(sbp=S(0))

    def crooked(x: Tensor) -> Any:
        return x.to_global(sbp=B).t().reshape(2, 16).to_global(sbp=S(1))

    for function in (used, returned, worked, crooked):
        graph = traced(function, x)
        less = compose_boxing(graph)
        assert named(less) == named(graph) and outcome(less, x.value) == outcome(graph, x.value)


@pytest.mark.parametrize("told", [Told((2,)), Told((4,), micro=2), Told((2,), stages=2, micro=2)], ids=str)
def test_gradients_of_weights_go_straight_to_their_parts(told: Told) -> None:
    """ZERO-GRADIENT: stage 2 sends what reduces gradients to parts and gathers new parameters, no gradient whole."""
    sent, records = [], []
    for stage in (1, 2):
        with flow.comm_log() as log:
            records.append(train(dropped, replace(told, zero=stage), optimizer=momentum, steps=1))
        sent.append(log.bytes)
    assert records[0] == records[1] and sent[1] < sent[0]
    graph = records[1].graph
    assert graph is not None
    gathers = [
        node for node in graph.graph.nodes
        if node.primitive.name == "to_global" and len(node.metas[0].shape) == 2 and node.metas[0].sbp == (B, B)
        and node.inputs[0].meta.sbp != (B, B)
    ]  # fmt: skip
    weights = [p for p in graph.model.parameters() if p.ndim == 2]  # type: ignore[attr-defined]
    assert len(gathers) == len(weights)


def step_of(model: nn.Module, zero: int = 0, optimizer: Any = None) -> Train:
    found = Train(model, optimizer or flow.optim.Adam(model.parameters(), lr=0.1), None, None, Told(zero=zero))
    x = flow.tensor(NETS[dropped], placement=PAIR, sbp=S(0))
    found(x, flow.tensor(np.arange(128) % 4, placement=PAIR, sbp=S(0)))
    return found


def alive(graph: LogicalGraph, forward: frozenset[int]) -> int:
    """Bytes of what forward nodes made and nodes after them still read."""
    made = {key(v): v.meta for node in graph.nodes if node.order in forward for v in node.outputs}
    late = {key(v) for node in graph.nodes if node.order not in forward for v in node.inputs}
    return sum(int(np.prod(m.shape)) * m.dtype.itemsize for k, m in made.items() if k in late)


def test_a_checkpointed_scope_is_made_again() -> None:
    """PASS-RECOMPUTE, PASS-RECOMPUTE-SCOPE: what backward needs of it is not kept, and dropout draws the same again."""
    flow.manual_seed(0)
    model = dropped().to_global(PAIR, B)
    for block in list(model)[:2]:
        block.to(GraphModule).activation_checkpointing = True
    with as_traced() as found:
        step_of(model)
    graph, scopes, forward = found[0]
    assert set(scopes.values()) == {1, 2} and set(scopes) <= forward
    after = recompute(graph, scopes, forward)
    draws = [node for node in after.nodes if node.primitive.random]
    assert [node.attrs["stream"] for node in draws] == [0, 2, 2, 0]  # backward meets the second block first
    assert draws[0].order in forward and draws[2].order not in forward
    assert alive(after, forward) < alive(graph, forward) / 2
    entering = {key(v) for node in after.nodes if node.order in forward for v in node.outputs}
    kept = {key(v) for node in after.nodes if node.order not in forward for v in node.inputs} & entering
    inside = {key(v) for node in graph.nodes if node.order in scopes for v in node.outputs}
    blocks = {key(node.outputs[0]) for node in graph.nodes if scopes.get(node.order) == 1}  # what leaves block 1 enters 2
    assert kept & inside <= blocks


def test_nested_scopes_are_one() -> None:
    """PASS-RECOMPUTE-SCOPE: the outermost checkpointed module is the scope."""
    flow.manual_seed(0)
    model = dropped().to_global(PAIR, B)
    model.to(GraphModule).activation_checkpointing = True
    model[0].to(GraphModule).activation_checkpointing = True
    with as_traced() as found:
        step_of(model)
    assert set(found[0][1].values()) == {1}


@pytest.mark.parametrize("zero", [1, 2, 3])
def test_zero_holds_state_in_parts(zero: int) -> None:
    """ZERO-STATE, ZERO-GRADIENT, ZERO-PARAMETER"""
    flow.manual_seed(0)
    model = dropped().to_global(PAIR, B)
    optimizer = flow.optim.Adam(model.parameters(), lr=0.1)
    graph = step_of(model, zero, optimizer)
    for p in model.parameters():
        assert p.sbp == ((S(0),) if zero == 3 else (B,)) and p.requires_grad
        assert all(cell.sbp == (S(0),) for cell in optimizer.state[p].values() if isinstance(cell, Tensor))
    made = {key(v): node for node in graph.graph.nodes for v in node.outputs}
    moves = [node for node in graph.graph.nodes if node.primitive.name == "to_global"]
    twice = [node for node in moves if (b := made.get(key(node.inputs[0]))) is not None and b.primitive.name == "to_global"]
    gathers = [node for node in moves if node.inputs[0].meta.sbp[0] == S(0) and node.metas[0].sbp[0] == B]
    assert bool(twice) == (zero == 1)  # a gradient goes straight from P to parts
    names = [v.name for v in graph.graph.variables if v.value is not None and key(v.value) in {key(g.inputs[0]) for g in gathers}]
    assert (len(names) == len(list(model.parameters()))) == (zero == 3)  # gathered where they are used


def test_what_zero_can_split() -> None:
    """ZERO-SHARD: the last B axis of several ranks; nothing to split in a scalar, on one rank, or where all is S."""
    grid, one = Placement("cpu", [[0, 1], [2, 3]]), Placement("cpu", [0])
    ones = lambda *shape, placement, sbp: flow.ones(*shape, placement=placement, sbp=sbp).value  # noqa: E731
    assert shard_sbp(ones(4, 4, placement=grid, sbp=(B, B))) == (B, S(0))
    assert shard_sbp(ones(4, 4, placement=grid, sbp=(B, S(1)))) == (S(0), S(1))
    assert shard_sbp(ones(4, 4, placement=grid, sbp=(S(0), S(1)))) is None
    assert shard_sbp(ones(placement=grid, sbp=(B, B))) is None and shard_sbp(ones(4, placement=one, sbp=B)) is None
    assert shard_sbp(ones(4, 4, placement=Placement("cpu", [[0], [1]]), sbp=(B, B))) == (S(0), B)


def test_zero_saves_memory() -> None:
    """PROOF-BYTES of whole plans: parts are smaller than copies."""
    need = {}
    for zero in (0, 1, 3):
        graph = train(dropped, Told((4,), zero=zero), steps=2).graph
        assert graph is not None
        loads = [r for r in graph.plan.registers if r.name.split("@")[0].endswith(("momentum_buffer", "weight"))]
        need[zero] = sum(r.bytes for r in loads if r.name.endswith("@0"))
    assert need[3] < need[1] < need[0] and need[3] * 4 == need[0]
