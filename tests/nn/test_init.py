"""Initialisation (NN-INIT): PyTorch's bounds, the same logical weights in every layout and on every number of ranks."""

from __future__ import annotations

import math

import numpy as np
import pytest

import refflow as flow
from refflow import nn
from refflow.errors import AttributeValueError, ShapeError
from refflow.nn import init
from refflow.random import Generator
from refflow.state import Override
from refflow.world import VirtualWorld


def weights(model: nn.Module) -> dict[str, np.ndarray]:  # type: ignore[type-arg]
    return {name: p.detach().numpy() for name, p in model.named_parameters()}


def model() -> nn.Module:
    flow.manual_seed(11)
    parts = nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.Linear(6, 5), nn.Embedding(5, 4, padding_idx=0)
    return nn.Sequential(*parts, nn.MultiheadAttention(4, 2))


@pytest.mark.parametrize("world", [1, 3])
def test_weights_depend_on_the_seed_alone(world: int) -> None:  # NN-INIT
    expected = weights(model())
    with Override(world=VirtualWorld(world), generator=Generator()):
        place = flow.placement("cpu", list(range(world)))
        for sbp in (flow.sbp.broadcast, flow.sbp.split(0), flow.sbp.partial_sum):
            found = weights(model().to_global(place, sbp))
            assert list(found) == list(expected)
            assert all(flow.same_bits(found[name], expected[name]) for name in expected)


def test_bounds() -> None:  # NN-INIT
    layer = nn.Linear(16, 40)
    for p in layer.parameters():
        assert 0.9 / 4 < abs(p.detach().numpy()).max() <= 1 / 4  # 1 / sqrt(fan in)
    conv = nn.Conv2d(2, 32, (2, 4))
    assert 0.9 / 4 < abs(conv.weight.detach().numpy()).max() <= 1 / 4
    w = flow.empty(30, 18)
    assert 0.95 < abs(init.xavier_uniform_(w).numpy()).max() / math.sqrt(6 / 48) <= 1
    assert 0.95 < abs(init.kaiming_uniform_(w).numpy()).max() / math.sqrt(6 / 18) <= 1
    wide = flow.empty(60, 50)
    assert init.kaiming_normal_(wide, mode="fan_out", nonlinearity="relu").std().item() == pytest.approx(
        math.sqrt(2 / 60), rel=0.1
    )
    assert init.xavier_normal_(wide).std().item() == pytest.approx(math.sqrt(2 / 110), rel=0.1)


def test_values_are_stated_sequences() -> None:  # NN-INIT
    drawn = flow.rand(5, generator=Generator(4)).numpy()
    made = init.uniform_(flow.empty(5), -0.3, 0.4, generator=Generator(4)).numpy()
    assert flow.same_bits(made, drawn * np.float32(0.4 + 0.3) + np.float32(-0.3))
    drawn = flow.randn(5, generator=Generator(4)).numpy()
    made = init.normal_(flow.empty(5), 0.1, 0.2, generator=Generator(4)).numpy()
    assert flow.same_bits(made, drawn * np.float32(0.2) + np.float32(0.1))


def test_a_global_tensor_is_drawn_by_logical_index() -> None:  # NN-INIT
    place, made = flow.placement("cpu", [0, 1, 2]), []
    for sbp in (flow.sbp.broadcast, flow.sbp.split(1)):
        flow.manual_seed(2)
        made.append(init.normal_(flow.empty(4, 5, placement=place, sbp=sbp)))
    assert made[1].sbp == (flow.sbp.split(1),)
    assert flow.same_bits(made[0].numpy(), made[1].numpy())


def test_parameters_stay_leaves() -> None:  # NN-INIT
    p = nn.Parameter(flow.empty(2, 2))
    assert init.ones_(p) is p and p.is_leaf and p.requires_grad
    (p * 3.0).sum().backward()
    assert p.grad is not None and p.grad.tolist() == [[3, 3], [3, 3]]
    assert init.zeros_(p).tolist() == [[0, 0], [0, 0]]


def test_errors_and_gains() -> None:  # NN-INIT
    assert init.calculate_gain("leaky_relu", 1.0) == 1 and init.calculate_gain("tanh") == 5 / 3
    with pytest.raises(AttributeValueError, match="relu"):
        init.calculate_gain("swish")
    with pytest.raises(ShapeError, match="2 dimensions"):
        init.xavier_uniform_(flow.empty(3))
    with pytest.raises(AttributeValueError, match="fan_in"):
        init.kaiming_normal_(flow.empty(3, 3), mode="fan")
