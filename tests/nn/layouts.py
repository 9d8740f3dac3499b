"""Running a function of tensors under drawn layouts and on one rank, and comparing results and gradients bit for bit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

import refflow as flow
from refflow.layout import NdSbp, Placement, broadcast
from refflow.tensor.tensor import Tensor
from tests.strategies import ONE, global_from, logical, placements, sbps

Array = np.ndarray[Any, Any]
MESHES = ((2,), (3,), (4,), (2, 2))


@dataclass(frozen=True)
class Input:
    """An operand of a case: its shape, what numbers it holds, and whether a gradient is asked for."""

    shape: tuple[int, ...]
    kind: str = "normal"  # normal | positive | unit (in (0, 1)) | bool | below (integers in [0, below))
    below: int = 0
    grad: bool = True

    @property
    def differentiable(self) -> bool:
        return self.grad and self.kind in ("normal", "positive", "unit")

    def draw(self, rng: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> Array:
        if self.kind == "below":
            return rng.integers(0, self.below, shape)
        if self.kind == "bool":
            return rng.random(shape) < 0.7
        if self.kind == "unit":
            return (rng.random(shape) * 0.8 + 0.1).astype(dtype)
        x = rng.standard_normal(shape)
        return (abs(x) + 0.1 if self.kind == "positive" else x).astype(dtype)


def f(*shape: int, kind: str = "normal", grad: bool = True) -> Input:
    return Input(shape, kind, grad=grad)


def i(below: int, *shape: int) -> Input:
    return Input(shape, "below", below)


@dataclass(frozen=True)
class Case:
    """A function of tensors and the operands to try it on."""

    function: Callable[..., Tensor]
    inputs: tuple[Input, ...]


@dataclass(frozen=True)
class Outcome:
    """The logical result, and the logical gradient of each operand that has one (None for the others)."""

    result: Array
    grads: tuple[Array | None, ...]

    def assert_same(self, other: Outcome) -> None:
        assert flow.same_bits(self.result, other.result), f"results: {self.result} and {other.result}"
        for k, (a, b) in enumerate(zip(self.grads, other.grads, strict=True)):
            assert (a is None) == (b is None), f"gradient {k}: {a} and {b}"
            assert a is None or b is None or flow.same_bits(a, b), f"gradient {k}: {a} and {b}"


def whole(placement: Placement) -> NdSbp:
    return (broadcast,) * placement.ndim


def run(case: Case, operands: Sequence[Tensor], placement: Placement, seed: int = 0) -> Outcome:
    """The outcome for a cotangent drawn from `seed`; random functions draw the same numbers each time."""
    flow.manual_seed(5)
    tensors = [t.detach().requires_grad_() if x.differentiable else t for x, t in zip(case.inputs, operands)]
    out = case.function(*tensors)
    if out.requires_grad:
        cotangent = np.random.default_rng(seed).standard_normal(out.shape).astype(out.dtype)
        out.backward(flow.tensor(cotangent, placement=placement, sbp=whole(placement)))
    grads = tuple(None if t.grad is None else logical(t.grad.value) for t in tensors)
    return Outcome(logical(out.value), grads)


def on_one_rank(arrays: Sequence[Array]) -> list[Tensor]:
    return [flow.tensor(a, placement=ONE, sbp=flow.sbp.broadcast) for a in arrays]


def drawn_layouts(data: Any, case: Case) -> tuple[list[Tensor], list[Array], Placement]:
    """The operands of `case` in drawn layouts, every addend of a P dense, and the logical arrays they stand for."""
    placement = data.draw(placements(MESHES), label="placement")
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1), label="seed"))
    tensors, arrays = [], []
    for x in case.inputs:
        kinds = ("sum",) if x.kind in ("normal", "positive") else ()
        sbp = data.draw(sbps(placement, len(x.shape), kinds), label="sbp")
        value, array = global_from(lambda shape, x=x: x.draw(rng, shape, np.float32), x.shape, placement, sbp)
        tensors.append(Tensor(value))
        arrays.append(array)
    return tensors, arrays, placement


def assert_layout_free(case: Case, data: Any) -> None:
    """Results and gradients have the bits of the one-rank run on the logical operands."""
    tensors, arrays, placement = drawn_layouts(data, case)
    run(case, tensors, placement).assert_same(run(case, on_one_rank(arrays), ONE))
