"""What a graph refuses, in which words, and that a refusal leaves nothing behind.

GRAPH-LAZY, GRAPH-SHAPE, GRAPH-OPTIMIZER, GRAPH-STATE, GRAPH-RANDOM, TIME-INPUT, TIME-REFUSED.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import refflow as flow
from refflow import Tensor
from refflow.errors import AttributeValueError, GraphError, RefflowError
from refflow.graph.api import Graph
from refflow.graph.time import TooManySteps
from refflow.layout import Placement
from tests.graph.nets import rows
from tests.graph.running import B, Of, P, S, bits, proved, state_of

PAIR = Placement("cpu", [0, 1])


def x(*shape: int, sbp: Any = None) -> Tensor:
    return flow.tensor(rows(*(shape or (8, 2))), placement=PAIR, sbp=S(0) if sbp is None else sbp)


READS: dict[str, Callable[[Tensor], Any]] = {
    "numpy": lambda x: x.numpy(), "asarray": np.asarray, "item": lambda x: x.sum().item(), "tolist": lambda x: x.tolist(),
    "bool": lambda x: x if x.sum() > 0 else -x, "float": lambda x: float(x.sum()), "int": lambda x: int(x.sum()),
    "print": str, "format": lambda x: f"{x}", "local arrays": lambda x: x.local_arrays(), "shapes": lambda x: x.shapes,
    "same_bits": lambda x: flow.same_bits(x, x), "digest": flow.numerics.digest,
}  # fmt: skip


@pytest.mark.parametrize("micro", [1, 2])
@pytest.mark.parametrize("name", READS)
def test_a_lazy_tensor_has_no_numbers(name: str, micro: int) -> None:
    """GRAPH-LAZY: and the graph, the generator and the tensors outside are as before."""
    before, given = state_of(), x()

    def build(x: Tensor) -> Tensor:
        flow.rand(2, placement=PAIR, sbp=B)
        READS[name](x)
        return x

    with pytest.raises(GraphError, match="no numbers inside build"):
        Of(build, micro)(given)
    assert state_of() == before and bits(given) == bits(x()) and (given + 1).tolist()


def outside(x: Tensor) -> Tensor:
    return x


MISUSE: dict[str, tuple[Callable[..., Any], str]] = {
    "a number returned": (lambda x: 3, "must return tensors"),
    "an array returned": (lambda x: {"a": [np.ones(2)]}, "must return tensors"),
    "a local tensor returned": (lambda x: flow.tensor([1.0]), "only global tensors"),
    "a local tensor made": (lambda x: flow.rand(3), "only global tensors"),
    "a local tensor added": (lambda x: x + flow.tensor([1.0, 2.0]), "to_global"),
    "to_local": (lambda x: x.to_local(), "only global tensors"),
    "another generator": (lambda x: x + flow.rand(2, generator=flow.Generator(1), placement=PAIR, sbp=B), "default generator"),
    "a parameter from outside": (lambda x: x * PARAMETER.value, "its gradient would be lost"),
    "a write outside": (lambda x: CELL.value.add_(x.sum()), "no parameter or buffer"),
    "a write through a view": (lambda x: CELL.value[0].copy_(x.sum()), "no parameter or buffer"),
}  # fmt: skip


class _Made:
    """A tensor made in the test's world at first use."""

    def __init__(self, grad: bool) -> None:
        self.grad = grad
        self.held: list[Tensor] = []

    @property
    def value(self) -> Tensor:
        if not self.held:
            self.held.append(flow.tensor([1.0, 2.0], placement=PAIR, sbp=B))
            if self.grad:
                self.held[0].requires_grad_()
        return self.held[0]


PARAMETER, CELL = _Made(True), _Made(False)


@pytest.mark.parametrize("name", MISUSE)
def test_what_belongs_outside(name: str) -> None:
    function, words = MISUSE[name]
    held = [PARAMETER.value, CELL.value]  # made outside
    before = [*bits(held), state_of()]
    with pytest.raises(RefflowError, match=words):
        Of(function)(x())
    assert [*bits(held), state_of()] == before


def test_a_parameter_from_outside_may_be_looked_at() -> None:
    w = PARAMETER.value

    def build(x: Tensor) -> Tensor:
        with flow.no_grad():
            return x * w

    assert bits(Of(build, 2)(x())) == bits((x() * w).detach())


def test_captured_constants() -> None:
    """They are returned, used and moved like any value, in every number of micro-batches."""
    k = flow.tensor([[1.0, 2.0]], placement=PAIR, sbp=S(1))
    for micro in (1, 4):
        graph = Of(lambda x: (k, x * k, k.to_global(sbp=B), k.sum()), micro)
        assert bits(graph(x())) == bits((k, x() * k, k.to_global(sbp=B), k.sum()))
        proved(graph)


def test_inputs() -> None:
    """GRAPH-SHAPE"""
    with pytest.raises(GraphError, match="takes global tensors"):
        Of(outside)(flow.tensor([1.0]))
    graph = Of(outside)
    graph(x())
    for other in (x(10, 2), x(sbp=B), x(sbp=P), x().to(flow.float64), x().to_global(Placement("cpu", [1, 0]), S(0))):
        with pytest.raises(GraphError, match="traced for .* called with"):
            graph(other)
    assert bits(graph(x())) == bits(x())


def test_a_call_that_fails_fixes_no_shape() -> None:
    """GRAPH-SHAPE: a graph is traced for its first call that succeeds."""
    graph = Of(lambda x: flow.matmul(x, flow.ones(2, 2, placement=PAIR, sbp=B)))
    with pytest.raises(RefflowError, match="matmul"):
        graph(x(8, 3))
    assert bits(graph(x())) == bits(flow.matmul(x(), flow.ones(2, 2, placement=PAIR, sbp=B)))


def test_arguments_are_nested_as_in_the_first_call() -> None:
    """GRAPH-SHAPE: the same tensors under other names, or in another order, are another call."""
    one, two = x(), x() * 2
    graph = Of(lambda named: named["a"] - named["b"])
    assert bits(graph({"a": one, "b": two})) == bits(one - two)
    assert bits(graph({"a": two, "b": one})) == bits(two - one)
    for other in ({"b": two, "a": one}, {"a": one, "c": two}, [one, two]):
        with pytest.raises(GraphError, match="traced for"):
            graph(other)


def test_a_graph_is_no_module_of_another() -> None:
    """GRAPH-CALL: called inside build it says so, and is as before."""
    inner = Of(lambda x: x * 2)
    with pytest.raises(GraphError, match="called outside build"):
        Of(inner)(x())
    assert bits(inner(x())) == bits(x() * 2)


def test_optimizers() -> None:
    """GRAPH-OPTIMIZER: an optimizer needs a gradient, and no half step is left when there is none."""
    p = flow.ones(2, placement=PAIR, sbp=B, requires_grad=True)
    optimizer = flow.optim.Adam([p])

    class Idle(Graph):
        def build(self, x: Tensor) -> Tensor:
            return (x * p).sum()

    graph = Idle()
    graph.add_optimizer(optimizer)
    with pytest.raises(GraphError, match="called no backward"):
        graph(x())
    assert optimizer.state_dict()["state"] == {} and p.tolist() == [1, 1]


@pytest.mark.parametrize("steps", [0, -1, 2.0, True, None])
def test_micro_batches_are_a_count(steps: Any) -> None:
    with pytest.raises(AttributeValueError, match="int >= 1"):
        Of(outside).config.set_gradient_accumulation_steps(steps)


@pytest.mark.parametrize("stage", [0, 4, "2"])
def test_zero_has_three_stages(stage: Any) -> None:
    with pytest.raises(AttributeValueError, match="1, 2 or 3"):
        Of(outside).config.enable_zero(stage=stage)


@pytest.mark.parametrize(("batch", "micro", "works"), [(8, 3, 2), (6, 4, 3), (7, 2, 1), (9, 8, 3)])
def test_a_batch_falls_into_equal_micro_batches(batch: int, micro: int, works: int) -> None:
    """TIME-INPUT: else the largest number that works is named, and works."""
    given = flow.tensor(rows(batch, 2), placement=Placement("cpu", [0]), sbp=B)
    with pytest.raises(TooManySteps, match=f"below that works is {works}$"):
        Of(lambda x: x * 2, micro)(given)
    assert bits(Of(lambda x: x * 2, works)(given)) == bits(given * 2)


WHOLE: dict[str, Callable[[Tensor], Any]] = {
    "the mean taken away": lambda x: x - x.mean(0),
    "a sum used again": lambda x: (x * x.sum()).sum(),
    "sorted": lambda x: flow.sort(x, 0).values * 2,
    "cumulated": lambda x: flow.cumsum(x, 0),
    "turned": lambda x: flow.flip(x, 0),
    "flattened": lambda x: x.t().flatten() * 2,
    "batch norm": lambda x: flow.nn.functional.batch_norm(x, None, None, training=True),
    "among themselves": lambda x: flow.matmul(x, x.t()),
}


@pytest.mark.parametrize("micro", [2, 4, 8])
@pytest.mark.parametrize("name", WHOLE)
def test_what_waits_for_the_whole_batch(name: str, micro: int) -> None:
    """TIME-REFUSED: whatever the register numbers, before anything runs: no deadlock is met."""
    with pytest.raises(TooManySteps, match="the largest number of micro-batches below that works is 1$"):
        Of(WHOLE[name], micro)(x())
    assert bits(Of(WHOLE[name])(x())) == bits(WHOLE[name](x()))


def test_a_fold_of_all_micro_batches_is_a_result() -> None:
    """TIME-RESULT: sums, maxima and whole outputs are given; what is made of them once a call may be used once a call."""

    def f(x: Tensor) -> Any:
        total = x.sum(0)
        return total, x.amax(0), x * 2, total / total.amax(), x.t(), x[:, 0]

    graph = Of(f, 4)
    assert [bit[2:] for bit in bits(graph(x()))] == [bit[2:] for bit in bits(f(x()))]
    proved(graph)
