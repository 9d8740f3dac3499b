"""unfold, fold and the losses of probabilities: NN-UNFOLD, NN-BCE, NN-LAYER."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import refflow as flow
from refflow.errors import ShapeError
from tests.tensor.layouts import LINE4, MESH, B, S, laid, numbers

F, nn = flow.nn.functional, flow.nn
IMAGE = numbers(4, 4, 5, 4) % 7 - 3
CASES = [
    {"kernel_size": 2},
    {"kernel_size": (3, 2), "padding": (1, 0), "stride": 2},
    {"kernel_size": 2, "dilation": 2, "padding": 1},
]


def columns(a: Any, kernel_size: Any, dilation: int = 1, padding: Any = 0, stride: int = 1) -> Any:
    """NN-UNFOLD as loops."""
    i, j = (kernel_size, kernel_size) if isinstance(kernel_size, int) else kernel_size
    up, left = (padding, padding) if isinstance(padding, int) else padding
    a = np.pad(a, ((0, 0), (0, 0), (up, up), (left, left)))
    rows, width = (a.shape[2] - dilation * (i - 1) - 1) // stride + 1, (a.shape[3] - dilation * (j - 1) - 1) // stride + 1
    windows = [
        a[:, :, p * stride : p * stride + dilation * (i - 1) + 1 : dilation, q * stride : q * stride + dilation * (j - 1) + 1 : dilation]
        for p in range(rows)
        for q in range(width)
    ]
    return np.stack([w.reshape(len(a), -1) for w in windows], 2)


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("layout", [(LINE4, S(0)), (LINE4, S(1)), (MESH, S(0), S(1)), (LINE4, S(2))], ids=str)
def test_unfold(case: Any, layout: Any) -> None:
    """NN-UNFOLD: against loops, in layouts that cut batch, channels, both and rows."""
    found = F.unfold(laid(IMAGE, *layout), **case)
    assert np.array_equal(found.numpy(), columns(IMAGE, **case))
    assert np.array_equal(nn.Unfold(**case)(flow.tensor(IMAGE[0])).numpy(), columns(IMAGE, **case)[0])


@pytest.mark.parametrize("case", CASES, ids=str)
def test_fold_is_the_transpose(case: Any) -> None:
    """NN-UNFOLD: fold is what the gradient of unfold does, and its own gradient is unfold; integers, so exact."""
    x = laid(IMAGE, LINE4, S(0), grad=True)
    out = F.unfold(x, **case)
    weight = laid((numbers(*out.shape) % 5) - 2, LINE4, B)
    (out * weight).sum().backward()
    folded = nn.Fold((5, 4), **case)(weight)
    assert np.array_equal(folded.numpy(), x.grad.numpy())
    w = weight.detach().requires_grad_()
    (F.fold(w, (5, 4), **case) * x.detach()).sum().backward()
    assert np.array_equal(w.grad.numpy(), out.detach().numpy())
    assert np.array_equal(F.fold(flow.tensor(weight.numpy()[0]), (5, 4), **case).numpy(), folded.numpy()[0])


def test_windows_that_do_not_fit() -> None:
    """NN-UNFOLD: shapes are checked in words."""
    with pytest.raises(ShapeError, match="unfold: needs"):
        F.unfold(flow.ones(3, 3), 2)
    with pytest.raises(ShapeError, match=r"fold: needs \(n, c \* 4, 4\)"):
        F.fold(flow.ones(1, 4, 3), 3, 2)
    assert "kernel_size=2" in repr(nn.Unfold(2)) and "output_size=3" in repr(nn.Fold(3, 2))


def test_binary_cross_entropy() -> None:
    """NN-BCE: against float64, bounded at 0 and 1 with gradients that stay finite; the bits of every layout."""
    p = np.float32([[0.0, 1.0, 0.25, 0.5], [1.0, 0.0, 0.75, 1e-45], [0.1, 0.2, 0.3, 0.4], [0.9, 0.8, 0.7, 0.6]])
    t = np.float32([[0, 1, 1, 0], [0, 1, 0.5, 1], [0, 1, 0, 1], [1, 0, 0, 1]])
    with np.errstate(divide="ignore"):
        hit, miss = (np.maximum(np.log(q.astype(np.float64)), -100) for q in (p, 1 - p.astype(np.float64)))
    expected = -(t * hit + (1 - t) * miss)
    found = [
        (x := laid(p, LINE4, sbp, grad=True), F.binary_cross_entropy(x, laid(t, LINE4, B), reduction="none"))
        for sbp in (B, S(0), S(1))
    ]
    for x, loss in found:
        assert np.allclose(loss.detach().numpy(), expected, rtol=1e-6)
        assert flow.same_bits(loss.detach().numpy(), found[0][1].detach().numpy())
        loss.sum().backward()
        assert np.isfinite(x.grad.numpy()).all()
    local = nn.BCELoss()(flow.tensor(p), flow.tensor(t))
    assert flow.same_bits(local.numpy(), found[0][1].mean().detach().numpy())


def test_modules_of_activations() -> None:
    """NN-LAYER: each calls the function of its name."""
    x = flow.tensor([-9.0, 0.5, 7.0])
    assert nn.ReLU6()(x).tolist() == [0.0, 0.5, 6.0]
    assert flow.same_bits(nn.LogSigmoid()(x).numpy(), F.logsigmoid(x).numpy())
    assert np.allclose(F.logsigmoid(x).numpy(), np.log(1 / (1 + np.exp(-x.numpy().astype(np.float64)))), rtol=1e-6)
