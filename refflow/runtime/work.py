"""What each kind of task does with the contents of registers.

Implements ACT-KINDS, ACT-SOURCE, ACT-FORWARD, ACT-ACC, ACT-PACK and ACT-UNPACK of spec/text/actors.md.  Contents are opaque:
only payloads look at them.  A payload is called as payload(at, *inputs) with the contents of the data inputs in order;
it returns the content of the one data output, or a tuple for several.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from ..graph.plan import FORWARDING, PlanError, Task
from .actor import Actor, At, Work

Payload = Callable[..., Any]
Kernels = Mapping[str, Payload]


def work_of(task: Task, outputs: int, kernels: Kernels) -> Work | None:
    """The work of a task with so many data outputs; `PlanError` if its payload is not among the kernels."""
    if task.kind == "tick":
        return None
    if task.kind in FORWARDING:
        return lambda actor, at, values: (values[0],) * outputs
    if not task.payload and task.kind == "sink":
        return _keep
    if task.payload not in kernels:
        if not outputs and not task.payload:
            return None
        raise PlanError(f"task '{task.name}': no payload '{task.payload}' among {', '.join(sorted(kernels)) or 'none'}")
    kernel = kernels[task.payload]
    if task.kind == "acc":
        return _accumulate(kernel, outputs)
    if task.kind == "pack":
        return _pack(kernel, outputs)
    return _compute(kernel, outputs)


def _keep(actor: Actor, at: At, values: list[Any]) -> None:
    """A sink without payload keeps what it reads."""
    actor.run.results[actor.task.id].append(values[0] if len(values) == 1 else tuple(values))


def _compute(kernel: Payload, outputs: int) -> Work:
    """Sources, computations, sinks, unpack: a call an action; what a task without data outputs returns is a result."""

    def work(actor: Actor, at: At, values: list[Any]) -> Any:
        result = kernel(at, *values)
        if outputs == 0:
            actor.run.results[actor.task.id].append(result)
            return None
        if outputs == 1:
            return (result,)
        if not isinstance(result, tuple) or len(result) != outputs:
            raise PlanError(f"task '{actor.task.name}': payload '{actor.task.payload}' must return {outputs} contents")
        return result

    return work


def _accumulate(kernel: Payload, outputs: int) -> Work:
    """Adds by the canonical tree over the position in the cycle: payload(at, left, right) at each node (ACT-ACC).

    What is kept between actions are the finished nodes that wait for their sibling: at most one a level.
    """

    def work(actor: Actor, at: At, values: list[Any]) -> Any:
        parts = actor.parts
        parts.append(values[0])
        for _ in range(nodes_closed(actor.count)[at.phase]):
            right, left = parts.pop(), parts.pop()
            parts.append(kernel(at, left, right))
        return (parts.pop(),) * outputs if at.phase + 1 == actor.count else None

    return work


@lru_cache(maxsize=256)
def nodes_closed(n: int) -> tuple[int, ...]:
    """How many nodes of the canonical tree over n positions end at each position (NUM-TREE).

    >>> nodes_closed(6)
    (0, 1, 1, 0, 1, 2)
    """
    closed = [0] * n
    spans = [(0, n)]
    while spans:
        low, high = spans.pop()
        if high - low > 1:
            closed[high - 1] += 1
            middle = low + (high - low + 1) // 2
            spans += [(low, middle), (middle, high)]
    return tuple(closed)


def _pack(kernel: Payload, outputs: int) -> Work:
    """Collects a cycle's inputs in order of position: payload(at, *parts) with the last (ACT-PACK)."""

    def work(actor: Actor, at: At, values: list[Any]) -> Any:
        actor.parts.append(values[0])
        if at.phase + 1 < actor.count:
            return None
        parts, actor.parts = actor.parts, []
        return (kernel(at, *parts),) * outputs

    return work
