"""Layouts change no order of adding and no reach of a write: cases in which they once did.

Checks AUTO-ORDER, AUTO-FREE and TENSOR-CELL.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import refflow as flow
from refflow.layout import Placement, Split, broadcast, partial_sum

B, S0, S1, P = broadcast, Split(0), Split(1), partial_sum
ONE = flow.placement("cpu", [0])
ROW = flow.placement("cpu", [2, 0, 1])
LAYOUTS = [(ROW, sbp) for sbp in (B, S0, S1, P)]
Program = Callable[[flow.Tensor, flow.Tensor], flow.Tensor]


@pytest.fixture(autouse=True)
def world() -> Any:
    with flow.virtual_world(3):
        yield


def data(seed: int) -> Any:
    return np.random.default_rng(seed).standard_normal((5, 5)).astype(np.float32)


def gradient(program: Program, where: Placement, sbp: Any) -> Any:
    x = flow.tensor(data(0), placement=where, sbp=sbp, requires_grad=True)
    program(x, flow.tensor(data(1), placement=where, sbp=B)).backward()
    assert x.grad is not None
    return x.grad.numpy()


def both_operands(x: flow.Tensor, w: flow.Tensor) -> flow.Tensor:
    return (x * w).sum() + ((x @ x) * w).sum() + (x * 3.3).sum()


def second_order(x: flow.Tensor, w: flow.Tensor) -> flow.Tensor:
    (g,) = flow.autograd.grad(((x @ w) * (x @ x)).sum(), x, create_graph=True)
    assert g is not None
    return (g * w).sum() + (x @ x).sum()


def moved_early(x: flow.Tensor, w: flow.Tensor) -> flow.Tensor:
    return three_uses(x, x.to_global(sbp=B), w)


def moved_often(x: flow.Tensor, w: flow.Tensor) -> flow.Tensor:
    return three_uses(x.to_global(ROW, S1, grad_sbp=B), x.to_global(ONE, B).to_global(ROW, P), w.to_global(ROW, S0))


def three_uses(x: flow.Tensor, y: flow.Tensor, w: flow.Tensor) -> flow.Tensor:
    return (x * w).sum() + ((x * w) @ y).sum() + (y * 1.7).sum()


@pytest.mark.parametrize("program", [both_operands, second_order, moved_early])
@pytest.mark.parametrize(("where", "sbp"), LAYOUTS, ids=str)
def test_uses_add_in_one_order_whichever_operand_had_to_move(program: Program, where: Placement, sbp: Any) -> None:
    """AUTO-ORDER: x @ x moves neither, one or both of its operands; the bits of the gradient stay."""
    assert flow.same_bits(gradient(program, where, sbp), gradient(program, ONE, B))


@pytest.mark.parametrize("program", [moved_early, moved_often])
@pytest.mark.parametrize(("where", "sbp"), LAYOUTS, ids=str)
def test_moving_is_no_use_of_its_own(program: Program, where: Placement, sbp: Any) -> None:
    """AUTO-ORDER: a to_global more or less, anywhere, changes no bit of a gradient."""
    assert flow.same_bits(gradient(program, where, sbp), gradient(lambda x, w: three_uses(x, x, w), ONE, B))


@pytest.mark.parametrize(("where", "sbp"), LAYOUTS, ids=str)
def test_asking_for_the_gradient_of_what_was_moved_changes_none(where: Placement, sbp: Any) -> None:
    """AUTO-ORDER, AUTO-VJP: both have theirs, the moved one that of its own uses."""
    x = flow.tensor(data(0), placement=where, sbp=sbp, requires_grad=True)
    w = flow.tensor(data(1), placement=where, sbp=B)
    y = x.to_global(sbp=B)
    gx, gy = flow.autograd.grad(three_uses(x, y, w), [x, y])
    assert gx is not None and gy is not None
    assert flow.same_bits(gx.numpy(), gradient(moved_early, ONE, B))
    z = flow.tensor(data(0), placement=where, sbp=B, requires_grad=True)
    (gz,) = flow.autograd.grad(three_uses(x.detach(), z, w), z)
    assert gz is not None and flow.same_bits(gy.numpy(), gz.numpy())


@pytest.mark.parametrize(("where", "sbp"), LAYOUTS, ids=str)
def test_a_freed_gradient_graph_frees_no_move_of_the_forward_one(where: Placement, sbp: Any) -> None:
    """AUTO-FREE: on one rank nothing moves, so nothing may be freed elsewhere that is not freed there."""
    x = flow.tensor(data(0), placement=where, sbp=sbp, requires_grad=True)
    w = flow.tensor(data(1), placement=where, sbp=B, requires_grad=True)
    loss = (w @ x).sum()
    (g,) = flow.autograd.grad(loss, w, create_graph=True)
    assert g is not None
    g.sum().backward()
    loss.backward()
    assert w.grad is not None


@pytest.mark.parametrize(("where", "sbp"), LAYOUTS, ids=str)
def test_hooks_see_the_whole_gradient_after_a_write_that_moved(where: Placement, sbp: Any) -> None:
    """AUTO-LEAF: the value a cell holds after an in-place result was brought to its layout has a gradient of its own."""
    seen = []
    x = flow.tensor(data(0), placement=where, sbp=sbp, requires_grad=True)
    y = x * 1.0
    y.mul_(flow.tensor(data(1), placement=where, sbp=S0))
    y.register_hook(lambda g: seen.append(g.numpy()))
    ((y @ y).sum() + y.sum()).backward()
    assert len(seen) == 1 and x.grad is not None
    assert flow.same_bits(x.grad.numpy(), seen[0] * data(1))


@pytest.mark.parametrize(("where", "sbp"), LAYOUTS, ids=str)
def test_to_global_gives_a_cell_of_its_own_in_every_layout(where: Placement, sbp: Any) -> None:
    """TENSOR-CELL: in the layout it had, x.to_global(...) was x itself, and a write to the one changed the other."""
    x = flow.zeros(4, 4, placement=where, sbp=sbp)
    x.to_global(sbp=B).add_(1)
    x.to_global().add_(1)
    assert not x.numpy().any()
