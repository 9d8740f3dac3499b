"""The parts of results of graphs cut into micro-batches: TIME-PARTS."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import pytest

import refflow as flow
from refflow import Tensor, nn
from refflow.errors import GraphError
from refflow.graph.api import Graph
from refflow.layout import Placement, boxes
from refflow.runtime import Newest, Random
from tests.graph.nets import NETS, Told, Train, dropped, momentum, rows
from tests.graph.running import B, Of, S, bits, label, proved

F = nn.functional
ONE, PAIR, ROW = (Placement("cpu", list(range(n))) for n in (1, 2, 4))
GRID = Placement("cpu", [[0, 1], [2, 3]])


def kept(function: Callable[..., Any], steps: int, runtime: str = "actors") -> Of:
    graph = Of(function, steps, runtime)
    graph.config.keep_parts = True
    return graph


def micro_batch(x: Tensor, steps: int, m: int) -> Tensor:
    """The rows of micro-batch m, laid out as `x` is: the m-th part of each rank's rows."""
    cut = [x.numpy()[a:b] for a, b in _rows(x, steps, m)]
    return flow.tensor(np.concatenate(cut), placement=x.placement, sbp=x.sbp)


def _rows(x: Tensor, steps: int, m: int) -> list[tuple[int, int]]:
    held = sorted({box[0] for box in boxes(x.shape, x.placement, x.sbp).values()})
    lengths = [(hi - lo) // steps for lo, hi in held]
    return [(lo + m * n, lo + (m + 1) * n) for (lo, _), n in zip(held, lengths, strict=True)]


def by_the_tree(parts: tuple[Tensor, ...]) -> dict[int, Any]:
    """rank -> the canonical tree over its shards of the parts."""
    held = [part.local_arrays() for part in parts]
    return {rank: flow.numerics.fold_parts([h[rank] for h in held], "sum") for rank in held[0]}


@pytest.mark.parametrize("runtime", ["actors", "sequential"])
@pytest.mark.parametrize("steps", [1, 2, 4, 8])
@pytest.mark.parametrize(("where", "sbp"), [(ONE, B), (PAIR, S(0)), (PAIR, S(1)), (ROW, S(0)), (GRID, (S(0), B))], ids=label)
def test_the_tree_over_the_parts_of_a_sum_is_the_sum(where: Placement, sbp: Any, steps: int, runtime: str) -> None:
    """Shard by shard, and so by value where one rank has it all."""
    x = flow.tensor(rows(64, 2), placement=where, sbp=sbp)
    graph = kept(lambda x: (x.sum(), {"by column": x.sum(0)}), steps, runtime)
    total, named = graph(x)
    assert bits((total, named)) == bits(Of(lambda x: (x.sum(), {"by column": x.sum(0)}), steps)(x))
    for whole, parts in ((total, graph.parts[0]), (named["by column"], graph.parts[1]["by column"])):
        assert len(parts) == steps and all((p.shape, p.placement) == (whole.shape, where) for p in parts)
        for rank, array in by_the_tree(parts).items():
            assert flow.same_bits(array, whole.local_arrays()[rank])
    if where is ONE:
        whole = flow.numerics.fold_parts([part.numpy() for part in graph.parts[0]], "sum")
        assert flow.same_bits(whole, x.sum().numpy())


@pytest.mark.parametrize("where", [ONE, PAIR, ROW], ids=label)
def test_parts_are_what_the_micro_batches_make(where: Placement) -> None:
    """Of sums and maxima, of means (their share), of what follows a sum, of what is given for each row."""
    x = flow.tensor(rows(64, 2), placement=where, sbp=S(0))

    def build(x: Tensor) -> Any:
        return (x * x).sum(), x.amax(0), x * 2, (x * x).sum().sqrt() + 1, x.mean(), (x.sum(), x.amax())

    graph = kept(build, 4)
    graph(x)
    total, most, twice, root, mean, (_, top) = graph.parts
    for m in range(4):
        mine = micro_batch(x, 4, m)
        wanted = (mine * mine).sum(), mine.amax(0), mine * 2, (mine * mine).sum().sqrt() + 1, mine.sum() / x.numel(), mine.amax()
        for part, alone in zip((total, most, twice, root, mean, top), wanted, strict=True):
            assert (part[m].shape, part[m].dtype) == (alone.shape, alone.dtype)
            assert flow.same_bits(part[m].numpy(), alone.numpy())
    proved(graph)


def test_uneven_rows() -> None:
    """Six rows on four ranks in two micro-batches of four rows and two: a balanced split each."""
    x = flow.tensor(rows(6, 2), placement=ROW, sbp=S(0))
    graph = kept(lambda x: x * 2, 2)
    assert bits(graph(x)) == bits(x * 2)
    first, second = graph.parts
    assert (first.shape, second.shape, first.sbp) == ((4, 2), (2, 2), (S(0),))
    assert flow.same_bits(first.numpy(), 2 * rows(6, 2)[[0, 2, 4, 5]]) and flow.same_bits(second.numpy(), 2 * rows(6, 2)[[1, 3]])


def test_what_has_no_parts() -> None:
    """A constant is its own only part, and so is everything in one micro-batch."""
    k, x = flow.ones(2, placement=PAIR, sbp=B), flow.tensor(rows(8, 2), placement=PAIR, sbp=S(0))
    graph = kept(lambda x: (k, k * 2, x.sum()), 2)
    graph(x)
    assert [len(parts) for parts in graph.parts] == [1, 1, 2] and bits(graph.parts[1]) == bits(k * 2)
    graph.config.set_gradient_accumulation_steps(1)
    result = graph(x)
    assert [bits(parts) for parts in graph.parts] == [bits(one) for one in result]


def test_parts_are_on_request() -> None:
    """And asked for between calls, they come with the next call."""
    graph, x = Of(lambda x: x.sum(), 2), flow.tensor(rows(8, 2), placement=PAIR, sbp=S(0))
    with pytest.raises(GraphError, match="not traced yet"):
        _ = graph.parts
    whole = graph(x)
    with pytest.raises(GraphError, match="keep_parts = True"):
        _ = graph.parts
    nodes = len(graph.graph.nodes)
    graph.config.keep_parts = True
    assert bits(graph(x)) == bits(whole) and len(graph.parts) == 2 and len(graph.graph.nodes) > nodes
    graph.config.keep_parts = False
    graph(x)
    assert len(graph.graph.nodes) == nodes
    with pytest.raises(GraphError, match="keep_parts = True"):
        _ = graph.parts


class Losses(Graph):
    """A training step that returns a summed loss, its mean, and the loss of each row."""

    def __init__(self, model: nn.Module, optimizer: Any, told: Told, scaler: Any = None) -> None:
        super().__init__()
        self.model = model
        self.add_optimizer(optimizer)
        self.config.set_gradient_accumulation_steps(told.micro)
        self.config.runtime, self.config.schedule, self.config.keep_parts = told.runtime, told.schedule, True
        if told.zero:
            self.config.enable_zero(stage=told.zero)
        if scaler is not None:
            self.set_grad_scaler(scaler)

    def build(self, x: Tensor, y: Tensor) -> Any:
        scores = self.model(x)
        loss = F.cross_entropy(scores, y)
        loss.backward()
        return F.cross_entropy(scores, y, reduction="sum"), loss, F.cross_entropy(scores, y, reduction="none")


def trained(told: Told, scaler: Any = None) -> tuple[list[Any], Graph]:
    """The parts of two steps of training, as digests, and the graph; draws included."""
    flow.manual_seed(0)
    model = dropped()
    length = -(-len(model) // told.stages)
    for i, block in enumerate(model):
        block.to_global(told.placement(i // length), told.weight_sbp)
        if told.stages > 1:
            block.to(nn.graph.GraphModule).set_stage(i // length, told.placement(i // length))
    data = NETS[dropped]
    x = flow.tensor(data, placement=told.placement(0), sbp=told.input_sbp())
    y = flow.tensor(np.arange(len(data)) * 5 % 4, placement=told.placement(told.stages - 1), sbp=told.input_sbp())
    graph = Losses(model, momentum(model.parameters()), told, scaler)
    found = []
    for _ in range(2):
        results = graph(x, y)
        assert [len(parts) for parts in graph.parts] == [told.micro] * 3
        for rank, array in by_the_tree(graph.parts[0]).items():
            assert flow.same_bits(array, results[0].local_arrays()[rank])
        found += [[flow.numerics.digest(part.numpy()) for part in parts] for parts in graph.parts]
    return found, graph


@lru_cache
def alone(micro: int) -> list[Any]:
    """The parts of training without stages and ZeRO."""
    return trained(Told((2,), micro=micro))[0]


@pytest.mark.parametrize(
    "told",
    [
        {"zero": 1}, {"zero": 2}, {"zero": 3}, {"stages": 2}, {"stages": 4}, {"runtime": "sequential", "stages": 2, "zero": 3, "micro": 2},
        {"schedule": Newest, "stages": 2}, {"schedule": lambda: Random(3), "zero": 2},
    ],
    ids=label,
)  # fmt: skip
def test_training(told: dict[str, Any]) -> None:
    """ZeRO, stages, schedules and the way of running change no bit of a part."""
    job = Told((2,), **{"micro": 4, **told})
    found, graph = trained(job)
    assert found == alone(job.micro)
    proved(graph)


def test_scaled() -> None:
    """With a grad scaler the last result, which tells of overflow, stays the graph's own."""
    found, graph = trained(Told((2,), micro=2), flow.amp.GradScaler(2.0**8))
    assert found == alone(2) and graph._scaler is not None and graph._scaler.skipped == 0


def test_parts_of_checkpointed_modules() -> None:
    """PASS-RECOMPUTE: parts are of the forward pass; they make nothing again."""
    model = nn.Sequential(nn.Linear(2, 2), nn.Tanh()).to_global(PAIR, B)
    model.to(nn.graph.GraphModule).activation_checkpointing = True
    told = Told((2,), micro=2)
    graph = Train(model, flow.optim.SGD(model.parameters(), lr=0.1), None, None, told)
    graph.config.keep_parts = True
    x = flow.tensor(rows(64, 2), placement=PAIR, sbp=S(0))
    graph(x, flow.tensor(np.arange(64) % 2, placement=PAIR, sbp=S(0)))
    assert len(graph.parts) == 2
    order = [node.primitive.name for node in graph.graph.nodes]
    proved(graph)
    assert order.count("tanh") == 2  # once, and once again for backward


def test_lockstep_threads() -> None:
    """In spmd, each rank has its shards of the parts."""

    def job() -> Any:
        where = flow.placement("cpu", [0, 1])
        graph = kept(lambda x: x.sum(0), 2)
        graph(flow.tensor(rows(8, 2), placement=where, sbp=S(0)))
        return [part.numpy().tolist() for part in graph.parts]

    one, other = flow.spmd(2, job)
    graph = kept(lambda x: x.sum(0), 2)
    graph(flow.tensor(rows(8, 2), placement=PAIR, sbp=S(0)))
    assert one == other == [part.tolist() for part in graph.parts]


