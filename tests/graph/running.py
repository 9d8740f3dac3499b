"""How the graph tests run one function in every way there is: eagerly, node by node, and by actors under any schedule."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import refflow as flow
from refflow.graph.api import Graph
from refflow.graph.plan import Plan
from refflow.graph.plan_json import from_json, to_json
from refflow.graph.trace import tensors_in
from refflow.runtime import Newest, Random, Starve

S, B, P = flow.sbp.split, flow.sbp.broadcast, flow.sbp.partial_sum


def label(value: Any) -> str:
    """A case's name: the same in every process, so without addresses."""
    return re.sub(r" at 0x[0-9a-f]+", "", str(value))


class Of(Graph):
    """The graph of a function of tensors."""

    def __init__(self, function: Callable[..., Any], steps: int = 1, runtime: str = "actors") -> None:
        super().__init__()
        self._function = function
        self.config.set_gradient_accumulation_steps(steps)
        self.config.runtime = runtime

    def build(self, *args: Any) -> Any:
        return self._function(*args)


def schedules(plan: Plan, seeds: int = 1) -> Iterator[Callable[[], Any]]:
    """Makers of schedules: random ones, and those that work against the plan."""
    for seed in range(seeds):
        yield lambda seed=seed: Random(seed)
    yield Newest
    yield lambda: Starve([task.id for task in plan.tasks if task.kind == "source" or task.id % 3 == 0])


def bits(result: Any) -> list[Any]:
    """Layout and bits of every tensor in a result."""
    return [(tensor.placement, tensor.sbp, *logical_bits(tensor)) for tensor in tensors_in(result)]


def logical_bits(tensor: flow.Tensor) -> tuple[Any, ...]:
    """Dtype, shape and digest of the logical value."""
    return tensor.dtype.name, tensor.shape, flow.numerics.digest(tensor.detach().numpy())


def proved(graph: Graph) -> None:
    """The plans the graph has made are sound, and themselves after a trip through JSON (PROOF-VERIFY, PLAN-JSON)."""
    for plan in {id(plan): plan for plan in (graph.plan, *(t.compiled.plan for t in graph._traced.values()))}.values():
        report = plan.verify()
        assert report.sound, report
        assert from_json(to_json(plan)) == plan


def every_way(graph: Graph, *args: Any) -> list[Any]:
    """The bits of a call, the same node by node and by actors under every schedule; the generator is put back between."""
    generator = flow.default_generator()
    start = generator.state
    graph.config.runtime = "actors"
    found = bits(graph(*args))
    end = generator.state
    proved(graph)
    for schedule in schedules(graph.plan):
        generator.state, graph.config.schedule = start, schedule
        assert bits(graph(*args)) == found, "a schedule changed a bit"
        assert generator.state == end
    generator.state, graph.config.runtime, graph.config.schedule = start, "sequential", None
    assert bits(graph(*args)) == found, "node by node differs"
    assert generator.state == end
    graph.config.runtime = "actors"
    return found


def state_of() -> tuple[int, int, int]:
    """Seed and next ordinals of the default generator."""
    return flow.default_generator().state
