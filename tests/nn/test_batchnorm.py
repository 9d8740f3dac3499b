"""BatchNorm (NN-BATCHNORM): statistics of the logical batch under any split, uneven and empty shards included."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import refflow as flow
from refflow import nn
from refflow.errors import LocalGlobalError, ShapeError
from refflow.nn import functional as F
from tests.strategies import arbitrary

S, B = flow.sbp.split, flow.sbp.broadcast


def trained(x: np.ndarray[Any, Any], ranks: list[int], sbp: Any) -> list[np.ndarray[Any, Any]]:
    """Output, gradients and buffers after two training steps."""
    place = flow.placement("cpu", ranks)
    flow.manual_seed(0)
    layer = (nn.BatchNorm1d if x.ndim < 4 else nn.BatchNorm2d)(x.shape[1]).to_global(place, B)
    tensor = flow.tensor(x, placement=place, sbp=sbp, requires_grad=True)
    for _ in range(2):
        out = layer(tensor)
        (out * out * tensor).sum().backward()
    grads = [t.grad.numpy() for t in (tensor, *layer.parameters()) if t.grad is not None]
    assert len(grads) == 3
    return [out.detach().numpy(), *grads, *(b.numpy() for b in layer.buffers())]


@pytest.mark.parametrize("shape", [(5, 3), (2, 3), (8, 2), (3, 2, 5), (5, 2, 2, 2), (2, 1, 3, 3)])
@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_statistics_are_global_on_uneven_and_empty_shards(shape: tuple[int, ...], ranks: int) -> None:  # NN-BATCHNORM
    x = arbitrary(np.random.default_rng(1), shape, np.float32, 0.0)
    expected = trained(x, [0], B)
    for sbp in (S(0), S(1)):
        for a, b in zip(trained(x, list(range(ranks)), sbp), expected, strict=True):
            assert flow.same_bits(a, b)


def test_two_ranks_with_one_value_each_are_a_batch_of_two() -> None:  # NN-BATCHNORM, NVIDIA/apex#262
    x = flow.tensor([[1.0], [3.0]], placement=flow.placement("cpu", [0, 1]), sbp=S(0))
    layer = nn.BatchNorm1d(1, eps=0.0, momentum=1.0).to_global(x.placement, B)
    assert layer(x).tolist() == [[-1], [1]]  # mean 2, biased variance 1
    assert (layer.running_mean.tolist(), layer.running_var.tolist()) == ([2], [2])  # unbiased variance 2


def test_running_statistics_by_hand() -> None:  # NN-BATCHNORM
    layer = nn.BatchNorm1d(1)
    layer(flow.tensor([[1.0], [3.0]]))
    f32 = np.float32
    assert layer.running_mean.item() == f32(0) * f32(0.9) + f32(2) * f32(0.1)
    assert layer.running_var.item() == f32(1) * f32(0.9) + f32(2) * f32(0.1)
    assert layer.num_batches_tracked.item() == 1
    layer.eval()
    scale = f32(1) / np.sqrt(f32(layer.running_var.item()) + f32(1e-5))
    assert layer(flow.tensor([[1.2]])).item() == pytest.approx((1.2 - 0.2) * scale, rel=1e-6)
    assert layer.num_batches_tracked.item() == 1


def test_momentum_none_averages_the_batches() -> None:  # NN-BATCHNORM
    layer = nn.BatchNorm1d(1, momentum=None)
    for mean in (1.0, 3.0):
        layer(flow.tensor([[mean - 1], [mean + 1]]))
    assert layer.running_mean.item() == 2


def test_without_running_statistics_the_batch_counts_in_eval_too() -> None:  # NN-BATCHNORM
    layer = nn.BatchNorm1d(1, eps=0.0, track_running_stats=False).eval()
    assert list(layer.buffers()) == []
    assert layer(flow.tensor([[1.0], [3.0]])).tolist() == [[-1], [1]]


def test_one_value_per_channel_cannot_train() -> None:  # NN-BATCHNORM
    for rows in (0, 1):
        with pytest.raises(ShapeError, match="at least 2 values per channel"):
            F.batch_norm(flow.ones(rows, 3), None, None, training=True)
    with pytest.raises(ShapeError, match="running mean"):
        F.batch_norm(flow.ones(2, 3), None, None)
    with pytest.raises(ShapeError, match="3 channels"):
        nn.BatchNorm2d(3)(flow.ones(2, 2, 1, 1))


def test_buffers_must_live_where_the_input_lives() -> None:  # NN-BATCHNORM
    x = flow.ones(4, 2, placement=flow.placement("cpu", [0, 1]), sbp=S(0))
    with pytest.raises(LocalGlobalError):
        nn.BatchNorm1d(2)(x)


def test_half_inputs_keep_float32_statistics() -> None:  # NN-BATCHNORM, NN-HALF
    layer, x = nn.BatchNorm1d(2), flow.randn(4, 2)
    out = layer(x.to(flow.bfloat16))
    assert out.dtype == flow.bfloat16 and layer.running_mean.dtype == flow.float32
