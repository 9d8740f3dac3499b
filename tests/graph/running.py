"""How the graph tests run one function in every way there is: eagerly, node by node, and by actors under any schedule."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import refflow as flow
from refflow.graph.api import Graph
from refflow.graph.plan import Plan
from refflow.runtime import Newest, Random, Starve

S, B, P = flow.sbp.split, flow.sbp.broadcast, flow.sbp.partial_sum


class Of(Graph):
    """The graph of a function of tensors."""

    def __init__(self, function: Callable[..., Any], steps: int = 1, runtime: str = "actors") -> None:
        super().__init__()
        self._function = function
        self.config.set_gradient_accumulation_steps(steps)
        self.config.runtime = runtime

    def build(self, *args: Any) -> Any:
        return self._function(*args)


def schedules(plan: Plan, seeds: int = 2) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Named makers of schedules: the canonical one, random ones, and those that work against the plan."""
    yield "canonical", lambda: None
    for seed in range(seeds):
        yield f"random {seed}", lambda seed=seed: Random(seed)
    yield "newest", Newest
    odd = [task.id for task in plan.tasks if task.id % 3 == 0]
    yield "starve", lambda: Starve(odd)
    yield "starve sources", lambda: Starve([task.id for task in plan.tasks if task.kind == "source"])


def bits(tensor: flow.Tensor) -> Any:
    """Layout and the bits of a tensor."""
    value = tensor.detach()
    return tensor.placement, tensor.sbp, value.dtype.name, value.shape, flow.numerics.digest(value.numpy())


def state_of(generator: flow.Generator | None = None) -> tuple[int, int, int]:
    """The generator's state."""
    return (generator or flow.default_generator()).state
