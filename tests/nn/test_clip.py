"""Gradient clipping (NN-CLIP-NORM, NN-CLIP-VALUE): each logical parameter once, the same bits in every layout."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import refflow as flow
from refflow import nn
from refflow.errors import AttributeValueError, DataError
from refflow.nn.utils import clip_grad_norm_, clip_grad_value_
from tests.nn.layouts import MESHES
from tests.strategies import ONE, arbitrary, placements, sbps

B = flow.sbp.broadcast


def parameter(grad: Any, placement: Any = None, sbp: Any = None) -> nn.Parameter:
    array = np.asarray(grad, np.float32)
    made = nn.Parameter(flow.tensor(np.zeros_like(array), placement=placement, sbp=sbp))
    made.grad = flow.tensor(array, placement=placement, sbp=sbp)
    return made


def grad(p: nn.Parameter) -> flow.Tensor:
    assert p.grad is not None
    return p.grad


def test_a_replicated_gradient_counts_once() -> None:  # NN-CLIP-NORM, NVIDIA-NeMo/RL#3788
    p = parameter([3.0, 4.0], flow.placement("cpu", [0, 1]), B)
    assert clip_grad_norm_([p], 1.0).item() == 5
    factor = np.float32(1) / (np.float32(5) + np.float32(1e-6))
    assert flow.same_bits(grad(p).numpy(), np.array([3, 4], np.float32) * factor)


def test_a_parameter_used_twice_counts_once() -> None:  # NN-CLIP-NORM, DeepSpeed PR 1252
    p = parameter([20.0, 20.0])
    assert clip_grad_norm_([p, p], 1e9).item() == np.float32(math.sqrt(800))
    assert grad(p).tolist() == [20, 20]

    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Embedding(2, 2), nn.Linear(2, 2, bias=False)
            self.second.weight = self.first.weight

    assert len(list(Tied().parameters())) == 1


@given(data=st.data())
@settings(max_examples=12)
def test_no_layout_changes_the_norm_or_the_gradients(data: Any) -> None:  # NN-CLIP-NORM
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    arrays = [arbitrary(rng, shape, np.float32, 0.0) for shape in ((5, 3), (8,), (0, 2), (), (2, 4))]
    norm_type = data.draw(st.sampled_from([1, 2, math.inf]))
    results = []
    for spread in (False, True):
        cells = []
        for array in arrays:
            placement = data.draw(placements(MESHES)) if spread else ONE
            sbp = data.draw(sbps(placement, array.ndim, ())) if spread else (B,)
            cells.append(parameter(array, placement, sbp))
        norm = clip_grad_norm_(cells, 0.5, norm_type)
        assert norm.placement == cells[0].placement
        assert all(grad(p).sbp == p.sbp for p in cells)
        results.append([norm.numpy(), *(grad(p).numpy() for p in cells)])
    assert all(map(flow.same_bits, *results))


def test_the_sum_is_a_tree_over_the_parameters() -> None:  # NN-CLIP-NORM
    small = 1.25 * 2.0**-12  # its square is less than half an ulp of 2.25, two of them are more
    values = [1.5, small, small]
    assert clip_grad_norm_([parameter([v]) for v in values], 9.0).item() == 1.5
    assert clip_grad_norm_([parameter([v]) for v in values[::-1]], 9.0).item() == 1.5 + 2.0**-23


def test_missing_and_non_finite_gradients() -> None:  # NN-CLIP-NORM
    assert clip_grad_norm_([nn.Parameter(flow.ones(2))], 1.0).item() == 0
    assert clip_grad_norm_([], 1.0).item() == 0
    with pytest.raises(DataError, match="norm of the gradients is inf"):
        clip_grad_norm_(parameter([math.inf]), 1.0, error_if_nonfinite=True)
    with pytest.raises(AttributeValueError, match="norm_type"):
        clip_grad_norm_(parameter([1.0]), 1.0, norm_type=3)


def test_half_gradients_are_scaled_in_float32() -> None:  # NN-CLIP-NORM
    p = nn.Parameter(flow.zeros(2, dtype=flow.bfloat16))
    p.grad = flow.tensor([3.0, 4.0], dtype=flow.bfloat16)
    assert clip_grad_norm_(p, 1.0).item() == 5
    factor = np.float32(1) / (np.float32(5) + np.float32(1e-6))
    wide = flow.tensor(np.array([3, 4], np.float32) * factor)
    assert flow.same_bits(p.grad.numpy(), wide.to(flow.bfloat16).numpy())


def test_clip_value() -> None:  # NN-CLIP-VALUE
    p = parameter([-2.0, 0.5, 2.0], flow.placement("cpu", [0, 1]), flow.sbp.split(0))
    clip_grad_value_([p], 1.0)
    assert grad(p).tolist() == [-1, 0.5, 1] and grad(p).sbp == p.sbp


def test_parameters_as_one_vector() -> None:
    cells = list(nn.Linear(2, 3).to_global(flow.placement("cpu", [0, 1]), flow.sbp.split(0)).parameters())
    vector = nn.utils.parameters_to_vector(cells).detach()
    nn.utils.vector_to_parameters(vector * 2, cells)
    assert flow.same_bits(nn.utils.parameters_to_vector(cells).detach().numpy(), vector.numpy() * 2)
    assert cells[0].sbp == (flow.sbp.split(0),)
