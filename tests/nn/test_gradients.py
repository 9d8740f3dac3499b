"""The gradient of every function against central differences, in float64.

A test of closeness, not of bits: along a random direction v, (L(x + h v) - L(x - h v)) / 2h differs from <grad, v> by
O(h^2) from the third derivative and by about 2^-53 |L| / h from rounding; with h = 2^-17 both are below 1e-7 for losses
and derivatives of order one, so 1e-6 leaves a margin and would still see a wrong sign, factor or missing term.
"""

from __future__ import annotations

import numpy as np
import pytest

import refflow as flow
from refflow.layout import broadcast
from tests.nn.cases import CASES
from tests.nn.layouts import ONE, Array, Case

STEP = 2.0**-17


def _loss(case: Case, arrays: list[Array], cotangent: Array | None) -> tuple[flow.Tensor, list[flow.Tensor]]:
    flow.manual_seed(5)
    tensors = [flow.tensor(a, placement=ONE, sbp=broadcast) for a in arrays]
    tensors = [t.requires_grad_() if x.differentiable else t for x, t in zip(case.inputs, tensors)]
    out = case.function(*tensors)
    if cotangent is None:
        cotangent = np.random.default_rng(1).standard_normal(out.shape)
    return (out * flow.tensor(cotangent, placement=ONE, sbp=broadcast)).sum(), tensors


OTHER = ("one_hot", "embedding padding")  # no gradient; one that is not the function's, on purpose


@pytest.mark.parametrize("name", [name for name in CASES if name not in OTHER])
def test_gradients_are_those_of_the_function(name: str) -> None:
    case, rng = CASES[name], np.random.default_rng(7)
    arrays = [x.draw(rng, x.shape, np.float64) for x in case.inputs]
    loss, tensors = _loss(case, arrays, None)
    loss.backward()
    for k, (x, t) in enumerate(zip(case.inputs, tensors)):
        if not x.differentiable:
            continue
        direction = rng.standard_normal(x.shape)
        assert t.grad is not None
        expected = float((t.grad.numpy() * direction).sum())
        ends = []
        for side in (STEP, -STEP):
            moved = [a + side * direction if j == k else a for j, a in enumerate(arrays)]
            ends.append(_loss(case, moved, None)[0].item())
        measured = (ends[0] - ends[1]) / (2 * STEP)
        assert measured == pytest.approx(expected, rel=1e-6, abs=1e-6), f"gradient {k}"
