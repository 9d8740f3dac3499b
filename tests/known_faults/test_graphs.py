"""Public reports about lazy graphs: pipelines, accumulation, ZeRO, recomputation, and the order of what ranks exchange.

Checks GRAPH-SHAPE, GRAPH-STAGE, GRAPH-STATE, GRAPH-RANDOM, TIME-AXIS, TIME-INPUT, TIME-REFUSED, ZERO-PARAMETER,
ZERO-GRADIENT, PASS-RECOMPUTE, PLAN-MESSAGE, PROOF-MESSAGES, PROOF-LIVE, PROOF-NUMBERS and PIPE-1F1B.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import refflow as flow
from refflow import Tensor, nn
from refflow.errors import GraphError, PlacementError
from refflow.graph.api import Graph
from refflow.graph.module import GraphModule
from refflow.graph.plan import Plan
from refflow.graph.proofs import derive, irreducible, period, verify
from refflow.graph.time import TooManySteps
from refflow.layout import NdSbp, Placement
from refflow.runtime import in_virtual_time
from refflow.runtime.pipelines import one_f_one_b
from refflow.tensor.backward import grad
from tests.graph.running import Of, bits, every_way, proved
from tests.tensor.layouts import LINE1, LINE2, LINE4, MESH, B, P, S, fresh_world, laid, locals_of, numbers

F = nn.functional
EARLY, LATE = flow.placement("cpu", [0, 1]), flow.placement("cpu", [2, 3])
RANKS = [flow.placement("cpu", [rank]) for rank in range(4)]


class Scale(nn.Module):
    """Times a weight; at `where` and `stage` if it is one of several stages."""

    def __init__(self, weight: Any, where: Placement, *sbp: Any, stage: int | None = None) -> None:
        super().__init__()
        self.w = nn.Parameter(laid(np.asarray(weight, np.float32), where, *(sbp or (B,) * where.ndim)))
        if stage is not None:
            self.to(GraphModule).set_stage(stage, where)

    def forward(self, x: Tensor) -> Tensor:
        return x * self.w


class Step(Graph):
    """One step of plain gradient descent at rate 1 on what `told` makes of a model and the inputs."""

    def __init__(self, model: nn.Module, told: Callable[..., Any], micro: int = 1, zero: int = 0) -> None:
        super().__init__()
        self.model, self._told = model, told
        self.add_optimizer(flow.optim.SGD(model.parameters(), lr=1.0))
        self.config.set_gradient_accumulation_steps(micro)
        if zero:
            self.config.enable_zero(stage=zero)

    def build(self, *args: Any) -> Any:
        return self._told(self.model, *args)


def descend(model: nn.Module, *args: Tensor) -> Tensor:
    """The sum of what the model makes, differentiated."""
    loss = model(*args).sum()
    loss.backward()
    return loss


def values(graph: Graph) -> list[Any]:
    """What a graph's parameters are now."""
    return [p.detach().tolist() for p in graph.model.parameters()]  # type: ignore[attr-defined]


def crossings(plan: Plan) -> list[tuple[int, int]]:
    """From which rank to which, for each message of an iteration."""
    return [(message.source, message.target) for message in plan.messages]


def ordered(plan: Plan, capacity: int | None) -> Plan:
    """The plan whose communication streams take the messages in the plan's total order; `capacity` 0: by rendezvous."""
    turns: dict[tuple[int, str], list[int]] = {}
    for message in plan.messages:
        register = plan.registers[message.register]
        for task in (plan.tasks[i] for i in (register.producer, *register.consumers)):
            turns.setdefault((task.rank, task.stream), []).append(task.id)
    streams = [replace(s, order=tuple(turns.get((s.rank, s.name), s.order))) for s in plan.streams]
    registers = [
        replace(r, number=capacity) if capacity is not None and r.kind == "message" else r for r in plan.registers
    ]
    return replace(plan, streams=tuple(streams), registers=tuple(registers))


# --- one graph --------------------------------------------------------------------------------------------------------


def test_oneflow_9734_graph_stack_under_split() -> None:
    """Oneflow#9734: in a graph, the gradient of stack compared a local shape with a logical one."""

    def squares(*given: Tensor) -> Any:
        parts = [part.detach().requires_grad_() for part in given]
        y = flow.stack(parts, dim=1)
        assert y.shape == (4, 2, 3)
        return grad((y * y).sum(), parts)

    parts = [laid(numbers(4, 3) + i, LINE4, S(0)) for i in range(2)]
    graph = Of(squares)
    assert every_way(graph, *parts) == bits(squares(*parts))
    for i, slope in enumerate(graph(*parts)):
        assert slope.sbp == (S(0),) and slope.tolist() == (2 * (numbers(4, 3) + i)).tolist()


@pytest.mark.parametrize("shape", [(5, 7), (1, 3), (7, 2)])
def test_oneflow_9310_graph_uneven_splits_of_two_axes(shape: tuple[int, ...]) -> None:
    """Oneflow PR 7123, 7768, 9310: moves between uneven splits, one dimension cut twice, in a graph as outside one."""
    x = laid(numbers(*shape), MESH, S(0), S(0))
    for sbp in ((S(1), S(1)), (S(1), S(0)), (S(0), S(1)), (S(1), B)):
        graph = Of(lambda x, sbp=sbp: x.to_global(sbp=sbp))
        (moved,) = bits(graph(x))
        assert moved == bits(x.to_global(sbp=sbp))[0] and moved[1] == sbp
        assert graph(x).tolist() == numbers(*shape).tolist()
        assert locals_of(graph(x)) == locals_of(x.to_global(sbp=sbp))
        proved(graph)


@pytest.mark.parametrize("zero", [0, 2, 3])
def test_oneflow_7079_shared_parameter(zero: int) -> None:
    """Oneflow#7079: a parameter two modules share became two variables; it is one, stepped once."""
    first = Scale([1.0, 2.0], LINE2)
    second = Scale([0.0, 0.0], LINE2)
    second.w = first.w
    graph = Step(nn.Sequential(first, second), descend, micro=2, zero=zero)
    graph(laid(numbers(4, 2), LINE2, S(0)))
    assert [v.cell for v in graph.graph.variables] == [first.w]
    assert second.w is first.w  # d/dw x w^2 = 2 w sum(x): 2 * 1 * 12, 2 * 2 * 16
    assert [p.detach().tolist() for p in graph.model.parameters()] == [[-23, -62]]
    proved(graph)


MATCHES: list[tuple[Placement, NdSbp, NdSbp, NdSbp]] = [
    (LINE4, (S(0),), (B,), (S(0),)), (LINE4, (B,), (S(1),), (S(1),)), (LINE4, (B,), (B,), (B,)),
    (MESH, (S(0), B), (B, S(1)), (S(0), S(1))), (MESH, (B, S(0)), (S(1), B), (S(1), S(0))),
]  # fmt: skip


@pytest.mark.parametrize(("where", "left", "right", "result"), MATCHES)
@pytest.mark.parametrize("policy", ["exact", "cheap"])
def test_oneflow_9880_a_signature_that_matches_all_operands(
    where: Placement, left: NdSbp, right: NdSbp, result: NdSbp, policy: Any
) -> None:
    """Oneflow#9880: the signature under which nothing moves was missed."""
    x, w = laid(numbers(4, 4), where, *left), laid(numbers(4, 4), where, *right)
    with flow.signatures(policy):
        graph = Of(flow.matmul)
        product = graph(x, w)
    assert product.sbp == result and graph.plan.messages == ()
    assert product.tolist() == (numbers(4, 4, dtype=np.int64) @ numbers(4, 4, dtype=np.int64)).tolist()


def test_oneflow_9880_the_match_that_leaves_partial_sums() -> None:
    """The same report: S(1) @ S(0) is P, and moves nothing, where that is allowed to be chosen."""
    x, w = laid(numbers(4, 4), LINE4, S(1)), laid(numbers(4, 4), LINE4, S(0))
    with flow.signatures("cheap"):
        graph = Of(flow.matmul)
        product = graph(x, w)
    assert product.sbp == (P,) and graph.plan.messages == ()
    assert product.tolist() == (numbers(4, 4, dtype=np.int64) @ numbers(4, 4, dtype=np.int64)).tolist()


@pytest.mark.parametrize("micro", [1, 2, 4])
def test_oneflow_9093_shapes_inside_build(micro: int) -> None:
    """Oneflow#9093, #6254, #7442: inside build a shape was the micro-batch's, and a loss came out in another shape."""
    seen: list[tuple[int, ...]] = []

    def losses(x: Tensor, y: Tensor) -> Any:
        each = F.mse_loss(x, y, reduction="none")
        mean = F.mse_loss(x, y)
        seen.extend([x.shape, y.shape, each.shape, mean.shape])
        return mean, F.mse_loss(x, y, reduction="sum"), each

    x, y = laid(numbers(8, 2), LINE2, S(0)), laid(numbers(8, 2) - 3, LINE2, S(0))
    mean, total, each = Of(losses, micro)(x, y)
    assert seen == [(8, 2), (8, 2), (8, 2), ()]
    assert (mean.shape, total.shape, each.shape) == ((), (), (8, 2))
    assert (mean.item(), total.item(), each.tolist()) == (9, 144, [[9, 9]] * 8)


def normed(where: Placement, times: int) -> nn.Sequential:
    """One batch normalisation with momentum a half, `times` times."""
    norm = nn.BatchNorm1d(1, eps=0.0, momentum=0.5).to_global(where, B)
    return nn.Sequential(*[norm] * times)


def test_oneflow_9075_batch_norm_with_accumulation() -> None:
    """Oneflow#9075: statistics of micro-batches would be others than the batch's; refused, and nothing is changed."""
    graph = Step(normed(LINE2, 1), descend, micro=2)
    x = laid([[1.0], [3.0], [1.0], [3.0]], LINE2, S(0))
    with pytest.raises(TooManySteps, match="the largest number of micro-batches below that works is 1$"):
        graph(x)
    assert values(graph) == [[1], [0]]
    assert [buffer.tolist() for buffer in graph.model.buffers()] == [[0], [1], 0]
    graph.config.set_gradient_accumulation_steps(1)
    assert graph(x).item() == 0


def test_oneflow_10285_one_batch_norm_used_twice() -> None:
    """Oneflow#10285, #3516: its running statistics move twice, the second time from where the first left them."""
    x = laid([[1.0], [3.0]], LINE2, S(0))
    graph = Step(normed(LINE2, 2), descend)
    graph(x)
    # 1, 3: mean 2, unbiased variance 2; normalised -1, 1: mean 0, variance 2.  0 -> 1 -> 0.5 and 1 -> 1.5 -> 1.75
    assert [buffer.tolist() for buffer in graph.model.buffers()] == [[0.5], [1.75], 2]
    eager = normed(LINE1, 2)
    eager(laid([[1.0], [3.0]], LINE1, B)).sum().backward()
    for p, stepped in zip(eager.parameters(), graph.model.parameters(), strict=True):
        assert p.grad is not None and flow.same_bits((p - p.grad).detach().numpy(), stepped.detach().numpy())


class Drop(nn.Module):
    """A weight, then a dropout whose mask the gradient needs."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(laid(np.ones(8, np.float32), LINE2, B))

    def forward(self, x: Tensor) -> Tensor:
        return F.dropout(x * self.w, 0.5)


@pytest.mark.parametrize("micro", [1, 2])
def test_oneflow_3974_recompute_replays_the_mask(micro: int) -> None:
    """Oneflow#3974: activations made again for the backward pass drew another mask."""
    x = laid(np.ones((4, 8), np.float32), LINE2, S(0))
    found = []
    for again in (False, True):
        flow.manual_seed(5)
        model = Drop()
        model.to(GraphModule).activation_checkpointing = again

        def told(model: nn.Module, x: Tensor) -> Tensor:
            y = model(x)
            (y * y).sum().backward()
            return y

        graph = Step(model, told, micro)
        y = graph(x)
        # y is 2 where kept, else 0; the loss y^2 has the slope 2 y * 2 there: 8, else 0
        kept = (y.numpy() != 0).sum(0)
        assert 0 < kept.sum() < 32 and values(graph) == [(1 - 8 * kept).tolist()]
        found.append((*bits(y), values(graph), flow.default_generator().state))
        proved(graph)
        found[-1] += (len(graph.graph.nodes),)
    plain, recomputed = found
    assert plain[:-1] == recomputed[:-1] and plain[-1] < recomputed[-1]


# --- micro-batches and stages -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("micro", [1, 2, 4])
def test_alpa_405_graph_sum_loss_over_micro_batches(micro: int) -> None:
    """alpa PR 405 (review): the gradient of a sum loss was divided by the number of micro-batches."""
    graph = Step(Scale([1.0, 2.0], LINE2), descend, micro)
    assert graph(laid(numbers(8, 2), LINE2, S(0))).item() == 56 + 2 * 64
    assert values(graph) == [[1 - 56, 2 - 64]]


def test_pytorch_127332_interleaved_stages_have_one_order_of_messages() -> None:
    """pytorch PR 127332, PiPPy PR 1088: interleaved stages, two on each of two ranks, crossed their sends and hung."""
    blocks = [Scale([i + 1.0, 1.0], RANKS[i % 2], stage=i) for i in range(4)]
    graph = Step(nn.Sequential(*blocks), descend, micro=4)
    graph(laid(numbers(4, 2), RANKS[0], B))
    plan = graph.plan
    assert set(crossings(plan)) == {(0, 1), (1, 0)}
    assert plan.messages == derive(plan)
    for register in {message.register for message in plan.messages}:
        (receiver,) = plan.registers[register].consumers
        sender = plan.tasks[plan.registers[register].producer]
        assert (sender.kind, plan.tasks[receiver].kind) == ("send", "recv") and sender.rank != plan.tasks[receiver].rank
    proved(graph)
    # x sums to 12, 16; the product of the weights is 24, 1: the slope to the weight i + 1 is 12 * 24 / (i + 1)
    assert values(graph) == [[1 - 288, 1 - 16], [2 - 144, 1 - 16], [3 - 96, 1 - 16], [4 - 72, 1 - 16]]
    assert ordered(plan, 0).verify().sound  # even if every send waits for its receive
    every_way(graph, laid(numbers(4, 2) * 0, RANKS[0], B))  # nothing to learn: the weights stay


class Three(nn.Module):
    """A stage that gives a float with a gradient, an integer, and a float without."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = Scale([1.0, 2.0], RANKS[0])
        self.to(GraphModule).set_stage(0, RANKS[0])

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        y = self.scale(x)
        return y, (x > 2).to(flow.int64), y.detach() * 3


class Joined(nn.Module):
    """The stage that takes them."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = Scale([5.0, 1.0], RANKS[1])
        self.to(GraphModule).set_stage(1, RANKS[1])

    def forward(self, y: Tensor, chosen: Tensor, free: Tensor) -> Tensor:
        return self.scale(y) * chosen + free


@pytest.mark.parametrize("micro", [1, 2])
def test_deepspeed_5518_one_gradient_message(micro: int) -> None:
    """DeepSpeed PR 5518, diffusion-pipe PR 544: the two ends counted the gradients of a stage's outputs differently."""
    model = nn.ModuleList([Three(), Joined()])

    def told(model: Any, x: Tensor) -> Tensor:
        loss = model[1](*model[0](x)).sum()
        loss.backward()
        return loss

    graph = Step(model, told, micro)
    loss = graph(laid(numbers(2, 2), RANKS[0], B))
    # rows (0, 1), (2, 3); y = (0, 2), (2, 6); only 3 is above 2: 6 * 1 + 3 * (0 + 2 + 2 + 6)
    assert loss.item() == 6 + 30
    # slopes: of the first weights (0, 3 * 1), of the second (0, 6)
    assert values(graph) == [[1, 2 - 3], [5, 1 - 6]]
    assert crossings(graph.plan).count((0, 1)) == 3 * micro and crossings(graph.plan).count((1, 0)) == micro
    proved(graph)


def test_torchtitan_775_fewer_micro_batches_than_stages() -> None:
    """torchtitan#775, pytorch#126600: 2 micro-batches on 4 stages hung; 3, 3, 2 rows reused the first one's buffers."""
    model = nn.Sequential(*[Scale([float(i + 1), 1.0], RANKS[i], stage=i) for i in range(4)])
    graph = Step(model, descend, micro=2)
    graph(laid(numbers(4, 2), RANKS[0], B))
    assert values(graph) == [[1 - 288, 1 - 16], [2 - 144, 1 - 16], [3 - 96, 1 - 16], [4 - 72, 1 - 16]]
    proved(graph)
    uneven = Step(Scale([1.0, 2.0], RANKS[0]), descend, micro=3)
    with pytest.raises(TooManySteps, match="batch of 8 does not fall into 3 .* below that works is 2$"):
        uneven(laid(numbers(8, 2), RANKS[0], B))
    assert values(uneven) == [[1, 2]]


@pytest.mark.parametrize("micro", [1, 2])
def test_nemo_automodel_3530_pipeline_two_shapes(micro: int) -> None:
    """NeMo Automodel PR 3530: a change of shape made the stages anew and cleared the gradients so far."""
    model = nn.Sequential(Scale([1.0, 2.0], EARLY, stage=0), Scale([3.0, 1.0], LATE, stage=1))

    def told(model: nn.Module, x: Tensor, y: Tensor) -> Any:
        return descend(model, x), descend(model, y)

    graph = Step(model, told, micro)
    ones = [laid(np.ones((rows, 2), np.float32), EARLY, S(0)) for rows in (4, 8)]
    graph(*ones)
    assert values(graph) == [[1 - 12 * 3, 2 - 12 * 1], [3 - 12 * 1, 1 - 12 * 2]]
    with pytest.raises(GraphError, match="traced for .* called with"):  # and between calls: refused, nothing is lost
        graph(*reversed(ones))
    assert values(graph) == [[-35, -10], [-9, -23]]
    proved(graph)


class Tied(nn.Module):
    """A weight of the first stage, used on both."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(laid([1.0, 2.0], EARLY, B))

    def forward(self, x: Tensor) -> Tensor:
        return (x * self.w).to_global(LATE, S(0)) * self.w.to_global(LATE, B)


@pytest.mark.parametrize("micro", [1, 2])
def test_piper_13_pipeline_tied_weight(micro: int) -> None:
    """uw-syfi/piper#13: a weight on two stages got two gradients, and its copies drifted apart."""
    model = Tied()
    graph = Step(model, descend, micro)
    graph(laid(numbers(4, 2), EARLY, S(0)))
    assert locals_of(model.w) == {0: [-23, -62], 1: [-23, -62]}  # 2 w sum(x): 2 * 1 * 12, 2 * 2 * 16
    late = Of(lambda w: w.detach().to_global(LATE, B))(model.w.detach())
    assert locals_of(late) == {2: [-23, -62], 3: [-23, -62]}
    assert {(v.name, v.cell is model.w) for v in graph.graph.variables} == {("model.w", True)}
    proved(graph)


@pytest.mark.parametrize("micro", [1, 2])
def test_oneflow_6746_graph_links_between_stages(micro: int) -> None:
    """Oneflow#6746, #9435: links between stages hung or failed somewhere else.

    One that nobody asked for is an error that names both placements; one that was asked for may go back to a stage.
    """
    w = laid([1.0, 2.0], LATE, B)
    with pytest.raises(PlacementError, match=r"\[0, 1\].*\[2, 3\].*to_global"):
        Of(lambda x: x * w, micro)(laid(numbers(4, 2), EARLY, S(0)))
    there_and_back = nn.Sequential(
        Scale([1.0, 2.0], EARLY, stage=0), Scale([3.0, 1.0], LATE, stage=1), Scale([1.0, 1.0], EARLY, stage=0)
    )
    graph = Step(there_and_back, descend, micro)
    graph(laid(numbers(4, 2), EARLY, S(0)))
    assert values(graph) == [[1 - 36, 2 - 16], [3 - 12, 1 - 32], [1 - 36, 1 - 32]]
    proved(graph)


# --- ZeRO -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
@pytest.mark.parametrize("micro", [1, 2])
def test_nemo_rl_3788_zero_norm_counts_each_parameter_once(zero: int, micro: int) -> None:
    """NeMo-RL PR 3788, DeepSpeed PR 1252, Megatron-LM PR 7227: the norm of a gradient kept in parts, or of replicas."""
    model = nn.Sequential(Scale([3.0, 4.0], LINE2), Scale([1.0, 1.0], LINE2))
    model[1].w = model[0].w  # tied: 2 w sum(x) = 2 * (3, 4) / 2 = (3, 4)

    def told(model: nn.Module, x: Tensor) -> Tensor:
        descend(model, x)
        return nn.utils.clip_grad_norm_(list(model.parameters()), 10.0)

    graph = Step(model, told, micro, zero)
    assert graph(laid(np.full((4, 2), 0.125, np.float32), LINE2, S(0))).item() == 5
    assert values(graph) == [[0, 0]]
    proved(graph)


@pytest.mark.parametrize("zero", [1, 2, 3])
def test_oneflow_7513_a_parameter_without_dimensions(zero: int) -> None:
    """Oneflow#7513: ZeRO cut the layout of a 0-dimensional variable on a 2-dimensional mesh."""
    model = nn.Sequential(Scale(2.0, MESH), Scale([1.0, 3.0], MESH))
    graph = Step(model, descend, zero=zero)
    graph(laid(numbers(4, 2), MESH, S(0), B))
    assert model[0].w.shape == () and model[0].w.sbp == (B, B)
    assert locals_of(model[0].w) == dict.fromkeys(range(4), 2 - (12 + 3 * 16))
    assert values(graph)[1] == [1 - 2 * 12, 3 - 2 * 16]
    proved(graph)


# --- actors -----------------------------------------------------------------------------------------------------------


def test_oneflow_8484_least_buffers_for_full_overlap() -> None:
    """Oneflow PR 8484: buffers between stages had 2 * stages places by guess; 1F1B stage s needs S - s, by proof."""
    stages, micro = 4, 8
    plan = one_f_one_b(stages, micro)
    numbers = irreducible(plan)
    least = plan.with_numbers(numbers)
    stash = {r.name: r.id for r in plan.registers if r.name.startswith("stash")}
    assert [numbers[stash[f"stash {s}"]] for s in range(stages)] == [4, 3, 2, 1]
    assert period(least).time == period(plan).time == 3 * (micro + stages - 1)
    assert in_virtual_time(least).time == in_virtual_time(plan).time
    fewer = {**numbers, stash["stash 0"]: 3}
    assert not verify(plan.with_numbers(fewer)).live


def test_libai_232_three_ways_of_parallel_with_accumulation() -> None:
    """libai#232, Oneflow#8226, #10313, #6224: 2 x 2 ranks on each of 2 stages, 4 micro-batches, hung.

    The deadlock itself, explained and cured, is PIPE-DEADLOCK-BUFFER.
    """
    with fresh_world(8):
        cubes = [flow.placement("cpu", [[4 * i, 4 * i + 1], [4 * i + 2, 4 * i + 3]]) for i in range(2)]
        model = nn.Sequential(*[Scale([i + 1.0, 1.0], cubes[i], B, S(0), stage=i) for i in range(2)])
        graph = Step(model, descend, micro=4)
        x = laid(numbers(8, 2), cubes[0], S(0), S(1))
        assert graph(x).item() == 2 * 56 + 64
        assert values(graph) == [[1 - 2 * 56, 1 - 64], [2 - 56, 1 - 64]]
        report = graph.plan.verify()
        assert report.live and report.sound
        every_way(graph, laid(numbers(8, 2) * 0, cubes[0], S(0), S(1)))


def test_oneflow_4806_collectives_keep_one_order() -> None:
    """Oneflow#4806, #8455, #9588, #10118, #4617: collectives on several streams began in another order on each rank."""
    model = nn.Sequential(*[Scale([float(i + 1), 1.0], LINE4) for i in range(3)])
    graph = Step(model, descend)
    graph(laid(numbers(4, 2), LINE4, S(0)))
    plan = graph.plan
    assert len(crossings(plan)) >= 3 * 3 and plan.messages == derive(plan)
    assert values(graph) == [[1 - 72, 1 - 16], [2 - 36, 1 - 16], [3 - 24, 1 - 16]]
    proved(graph)
    every_way(graph, laid(numbers(4, 2) * 0, LINE4, S(0)))
    for capacity in (None, 0):
        plan = ordered(graph.plan, capacity)
        assert plan.verify().sound
        turned = next(i for i, stream in enumerate(plan.streams) if stream.kind == "comm" and len(stream.order) > 1)
        streams = list(plan.streams)
        streams[turned] = replace(streams[turned], order=streams[turned].order[::-1])
        report = replace(plan, streams=tuple(streams)).verify()
        assert any("PROOF-MESSAGES" in fault for fault in report.faults)
