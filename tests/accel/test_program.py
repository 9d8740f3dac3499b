"""Compiled programs of graphs: the interpreter's bits, call after call, and values that stay immutable.

GRAPH-RUNTIME, ACC-RECORD, ACC-FOLD, ACC-TRANSPOSED, ACC-FUSE, ACC-LOWER, ACC-ARENA, ACC-PROGRAM.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from refflow_accel.program import lower as lowering_module
from refflow_accel.program import native as native_module
from refflow_accel.program.arena import Span, place
from refflow_accel.program.lower import HostStep

import refflow as flow
from refflow.errors import AttributeValueError, BackendError, DataError
from refflow.graph.trace import tensors_in
from refflow.numerics import cast
from tests.graph.running import B, Of, S, bits
from tests.graph.test_programs import cases, differentiated
from tests.strategies import examples


@contextmanager
def on_host() -> Iterator[None]:
    """Programs without one native kernel: every row a step of the host, chains step by step as the reference has them."""

    def chain(self: Any, call: Any, operands: list[Any]) -> list[Any]:
        return lowering_module.Lowering._on_host(self, call, operands)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lowering_module, "NATIVE", {})
        patch.setattr(lowering_module.Lowering, "_chain", chain)
        yield


def compiled_calls(function: Callable[..., Any], calls: list[Any], steps: int = 1) -> list[Any]:
    """The bits of calls of one compiled graph."""
    graph = Of(function, steps, "compiled")
    return [bits(graph(*inputs)) for inputs in calls]


def other_numbers(inputs: list[Any], seed: int) -> list[Any]:
    """Tensors laid out alike with other numbers."""
    rng = np.random.default_rng(seed)
    return [
        flow.tensor(
            rng.standard_normal(x.shape).astype(np.float32), placement=x.placement, sbp=(B,) * x.placement.ndim
        ).to_global(sbp=x.sbp)
        for x in inputs
    ]


def check(case: Any, steps: int = 1) -> None:
    inputs, program = case
    function = differentiated(program, True)
    calls = [inputs, other_numbers(inputs, 1), inputs]
    draws = flow.default_generator().state
    wanted = [bits(function(*those)) for those in calls]
    flow.default_generator().state = draws
    with flow.backend("numba"):
        found = compiled_calls(function, calls)
        flow.default_generator().state = draws
        eager = [bits(function(*those)) for those in calls]
    assert found == wanted and eager == wanted


@examples(25)
@given(cases(1))
def test_random_programs_on_the_host(case: Any) -> None:  # ACC-PROGRAM, ACC-LOWER
    with on_host():
        check(case)


@pytest.mark.slow
@examples(6)
@given(cases(1))
def test_random_programs_natively(case: Any) -> None:  # ACC-PROGRAM
    check(case)


# --- training ---------------------------------------------------------------------------------------------------------


def train(backend: str, runtime: str | None, *, ranks: int = 1, micro: int = 1, zero: int = 0, optimizer: str = "SGD",
          amp: Any = None, steps: int = 5) -> tuple[Any, ...]:  # fmt: skip
    """Losses and weights of a small network with dropout, under one arrangement."""
    flow.manual_seed(3)
    rng = np.random.default_rng(0)
    with flow.virtual_world(ranks), flow.backend(backend):
        where = flow.placement("cpu", list(range(ranks)))
        net = flow.nn.Sequential(
            flow.nn.Linear(20, 24), flow.nn.LayerNorm(24), flow.nn.GELU(), flow.nn.Dropout(0.2), flow.nn.Linear(24, 6)
        ).to_global(where, B)  # fmt: skip
        opt = getattr(flow.optim, optimizer)(net.parameters(), lr=0.05, **({"momentum": 0.9} if optimizer == "SGD" else {}))
        schedule = flow.optim.lr_scheduler.StepLR(opt, 2, 0.5)
        loss_of = flow.nn.CrossEntropyLoss()

        class Train(flow.nn.Graph):
            def __init__(self) -> None:
                super().__init__()
                self.net, self.loss = net, loss_of
                self.add_optimizer(opt, schedule)

            def build(self, x: Any, y: Any) -> Any:
                loss = self.loss(self.net(x), y)
                loss.backward()
                return loss

        step = Train()
        step.config.runtime = runtime
        step.config.set_gradient_accumulation_steps(micro)
        if zero:
            step.config.enable_zero(stage=zero)
        if amp is not None:
            step.config.enable_amp(dtype=amp)
        rows = 64
        losses = []
        for _ in range(steps):
            x = flow.tensor(rng.standard_normal((rows, 20)).astype(np.float32), placement=where, sbp=S(0))
            y = flow.tensor(rng.integers(0, 6, rows), placement=where, sbp=S(0))
            losses.append(step(x, y).item())
        return losses, {name: flow.numerics.digest(value.numpy()) for name, value in net.state_dict().items()}


@pytest.mark.parametrize(
    "arrangement",
    [
        {}, {"optimizer": "AdamW"}, {"ranks": 2}, {"ranks": 2, "micro": 2, "optimizer": "Adam"}, {"micro": 4},
        {"ranks": 2, "zero": 2}, {"ranks": 4, "zero": 3, "optimizer": "AdamW"}, {"amp": flow.bfloat16}, {"amp": flow.float16},
        {"optimizer": "RMSprop"}, {"optimizer": "Adagrad"},
    ],
    ids=str,
)  # fmt: skip
def test_training_gives_the_bits_of_the_interpreter(arrangement: Any) -> None:  # ACC-PROGRAM, ACC-RECORD
    assert train("numba", "compiled", **arrangement) == train("reference", "sequential", **arrangement)


def test_one_rank_and_many_compiled_agree() -> None:  # ACC-PROGRAM, GRAPH-RUNTIME
    assert train("numba", None) == train("numba", None, ranks=4) == train("reference", "actors", ranks=2)


# --- values stay ------------------------------------------------------------------------------------------------------


class Step(flow.nn.Graph):
    """w <- w - 0.5 (w - x), by an optimizer; returns w and the sum of its square."""

    def __init__(self, w: Any) -> None:
        super().__init__()
        self.held = flow.nn.Module()
        self.held.w = flow.nn.Parameter(w)
        self.add_optimizer(flow.optim.SGD([self.held.w], lr=0.5))
        self.config.runtime = "compiled"

    def build(self, x: Any) -> Any:
        loss = ((self.held.w - x) * (self.held.w - x)).sum() * 0.5
        loss.backward()
        return loss


def one(array: Any) -> Any:
    return flow.tensor(np.asarray(array, np.float32), placement=flow.placement("cpu", [0]), sbp=B)


@pytest.fixture
def numba() -> Any:
    with flow.backend("numba"):
        yield


def test_kept_values_never_change(numba: None) -> None:  # ACC-PROGRAM
    graph = Step(one([8.0, 0.0, -4.0]))
    x = one([0.0, 0.0, 0.0])
    kept = []
    for _ in range(8):
        kept.append((graph(x), graph.held.w.snapshot(), graph.held.w.detach().numpy()))
    assert [w.tolist() for _, w, _ in kept] == [[8.0 / 2**i, 0.0, -4.0 / 2**i] for i in range(1, 9)]
    assert [array.tolist() for _, _, array in kept] == [w.tolist() for _, w, _ in kept]
    assert [loss.item() for loss, _, _ in kept] == [40.0 / 4**i for i in range(8)]


def test_buffers_are_used_again(numba: None) -> None:  # ACC-PROGRAM
    graph = Step(one(np.ones(1000)))
    x = one(np.zeros(1000))
    for _ in range(3):
        graph(x)
    (program,) = [program for _, program in graph._last.programs.values()]  # type: ignore[union-attr]
    before = {number: list(map(id, buffers)) for number, buffers in program._runner._buffers._of.items()}
    for _ in range(10):
        graph(x)
    assert {number: list(map(id, buffers)) for number, buffers in program._runner._buffers._of.items()} == before
    assert all(len(buffers) == 2 for buffers in before.values())


def test_values_from_elsewhere_are_seen(numba: None) -> None:  # ACC-PROGRAM
    graph = Step(one([8.0, 2.0]))
    x = one([0.0, 0.0])
    for _ in range(3):
        graph(x)
    with flow.no_grad():
        graph.held.w.copy_(one([[1.0, 5.0], [16.0, 5.0]])[:, 0])  # a strided view of something else
    graph(x)
    assert graph.held.w.tolist() == [0.5, 8.0]


def test_two_variables_that_share_memory_are_two(numba: None) -> None:  # ACC-RECORD
    shared = one([1.0, 2.0])

    class Two(flow.nn.Graph):
        def __init__(self) -> None:
            super().__init__()
            self.held = flow.nn.Module()
            self.held.a, self.held.b = flow.nn.Parameter(shared.detach()), flow.nn.Parameter(shared.detach())
            self.add_optimizer(flow.optim.SGD([self.held.a, self.held.b], lr=1.0))
            self.config.runtime = "compiled"

        def build(self, x: Any) -> Any:
            (self.held.a * x - self.held.b * 2.0 * x).sum().backward()
            return self.held.a + self.held.b

    graph = Two()
    results = [graph(one([1.0, 1.0])).tolist() for _ in range(4)]
    assert results == [[2.0, 4.0], [3.0, 5.0], [4.0, 6.0], [5.0, 7.0]]
    assert graph.held.a.tolist() == [-3.0, -2.0] and graph.held.b.tolist() == [9.0, 10.0]


def test_one_tensor_given_twice(numba: None) -> None:  # ACC-RECORD
    graph = Of(lambda x, y: x * 2.0 - y, 1, "compiled")
    a, b = one([3.0]), one([5.0])
    assert [graph(a, a).tolist(), graph(a, b).tolist(), graph(b, a).tolist()] == [[3.0], [1.0], [7.0]]


def test_bad_data_are_told_and_change_nothing(numba: None) -> None:  # ACC-PROGRAM
    table = flow.nn.Embedding(4, 3).to_global(flow.placement("cpu", [0]), B)

    class Train(flow.nn.Graph):
        def __init__(self) -> None:
            super().__init__()
            self.table = table
            self.add_optimizer(flow.optim.SGD(table.parameters(), lr=0.1))
            self.config.runtime = "compiled"

        def build(self, index: Any) -> Any:
            loss = self.table(index).sum()
            loss.backward()
            return loss

    graph = Train()
    good = flow.tensor([0, 3, 1], placement=flow.placement("cpu", [0]), sbp=B)
    bad = flow.tensor([0, 4, 1], placement=flow.placement("cpu", [0]), sbp=B)
    graph(good), graph(good)
    before = table.weight.detach().numpy()
    with pytest.raises(DataError, match="4"):
        graph(bad)
    assert flow.same_bits(table.weight.detach().numpy(), before)
    graph(good)


def test_bad_data_on_the_host_are_told_as_the_interpreter_tells_them(numba: None) -> None:  # ACC-PROGRAM
    where = {"placement": flow.placement("cpu", [0]), "sbp": B}
    with on_host():
        graph = Of(lambda i, n, d: (flow.gather(one(np.zeros(4)), 0, i), n // d), 1, "compiled")
        good = [flow.tensor(data, **where) for data in ([0, 3], [5, 7], [1, 2])]
        graph(*good), graph(*good)
        for bad in ([[0, 9], [5, 7], [1, 0]], [[0, 1], [5, 7], [1, 0]]):
            inputs = [flow.tensor(data, **where) for data in bad]
            with pytest.raises(DataError) as found:
                graph(*inputs)
            with pytest.raises(DataError) as wanted:
                graph._function(*inputs)
            assert str(found.value) == str(wanted.value)


def test_numbers_of_an_interrupted_call_are_not_taken_for_those_of_the_last(numba: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """ACC-PROGRAM, GRAPH-SCALARS: the rates of two groups change, the call stops between them, and they change back."""
    held = [flow.nn.Parameter(one([8.0])) for _ in range(2)]

    class Two(flow.nn.Graph):
        def __init__(self) -> None:
            super().__init__()
            self.held = flow.nn.ParameterList(held)
            self.optimizer = flow.optim.SGD([{"params": [p], "lr": 0.5} for p in held], lr=0.5)
            self.add_optimizer(self.optimizer)

        def build(self, x: Any) -> Any:
            loss = sum(p * p * x for p in held).sum() * 0.5
            loss.backward()
            return loss

    graph, x = Two(), one([1.0])
    for _ in range(3):
        graph(x)
    groups, casts = graph.optimizer.param_groups, []

    def stops(*args: Any) -> Any:
        casts.append(args)
        if len(casts) == 2:
            raise KeyboardInterrupt
        return cast(*args)

    groups[0]["lr"], groups[1]["lr"] = 0.25, 0.125
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(native_module, "cast", stops)
        graph(x)
    groups[0]["lr"] = groups[1]["lr"] = 0.5
    graph(x)
    assert [p.tolist() for p in held] == [[0.5], [0.5]]


def test_size_0_and_0_d(numba: None) -> None:  # ACC-LOWER
    graph = Of(lambda x, s: (x * s, x.sum() + s, flow.cat([x, x], 0).exp()), 1, "compiled")
    for _ in range(3):
        a, b, c = graph(one(np.zeros((0, 3))), one(2.5))
        assert a.shape == (0, 3) and c.shape == (0, 3) and b.item() == 2.5


def test_a_result_that_is_an_input_or_a_constant(numba: None) -> None:  # ACC-FOLD, ACC-LOWER
    constant = one([7.0])
    graph = Of(lambda x: (x, constant, flow.ones_like(x) + 1.0, x.reshape(1, 2)), 1, "compiled")
    for i in range(3):
        a, b, c, d = graph(one([i, 1.0]))
        assert (a.tolist(), b.tolist(), c.tolist(), d.tolist()) == ([i, 1.0], [7.0], [2.0, 2.0], [[i, 1.0]])


def test_what_runs_where() -> None:  # GRAPH-RUNTIME
    x = one([1.0])
    with pytest.raises(BackendError, match="compiles graphs"):
        Of(lambda x: x + x, 1, "compiled")(x)
    with pytest.raises(AttributeValueError, match="'fast'"):
        Of(lambda x: x + x, 1, "fast")(x)
    with flow.backend("numba"):
        graph = Of(lambda x: x + x, 1, None)  # type: ignore[arg-type]
        graph(x)
        assert graph.last_run is None
        graph.config.log_events = True
        graph(x)
        assert graph.last_run is not None and graph.last_run.events


def test_programs_die_with_their_graph(numba: None) -> None:  # ACC-PROGRAM
    graph = Step(one([1.0]))
    for _ in range(3):
        graph(one([0.0]))
    before = sum(isinstance(thing, type(graph)) for thing in gc.get_objects())
    del graph
    gc.collect()
    assert sum(isinstance(thing, Step) for thing in gc.get_objects()) == before - 1


# --- passes -----------------------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(0, 300), st.integers(0, 20), st.integers(0, 20)), max_size=30))
def test_no_two_arrays_alive_share_a_byte(drawn: list[tuple[int, int, int]]) -> None:  # ACC-ARENA
    spans = [Span(size, min(a, b), max(a, b)) for size, a, b in drawn]
    offsets, size = place(spans)
    for i, one in enumerate(spans):
        assert offsets[i] % 64 == 0 and offsets[i] + one.size <= size
        for j in range(i):
            other = spans[j]
            together = one.first <= other.last and other.first <= one.last
            apart = offsets[i] + one.size <= offsets[j] or offsets[j] + other.size <= offsets[i]
            assert not together or apart or not one.size or not other.size


def test_chains_are_made_and_constants_folded(numba: None) -> None:  # ACC-FUSE, ACC-FOLD, ACC-TRANSPOSED
    graph = Of(lambda x, y: ((x * 2.0 + 1.0).tanh() - y, x.matmul(y.T).T), 1, "compiled")
    x, y = one(np.ones((3, 4))), one(np.ones((3, 4)))
    for _ in range(2):
        graph(x, y)
    (program,) = [program for _, program in graph._last.programs.values()]  # type: ignore[union-attr]
    names = [call.name for call in program._recorded.program.calls]
    assert names.count("chain") == 1 and "full" not in names and names.count("matmul") == 1
    assert not any(isinstance(item, HostStep) for item in program._runner._items)
    assert [t.tolist() for t in tensors_in(graph(x, y))][1] == [[4.0] * 3] * 3


# --- from hostile tests -----------------------------------------------------------------------------------------------


def test_a_parameter_returned_as_it_is(numba: None) -> None:
    graph = Step(one([8.0, -4.0]))
    graph.build = lambda x: (Step.build(graph, x), graph.held.w)  # type: ignore[method-assign]
    assert [graph(one([0.0, 0.0]))[1].tolist() for _ in range(3)] == [[4.0, -2.0], [2.0, -1.0], [1.0, -0.5]]


def test_kept_buffers_are_forgotten(numba: None) -> None:
    graph = Step(one(np.ones(10)))
    kept = []
    for _ in range(20):
        graph(one(np.zeros(10)))
        kept.append(graph.held.w.snapshot())
    (program,) = [program for _, program in graph._last.programs.values()]  # type: ignore[union-attr]
    assert all(len(buffers) <= 4 for buffers in program._runner._buffers._of.values())
    assert [w.tolist()[0] for w in kept] == [0.5 ** (i + 1) for i in range(20)]


def test_one_graph_from_several_threads(numba: None) -> None:
    graph = Of(lambda x: (x * 2.0).exp() @ x.T, 1, "compiled")
    inputs = [one(np.full((60, 60), i / 100)) for i in range(4)]
    wanted = [bits(graph(x)) for x in inputs]
    backends, wrong = flow.state.settings().backends, []

    def calls(k: int) -> None:
        with flow.state.Override(backends=backends):
            for i in range(25):
                if bits(graph(inputs[(i + k) % 4])) != wanted[(i + k) % 4]:
                    wrong.append((k, i))

    threads = [threading.Thread(target=calls, args=(k,)) for k in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
