"""Random programs: 3 to 12 operations on a pool of tensors, as data, so that one program runs under many layouts.

Each template takes a tensor of the pool (and a friend of the same shape, where there is one) and draws an operation that
fits its shape.  A program is built while it runs on one rank; the shapes met there are the shapes everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

import refflow as flow
from refflow import Tensor

Operation = Callable[..., Tensor]
LIMIT = 400  # elements: larger results are not used further


@dataclass(frozen=True)
class Step:
    """One operation on the pool's tensors at `inputs`; `moved`: the first of them goes through to_global before.

    A move the program writes is a step of the program, even one that moves nothing: its uses are added up before it.
    """

    name: str
    operation: Operation
    inputs: tuple[int, ...]
    moved: bool

    def run(self, pool: Sequence[Tensor], move: Operation) -> Tensor:
        """The result on the tensors of a pool."""
        operands = [pool[i] for i in self.inputs]
        if self.moved:
            there = move(operands[0])
            operands = [there if i == self.inputs[0] else x for i, x in zip(self.inputs, operands)]
        return self.operation(*operands)


def stay(x: Tensor) -> Tensor:
    """A move to where it is."""
    return x.to_global(x.placement, x.sbp)


Template = Callable[[Any, Tensor], Operation | None]
UNARY: dict[str, Template] = {}
BINARY: dict[str, Operation] = {
    "add": flow.add,
    "sub": flow.sub,
    "mul": flow.mul,
    "maximum": flow.maximum,
    "minimum": flow.minimum,
    "where": lambda x, y: flow.where(flow.gt(x, y), x, flow.neg(y)),
    "cat": lambda x, y: flow.cat([x, y], 0) if x.ndim else x + y,
    "stack": lambda x, y: flow.stack([x, y], 0),
    "matmul_t": lambda x, y: flow.matmul(x, flow.transpose(y, -1, -2)) if x.ndim > 1 else x * y,
}


def template(function: Template) -> Template:
    UNARY[function.__name__] = function
    return function


def _dim(draw: Any, x: Tensor) -> int:
    return int(draw(st.integers(-x.ndim, x.ndim - 1)))


@template
def pointwise(draw: Any, x: Tensor) -> Operation:
    names = ("neg", "abs", "relu", "exp", "tanh", "sigmoid", "sign", "floor", "square", "erf")
    return getattr(flow, draw(st.sampled_from(names)))  # type: ignore[no-any-return]


@template
def scaled(draw: Any, x: Tensor) -> Operation:
    factor = draw(st.sampled_from([0.1, -3.0, 0.5]))
    return lambda x: x * factor - 1.25


@template
def reduced(draw: Any, x: Tensor) -> Operation | None:
    if not x.ndim or 0 in x.shape:
        return None
    name, dim, keep = draw(st.sampled_from(["sum", "mean", "amax", "prod"])), _dim(draw, x), draw(st.booleans())
    return lambda x: getattr(flow, name)(x, dim, keepdim=keep)  # type: ignore[no-any-return]


@template
def sum_all(draw: Any, x: Tensor) -> Operation | None:
    if x.ndim < 2:
        return None
    dims = draw(st.permutations(range(x.ndim)))
    return lambda x: flow.sum(x, tuple(dims[:2]))


@template
def scanned(draw: Any, x: Tensor) -> Operation | None:
    if not x.ndim:
        return None
    dim = _dim(draw, x)
    return lambda x: flow.cumsum(x, dim)


@template
def permuted(draw: Any, x: Tensor) -> Operation:
    perm = tuple(draw(st.permutations(range(x.ndim))))
    return lambda x: flow.permute(x, perm)


@template
def flattened(draw: Any, x: Tensor) -> Operation | None:
    if x.ndim < 2:
        return None
    start = draw(st.integers(0, x.ndim - 2))
    return lambda x: flow.flatten(x, start, start + 1)


@template
def expanded(draw: Any, x: Tensor) -> Operation:
    n = draw(st.integers(1, 3))
    return lambda x: flow.expand(flow.unsqueeze(x, 0), (n, *x.shape))


@template
def sliced(draw: Any, x: Tensor) -> Operation | None:
    if not x.ndim:
        return None
    d = _dim(draw, x) % x.ndim
    start = draw(st.integers(0, x.shape[d]))
    step = draw(st.integers(1, 2))
    return lambda x: x[(*[slice(None)] * d, slice(start, None, step))]


@template
def padded(draw: Any, x: Tensor) -> Operation | None:
    if not x.ndim:
        return None
    low, high, value = draw(st.integers(0, 2)), draw(st.integers(0, 2)), draw(st.sampled_from([0.0, 2.0]))
    return lambda x: flow.pad(x, (low, high), value=value)


@template
def turned(draw: Any, x: Tensor) -> Operation | None:
    if not x.ndim:
        return None
    dim, shift = _dim(draw, x), draw(st.integers(-3, 3))
    return draw(st.sampled_from([lambda x: flow.flip(x, dim), lambda x: flow.roll(x, shift, dim)]))  # type: ignore[no-any-return]


@template
def sorted_(draw: Any, x: Tensor) -> Operation | None:
    if not x.ndim:
        return None
    dim = _dim(draw, x)
    return lambda x: flow.gather(x, dim, flow.argsort(x, dim))


@template
def picked(draw: Any, x: Tensor) -> Operation | None:
    if not x.ndim or 0 in x.shape:
        return None
    dim = _dim(draw, x)
    return lambda x: flow.index_select(x, dim, flow.argmax(x, dim).reshape(-1))


@template
def product(draw: Any, x: Tensor) -> Operation | None:
    """x^T x, contracted over the last dimension but one."""
    return (lambda x: flow.matmul(flow.transpose(x, -1, -2), x)) if x.ndim > 1 else None


@template
def triangle(draw: Any, x: Tensor) -> Operation | None:
    diagonal = draw(st.integers(-1, 1))
    return (lambda x: flow.tril(x, diagonal)) if x.ndim > 1 else None


@st.composite
def programs(draw: Any, inputs: Sequence[Tensor]) -> tuple[list[Step], list[Tensor]]:
    """A program and, for each step, its result on the given (one-rank) inputs, which head the list."""
    pool, steps = list(inputs), []
    for _ in range(draw(st.integers(3, 12))):
        usable = [i for i, x in enumerate(pool) if x.numel() <= LIMIT]
        i = draw(st.sampled_from(usable))
        friends = [j for j in usable if pool[j].shape == pool[i].shape]
        name = draw(st.sampled_from([*UNARY, *BINARY]))
        if name in BINARY:
            operation, taken = BINARY[name], (i, draw(st.sampled_from(friends)))
        else:
            made = UNARY[name](draw, pool[i])
            operation, taken = made or flow.tanh, (i,)
        steps.append(Step(name, operation, taken, draw(st.booleans())))
        pool.append(steps[-1].run(pool, stay))
    return steps, pool
