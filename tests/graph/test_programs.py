"""Random programs, forward and backward: eager, node by node and actors under any schedule give one result.

GRAPH-RUN, GRAPH-SAME-CHOICE, TIME-AXIS, TIME-INPUT, TIME-RESULT, TIME-REFUSED, ACT-SAME, PROOF-VERIFY, PLAN-JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import refflow as flow
from refflow import Tensor
from refflow.graph.execute import run_plan
from refflow.graph.logical import LogicalGraph
from refflow.graph.plan import Plan
from refflow.graph.time import TooManySteps
from refflow.graph.trace import tensors_in
from refflow.ir import lower
from refflow.runtime import Random
from refflow.tensor.backward import grad
from tests.graph.running import B, Of, S, bits, every_way, logical_bits
from tests.laws.programs import Step, programs
from tests.strategies import arbitrary, examples, global_from, placements, sbps, seeds, shapes, whole_value

MESHES = ((1,), (2,), (3,), (4,), (2, 2))
F = flow.nn.functional


def differentiated(steps: Sequence[Step], backward: bool) -> Callable[..., Any]:
    """A program as a function: all it makes, and the gradients of the last to the inputs."""

    def run(*inputs: Tensor) -> Any:
        pool = [x.detach().requires_grad_() for x in inputs]
        for step in steps:
            pool.append(step.operation(*[pool[i] for i in step.inputs]))
        made: list[Any] = pool[len(inputs) :]
        if backward and pool[-1].requires_grad:
            made.append(list(grad(pool[-1], pool[: len(inputs)], flow.ones_like(pool[-1]), allow_unused=True)))
        return made

    return run


def lowers_as_traced(graph: LogicalGraph) -> None:
    """GRAPH-SAME-CHOICE: lowered again, a traced node wants its operands where they are and gives the layout traced."""
    for node in graph.nodes:
        if node.primitive.name != "to_global":
            lowered = lower(node.primitive, tuple(v.meta for v in node.inputs), node.attrs, "exact", False)
            assert not any(lowered.targets) and lowered.outputs == node.metas, node.primitive.name


@st.composite
def cases(draw: Any, steps: int) -> tuple[list[Tensor], list[Step]]:
    """Inputs in some layout, and a program on them."""
    rng = np.random.default_rng(draw(seeds))
    placement = draw(placements(MESHES if steps == 1 else MESHES[:3]))
    shape = draw(shapes(1, 3, 6))
    if steps > 1:
        shape = (steps * draw(st.integers(1, 3)), *shape[1:])
    inputs, wholes = [], []
    for _ in range(draw(st.integers(1, 2))):
        make = lambda shape: arbitrary(rng, shape, np.float32, 0.0)  # noqa: E731
        value, array = global_from(make, shape, placement, draw(sbps(placement, len(shape), ("sum",))))
        inputs.append(Tensor(value))
        wholes.append(Tensor(whole_value(array)))
    return inputs, draw(programs(wholes))[0]


@examples(25)
@given(cases(1))
def test_eager_graph_and_actors_agree(case: tuple[list[Tensor], list[Step]]) -> None:
    inputs, steps = case
    function = differentiated(steps, True)
    graph = Of(function)
    assert every_way(graph, *inputs) == bits(function(*inputs))
    lowers_as_traced(graph.graph)


@pytest.mark.parametrize("micro", [2, 4])
@examples(8)
@given(st.data())
def test_micro_batches_agree_or_are_refused(micro: int, data: st.DataObject) -> None:
    """What needs the whole batch at once says so; everything else has the bits of the whole batch."""
    inputs, steps = data.draw(cases(micro))
    function = differentiated(steps, data.draw(st.booleans()))
    graph = Of(function, micro)
    try:
        found = every_way(graph, *inputs)
    except TooManySteps as error:
        assert "largest number of micro-batches" in str(error)
        return
    assert [bit[2:] for bit in found] == [bit[2:] for bit in bits(function(*inputs))]
    lowers_as_traced(graph.graph)


Operation = Callable[[Tensor, Tensor], Tensor]
ROWWISE: dict[str, Operation] = {
    "linear": flow.matmul,
    "relu": lambda x, w: flow.relu(x - 0.25),
    "gelu": lambda x, w: F.gelu(x),
    "softmax": lambda x, w: F.softmax(x, 1),
    "norm": lambda x, w: x - flow.mean(x, 1, keepdim=True),
    "cumsum": lambda x, w: flow.cumsum(x, 1),
    "sort": lambda x, w: flow.gather(x, 1, flow.argsort(x, 1)),
    "flip": lambda x, w: flow.flip(x, 1) * x,
    "bias": lambda x, w: x + w[0],
    "dropout": lambda x, w: F.dropout(x, 0.25),
    "square": lambda x, w: x * x + x * x,
}  # fmt: skip


class Weight(flow.nn.Module):
    """One parameter."""

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.w = flow.nn.Parameter(weight)


def rowwise(names: Sequence[str], weight: Weight) -> Callable[..., Any]:
    """Layers that look at each row for itself, a mean loss, and the gradients of weight and input."""

    def run(x: Tensor) -> Any:
        y = x = x.detach().requires_grad_()
        for name in names:
            y = ROWWISE[name](y, weight.w)
        loss = (y * y).mean()
        return loss, y, grad(loss, [x, weight.w], allow_unused=True)

    return run


@examples(10)
@given(st.data())
def test_rows_are_cut_into_any_micro_batches(data: st.DataObject) -> None:
    """Ranks times micro-batches up to 8: nothing is refused, and nothing changes."""
    mesh, micro = data.draw(st.sampled_from(CUTS))
    placement = data.draw(placements([mesh]))
    cut = tuple(data.draw(st.sampled_from([S(0), S(0), B])) for _ in mesh)
    names = data.draw(st.lists(st.sampled_from(sorted(ROWWISE)), min_size=1, max_size=5))
    rng = np.random.default_rng(data.draw(seeds))
    shapes = ((16 * int(np.prod(mesh)) * micro, 4), (4, 4))  # parts of a leaf: every contraction stays aligned
    x, w = (flow.tensor(rng.standard_normal(s).astype(np.float32), placement=placement, sbp=(B,) * len(mesh)) for s in shapes)
    x, weight = x.to_global(sbp=cut), Weight(w)
    function = rowwise(names, weight)
    graph = Of(function, micro)
    graph.weight = weight  # type: ignore[attr-defined]
    flow.manual_seed(1)
    found = every_way(graph, x)
    flow.manual_seed(1)
    assert [bit[2:] for bit in found] == [logical_bits(tensor) for tensor in tensors_in(function(x))]


CUTS = [(mesh, micro) for mesh in ((4,), (2, 2), (2,), (1,)) for micro in (2, 4) if int(np.prod(mesh)) * micro <= 8]


def test_a_plan_read_from_json_runs_the_same() -> None:
    """PLAN-JSON: the plan of a pipeline with micro-batches, written, read and run with the payloads of the graph."""
    stage = [flow.placement("cpu", [0, 1]), flow.placement("cpu", [2, 3])]
    w = flow.tensor(np.arange(16, dtype=np.float32).reshape(4, 4), placement=stage[1], sbp=B)

    def f(x: Tensor) -> Any:
        y = F.gelu(x).to_global(stage[1], S(0))
        return flow.matmul(F.dropout(y), w), y.sum()

    x = flow.tensor(np.arange(32, dtype=np.float32).reshape(8, 4) / 7, placement=stage[0], sbp=S(0))
    graph = Of(f, 4)
    expected = bits(graph(x))
    (traced,) = graph._traced.values()
    written = Plan.from_json(traced.compiled.plan.to_json())
    again = replace(traced.compiled, decide=lambda: written)
    flow.manual_seed(0)
    outputs, _, result = run_plan(traced.graph, again, [x.value], [], schedule=Random(3))
    assert bits([Tensor(value) for value in outputs]) == expected and result.actions > len(again.plan.tasks)
