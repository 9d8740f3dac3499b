"""A call that stops in the middle, calls from several threads, and copies of a graph.

GRAPH-STATE, GRAPH-CALL, ERR-UNCHANGED.
"""

from __future__ import annotations

import copy
import pickle
import sys
import threading
from collections.abc import Callable
from contextvars import copy_context
from types import FrameType
from typing import Any

import pytest

import refflow as flow
from refflow import Tensor, nn
from refflow.errors import GraphError
from refflow.graph.api import Graph
from refflow.layout import Placement
from tests.graph.nets import rows
from tests.graph.running import B, S, bits, logical_bits

PAIR = Placement("cpu", [0, 1])


class Train(Graph):
    """A training step, with what steps it."""

    def __init__(self, zero: int = 0, runtime: str | None = "sequential") -> None:
        super().__init__()
        flow.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.BatchNorm1d(8)).to_global(PAIR, B)
        self.optimizer = flow.optim.AdamW(self.model.parameters(), lr=0.1)
        self.add_optimizer(self.optimizer)
        self.config.runtime = runtime
        if zero:
            self.config.enable_zero(stage=zero)

    def build(self, x: Tensor) -> Tensor:
        loss = (self.model(x) ** 2).mean()
        loss.backward()
        return loss

    def held(self) -> list[Any]:
        """Everything a call may change."""
        cells = [logical_bits(t) for t in (*self.model.parameters(), *self.model.buffers())]
        for entries in self.optimizer.state.values():
            cells += [(k, logical_bits(v) if isinstance(v, Tensor) else v) for k, v in entries.items()]
        sbps = [t.sbp for t in self.model.parameters()]
        return [cells, sbps, flow.default_generator().state, flow.state.settings().interpreters]


def batch(number: int = 0) -> Tensor:
    return flow.tensor(rows(16, 4) + number, placement=PAIR, sbp=S(0))


# --- interrupts -------------------------------------------------------------------------------------------------------


def interrupted(call: Callable[[], Any], after: int) -> bool:
    """Runs `call` and interrupts it at its line number `after` within refflow; whether it came so far."""
    lines = 0

    def at_line(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal lines
        if "refflow" not in frame.f_globals.get("__name__", ""):
            return None
        lines += event == "line"
        if lines == after:
            sys.settrace(None)
            raise KeyboardInterrupt
        return at_line

    sys.settrace(at_line)
    try:
        call()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(None)
    return False


@pytest.mark.parametrize(("calls", "zero"), [(0, 0), (0, 3), (2, 0)])
def test_an_interrupted_call_leaves_everything_as_it_was(calls: int, zero: int) -> None:
    """GRAPH-STATE: while it traces, runs, and writes; and the next call is the one it would have been."""
    step, other = Train(zero), Train(zero)
    flow.manual_seed(1)
    for i in range(calls):
        step(batch(i))
    before = step.held()
    after = 1
    while interrupted(lambda: step(batch(9)), after) and after < 200_000:
        assert step.held() == before, after
        after += 1 + after // 5
    assert after > 100
    flow.manual_seed(1)
    for i in range(calls):
        other(batch(i))
    other(batch(9))
    assert step.held() == other.held()


def test_an_interrupt_of_the_writing_writes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """GRAPH-STATE: some parameters have their next values then, and a power of beta has moved on."""
    step = Train()
    step(batch()), step(batch())
    before, write, written = step.held(), Tensor.write, 0

    def fails(self: Tensor, value: Any) -> Tensor:
        nonlocal written
        written += 1
        if written == 3:
            raise KeyboardInterrupt
        return write(self, value)

    monkeypatch.setattr(Tensor, "write", fails)
    with pytest.raises(KeyboardInterrupt):
        step(batch(1))
    monkeypatch.undo()
    assert written == 3 and step.held() == before


# --- threads ----------------------------------------------------------------------------------------------------------


def in_threads(*work: Callable[[], Any]) -> None:
    """Each in a thread of its own, with the settings of this one."""
    errors: list[BaseException] = []

    def run(one: Callable[[], Any]) -> None:
        try:
            one()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=copy_context().run, args=(run, one)) for one in work]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert not errors, errors


@pytest.mark.parametrize("runtime", ["actors", "sequential"])
def test_steps_of_several_threads_are_all_taken(runtime: str) -> None:
    """GRAPH-CALL: one call after the other."""
    p = flow.zeros(4, placement=PAIR, sbp=B, requires_grad=True)

    class Count(Graph):
        def build(self, x: Tensor) -> Tensor:
            loss = (p * x).sum()
            loss.backward()
            return loss

    graph, x = Count(), flow.ones(4, placement=PAIR, sbp=B)
    graph.add_optimizer(flow.optim.SGD([p], lr=1.0))
    graph.config.runtime = runtime

    def steps() -> None:
        for _ in range(8):
            graph(x)

    in_threads(steps, steps, steps)
    assert p.tolist() == [-24.0] * 4


def test_graphs_that_share_a_model_in_two_threads() -> None:
    """GRAPH-CALL: one that is traced puts lazy values into the cells, which the other must not see."""
    step, seen = Train(), []
    step.model.eval()
    step.optimizer.param_groups[0].update(lr=0.0, weight_decay=0.0)

    class Predict(Graph):
        def __init__(self) -> None:
            super().__init__()
            self.model = step.model

        def build(self, x: Tensor) -> Tensor:
            return self.model(x)

    def train() -> None:
        for micro in (1, 2, 1, 2):
            step.config.set_gradient_accumulation_steps(micro)
            step(flow.tensor(rows(64, 4), placement=PAIR, sbp=S(0)))

    def look() -> None:
        for _ in range(8):
            seen.append(bits(Predict()(batch())))

    wanted = bits(step.model(batch()))
    in_threads(train, look)
    assert seen == [wanted] * 8


def test_a_graph_is_not_called_in_build() -> None:
    """GRAPH-CALL: with tensors that have numbers either: it would run once, while the other is traced."""
    inner, x = Train(), batch()

    class Outer(Graph):
        def build(self, y: Tensor) -> Tensor:
            return y + inner(x)

    before = inner.held()
    with pytest.raises(GraphError, match="called outside build"):
        Outer()(x)
    assert inner.held() == before


# --- copies -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("zero", [0, 3])
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda graph: pickle.loads(pickle.dumps(graph))], ids=["deepcopy", "pickle"])
def test_a_copy_of_a_traced_graph_goes_on_alone(copied: Callable[[Graph], Any], zero: int) -> None:
    """GRAPH-CALL: from the same state, with a model and an optimizer of its own."""
    step = Train(zero, runtime=None)
    step(batch()), step(batch())
    other = copied(step)
    with pytest.raises(GraphError, match="not traced yet"):
        other.plan  # noqa: B018
    draws, before = flow.default_generator().state, step.held()
    found = [bits(other(batch(i))) for i in range(2)]
    ends = other.held()
    flow.default_generator().state = draws
    assert step.held() == before
    assert [bits(step(batch(i))) for i in range(2)] == found and step.held() == ends
