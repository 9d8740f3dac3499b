"""Compiled graphs on the back end "cuda" in Numba's simulator: run by test_simulator.py (ACC-CUDA-PROGRAM)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

os.environ["NUMBA_ENABLE_CUDASIM"] = "1"  # before Numba is imported, which it must not have been

import numpy as np
import pytest
from refflow_accel.cuda import elementwise, memory
from refflow_accel.cuda.backend import CudaBackend
from refflow_accel.cuda.program import Replay
from refflow_accel.cuda.registry import Family

import refflow as flow
from refflow.errors import DataError
from refflow.graph.programs import Compiler
from refflow.models import GPT
from refflow.numerics import digest, same_bits
from tests.graph.running import B, Of, S, bits

BACKEND = CudaBackend()


class Train(flow.nn.Graph):
    """A step of training."""

    def __init__(self, net: Any, loss: Any, optimizer: Any, schedule: Any, runtime: str, micro: int) -> None:
        super().__init__()
        self.net, self.loss = net, loss
        self.add_optimizer(optimizer, schedule)
        self.config.runtime = runtime
        self.config.set_gradient_accumulation_steps(micro)

    def build(self, x: Any, y: Any) -> Any:
        scores = self.net(x)
        loss = self.loss(scores.reshape(-1, scores.shape[-1]), y)
        loss.backward()
        return loss


def mlp() -> Any:
    return flow.nn.Sequential(
        flow.nn.Linear(3, 4), flow.nn.LayerNorm(4), flow.nn.GELU(), flow.nn.Dropout(0.3), flow.nn.Linear(4, 2)
    )


def cnn() -> Any:
    return flow.nn.Sequential(
        flow.nn.Conv2d(1, 2, 2), flow.nn.ReLU(), flow.nn.MaxPool2d(2), flow.nn.Flatten(), flow.nn.Linear(2, 2)
    )


def gpt() -> Any:
    return GPT(vocabulary=3, context=2, layers=1, width=4, heads=2)


def batch(rng: Any, net: Any, rows: int) -> tuple[Any, Any]:
    """Inputs and labels."""
    if net is gpt:
        return rng.integers(0, 3, (rows, 2)), rng.integers(0, 3, 2 * rows)
    shape = (rows, 3) if net is mlp else (rows, 1, 3, 3)
    return rng.standard_normal(shape).astype(np.float32), rng.integers(0, 2, rows)


def train(
    net: Any, backend: Any, runtime: str, *, optimizer: str = "AdamW", ranks: int = 1, micro: int = 1, steps: int = 4
) -> tuple[Any, ...]:
    """Losses and weights, and the graph."""
    with flow.state.Override(generator=flow.Generator()), flow.virtual_world(ranks), flow.backend(backend):
        flow.manual_seed(3)
        rng = np.random.default_rng(0)
        where = flow.placement("cpu", list(range(ranks)))
        model = net().to_global(where, B)
        with_momentum = {"momentum": 0.9} if optimizer == "SGD" else {}
        optimize = getattr(flow.optim, optimizer)(model.parameters(), lr=0.05, **with_momentum)
        schedule = flow.optim.lr_scheduler.StepLR(optimize, 2, 0.5)
        step = Train(model, flow.nn.CrossEntropyLoss(), optimize, schedule, runtime, micro)
        losses = []
        for _ in range(steps):
            x, y = (
                flow.tensor(a, placement=where, sbp=S(0))
                for a in batch(rng, net, 2 * ranks if micro == 1 else 16 * micro)
            )
            losses.append(step(x, y).item())
        return losses, {name: digest(value.numpy()) for name, value in model.state_dict().items()}, step


@pytest.mark.parametrize(
    "net, arrangement",
    [
        (mlp, {"optimizer": "SGD", "steps": 5}), (mlp, {"ranks": 2}), (mlp, {"micro": 2, "optimizer": "SGD"}), (cnn, {}),
        (gpt, {"steps": 3}),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)  # fmt: skip
def test_training_has_the_bits_of_the_reference(net: Any, arrangement: Any) -> None:  # ACC-CUDA-PROGRAM
    *found, graph = train(net, BACKEND, "compiled", **arrangement)
    *wanted, _ = train(net, "reference", "sequential", **arrangement)
    assert found == wanted
    assert isinstance(program_of(graph)._runner, Replay)


# --- what a call launches, and where its arrays lie -------------------------------------------------------------------


def program_of(graph: Any) -> Any:
    """The program of a graph's last call."""
    (program,) = [program for _, program in graph._last.programs.values()]
    return program


def one(array: Any, dtype: Any = np.float32) -> Any:
    return flow.tensor(np.asarray(array, dtype), placement=flow.placement("cpu", [0]), sbp=B)


@pytest.fixture
def cuda() -> Iterator[None]:
    with flow.state.Override(generator=flow.Generator()), flow.backend(BACKEND):
        yield


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The families of the kernels launched."""
    names: list[str] = []
    launch = Family.launch

    def counted(self: Family, key: Any, *rest: Any) -> None:
        names.append(self.name)
        launch(self, key, *rest)

    monkeypatch.setattr(Family, "launch", counted)
    return names


class Step(flow.nn.Graph):
    """w <- w - 0.5 (w - x), by an optimizer; returns the sum of the square."""

    def __init__(self, w: Any) -> None:
        super().__init__()
        self.held = flow.nn.Module()
        self.held.w = flow.nn.Parameter(w)
        self.add_optimizer(flow.optim.SGD([self.held.w], lr=0.5))

    def build(self, x: Any) -> Any:
        loss = ((self.held.w - x) * (self.held.w - x)).sum() * 0.5
        loss.backward()
        return loss


def test_elementwise_calls_become_one_launch(cuda: None, launched: list[str]) -> None:  # ACC-CUDA-PROGRAM
    graph = Of(lambda x, y: (x * 2.0 + 1.0).tanh() - y, 1, "compiled")
    x, y = one([0.5, -1.0, 2.0]), one([1.0, 0.0, -3.0])
    wanted = bits(graph(x, y))
    eager = launched.copy()
    launched.clear()
    assert bits(graph(x, y)) == wanted
    assert launched == ["chain"] and eager.count("chain") == 4


def test_a_step_of_training_has_fewer_launches_than_calls(launched: list[str]) -> None:  # ACC-CUDA-PROGRAM
    *_, graph = train(mlp, BACKEND, "compiled")
    counts = []
    with flow.state.Override(generator=flow.Generator()), flow.backend(BACKEND):
        where = flow.placement("cpu", [0])
        x, y = (flow.tensor(a, placement=where, sbp=S(0)) for a in batch(np.random.default_rng(1), mlp, 2))
        for runtime in ("compiled", "sequential"):
            graph.config.runtime = runtime
            graph(x, y)  # traced, and with "compiled" recorded
            launched.clear()
            graph(x, y)
            counts.append(len(launched))
    calls = program_of(graph)._recorded.program.calls
    assert counts[0] < 0.6 * counts[1] and len(calls) < counts[1]


def test_a_kind_of_graph_that_is_compiled_unasked(cuda: None) -> None:  # ACC-CUDA-PROGRAM, GRAPH-RUNTIME
    graph = Step(one([8.0, 0.0]))
    for _ in range(4):
        graph(one([0.0, 0.0]))
    assert isinstance(BACKEND, Compiler) and graph.last_run is None and isinstance(program_of(graph)._runner, Replay)


def test_later_calls_take_no_memory_from_the_driver(cuda: None) -> None:  # ACC-CUDA-PROGRAM, ACC-CUDA-MEMORY
    graph, x = Step(one(np.ones(100))), one(np.zeros(100))
    for _ in range(4):
        graph(x)
    held, reused = memory.POOL.held, memory.POOL.reused
    for _ in range(3):
        graph(x)
    assert memory.POOL.held == held and memory.POOL.reused > reused


def test_kept_values_never_change(cuda: None) -> None:  # ACC-CUDA-PROGRAM
    graph, x = Step(one([8.0, 0.0, -4.0])), one([0.0, 0.0, 0.0])
    kept = [(graph(x), graph.held.w.snapshot()) for _ in range(6)]
    assert [w.tolist() for _, w in kept] == [[8.0 / 2**i, 0.0, -4.0 / 2**i] for i in range(1, 7)]
    assert [loss.item() for loss, _ in kept] == [40.0 / 4**i for i in range(6)]


def test_a_result_that_is_an_input_or_a_constant(cuda: None) -> None:  # ACC-CUDA-PROGRAM
    constant = one([7.0])
    graph = Of(lambda x: (x, constant, flow.ones_like(x) + 1.0, x.reshape(1, 2), x.T @ x), 1, "compiled")
    for i in range(3):
        a, b, c, d, e = graph(one([i, 1.0]))
        assert (a.tolist(), b.tolist(), c.tolist(), d.tolist()) == ([i, 1.0], [7.0], [2.0, 2.0], [[i, 1.0]])
        assert e.item() == i * i + 1.0


def test_one_tensor_given_twice(cuda: None) -> None:  # ACC-CUDA-PROGRAM
    graph = Of(lambda x, y: x * 2.0 - y, 1, "compiled")
    a, b = one([3.0]), one([5.0])
    assert [graph(a, a).tolist(), graph(a, b).tolist(), graph(b, a).tolist()] == [[3.0], [1.0], [7.0]]


def test_transposed_products_and_size_0(cuda: None) -> None:  # ACC-CUDA-PROGRAM, ACC-TRANSPOSED
    rng = np.random.default_rng(0)
    fixed = one(rng.standard_normal((3, 2)))
    graph = Of(lambda x: ((x @ fixed).T.exp(), x[:0] * 2.0, x[:0].sum() + 1.0), 1, "compiled")
    for _ in range(3):
        x = one(rng.standard_normal((4, 3)))
        a, b, c = graph(x)
        assert same_bits(a.numpy(), (x @ fixed).T.exp().numpy()) and b.shape == (0, 3) and c.item() == 1.0


def test_draws_go_on_from_the_generator(cuda: None) -> None:  # ACC-CUDA-PROGRAM, GRAPH-RANDOM
    where = flow.placement("cpu", [0])
    function = lambda x: x + flow.rand(3, placement=where, sbp=B) * flow.randn(3, placement=where, sbp=B)  # noqa: E731
    graph, x, found, wanted = Of(function, 1, "compiled"), one([1.0, 2.0, 3.0]), [], []
    for made, call in ((found, graph), (wanted, function)):
        flow.manual_seed(5)
        for i in range(4):
            if i == 2:
                flow.manual_seed(9)
                flow.rand(2, placement=where, sbp=B)  # a draw of somebody else
            made.append(bits(call(x)))
    assert found == wanted and len({str(made) for made in found}) == 4


@pytest.mark.parametrize("dtype", [flow.float16, flow.bfloat16], ids=str)
def test_amp_and_casts(cuda: None, dtype: Any) -> None:  # ACC-CUDA-PROGRAM
    function = lambda x: (x.to(dtype) * 3.0 + x.to(dtype)).float() - x  # noqa: E731
    graph = Of(function, 1, "compiled")
    for i in range(3):
        x = one([0.1 * i, 1e-7, 3.0, float("nan"), float("-inf"), -0.0])
        assert bits(graph(x)) == bits(function(x))


def test_bad_data_are_told_and_change_nothing(cuda: None) -> None:  # ACC-CUDA-PROGRAM
    table = flow.nn.Embedding(4, 3).to_global(flow.placement("cpu", [0]), B)

    class Look(flow.nn.Graph):
        def __init__(self) -> None:
            super().__init__()
            self.table = table
            self.add_optimizer(flow.optim.SGD(table.parameters(), lr=0.1))

        def build(self, index: Any, divisor: Any) -> Any:
            loss = self.table(index // divisor).sum() + flow.rand(1, placement=flow.placement("cpu", [0]), sbp=B)
            loss.backward()
            return loss

    graph, good, ones = Look(), one([0, 3, 1], np.int64), one([1, 1, 1], np.int64)
    for _ in range(3):
        graph(good, ones)
    before = table.weight.detach().numpy(), flow.default_generator().state
    for index, divisor, told in ((one([0, 4, 1], np.int64), ones, "4"), (good, one([1, 0, 1], np.int64), "divisor 0")):
        with pytest.raises(DataError, match=told):
            graph(index, divisor)
        assert same_bits(table.weight.detach().numpy(), before[0]) and flow.default_generator().state == before[1]
    graph(good, ones)


def test_a_program_runs_on_the_current_stream(cuda: None) -> None:  # ACC-CUDA-PROGRAM
    graph, x = Of(lambda x: x * 2.0 + 1.0, 1, "compiled"), one([1.0])
    graph(x), graph(x)
    with BACKEND.stream("another"):
        made = graph(x)
    (array,) = made.value.shards.values()
    assert array.block.home is memory.named_stream("another") and made.tolist() == [3.0]


def test_what_reads_numbers_is_interpreted_for_ever(cuda: None) -> None:  # ACC-CUDA-PROGRAM, ACC-RECORD
    graph = Of(lambda x: x.to_global(flow.placement("cpu", [0]), S(0)).to_global(sbp=B) * 2.0, 1, "compiled")
    x = one([1.0, 2.0])
    assert [graph(x).tolist() for _ in range(3)] == [[2.0, 4.0]] * 3


def test_tables_bound_a_chain(cuda: None) -> None:  # ACC-CUDA-PROGRAM
    ops = [op for op in elementwise.TABLES if op != "pow"]

    def every(x: Any) -> Any:
        for op in ops:
            x = getattr(x, op)() if hasattr(x, op) else getattr(flow.nn.functional, op)(x)
        return x

    graph, x = Of(every, 1, "compiled"), one([0.25, 0.5])
    graph(x)
    assert bits(graph(x)) == bits(every(x))
    chains = [call.attrs["chain"] for call in program_of(graph)._recorded.program.calls]
    sizes = [sum(elementwise.TABLES.get(op, 0) for op in {step.op for step in chain.steps}) for chain in chains]
    assert len(chains) > 1 and max(sizes) <= elementwise.CONSTANTS
