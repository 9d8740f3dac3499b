"""state_dict and load_state_dict (NN-STATE): snapshots, layouts kept, nothing changed by a state that does not fit."""

from __future__ import annotations

import numpy as np
import pytest

import refflow as flow
from refflow import nn
from refflow.errors import CheckpointError

S, B, P = flow.sbp.split, flow.sbp.broadcast, flow.sbp.partial_sum
LINE, OTHER = flow.placement("cpu", [0, 1]), flow.placement("cpu", [3, 2, 1])
MESH = flow.placement("cpu", [[0, 1], [2, 3]])


def model(seed: int = 0) -> nn.Sequential:
    flow.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5), nn.Linear(5, 2, bias=False))


LAYOUTS = {
    "local": lambda m: m,
    "split": lambda m: m.to_global(LINE, S(0)),
    "elsewhere": lambda m: m.to_global(OTHER, S(0)),
    "mesh": lambda m: m.to_global(MESH, [S(0), S(0)]),
    "partial": lambda m: m.to_global(MESH, [B, P]),
}


@pytest.mark.parametrize("source", LAYOUTS)
@pytest.mark.parametrize("target", LAYOUTS)
def test_round_trip_between_layouts(source: str, target: str) -> None:  # NN-STATE
    a, b = LAYOUTS[source](model(1)), LAYOUTS[target](model(2))
    layouts = [(t.is_global and (t.placement, t.sbp)) for t in b.state_dict().values()]
    assert b.load_state_dict(a.state_dict()) == ([], [])
    for name, value in b.state_dict().items():
        assert flow.same_bits(value.numpy(), a.state_dict()[name].numpy())
    assert layouts == [(t.is_global and (t.placement, t.sbp)) for t in b.state_dict().values()]
    assert all(p.is_leaf and p.requires_grad for p in b.parameters())


def test_names_and_snapshots() -> None:  # NN-STATE
    net = model()
    state = net.state_dict()
    assert list(state) == [
        *("0.weight", "0.bias", "1.weight", "1.bias"),
        *("1.running_mean", "1.running_var", "1.num_batches_tracked", "2.weight"),
    ]
    before = state["0.weight"].numpy().copy()
    nn.init.zeros_(net[0].weight)
    assert flow.same_bits(state["0.weight"].numpy(), before)
    assert net.state_dict(keep_vars=True)["0.weight"] is net[0].weight
    assert next(iter(net[0].state_dict(prefix="x."))) == "x.weight"


def test_buffers_that_are_not_saved_and_shared_parameters() -> None:  # NN-STATE
    net = nn.Module()
    net.register_buffer("kept", flow.ones(1))
    net.register_buffer("dropped", flow.ones(1), persistent=False)
    net.a = net.b = nn.Linear(1, 1, bias=False)
    assert list(net.state_dict()) == ["kept", "a.weight", "b.weight"]
    net.load_state_dict(net.state_dict())


def test_dtypes_and_arrays() -> None:  # NN-STATE
    net = nn.Linear(2, 1, bias=False).to_global(LINE, S(1))
    net.load_state_dict({"weight": np.array([[1.0, 2.0**-30 + 1]])})
    assert net.weight.dtype == flow.float32 and net.weight.tolist() == [[1, 1]]


def test_gradients_reach_the_cell_after_loading() -> None:  # NN-STATE
    net = model()
    net.load_state_dict(model(3).state_dict())
    net(flow.randn(4, 3)).sum().backward()
    assert all(p.grad is not None for p in net.parameters())


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda s: s.pop("0.bias"), r"missing keys \['0.bias'\]"),
        (lambda s: s.update(extra=flow.ones(1)), r"unexpected keys \['extra'\]"),
        (lambda s: s.update({"2.weight": flow.ones(2)}), r"'2.weight' has shape \(2,\), the module needs \(2, 5\)"),
        (lambda s: s.update({"0.bias": [1.0]}), "'0.bias' must be a tensor, found list"),
    ],
)
def test_a_state_that_does_not_fit_changes_nothing(change: object, words: str) -> None:  # NN-STATE
    net, state = model(1), model(2).state_dict()
    before = net.state_dict()
    change(state)  # type: ignore[operator]
    with pytest.raises(CheckpointError, match=words):
        net.load_state_dict(state)
    assert all(flow.same_bits(net.state_dict()[name].numpy(), value.numpy()) for name, value in before.items())


def test_all_faults_are_named_at_once_and_strict_can_be_off() -> None:  # NN-STATE
    net, state = model(1), model(2).state_dict()
    del state["0.bias"]
    state["extra"] = flow.ones(1)
    with pytest.raises(CheckpointError, match=r"missing keys \['0.bias'\]; unexpected keys \['extra'\]"):
        net.load_state_dict(state)
    found = net.load_state_dict(state, strict=False)
    assert found.missing_keys == ["0.bias"] and found.unexpected_keys == ["extra"]
    assert flow.same_bits(net[0].weight.detach().numpy(), state["0.weight"].numpy())
