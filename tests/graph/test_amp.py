"""AMP-ALLOW, AMP-DENY, AMP-INFER, AMP-SCALE, AMP-SKIP: mixed precision in graphs has one result; overflow skips a step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import refflow as flow
from refflow.errors import AttributeValueError
from refflow.graph.amp import ALLOW, DENY, HalfContractions
from refflow.ir.primitive import REGISTRY
from refflow.numerics import digest_many

S, B = flow.sbp.split, flow.sbp.broadcast
HALVES = [flow.bfloat16, flow.float16]


@pytest.fixture(autouse=True)
def world() -> Iterator[None]:
    with flow.virtual_world(4):
        yield


class Step(flow.nn.Graph):
    """Two layers, dropout and a loss; `half`, micro-batches, ZeRO and stages as asked."""

    def __init__(self, ranks: int, *, half: Any = None, micro: int = 1, zero: int = 0, staged: bool = False,
                 scaler: Any = None, factor: float = 1.0, recompute: bool = False) -> None:  # fmt: skip
        super().__init__()
        nn, flow_ranks = flow.nn, list(range(ranks))
        flow.manual_seed(7)
        self.first = nn.Sequential(nn.Linear(20, 16), nn.ReLU(), nn.Dropout(0.25))
        self.second = nn.Linear(16, 5)
        self.places = [flow.placement("cpu", flow_ranks)] * 2
        if staged:
            half_way = ranks // 2
            self.places = [flow.placement("cpu", flow_ranks[:half_way]), flow.placement("cpu", flow_ranks[half_way:])]
            for stage, block in enumerate((self.first, self.second)):
                block.to(nn.graph.GraphModule).set_stage(stage, self.places[stage])
        for block, place in zip((self.first, self.second), self.places, strict=True):
            block.to_global(place, B)
        self.first.to(nn.graph.GraphModule).activation_checkpointing = recompute
        self.optimizer = flow.optim.AdamW([*self.first.parameters(), *self.second.parameters()], lr=0.01)
        self.schedule = flow.optim.lr_scheduler.StepLR(self.optimizer, 1, 0.5)
        self.add_optimizer(self.optimizer, self.schedule)
        self.factor = factor
        self.config.set_gradient_accumulation_steps(micro)
        if half is not None:
            self.config.enable_amp(dtype=half)
        if zero:
            self.config.enable_zero(stage=zero)
        if scaler is not None:
            self.set_grad_scaler(scaler)

    def build(self, x: flow.Tensor, y: flow.Tensor) -> flow.Tensor:
        scores = self.second(self.first(x))
        loss = flow.nn.functional.cross_entropy(scores, y.to_global(scores.placement, y.sbp)) * self.factor
        loss.backward()
        return loss

    def digest(self) -> str:
        return digest_many({name: cell.detach().numpy() for name, cell in self._cells().items()})

    def batch(self) -> tuple[flow.Tensor, flow.Tensor]:
        flow.manual_seed(1)
        rows = {"placement": self.places[0], "sbp": S(0)}
        return flow.randn(128, 20, **rows), flow.randint(0, 5, (128,), **rows)


def trained(steps: int = 2, **options: Any) -> tuple[str, float]:
    step = Step(**options)
    x, y = step.batch()
    losses = [step(x, y).item() for _ in range(steps)]
    assert step.plan.verify().sound
    return step.digest(), losses[-1]


WAYS = [
    {"ranks": 4, "micro": 2}, {"ranks": 2, "micro": 4, "zero": 2}, {"ranks": 4, "zero": 3}, {"ranks": 4, "zero": 1, "micro": 2},
    {"ranks": 4, "staged": True, "micro": 4}, {"ranks": 1, "micro": 8, "recompute": True},
]  # fmt: skip


@pytest.mark.parametrize("half", HALVES, ids=str)
def test_one_result_for_every_layout(half: Any) -> None:
    """AMP-ALLOW: ranks, micro-batches, ZeRO, stages and recomputation change no bit; half precision does."""
    want = trained(ranks=1, half=half)
    assert all(trained(half=half, **way) == want for way in WAYS)
    assert trained(ranks=1)[0] != want[0]


@pytest.mark.parametrize("half", HALVES, ids=str)
def test_contractions_round_operands_and_result(half: Any) -> None:
    """AMP-ALLOW, by hand: forward and gradients of a product, and what else stays float32."""

    class Product(flow.nn.Graph):
        def build(self, x: flow.Tensor, w: flow.Tensor) -> Any:
            x, w = x.requires_grad_(), w.requires_grad_()
            y = flow.matmul(x, w)
            flow.exp(y).sum().backward()
            return y, x.grad, w.grad

    def rounded(t: flow.Tensor) -> flow.Tensor:
        return t.to(dtype=half).to(dtype=flow.float32)

    pair = flow.placement("cpu", [0, 1])
    x, w = flow.randn(64, 6, placement=pair, sbp=S(0)), flow.randn(6, 3, placement=pair, sbp=B)
    graph = Product()
    graph.config.enable_amp(dtype=half)
    y, dx, dw = graph(x, w)
    x, w = rounded(x), rounded(w)
    expected = rounded(flow.matmul(x, w))
    g = rounded(flow.exp(expected))
    assert flow.same_bits(y.numpy(), expected.numpy()) and y.dtype == flow.float32
    assert flow.same_bits(dx.numpy(), rounded(flow.matmul(g, w.T)).numpy())
    assert flow.same_bits(dw.numpy(), rounded(flow.matmul(x.T, g)).numpy())
    graph.config.enable_amp(False)
    assert not flow.same_bits(graph(*map(flow.Tensor.clone, (x + 0.001, w)))[0].numpy(), y.numpy())


def test_the_lists_name_primitives_once() -> None:
    """AMP-ALLOW, AMP-DENY, AMP-INFER: two disjoint lists of primitives; the rest follows its operands."""
    assert not ALLOW & DENY and set(REGISTRY) >= ALLOW | DENY
    infer = set(REGISTRY) - ALLOW - DENY
    assert {"add", "relu", "reshape", "transpose", "amax", "where", "gather"} <= infer


def test_only_contractions_of_float32_are_touched() -> None:
    """AMP-DENY, AMP-INFER: the same nodes as without, but for rounding beside contractions; float64 is left alone."""

    class Mixed(flow.nn.Graph):
        def build(self, x: flow.Tensor) -> Any:
            double = x.to(dtype=flow.float64)
            return flow.nn.functional.softmax(flow.exp(x) + x, 1).sum(), flow.matmul(double, double)

    names = []
    for mode in (False, True):
        graph = Mixed()
        graph.config.enable_amp(mode, dtype=flow.bfloat16)
        graph(flow.ones(4, 4, placement=flow.placement("cpu", [0]), sbp=B))
        names.append([node.primitive.name for node in graph.graph.nodes])
    assert names[0] == names[1]


def test_a_value_is_rounded_once() -> None:
    """AMP-ALLOW: what holds half numbers already is not rounded again."""
    halves = HalfContractions(flow.bfloat16)
    once = halves._rounded(flow.randn(4).value)
    assert halves._rounded(once) is once


def test_enable_amp_wants_a_half() -> None:
    with pytest.raises(AttributeValueError, match="float16 or bfloat16, found float32"):
        Step(1).config.enable_amp(dtype=flow.float32)


# --- loss scaling ---------------------------------------------------------------------------------------------------


def test_scaling_alone_changes_nothing() -> None:
    """AMP-SCALE: a power of two comes in and goes out exactly."""
    want = trained(ranks=1)
    for way in ({"ranks": 1}, {"ranks": 4, "micro": 2, "zero": 2}, {"ranks": 4, "staged": True}):
        assert trained(scaler=flow.amp.GradScaler(2.0**12), **way) == want


def test_the_scale_saves_small_gradients() -> None:
    """AMP-SCALE: in float16 a tiny loss has zero gradients without it, and right ones with it."""
    x, y = Step(1).batch()
    grads = {}
    for scale in (None, 2.0**20):
        step = Step(1, half=flow.float16, factor=2.0**-20, scaler=None if scale is None else flow.amp.GradScaler(scale))
        step(x, y)
        average = step.optimizer.state[next(step.first.parameters())]["exp_avg"]
        grads[scale] = np.count_nonzero(average.numpy())
    assert grads[2.0**20] > 2 * grads[None]


@pytest.mark.parametrize("way", [{"ranks": 1}, {"ranks": 4, "zero": 3}, {"ranks": 4, "staged": True, "micro": 2}], ids=str)
def test_an_overflow_skips_the_whole_step(way: dict[str, Any]) -> None:
    """AMP-SKIP: parameters, optimizer state, its numbers and the rate stay; the scale halves until it fits."""
    scaler = flow.amp.GradScaler(2.0**60)
    step = Step(half=flow.float16, scaler=scaler, **way)
    x, y = step.batch()
    before = step.digest()
    assert np.isfinite(step(x, y).item()) and scaler.get_scale() == 2.0**59 and scaler.skipped == 1
    assert step.digest() == before and not step.optimizer.state and step.schedule.last_epoch == 0
    scaler.load_state_dict({**scaler.state_dict(), "scale": 2.0**10})
    step(x, y)
    after, numbers = step.digest(), step.optimizer.state_dict()
    assert after != before and step.schedule.last_epoch == 1
    scaler.load_state_dict({**scaler.state_dict(), "scale": 2.0**60})
    step(x, y)
    again = step.optimizer.state_dict()
    assert step.digest() == after and step.schedule.last_epoch == 1 and again["param_groups"] == numbers["param_groups"]
    for p, entries in numbers["state"].items():
        for name, entry in entries.items():
            if not isinstance(entry, flow.Tensor):
                assert again["state"][p][name] == entry
    scaler.load_state_dict({**scaler.state_dict(), "scale": 2.0**10})
    step(x, y)
    assert step.digest() != after and step.schedule.last_epoch == 2


def test_a_skipped_step_leaves_the_rest_of_the_run_as_if_it_had_not_been() -> None:
    """AMP-SKIP: with draws at rest, steps after a skipped one are those of a run without it."""
    digests = []
    for skips in (False, True):
        scaler = flow.amp.GradScaler(2.0**10, growth_interval=100)
        step = Step(2, half=flow.float16, scaler=scaler)
        step.first.eval()
        x, y = step.batch()
        for scale in (2.0**10, *([2.0**60] if skips else []), 2.0**10):
            scaler.load_state_dict({**scaler.state_dict(), "scale": scale})
            step(x, y)
        digests.append(step.digest())
        assert scaler.skipped == skips
    assert digests[0] == digests[1]


def test_the_scale_grows_after_an_interval() -> None:
    """AMP-SCALE."""
    scaler = flow.amp.GradScaler(8.0, growth_interval=2)
    scales = []
    for finite in (True, True, True, False, True, True):
        scaler.update(finite)
        scales.append(scaler.get_scale())
    assert scales == [8, 16, 16, 8, 8, 16]
    other = flow.amp.GradScaler()
    other.load_state_dict(scaler.state_dict())
    assert other.state_dict() == scaler.state_dict() and "scale=16" in repr(other)
    lowest = flow.amp.GradScaler(2.0**-126)
    lowest.update(False)
    assert lowest.get_scale() == 2.0**-126


@pytest.mark.parametrize(
    "options", [{"init_scale": 3.0}, {"init_scale": 0.0}, {"growth_factor": 1.5}, {"backoff_factor": 2.0},
                {"growth_interval": 0}, {"init_scale": float("inf")}, {"init_scale": "2"}],
)  # fmt: skip
def test_scales_are_powers_of_two(options: dict[str, Any]) -> None:
    """AMP-SCALE."""
    with pytest.raises(AttributeValueError, match="GradScaler"):
        flow.amp.GradScaler(**options)
    with pytest.raises(AttributeValueError, match="set_grad_scaler"):
        Step(1).set_grad_scaler(2.0)  # type: ignore[arg-type]
