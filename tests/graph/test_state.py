"""What a graph reads and writes: buffers, tied weights, several optimizers, several graphs, and what a refused call leaves.

GRAPH-STATE, GRAPH-OPTIMIZER, GRAPH-SCALARS, GRAPH-STAGE, TIME-REFUSED, ZERO-PARAMETER.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import refflow as flow
from refflow import Tensor, nn
from refflow.errors import GraphError, RefflowError
from refflow.graph.api import Graph
from refflow.graph.module import GraphModule
from refflow.graph.time import TooManySteps
from refflow.layout import Placement
from tests.graph.nets import digest, rows
from tests.graph.running import B, S, proved

F = nn.functional
ONE, PAIR = Placement("cpu", [0]), Placement("cpu", [0, 1])
Optimizers = list[Any]
Loss = Callable[..., Tensor]


class Step(Graph):
    """A training step of any loss."""

    def __init__(self, model: nn.Module, optimizers: Optimizers, loss: Loss, micro: int = 1, zero: int = 0) -> None:
        super().__init__()
        self.model, self._loss = model, loss
        for optimizer in optimizers:
            self.add_optimizer(optimizer)
        self.config.set_gradient_accumulation_steps(micro)
        if zero:
            self.config.enable_zero(stage=zero)

    def build(self, *args: Tensor) -> Tensor:
        loss = self._loss(self.model, *args)
        loss.backward()
        return loss


def eagerly(model: nn.Module, optimizers: Optimizers, loss: Loss) -> Callable[..., Tensor]:
    """The same step, eagerly."""

    def step(*args: Tensor) -> Tensor:
        found = loss(model, *args)
        for optimizer in optimizers:
            optimizer.zero_grad()
        found.backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        return found

    return step


def state(model: nn.Module, *optimizers: Any) -> list[Any]:
    """Everything a step leaves."""
    cells = [digest(t) for t in (*model.parameters(), *model.buffers())]
    for optimizer in optimizers:
        for number, entries in optimizer.state_dict()["state"].items():
            cells += [(number, k, digest(v) if isinstance(v, Tensor) else v) for k, v in entries.items()]
    return [*cells, flow.default_generator().state]


def batch(*shape: int, placement: Placement = PAIR, sbp: Any = None) -> Tensor:
    return flow.tensor(rows(*shape), placement=placement, sbp=S(0) if sbp is None else sbp)


def normed(placement: Placement = PAIR) -> nn.Module:
    flow.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 2)).to_global(placement, B)


def squares(model: nn.Module, x: Tensor) -> Tensor:
    return (model(x) * model(x)).mean() if isinstance(model, nn.Linear) else (model(x) ** 2).mean()


def adam(model: nn.Module) -> Any:
    return flow.optim.AdamW(model.parameters(), lr=0.1)


def test_running_statistics_are_written_back() -> None:
    found = []
    for lazy in (True, False):
        model = normed()
        optimizer = adam(model)
        step = Step(model, [optimizer], squares) if lazy else eagerly(model, [optimizer], squares)
        found.append([[digest(step(batch(64, 4))) for _ in range(3)], state(model, optimizer)])
        if isinstance(step, Graph):
            proved(step)
            assert model[1].num_batches_tracked.item() == 3
    assert found[0] == found[1]


@pytest.mark.parametrize("micro", [2, 4])
def test_batch_statistics_refuse_micro_batches_and_nothing_is_changed(micro: int) -> None:
    """TIME-REFUSED: in words that name the largest number that works; after which training goes on as if nothing had been."""
    model = normed()
    optimizer = adam(model)
    step, before = Step(model, [optimizer], squares, micro), state(model, optimizer)
    with pytest.raises(TooManySteps, match=r"at once .* the largest number of micro-batches below that works is 1"):
        step(batch(64, 4))
    assert state(model, optimizer) == before
    step.config.set_gradient_accumulation_steps(1)
    losses = [digest(step(batch(64, 4))) for _ in range(2)]
    other = normed()
    plain = adam(other)
    again = eagerly(other, [plain], squares)
    assert [digest(again(batch(64, 4))) for _ in range(2)] == losses
    assert state(other, plain) == state(model, optimizer)


def test_the_largest_number_that_works_is_named() -> None:
    """TIME-REFUSED: a contraction over 48 rows: quarters are aligned, eighths of 6 rows are not (its leaves have 12)."""
    flow.manual_seed(0)
    model = nn.Linear(4, 2).to_global(ONE, B)
    with pytest.raises(TooManySteps, match="below that works is 4$"):
        Step(model, [adam(model)], squares, 8)(batch(48, 4, placement=ONE))


class Tied(nn.Module):
    """A weight used at the first stage and, transposed, at the second."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 8), nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        y = self.last(flow.tanh(self.first(x)))
        weight = self.first.weight if self.first.weight.placement == y.placement else self.first.weight.to_global(y.placement, B)
        return flow.matmul(y, weight)


@pytest.mark.parametrize("micro", [1, 2, 4])
def test_tied_weights_of_two_stages(micro: int) -> None:
    found = []
    for lazy in (True, False):
        flow.manual_seed(0)
        model = Tied()
        model.first.to_global(ONE, B)
        model.last.to_global(Placement("cpu", [1]) if lazy else ONE, B)
        if lazy:
            model.first.to(GraphModule).set_stage(0, ONE)
            model.last.to(GraphModule).set_stage(1, Placement("cpu", [1]))
        optimizer = adam(model)
        step = Step(model, [optimizer], squares, micro) if lazy else eagerly(model, [optimizer], squares)
        found.append([[digest(step(batch(64, 4, placement=ONE))) for _ in range(3)], state(model, optimizer)])
        if isinstance(step, Graph):
            proved(step)
            assert step.plan.ranks == (0, 1)
    assert found[0] == found[1]


@pytest.mark.parametrize("micro", [1, 4])
def test_several_optimizers(micro: int) -> None:
    found = []
    for lazy in (True, False):
        flow.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8), nn.Linear(8, 2)).to_global(PAIR, B)
        optimizers = [
            flow.optim.SGD(model[0].parameters(), lr=0.1, momentum=0.9), adam(model[2]),
            flow.optim.Adagrad([model[3].weight], lr=0.5),
        ]  # fmt: skip
        model[3].bias.requires_grad_(False)
        step = Step(model, optimizers, squares, micro) if lazy else eagerly(model, optimizers, squares)
        found.append([[digest(step(batch(128, 4))) for _ in range(3)], state(model, *optimizers)])
        if isinstance(step, Graph):
            proved(step)
    assert found[0] == found[1]


class Predict(Graph):
    """A model, looked at."""

    def __init__(self, model: nn.Module, micro: int = 1) -> None:
        super().__init__()
        self.model = model
        self.config.set_gradient_accumulation_steps(micro)

    def build(self, x: Tensor) -> Tensor:
        return self.model(x)


@pytest.mark.parametrize("zero", [0, 1, 3])
def test_graphs_and_eager_code_share_one_model(zero: int) -> None:
    """Two graphs that train, one that looks and eager steps in between: all eager."""
    found = []
    for lazy in (True, False):
        flow.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.25), nn.Linear(8, 2)).to_global(PAIR, B)
        optimizer = adam(model)
        eager = eagerly(model, [optimizer], squares)
        one, four = (Step(model, [optimizer], squares, micro, zero) if lazy else eager for micro in (1, 4))
        look = Predict(model, 2) if lazy else model
        seen = []
        for step in (eager, one, four, eager, four, one):
            seen.append(digest(step(batch(128, 4))))
            with flow.no_grad():
                model.eval()
                seen.append(digest(look(batch(128, 4))))
                model.train()
            flow.rand(3, placement=PAIR, sbp=B)
        found.append([seen, state(model, optimizer)])
    assert found[0] == found[1]


def test_a_call_that_fails_leaves_everything_as_it_was() -> None:
    """An index out of range shows when the graph runs: weights, optimizer and generator are those of before."""
    flow.manual_seed(0)
    model = nn.Sequential(nn.Embedding(5, 4), nn.Dropout(0.5), nn.Linear(4, 2)).to_global(PAIR, B)
    optimizer = adam(model)
    step, before = Step(model, [optimizer], squares), state(model, optimizer)
    good = flow.tensor(np.arange(32) % 5, placement=PAIR, sbp=S(0))
    bad = flow.tensor(np.arange(32), placement=PAIR, sbp=S(0))
    for _ in range(2):
        with pytest.raises(RefflowError, match="index 5"):
            step(bad)
        assert state(model, optimizer) == before
    losses = [digest(step(good)) for _ in range(2)]
    with pytest.raises(RefflowError, match="index 5"):
        step(bad)
    losses.append(digest(step(good)))
    flow.manual_seed(0)
    other = nn.Sequential(nn.Embedding(5, 4), nn.Dropout(0.5), nn.Linear(4, 2)).to_global(PAIR, B)
    plain = adam(other)
    again = eagerly(other, [plain], squares)
    assert [digest(again(good)) for _ in range(3)] == losses
    assert state(other, plain) == state(model, optimizer)


def test_gradients_of_before_are_not_touched() -> None:
    flow.manual_seed(0)
    model = nn.Linear(4, 2).to_global(PAIR, B)
    squares(model, batch(32, 4)).backward()
    before = digest(model.weight.grad)
    Step(model, [adam(model)], squares)(batch(32, 4))
    assert digest(model.weight.grad) == before
    Predict(model)(batch(32, 4))
    assert digest(model.weight.grad) == before


def test_two_backwards_add_up() -> None:
    """AUTO-ACCUMULATE inside build; parameters that get no gradient are left alone."""

    def twice(model: nn.Module, x: Tensor) -> Tensor:
        (model[0](x) ** 2).mean().backward()
        return flow.tanh(model[0](x)).mean()

    found = []
    for lazy in (True, False):
        flow.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 2), nn.Linear(4, 2)).to_global(PAIR, B)
        optimizer = adam(model)

        def eager(x: Tensor, model: nn.Module = model, optimizer: Any = optimizer) -> Tensor:
            loss = twice(model, x)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            return loss

        step = Step(model, [optimizer], twice, 4) if lazy else eager
        found.append([[digest(step(batch(128, 4))) for _ in range(2)], state(model, optimizer)])
    assert found[0] == found[1]


def test_a_hyperparameter_that_changes_the_operations_is_refused() -> None:
    """GRAPH-SCALARS: a rate may change, whether there is momentum may not; nothing is changed by the call refused."""
    flow.manual_seed(0)
    model = nn.Linear(4, 2).to_global(PAIR, B)
    optimizer = flow.optim.SGD(model.parameters(), lr=0.5)
    step = Step(model, [optimizer], squares)
    step(batch(32, 4))
    optimizer.param_groups[0]["lr"] = 0.25
    step(batch(32, 4))
    before = state(model)
    optimizer.param_groups[0]["weight_decay"] = 0.5
    with pytest.raises(GraphError, match="other operations"):
        step(batch(32, 4))
    assert state(model) == before
    optimizer.param_groups[0]["weight_decay"] = 0.0
    step(batch(32, 4))


def test_the_optimizer_may_have_stepped_before() -> None:
    """State that eager steps, or a loaded checkpoint, made is read by the graph's first call."""
    found = []
    for lazy in (True, False):
        flow.manual_seed(0)
        model = nn.Linear(4, 2).to_global(PAIR, B)
        optimizer = adam(model)
        eager = eagerly(model, [optimizer], squares)
        eager(batch(32, 4))
        optimizer.load_state_dict(optimizer.state_dict())
        step = Step(model, [optimizer], squares, zero=2) if lazy else eager
        losses = [digest(step(batch(32, 4))) for _ in range(2)]
        optimizer.load_state_dict(optimizer.state_dict())
        losses += [digest(step(batch(32, 4))) for _ in range(2)]
        found.append([losses, state(model, optimizer)])
    assert found[0] == found[1]
