"""GRAPH-*, EVT-REPLAY: what a user meets when calling graphs: modes, errors, communication, traces, where names are."""

from __future__ import annotations

import json
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import refflow as flow
from refflow.errors import AttributeValueError, GraphError, PlacementError
from refflow.graph.flops import flops
from refflow.graph.recording import record
from refflow.runtime import Machine, Random

S, B = flow.sbp.split, flow.sbp.broadcast
nn = flow.nn


def pair() -> Any:
    return flow.placement("cpu", [0, 1])


class Train(nn.Graph):
    def __init__(self, model: nn.Module, backward: bool = True) -> None:
        super().__init__()
        self.model, self.backward = model, backward
        self.optimizer = flow.optim.AdamW(model.parameters(), lr=0.1)
        self.add_optimizer(self.optimizer)

    def build(self, x: flow.Tensor) -> flow.Tensor:
        loss = (self.model(x) ** 2).mean()
        if self.backward:
            loss.backward()
        return loss


def net() -> nn.Module:
    flow.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 4), nn.Dropout(0.5)).to_global(pair(), B)


def rows(n: int = 64, **more: Any) -> flow.Tensor:
    return flow.randn(n, 8, **{"placement": pair(), "sbp": S(0), **more})


def test_a_graph_serves_train_and_eval() -> None:
    """GRAPH-MODE: another mode is another trace; both are kept."""

    class Forward(nn.Graph):
        def __init__(self, model: nn.Module) -> None:
            super().__init__()
            self.model = model

        def build(self, x: flow.Tensor) -> flow.Tensor:
            return self.model(x)

    model, x = net(), rows()
    graph = Forward(model)
    with flow.no_grad():
        train = graph(x).numpy()
        model.eval()
        still = model(x).numpy()
        assert flow.same_bits(graph(x).numpy(), still) and not flow.same_bits(train, still)
        assert "rand" not in str(graph)
        model.train()
        assert not flow.same_bits(graph(x).numpy(), graph(x).numpy()) and "rand" in str(graph)
    assert len(graph._traced) == 2


def test_what_a_call_depends_on_is_traced_anew() -> None:
    """GRAPH-MODE: configuration, frozen parameters, recomputation."""
    model = net()
    step, x = Train(model), rows()
    step(x), step(x), step(x)
    traced = len(step._traced)
    assert traced == 1  # that of the first, which makes the state of the optimizer, is not kept
    for change in (
        lambda: step.config.set_gradient_accumulation_steps(2),
        lambda: step.config.enable_amp(dtype=flow.bfloat16),
        lambda: model[0].bias.requires_grad_(False),
        lambda: setattr(model.to(nn.graph.GraphModule), "activation_checkpointing", True),
        lambda: step.config.enable_zero(stage=1),
    ):
        change()
        step(x)
        traced += 1
        assert len(step._traced) == traced


def test_errors_of_build_are_clear_and_leave_everything_as_it_was() -> None:
    """GRAPH-LAZY, GRAPH-OPTIMIZER, GRAPH-SHAPE: GraphError in words; the optimizer's state is not half made."""
    x = rows()
    for look in (lambda t: t.detach().numpy(), bool, lambda t: t.item(), str):

        class Looks(Train):
            def build(self, x: flow.Tensor, look: Any = look) -> flow.Tensor:
                loss = super().build(x)
                look(loss)
                return loss

        step = Looks(net())
        with pytest.raises(GraphError, match="no numbers"):
            step(x)
        assert not step.optimizer.state and step.model[0].weight.detach().numpy().shape == (4, 8)
    with pytest.raises(GraphError, match="no backward"):
        Train(net(), backward=False)(x)
    step = Train(net())
    for ask in (lambda: step.plan, lambda: step.graph, step.trace):
        with pytest.raises(GraphError, match="not traced yet"):
            ask()
    assert str(step) == "Train (not traced yet)"
    step(x)
    for other in (rows(32), rows(sbp=B), rows(placement=flow.placement("cpu", [2, 3])), rows().to(flow.float64)):
        with pytest.raises(GraphError, match="traced for"):
            step(other)


def test_another_placement_needs_to_global() -> None:
    """GRAPH-TRACE: as eagerly, mixing placements names both; to_global is the cure."""
    far = flow.placement("cpu", [2, 3])

    class Mixed(nn.Graph):
        def __init__(self, cure: bool) -> None:
            super().__init__()
            self.cure = cure

        def build(self, x: flow.Tensor, y: flow.Tensor) -> flow.Tensor:
            return x + (y.to_global(x.placement, S(0)) if self.cure else y)

    x, y = rows(), rows(placement=far)
    with pytest.raises(PlacementError, match="to_global"):
        Mixed(False)(x, y)
    assert flow.same_bits(Mixed(True)(x, y).numpy(), (x + y.to_global(pair(), S(0))).numpy())
    with pytest.raises(GraphError, match="to_global"):
        Mixed(True)(flow.ones(3), flow.ones(3))


def test_advice_puts_the_optimizer_back() -> None:
    """TIME-REFUSED: the attempts that find the largest number leave no trace."""
    step, x = Train(net()), rows()
    step.config.set_gradient_accumulation_steps(4)
    with pytest.raises(GraphError, match="largest number of micro-batches below that works is 2"):
        step(x)
    assert not step.optimizer.state
    step.config.set_gradient_accumulation_steps(2)
    flow.manual_seed(5)
    loss, other = step(x), Train(net())
    flow.manual_seed(5)
    assert flow.same_bits(other(x).numpy(), loss.numpy())


def test_what_waits_for_no_other_micro_batch_comes_first() -> None:
    """TIME-CHOICE: tensor and data parallel with micro-batches: P -> S(1), though P -> S(0) moves as many bytes."""
    grid = flow.placement("cpu", [[0, 1], [2, 3]])
    flow.manual_seed(3)
    x, w = flow.randn(64, 32, placement=grid, sbp=(S(0), S(1))), flow.randn(32, 4, placement=grid, sbp=(B, S(0)))

    class Rows(nn.Graph):
        def build(self, x: flow.Tensor) -> flow.Tensor:
            return flow.relu(flow.matmul(x, w)).sum()

    found = set()
    for micro in (1, 2):
        graph = Rows()
        graph.config.set_gradient_accumulation_steps(micro)
        found.add(graph(x).item())
        (relu,) = (node for node in graph.graph.nodes if node.primitive.name == "relu")
        assert relu.metas[0].sbp[:2] == ((S(0), S(0)) if micro == 1 else (S(0), S(1)))
    assert found == {flow.relu(flow.matmul(x, w)).sum().item()}


def test_communication_is_logged() -> None:
    """GRAPH-COMM: as eager code's; the moves of micro-steps are summed; both ways to run agree."""
    x, logs = rows(256), {}
    for name, micro, runtime in (("one", 1, "actors"), ("four", 4, "actors"), ("four, one by one", 4, "sequential")):
        step = Train(net())
        step.config.set_gradient_accumulation_steps(micro)
        step.config.runtime = runtime
        step(x)
        with flow.comm_log() as log:
            step(x)
        logs[name] = log.moves
    model = net()
    optimizer = flow.optim.AdamW(model.parameters(), lr=0.1)
    for _ in range(2):
        with flow.comm_log() as log:
            optimizer.zero_grad()
            (model(x) ** 2).mean().backward()
            optimizer.step()

    def by_kind(moves: Any) -> dict[str, int]:
        return {k: sum(m.bytes for m in moves if m.kind == k) for k in {m.kind for m in moves if m.bytes}}

    assert by_kind(logs["one"]) == by_kind(logs["four"]) == by_kind(log.moves) and by_kind(log.moves)
    assert logs["four"] == logs["four, one by one"]


def test_a_trace_is_the_run_again(tmp_path: Path) -> None:
    """EVT-REPLAY: without contents, under the same schedule, the events are those of the call."""
    step, x = Train(net()), rows()
    for schedule in (None, lambda: Random(5)):
        step.config.schedule, step.config.log_events = schedule, True
        step(x)
        assert step.trace().events is not None and tuple(step.last_run.events) == tuple(step.trace().events)
        assert tuple(record(step.plan, schedule=None if schedule is None else schedule()).events) == tuple(step.trace().events)
        step.config.log_events = False
        step(x)
        again = step.trace()
        assert not step.last_run.events and len(again) > 100 and "acts" in str(again)
    again.save(tmp_path / "run.json")
    assert {row["pid"] for row in json.loads((tmp_path / "run.json").read_text())["traceEvents"]} == {0, 1}


def test_a_trace_in_virtual_time() -> None:
    """EVT-REPLAY, PLAN-FLOPS: with a cost model, times are the machine's; the picture has a text form."""
    step = Train(net())
    step(rows())
    slow = step.trace(Machine(Fraction(1), Fraction(10**9), Fraction(10**9)))
    fast = step.trace(Machine(Fraction(2), Fraction(10**9), Fraction(10**9)))
    ends = [max(event.finish for event in trace.events) for trace in (slow, fast)]
    assert 1.9 < ends[0] / ends[1] <= 2
    picture = slow.timeline()
    assert "<svg" in picture.svg and "rank 1" in str(picture)
    node = next(node for node in step.graph.nodes if node.primitive.name == "matmul")
    assert [flops(node, rank) for rank in (0, 1)] == [2 * 32 * 8 * 4] * 2
    assert all(task.flops for task in step.plan.tasks if task.name.startswith("matmul"))


def test_flops_of_convolutions() -> None:
    """PLAN-FLOPS: two for each product of a whole window."""

    class Conv(nn.Graph):
        def build(self, x: flow.Tensor, w: flow.Tensor) -> Any:
            x, w = x.requires_grad_(), w.requires_grad_()
            nn.functional.conv2d(x, w, padding=1).sum().backward()
            return x.grad, w.grad

    graph = Conv()
    graph(flow.ones(4, 3, 8, 8, placement=pair(), sbp=S(0)), flow.ones(5, 3, 3, 3, placement=pair(), sbp=B))
    found = [flops(n, 0) for n in graph.graph.nodes if n.primitive.name.startswith("conv2d")]
    assert found == [2 * 2 * 5 * 8 * 8 * 3 * 9] * 2  # its own, backward to x and w


def test_zero_and_steps_are_checked() -> None:
    config = Train(net()).config
    for wrong in (lambda: config.enable_zero(stage=4), lambda: config.set_gradient_accumulation_steps(0)):
        with pytest.raises(AttributeValueError):
            wrong()


def test_the_names_are_there_and_cost_nothing_until_used() -> None:
    """nn.Graph, nn.graph.GraphModule and amp.GradScaler; importing refflow loads no graph."""
    code = (
        "import sys, refflow as flow\n"
        "assert not any(name.startswith(('refflow.graph', 'refflow.runtime')) for name in sys.modules), sys.modules\n"
        "print(flow.nn.Graph.__name__, flow.nn.graph.GraphModule.__name__, flow.amp.GradScaler.__name__)\n"
        "from refflow import amp\n"
        "for owner in (flow, flow.nn):\n"
        "    assert not hasattr(owner, 'Grapf')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout == "Graph GraphModule GradScaler\n", done.stderr
