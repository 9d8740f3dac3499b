"""Module: names, modes, hooks, moving (NN-MODULE, NN-NAMES, NN-HOOK, NN-TO-GLOBAL, NN-PARAMETER, NN-CONTAINER)."""

from __future__ import annotations

import copy
from typing import Any

import pytest

import refflow as flow
from refflow import nn
from refflow.errors import AttributeValueError, AutogradError, DtypeError, ReplicaError, SbpError

S, B = flow.sbp.split, flow.sbp.broadcast
LINE = flow.placement("cpu", [0, 1])


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(5, 4)
        self.body = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
        self.head = nn.Linear(4, 5, bias=False)
        self.head.weight = self.embed.weight  # tied
        self.gain = nn.Parameter(flow.ones(1))
        self.register_buffer("seen", flow.zeros(2))
        self.register_buffer("scratch", flow.zeros(3), persistent=False)
        self.alias = self.body

    def forward(self, x: Any) -> Any:
        return self.head(self.body(self.embed(x)) * self.gain)


# --- names ----------------------------------------------------------------------------------------------------------


def test_names_and_shared_parameters() -> None:  # NN-NAMES
    net = Net()
    names = [name for name, _ in net.named_parameters()]
    assert names == ["gain", "embed.weight", "body.0.weight", "body.0.bias"]
    assert [name for name, _ in net.named_buffers()] == ["seen", "scratch"]
    assert [name for name, _ in net.named_modules()] == ["", "embed", "body", "body.0", "body.1", "head"]
    assert [name for name, _ in net.named_children()] == ["embed", "body", "head"]
    assert [name for name, _ in net.named_parameters(recurse=False)] == ["gain"]
    assert net.get_submodule("body.0") is net.body[0] and net.get_parameter("body.0.bias") is net.body[0].bias
    assert net.head.weight is net.embed.weight
    for path in ("body.7", "nothing"):
        with pytest.raises(AttributeError, match=path):
            net.get_submodule(path)


def test_attributes() -> None:  # NN-MODULE
    net = Net()
    net.seen = flow.ones(2)
    assert dict(net.named_buffers())["seen"].tolist() == [1, 1]
    with pytest.raises(DtypeError, match="must be a Parameter or None, found Tensor"):
        net.gain = flow.ones(1)
    with pytest.raises(AttributeValueError, match="exists already"):
        net.register_buffer("forward", flow.ones(1))
    with pytest.raises(AttributeValueError, match=r"contain '\.'"):
        net.add_module("a.b", nn.ReLU())
    with pytest.raises(DtypeError, match="must be a Module"):
        net.add_module("x", flow.ones(1))  # type: ignore[arg-type]
    net.gain = None
    assert "gain" not in dict(net.named_parameters()) and net.gain is None
    del net.head
    with pytest.raises(AttributeError, match="Net has no attribute 'head'"):
        _ = net.head
    assert "embed" in dir(net)
    with pytest.raises(NotImplementedError, match="forward"):
        nn.Module()(1)

    class Early(nn.Module):
        def __init__(self) -> None:
            self.layer = nn.ReLU()

    with pytest.raises(AttributeError, match=r"super\(\).__init__\(\)"):
        Early()


def test_parameter() -> None:  # NN-PARAMETER
    source = flow.ones(2)
    p = nn.Parameter(source)
    assert isinstance(p, flow.Tensor) and p.is_leaf and p.requires_grad and not source.requires_grad
    assert not nn.Parameter(source, requires_grad=False).requires_grad
    assert repr(p).startswith("Parameter containing:\ntensor([1., 1.]")
    with pytest.raises(DtypeError, match="list"):
        nn.Parameter([1.0])  # type: ignore[arg-type]
    with pytest.raises(AutogradError):
        nn.Parameter(flow.arange(2))


# --- modes and hooks ------------------------------------------------------------------------------------------------


def test_modes() -> None:  # NN-MODULE
    net = Net()
    assert not net.eval().body[1].training and net.train().body[1].training
    net(flow.tensor([1])).sum().backward()
    assert all(p.grad is not None for p in net.parameters())
    net.zero_grad(set_to_none=False)
    assert all(p.grad is not None and not p.grad.any().item() for p in net.parameters())
    net.zero_grad()
    assert all(p.grad is None for p in net.parameters())
    assert not any(p.requires_grad for p in net.requires_grad_(False).parameters())
    seen: list[str] = []
    assert net.apply(lambda m: seen.append(type(m).__name__)) is net
    assert seen == ["Embedding", "Linear", "ReLU", "Sequential", "Linear", "Net"]


def test_hooks() -> None:  # NN-HOOK
    layer, log = nn.Identity(), []
    first = layer.register_forward_pre_hook(lambda m, args: log.append("before"))
    layer.register_forward_pre_hook(lambda m, args: args[0] + 1.0)
    layer.register_forward_hook(lambda m, args, out: out * 2.0)
    last = layer.register_forward_hook(lambda m, args, out: log.append(out.item()))
    assert layer(flow.tensor(1.0)).item() == 4 and log == ["before", 4.0]
    first.remove()
    first.remove()
    with last:
        pass
    assert layer(flow.tensor(1.0)).item() == 4 and log == ["before", 4.0]


# --- moving ---------------------------------------------------------------------------------------------------------


def test_to_global_keeps_cells_ties_and_gradients() -> None:  # NN-TO-GLOBAL
    net = Net()
    net(flow.tensor([1, 2])).sum().backward()
    before, grads = net.state_dict(), [p.grad.numpy() for p in net.parameters() if p.grad is not None]
    cells = list(net.parameters())
    assert net.to_global(LINE, S(0)) is net
    assert all(a is b for a, b in zip(cells, net.parameters(), strict=True))
    assert net.head.weight is net.embed.weight
    assert all(p.is_leaf and p.requires_grad and p.sbp == (S(0),) for p in cells)
    assert all(p.grad is not None and flow.same_bits(p.grad.numpy(), g) for p, g in zip(cells, grads))
    assert all(flow.same_bits(value.numpy(), before[name].numpy()) for name, value in net.state_dict().items())
    assert net.seen.sbp == (S(0),)
    net(flow.tensor([1, 2], placement=LINE, sbp=B)).sum().backward()  # adds to the moved gradients


def test_to_global_takes_a_function_or_fits_one_sbp() -> None:  # NN-TO-GLOBAL
    mesh = flow.placement("cpu", [[0, 1], [2, 3]])
    net = Net().to_global(mesh, lambda name, t: [B, S(0)] if name == "body.0.weight" else [B, B])
    assert net.body[0].weight.sbp == (B, S(0)) and net.body[0].bias.sbp == (B, B)
    layer = nn.BatchNorm1d(4).to_global(LINE, S(0))
    assert layer.weight.sbp == (S(0),) and layer.num_batches_tracked.sbp == (B,)
    assert nn.Linear(4, 4).to_global(LINE, S(1)).bias.sbp == (B,)


def test_a_move_that_fails_changes_nothing() -> None:  # NN-TO-GLOBAL
    net = Net()
    with pytest.raises(SbpError):
        net.to_global(LINE, lambda name, t: S(1) if name == "body.0.bias" else B)
    assert all(t.is_local for t in (*net.parameters(), *net.buffers()))
    layer = nn.Linear(2, 2)
    layer.weight = nn.Parameter(flow.per_rank(lambda rank: [[float(rank), 0.0]]))
    with pytest.raises(ReplicaError):
        layer.to_global(LINE, B)


def test_to_local_and_dtypes() -> None:  # NN-TO-GLOBAL
    layer = nn.Linear(3, 4).to_global(LINE, S(0))
    whole = layer.weight.detach().numpy()
    layer.to_local()
    assert layer.weight.is_local and layer.weight.requires_grad
    assert flow.same_bits(layer.weight.local_arrays()[1], whole[2:])
    norm = nn.BatchNorm1d(2).to(flow.float64)
    assert norm.weight.dtype == norm.running_mean.dtype == flow.float64
    assert norm.num_batches_tracked.dtype == flow.int64
    assert nn.Linear(2, 2).half().weight.dtype == flow.float16
    assert nn.Linear(2, 2).bfloat16().float().weight.dtype == flow.float32
    with pytest.raises(DtypeError, match="int64"):
        norm.to(flow.int64)


def test_deepcopy_is_another_module() -> None:  # NN-MODULE
    net = Net()
    twin = copy.deepcopy(net)
    assert twin.head.weight is twin.embed.weight and twin.head.weight is not net.head.weight
    twin(flow.tensor([1])).sum().backward()
    assert all(p.grad is None for p in net.parameters()) and all(p.grad is not None for p in twin.parameters())


# --- containers and text --------------------------------------------------------------------------------------------


def test_sequential_and_lists() -> None:  # NN-CONTAINER
    a, b, c = nn.ReLU(), nn.Tanh(), nn.Identity()
    seq = nn.Sequential({"one": a, "two": b})
    assert seq[-1] is b and isinstance(seq[:1], nn.Sequential) and len(seq.append(c)) == 3
    assert seq.one is a and [name for name, _ in seq[1:].named_children()] == ["two", "2"]
    held = nn.ModuleList([a, b]).insert(1, c)
    held.extend([nn.Sigmoid()])
    assert list(held)[:3] == [a, c, b] and len(held[1:]) == 3
    held[0] = c
    del held[1]
    assert held[0] is c and held[1] is b and len(held) == 3
    with pytest.raises(IndexError, match="3 entries"):
        held[3]


def test_dicts_and_parameter_containers() -> None:  # NN-CONTAINER
    held = nn.ModuleDict({"a": nn.Linear(1, 1)})
    held["b"] = nn.ReLU()
    assert list(held) == ["a", "b"] and "a" in held and len(held) == 2 and [k for k, _ in held.items()] == ["a", "b"]
    del held["b"]
    assert [name for name, _ in held.named_parameters()] == ["a.weight", "a.bias"]
    p, q = (nn.Parameter(flow.ones(n)) for n in (1, 2))
    listed = nn.ParameterList([p]).append(q)
    assert listed[-1] is q and next(iter(listed)) is p and [n for n, _ in listed.named_parameters()] == ["0", "1"]
    assert nn.ParameterDict({"p": p})["p"] is p
    assert (
        repr(listed)
        == "ParameterList(\n  (0): Parameter of shape (1,), float32\n  (1): Parameter of shape (2,), float32\n)"
    )


def test_repr() -> None:  # NN-MODULE
    net = nn.Sequential(nn.Conv2d(1, 2, 3, padding=1, bias=False), nn.Sequential(nn.Linear(2, 3), nn.Dropout(0.1)))
    assert repr(net) == (
        "Sequential(\n"
        "  (0): Conv2d(1, 2, kernel_size=(3, 3), stride=(1, 1), padding=(1, 1), bias=False)\n"
        "  (1): Sequential(\n"
        "    (0): Linear(in_features=2, out_features=3, bias=True)\n"
        "    (1): Dropout(p=0.1)\n"
        "  )\n"
        ")"
    )
    assert repr(nn.ReLU()) == "ReLU()"
