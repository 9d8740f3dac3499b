"""Rules of the chapters graph and passes, a short check each; programs at large are tested elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import refflow as flow
from refflow.graph.api import Graph
from refflow.graph.passes import common_subexpressions, dead_code
from refflow.graph.time import TimeWorld, input_sbp, timed
from refflow.world import Transfer

S, B, P = flow.sbp.split, flow.sbp.broadcast, flow.sbp.partial_sum
PAIR, ROW = flow.placement("cpu", [0, 1]), flow.placement("cpu", [0, 1, 2, 3])
F = flow.nn.functional


@pytest.fixture(autouse=True)
def four_ranks() -> Iterator[None]:
    with flow.virtual_world(4), flow.state.Override(generator=flow.Generator()):
        yield


class Of(Graph):
    """The graph of a function."""

    def __init__(self, function: Callable[..., Any], steps: int = 1) -> None:
        super().__init__()
        self._function = function
        self.config.set_gradient_accumulation_steps(steps)

    def build(self, *args: Any) -> Any:
        return self._function(*args)


class Step(Graph):
    """A training step of one parameter."""

    def __init__(self, p: flow.Tensor, optimizer: Any, schedule: Any = None, steps: int = 1) -> None:
        super().__init__()
        self.p = p
        self.add_optimizer(optimizer, schedule)
        self.config.set_gradient_accumulation_steps(steps)

    def build(self, x: flow.Tensor) -> flow.Tensor:
        loss = F.gelu(flow.matmul(x, self.p)).mean()
        loss.backward()
        return loss


def data(*shape: int, sbp: Any = B, placement: flow.Placement = ROW) -> flow.Tensor:
    """Dense float32 numbers, the same under any layout."""
    index = np.arange(int(np.prod(shape)), dtype=np.uint64)
    return flow.tensor(flow.numerics.normal(index, 5, 0).reshape(shape), placement=placement, sbp=sbp)


def same(a: flow.Tensor, b: flow.Tensor) -> bool:
    return a.sbp == b.sbp and flow.same_bits(a.detach().numpy(), b.detach().numpy())


FUNCTIONS: list[Callable[[flow.Tensor], Any]] = [
    lambda x: F.softmax(x, 1), lambda x: flow.matmul(x, x.t()), lambda x: flow.sort(x, 0).values, lambda x: x.sum(0) * 3,
    lambda x: x.to_global(sbp=S(1)) - x.mean(), lambda x: flow.cat([x, flow.zeros_like(x)]),
]  # fmt: skip


@pytest.mark.parametrize("sbp", [B, S(0), S(1), P], ids=str)
def test_a_graph_is_eager_code_run_later(sbp: Any) -> None:
    """GRAPH-TRACE, GRAPH-RUN, GRAPH-SAME-CHOICE, GRAPH-CALL"""
    for function in FUNCTIONS:
        graph = Of(function)
        for scale in (1, 2):
            x = data(8, 6, sbp=sbp) * scale
            assert same(graph(x), function(x))


def test_results_keep_their_nesting() -> None:
    """GRAPH-CALL"""
    found = Of(lambda x: {"a": (x, [x + 1]), "b": None})(data(2))
    assert set(found) == {"a", "b"} and isinstance(found["a"], tuple) and same(found["a"][1][0], data(2) + 1)


def test_another_shape_is_refused() -> None:
    """GRAPH-SHAPE"""
    graph = Of(lambda x: x)
    graph(data(4))
    for other in (data(5), data(4, sbp=S(0)), data(4).to(flow.float64)):
        with pytest.raises(flow.errors.GraphError, match="traced for"):
            graph(other)


@pytest.mark.parametrize("read", [float, bool, lambda x: x.numpy(), repr])
def test_lazy_tensors_have_no_numbers(read: Callable[[flow.Tensor], Any]) -> None:
    """GRAPH-LAZY"""
    with pytest.raises(flow.errors.GraphError, match="no numbers"):
        Of(lambda x: read(x.sum()))(data(2))


def test_graphs_are_printed_and_drawn() -> None:
    """GRAPH-NODE, GRAPH-PRINT"""
    graph = Of(lambda x: flow.relu(x).sum(0))
    graph(data(4, 2, sbp=S(0)))
    logical = graph.graph
    assert logical.nodes[0].primitive.name == "relu" and "relu(input0)" in str(graph)
    assert "input input0: float32 4x2" in str(graph) and str(graph).splitlines()[-1].startswith("  return %")
    assert logical.to_dot().startswith("digraph") and "relu" in logical.to_dot()


def test_draws_follow_the_generator() -> None:
    """GRAPH-RANDOM"""

    def noisy(x: flow.Tensor) -> flow.Tensor:
        flow.rand(3, placement=ROW, sbp=B)  # drawn, and used by nobody
        return x + flow.rand(4, placement=ROW, sbp=S(0))

    graph, x = Of(noisy), data(4)
    lazy = [graph(x) for _ in range(2)]
    state = flow.default_generator().state
    flow.manual_seed(0)
    assert all(same(a, noisy(x)) for a in lazy) and flow.default_generator().state == state


def trained(step: Callable[[flow.Tensor], flow.Tensor], p: flow.Tensor, count: int) -> list[Any]:
    """Losses and parameter after some steps."""
    losses = [step(data(256, 4, sbp=S(0))).item() for _ in range(count)]
    return [losses, p.detach().numpy().tobytes()]


@pytest.mark.parametrize("make", [flow.optim.SGD, flow.optim.Adam, flow.optim.AdamW], ids=lambda m: m.__name__)
@pytest.mark.parametrize("steps", [1, 2, 4])
def test_training_in_a_graph_gives_eagers_bits(make: Any, steps: int) -> None:
    """GRAPH-OPTIMIZER, GRAPH-STATE, GRAPH-SCALARS, TIME-AXIS, TIME-RESULT"""
    found = []
    for lazy in (False, True):
        p = data(4, 2).requires_grad_()
        optimizer = make([p], lr=0.25)
        schedule = flow.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)

        def eager(x: flow.Tensor, p: flow.Tensor = p, optimizer: Any = optimizer, schedule: Any = schedule) -> flow.Tensor:
            loss = F.gelu(flow.matmul(x, p)).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            return loss

        found.append(trained(Step(p, optimizer, schedule, steps) if lazy else eager, p, 3))
    assert found[0] == found[1]


def test_a_graph_that_trains_needs_a_gradient() -> None:
    """GRAPH-OPTIMIZER"""
    graph = Of(lambda x: x)
    graph.add_optimizer(flow.optim.SGD([data(1).requires_grad_()]))
    with pytest.raises(flow.errors.GraphError, match="backward"):
        graph(data(1))


def test_passes_keep_every_bit() -> None:
    """PASS-DEAD, PASS-COMMON, PASS-BITS"""

    def wasteful(x: flow.Tensor) -> flow.Tensor:
        flow.exp(x)
        return x * x + x * x + flow.rand(4, placement=ROW, sbp=B) - flow.rand(4, placement=ROW, sbp=B)

    graph, x = Of(wasteful), data(4)
    lazy = graph(x)
    flow.manual_seed(0)
    assert same(lazy, wasteful(x))
    names = [node.primitive.name for node in graph.graph.nodes]
    assert names.count("mul") == 1 and "exp" not in names and names.count("rand") == 2
    again = common_subexpressions(dead_code(graph.graph))
    assert [node.primitive.name for node in again.nodes] == names


def test_inputs_are_cut_in_time() -> None:
    """TIME-INPUT, TIME-WORLD"""
    meta = data(8, 2, sbp=S(0)).value.meta
    assert input_sbp(meta, 4) == S(0) and input_sbp(data(8).sum().value.meta, 4) == B and input_sbp(meta, 1) == B
    with pytest.raises(flow.errors.GraphError, match="equal micro-batches"):
        input_sbp(meta, 3)
    where = timed(PAIR, 2)
    assert where.mesh == (2, 2) and where.ranks == (0, 1, 2, 3) and timed(where, 2) is where
    world = TimeWorld(flow.world.current_world(), 3)
    assert world.owned == tuple(range(12)) and world.transfer("t", [Transfer(0, 2, (), None)], {0: "x"}) == {0: "x"}


def test_statistics_of_the_batch_refuse_micro_batches() -> None:
    """TIME-REFUSED"""
    graph = Of(lambda x: F.batch_norm(x, None, None, training=True), steps=2)
    with pytest.raises(flow.errors.GraphError, match="micro-batches at once"):
        graph(data(8, 2, sbp=S(0)))


def test_a_mesh_in_time_is_no_mesh_of_ranks() -> None:
    """TIME-AXIS, LAY-PLACEMENT: two ranks in two micro-steps are not four ranks, whatever was computed on those before."""
    grid = flow.placement("cpu", [[0, 1], [2, 3]])
    assert timed(PAIR, 2) != grid
    flow.relu(data(8, 2, sbp=(S(0), S(0)), placement=grid))
    x = data(8, 2, sbp=S(0), placement=PAIR)
    assert same(Of(lambda x: flow.relu(x) + 1, steps=2)(x), flow.relu(x) + 1)
