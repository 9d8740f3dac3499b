"""The numbers that optimizers bring along in a call: a learning rate, a bias correction.

Implements GRAPH-SCALARS of spec/text/graph.md.  They are found by stepping an optimizer without tensors' numbers.  For
the optimizers of refflow they depend on nothing but hyper-parameters and the numbers kept in the state, so parameters
that agree in those are stepped once, and a step that begins as an earlier one did is not repeated.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..ir import Meta, Node
from ..ir.lower import frozen
from ..optim import SGD, Adagrad, Adam, AdamW, Optimizer, RMSprop
from ..tensor.backward import no_grad
from ..tensor.tensor import Tensor
from .trace import Tracer, lazily

PLAIN = (SGD, Adam, AdamW, Adagrad, RMSprop)  # exactly these: a subclass may count on its own


@dataclass(frozen=True)
class Stepped:
    """What stepping one parameter brought: numbers, the numbers now in its state, and the names of the operations."""

    numbers: tuple[float, ...]
    state: dict[str, Any]
    done: tuple[str, ...]


class Numbers:
    """The numbers of a traced graph's plain optimizers, call after call."""

    def __init__(self) -> None:
        self._known: dict[Any, Stepped] = {}

    def of(
        self, optimizers: Sequence[Optimizer], gradients: Mapping[int, Meta], steps: int
    ) -> tuple[list[float], tuple[str, ...]] | None:
        """(numbers in program order, names of the operations); the numbers in the states move on.  None if an optimizer is not plain."""
        if any(type(optimizer) not in PLAIN for optimizer in optimizers):
            return None
        numbers: list[float] = []
        done: list[str] = []
        known: dict[Any, Stepped] = {}
        for optimizer, group, hyper, p in _stepped(optimizers, gradients):
            state = optimizer.state.setdefault(p, {})
            meta = p.value.meta  # state laid out otherwise is moved first
            held = tuple([(k, v.value.meta.sbp == meta.sbp if isinstance(v, Tensor) else v) for k, v in state.items()])
            mark = (type(optimizer), hyper, held, meta.dtype)
            if mark not in known:
                known[mark] = self._known.get(mark) or _step(optimizer, group, p, gradients[id(p)], steps)
            found = known[mark]
            state.update(found.state)
            numbers += found.numbers
            done += found.done
        self._known = known
        return numbers, tuple(done)


def _stepped(optimizers: Sequence[Optimizer], gradients: Mapping[int, Meta]) -> Iterator[tuple[Optimizer, Any, Any, Tensor]]:
    """Each parameter with a gradient, its group, and the group's hyper-parameters as a value to compare."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            hyper = frozen({k: v for k, v in group.items() if k != "params"})
            for p in group["params"]:
                if id(p) in gradients:
                    yield optimizer, group, hyper, p


def _step(optimizer: Optimizer, group: Any, p: Tensor, gradient: Meta, steps: int) -> Stepped:
    """One parameter stepped lazily; the state it has is left as it was."""
    state = optimizer.state[p]
    before = dict(state)
    tracer = Tracer(steps)
    tracer.scalars = []
    try:
        with lazily([p, *(v for v in state.values() if isinstance(v, Tensor))], tracer), no_grad():
            p.grad = Tensor(tracer.lazy(gradient))
            optimizer._step_one(p, group)
            numbers = {k: v for k, v in state.items() if not isinstance(v, Tensor)}
    finally:
        state.clear()
        state.update(before)
    return Stepped(tuple(number for _, number in tracer.scalars), numbers, names_of(operations(tracer.nodes)))


def operations(nodes: Sequence[Node]) -> tuple[Any, ...]:
    """What a run of nodes does, but for the numbers it is given."""
    return tuple((node.primitive.name, frozen(node.attrs), node.metas) for node in nodes)


def names_of(done: tuple[Any, ...]) -> tuple[str, ...]:
    """The names of operations: for a plain optimizer they tell all that may change from step to step."""
    return tuple([operation[0] for operation in done])
