"""Function: gradients one writes oneself (AUTO-FUNCTION), local and global."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import refflow as flow
from refflow.autograd import Function, grad
from refflow.errors import AutogradError, LocalGlobalError, ShapeError
from tests.nn.layouts import Case, assert_layout_free, f


class Cube(Function):
    """x^3, its gradient written in tensor functions."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x * x * x

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        (x,) = ctx.saved_tensors
        return g * (3.0 * x * x)


class Scale(Function):
    """k a b, with a number that is no tensor."""

    @staticmethod
    def forward(ctx: Any, a: Any, b: Any, k: float) -> Any:
        ctx.save_for_backward(a, b)
        ctx.k = k
        return a * b * k

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        a, b = ctx.saved_tensors
        return (g * b * ctx.k if ctx.needs_input_grad[0] else None, g * a * ctx.k, None)


class SumAndSign(Function):
    """Two results, the second without a gradient."""

    @staticmethod
    def forward(ctx: Any, a: Any, b: Any) -> Any:
        sign = (a + b).sign()
        ctx.mark_non_differentiable(sign)
        return a + b, sign

    @staticmethod
    def backward(ctx: Any, g: Any, unused: Any) -> Any:
        assert unused.tolist() == [0, 0]
        return g, g


def test_values_and_gradients() -> None:  # AUTO-FUNCTION
    x = flow.tensor([1.0, -2.0], requires_grad=True)
    y = Cube.apply(x)
    assert y.tolist() == [1, -8] and y.grad_fn.primitive.name == "Cube"
    y.sum().backward()
    assert x.grad is not None and x.grad.tolist() == [3, 12]


def test_double_backward() -> None:  # AUTO-FUNCTION
    x = flow.tensor([2.0], requires_grad=True)
    (first,) = grad(Cube.apply(x).sum(), x, create_graph=True)
    assert first is not None and first.item() == 12
    (second,) = grad(first.sum(), x)
    assert second is not None and second.item() == 12  # 6 x


def test_numbers_and_unneeded_gradients() -> None:  # AUTO-FUNCTION
    a, b = flow.tensor([2.0]), flow.tensor([3.0], requires_grad=True)
    Scale.apply(a, b, 10.0).sum().backward()
    assert a.grad is None and b.grad is not None and b.grad.item() == 20


def test_several_results() -> None:  # AUTO-FUNCTION
    a, b = (flow.tensor(v, requires_grad=True) for v in ([1.0, -3.0], [1.0, 1.0]))
    total, sign = SumAndSign.apply(a, b)
    assert total.requires_grad and not sign.requires_grad and sign.tolist() == [1, -1]
    total.sum().backward()
    assert a.grad is not None and a.grad.tolist() == [1, 1]


def test_an_argument_may_be_returned() -> None:  # AUTO-FUNCTION
    class Through(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * -1.0

    x = flow.tensor([1.0], requires_grad=True)
    y = Through.apply(x)
    y.sum().backward()
    assert x.is_leaf and x.grad is not None and x.grad.item() == -1


def test_writing_later_does_not_alter_what_was_saved() -> None:  # AUTO-FUNCTION
    x = flow.tensor([2.0], requires_grad=True)
    y = Cube.apply(x)
    with flow.no_grad():
        x.mul_(100.0)
    y.sum().backward()
    assert x.grad is not None and x.grad.item() == 12


def test_nothing_is_recorded_without_need() -> None:  # AUTO-FUNCTION
    x = flow.tensor([1.0], requires_grad=True)
    assert Cube.apply(x.detach()).grad_fn is None
    with flow.no_grad():
        assert Cube.apply(x).grad_fn is None


@given(data=st.data())
@settings(max_examples=15)
def test_no_layout_changes_a_bit(data: Any) -> None:  # AUTO-FUNCTION
    assert_layout_free(Case(lambda a, b: Scale.apply(Cube.apply(a), b, 0.3), (f(5, 3), f(5, 3))), data)


def bad(result: Any) -> Any:
    class Bad(Function):
        @staticmethod
        def forward(ctx: Any, x: Any, k: Any) -> Any:
            return x * k

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return result(g)

    return Bad


@pytest.mark.parametrize(
    ("result", "error", "words"),
    [
        (lambda g: g, AutogradError, "per argument of forward, 2, found 1"),
        (lambda g: (1.0, None), AutogradError, "must be a tensor or None, found float"),
        (lambda g: (g[:1], None), ShapeError, r"argument 0 has shape \(2,\), its gradient \(1,\)"),
        (lambda g: (flow.ones(2), None), LocalGlobalError, "argument 0 is global"),
    ],
)
def test_errors_say_what_backward_gave(result: Any, error: Any, words: str) -> None:  # AUTO-FUNCTION
    x = flow.ones(2, placement=flow.placement("cpu", [0, 1]), sbp=flow.sbp.split(0), requires_grad=True)
    with pytest.raises(error, match=words):
        bad(result).apply(x, 2.0).sum().backward()


def test_forward_must_give_tensors() -> None:  # AUTO-FUNCTION
    class Bad(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return np.zeros(1)

    with pytest.raises(AutogradError, match="ndarray"):
        Bad.apply(flow.ones(1))
