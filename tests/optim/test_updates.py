"""OPT-*: each optimizer is its stated sequence of float32 operations, the same bits under every layout."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import refflow as flow
from refflow.errors import AttributeValueError, SbpError, ShapeError

F = np.float32
STEPS = 4
Array = np.ndarray[Any, Any]


def sgd(lr=1e-3, momentum=0.0, dampening=0.0, weight_decay=0.0, nesterov=False, maximize=False, F=F):
    def update(p, g, s, t):
        g = -g if maximize else g
        g = F(g + F(F(weight_decay) * p)) if weight_decay else g
        if momentum:
            kept = F(F(1) - F(dampening))
            s["m"] = g if t == 1 else F(F(F(momentum) * s["m"]) + F(kept * g))
            g = F(g + F(F(momentum) * s["m"])) if nesterov else s["m"]
        return F(p - F(F(lr) * g))

    return update


def adam(lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0, amsgrad=False, maximize=False, decoupled=False, F=F):
    b1, b2 = map(F, betas)

    def update(p, g, s, t):
        g = -g if maximize else g
        if weight_decay and decoupled:
            p = F(F(F(1) - F(F(lr) * F(weight_decay))) * p)
        elif weight_decay:
            g = F(g + F(F(weight_decay) * p))
        power1 = power2 = F(1)
        for _ in range(t):
            power1, power2 = F(power1 * b1), F(power2 * b2)
        s["m"] = F(F(b1 * s.get("m", F(0))) + F(F(F(1) - b1) * g))
        s["v"] = F(F(b2 * s.get("v", F(0))) + F(F(F(1) - b2) * F(g * g)))
        v = s["v"]
        if amsgrad:
            v = s["top"] = max(s.get("top", v), v)
        spread = F(F(np.sqrt(v) / np.sqrt(F(F(1) - power2))) + F(eps))
        return F(p - F(F(F(lr) / F(F(1) - power1)) * F(s["m"] / spread)))

    return update


def adamw(weight_decay=1e-2, **options):
    return adam(weight_decay=weight_decay, decoupled=True, **options)


def adagrad(lr=1e-2, lr_decay=0.0, weight_decay=0.0, initial_accumulator_value=0.0, eps=1e-10, F=F):
    def update(p, g, s, t):
        g = F(g + F(F(weight_decay) * p)) if weight_decay else g
        s["sum"] = F(s.get("sum", F(initial_accumulator_value)) + F(g * g))
        rate = F(F(lr) / F(F(1) + F(F(t - 1) * F(lr_decay))))
        return F(p - F(rate * F(g / F(np.sqrt(s["sum"]) + F(eps)))))

    return update


def rmsprop(lr=1e-2, alpha=0.99, eps=1e-8, weight_decay=0.0, momentum=0.0, centered=False, F=F):
    a = F(alpha)
    rest = F(F(1) - a)

    def update(p, g, s, t):
        g = F(g + F(F(weight_decay) * p)) if weight_decay else g
        s["v"] = w = F(F(a * s.get("v", F(0))) + F(rest * F(g * g)))
        if centered:
            s["u"] = F(F(a * s.get("u", F(0))) + F(rest * g))
            w = F(s["v"] - F(s["u"] * s["u"]))
        d = F(g / F(np.sqrt(w) + F(eps)))
        if momentum:
            d = s["b"] = F(F(F(momentum) * s.get("b", F(0))) + d)
        return F(p - F(F(lr) * d))

    return update


CASES: list[tuple[Callable[..., Any], type[flow.optim.Optimizer], dict[str, Any]]] = [
    (sgd, flow.optim.SGD, {"lr": 0.1}),
    (sgd, flow.optim.SGD, {"lr": 0.1, "weight_decay": 0.01, "maximize": True}),
    (sgd, flow.optim.SGD, {"lr": 0.03, "momentum": 0.9}),
    (sgd, flow.optim.SGD, {"lr": 0.03, "momentum": 0.9, "dampening": 0.3, "weight_decay": 1e-3}),
    (sgd, flow.optim.SGD, {"lr": 0.03, "momentum": 0.9, "nesterov": True}),
    (adam, flow.optim.Adam, {"lr": 0.01}),
    (adam, flow.optim.Adam, {"lr": 0.01, "betas": (0.7, 0.95), "weight_decay": 0.1, "amsgrad": True}),
    (adam, flow.optim.Adam, {"lr": 0.01, "betas": (0.0, 0.5), "maximize": True}),
    (adamw, flow.optim.AdamW, {"lr": 0.01}),
    (adamw, flow.optim.AdamW, {"lr": 0.01, "weight_decay": 0.3, "amsgrad": True}),
    (adamw, flow.optim.AdamW, {"lr": 0.01, "weight_decay": 0.0}),
    (adagrad, flow.optim.Adagrad, {"lr": 0.1, "lr_decay": 0.1, "weight_decay": 0.01, "initial_accumulator_value": 0.5}),
    (rmsprop, flow.optim.RMSprop, {"lr": 0.02}),
    (rmsprop, flow.optim.RMSprop, {"lr": 0.02, "momentum": 0.9, "centered": True, "alpha": 0.9, "weight_decay": 0.01}),
]
IDS = [f"{kind.__name__}-{'-'.join(options)}" for _, kind, options in CASES]


def draw(shape: tuple[int, ...], dtype: Any = F) -> tuple[Array, list[Array]]:
    """A parameter and the gradients of STEPS steps, signed zeros among them."""
    rng = np.random.default_rng(sum(shape))
    p = rng.standard_normal(shape).astype(dtype)
    grads = [rng.standard_normal(shape).astype(dtype) for _ in range(STEPS)]
    grads[0].flat[0], grads[0].flat[-1] = 0.0, -0.0
    return p, grads


def expected(update: Callable[..., Any], p: Array, grads: list[Array]) -> Array:
    """One element at a time."""
    out = p.copy()
    for i in np.ndindex(*p.shape):
        state: dict[str, Any] = {}
        for t, g in enumerate(grads, 1):
            out[i] = update(out[i], g[i], state, t)
    return out


def trained(optimizer_of: Callable[..., Any], p: Array, grads: list[Array], **layout: Any) -> tuple[flow.Tensor, Any]:
    """The parameter after the steps, and the optimizer."""
    parameter = flow.tensor(p, requires_grad=True, **layout)
    optimizer = optimizer_of([parameter])
    for g in grads:
        parameter.grad = flow.tensor(g, **layout)
        with flow.comm_log() as log:
            optimizer.step()
        assert log.bytes == 0, f"an update moved data:\n{log}"
    return parameter, optimizer


@pytest.mark.parametrize("loop, kind, options", CASES, ids=IDS)
def test_each_update_is_its_stated_sequence(loop, kind, options):
    """OPT-SGD, OPT-ADAM, OPT-ADAMW, OPT-ADAGRAD, OPT-RMSPROP, OPT-SCALAR, OPT-POWER, in float32 and float64."""
    for dtype in (np.float32, np.float64):
        p, grads = draw((3, 5), dtype)
        found, _ = trained(lambda ps: kind(ps, **options), p, grads)
        assert flow.same_bits(found.detach().numpy(), expected(loop(**options, F=dtype), p, grads))


B, S = flow.sbp.broadcast, flow.sbp.split
LAYOUTS = [
    ([0, 1, 2, 3], (B,)), ([0, 1, 2, 3], (S(0),)), ([0, 1, 2, 3], (S(1),)), ([2, 0, 1], (S(0),)), ([0], (S(1),)),
    ([[0, 1], [2, 3]], (S(0), S(1))), ([[0, 1], [2, 3]], (B, S(0))), ([[0, 1], [2, 3]], (S(1), S(1))),
]  # fmt: skip


@pytest.mark.parametrize("loop, kind, options", CASES, ids=IDS)
def test_the_layout_changes_no_bit_and_nothing_is_moved(loop, kind, options):
    """OPT-LAYOUT: parameter, gradient and state stay in the parameter's sbp."""
    for shape in ((5, 3), (1, 2), (4, 1)):
        p, grads = draw(shape)
        with flow.virtual_world(4):
            whole, _ = trained(lambda ps: kind(ps, **options), p, grads)
            for ranks, sbp in LAYOUTS:
                layout = {"placement": flow.placement("cpu", ranks), "sbp": sbp}
                found, optimizer = trained(lambda ps: kind(ps, **options), p, grads, **layout)
                assert found.sbp == sbp and found.placement == layout["placement"]
                for entry in optimizer.state[found].values():
                    assert not isinstance(entry, flow.Tensor) or entry.sbp == sbp
                assert flow.same_bits(found.detach().numpy(), whole.detach().numpy()), (ranks, sbp)


@pytest.mark.parametrize("dtype", [flow.float16, flow.bfloat16], ids=["float16", "bfloat16"])
def test_halves_are_updated_in_float32_and_rounded_once(dtype):
    """OPT-HALF."""
    p, grads = (np.arange(6.0) / 7).astype(dtype), [np.linspace(-1, 1, 6).astype(dtype)] * STEPS
    found, optimizer = trained(lambda ps: flow.optim.AdamW(ps, lr=0.01), p, grads)
    assert found.dtype == dtype and optimizer.state[found]["exp_avg"].dtype == flow.float32
    update, wanted, states = adamw(lr=0.01), p.astype(F), [{} for _ in p]
    for t, g in enumerate(grads, 1):
        wanted = np.array([update(*row, t) for row in zip(wanted, g.astype(F), states)], F).astype(dtype).astype(F)
    assert flow.same_bits(found.detach().numpy().astype(F), wanted)


@pytest.mark.parametrize("kind", [flow.optim.SGD, flow.optim.AdamW], ids=["SGD", "AdamW"])
def test_state_goes_on_under_another_layout(kind):
    """OPT-STATE: two steps, the state dict into another layout, two steps more: the bits of four steps."""
    options = {"lr": 0.02, "weight_decay": 0.1, **({"momentum": 0.9} if kind is flow.optim.SGD else {})}
    p, grads = draw((5, 3))
    with flow.virtual_world(4):
        wanted, _ = trained(lambda ps: kind(ps, **options), p, grads)
        row = {"placement": flow.placement("cpu", [0, 1, 2, 3]), "sbp": S(0)}
        half, first = trained(lambda ps: kind(ps, **options), p, grads[:2], **row)
        stored = first.state_dict()
        trained_on = half.detach().numpy()
        for layout in ({}, row, {"placement": flow.placement("cpu", [[1, 0]]), "sbp": (B, S(1))}):
            parameter = flow.tensor(trained_on, requires_grad=True, **layout)
            second = kind([parameter], lr=5.0)
            second.load_state_dict(stored)
            for g in grads[2:]:
                parameter.grad = flow.tensor(g, **layout)
                second.step()
            assert flow.same_bits(parameter.detach().numpy(), wanted.detach().numpy())
        assert stored["state"][0]["momentum_buffer" if kind is flow.optim.SGD else "exp_avg"].sbp == (S(0),)


def test_a_state_dict_is_a_snapshot():
    p, grads = draw((3, 2))
    parameter, optimizer = trained(lambda ps: flow.optim.Adam(ps), p, grads)
    stored = optimizer.state_dict()
    before = stored["state"][0]["exp_avg"].numpy().copy()
    optimizer.step()
    assert flow.same_bits(stored["state"][0]["exp_avg"].numpy(), before) and stored["state"][0]["step"] == STEPS


def test_groups_have_their_own_rates_and_parameters_without_gradient_stay():
    a, b, c = (flow.ones(2, requires_grad=True) for _ in range(3))
    optimizer = flow.optim.SGD([{"params": [a]}, {"params": b, "lr": 0.5}], lr=0.25)
    optimizer.add_param_group({"params": [c], "weight_decay": 0.5})
    (a.sum() + b.sum()).backward()
    optimizer.step()
    assert a.tolist() == [0.75, 0.75] and b.tolist() == [0.5, 0.5] and c.tolist() == [1.0, 1.0]
    optimizer.zero_grad(set_to_none=False)
    assert flow.same_bits(a.grad.numpy(), np.zeros(2, F)) and c.grad is None
    optimizer.zero_grad()
    assert a.grad is None and b.grad is None


def test_a_closure_is_called_in_grad_mode_and_its_loss_returned():
    """OPT-STEP."""
    x = flow.tensor([2.0], requires_grad=True)
    optimizer = flow.optim.SGD([x], lr=0.125)

    def closure():
        optimizer.zero_grad()
        loss = (x * x).sum()
        loss.backward()
        return loss

    with flow.no_grad():
        assert optimizer.step(closure).item() == 4.0
    assert x.tolist() == [1.5] and x.requires_grad and x.is_leaf


def test_wrong_arguments_are_refused():
    x = flow.ones(2, requires_grad=True)
    for make, words in [
        (lambda: flow.optim.SGD([], lr=0.1), "empty"),
        (lambda: flow.optim.SGD(x, lr=0.1), "list"),
        (lambda: flow.optim.SGD([x, x]), "twice"),
        (lambda: flow.optim.SGD([x * 2]), "leaf"),
        (lambda: flow.optim.SGD([flow.arange(3)]), "floating point"),
        (lambda: flow.optim.SGD([x], lr=-1), "lr must be 0 or more, found -1"),
        (lambda: flow.optim.SGD([x], nesterov=True), "nesterov"),
        (lambda: flow.optim.Adam([x], betas=(0.9, 1.0)), "in \\[0, 1\\)"),
        (lambda: flow.optim.RMSprop([x], alpha=1.0), "alpha"),
        (lambda: flow.optim.SGD([{"params": [x], "speed": 1}]), "'speed'"),
        (lambda: flow.optim.SGD([{"lr": 1.0}]), "a dict with 'params', found only 'lr'"),
        (lambda: flow.optim.SGD(flow.nn.Linear(2, 2)), r"list of tensors or of dicts, found Linear; give model.parameters\(\)"),
        (lambda: flow.optim.SGD(flow.nn.Sequential()), r"found Sequential; give model.parameters\(\)"),
        (lambda: flow.optim.SGD([{"params": flow.nn.Linear(2, 2)}]), r"found Linear; give model.parameters\(\)"),
        (lambda: flow.optim.SGD(flow.nn.Linear(2, 2).parameters), r"found method; give model.parameters\(\)"),
        (lambda: flow.optim.SGD("sgd"), r"found str; give model.parameters\(\)"),
        (lambda: flow.optim.SGD(["weight"]), r"parameter 0 .* found str; model.parameters\(\) gives"),
    ]:
        with pytest.raises(AttributeValueError, match=words):
            make()
    with flow.virtual_world(2):
        part = flow.ones(2, placement=flow.placement("cpu", [0, 1]), sbp=flow.sbp.partial_sum)
        with pytest.raises(SbpError, match="S or B"):
            flow.optim.SGD([part])


def test_a_state_that_does_not_fit_changes_nothing():
    """OPT-STATE."""
    p, grads = draw((3, 2))
    _, other = trained(lambda ps: flow.optim.Adam(ps), p, grads)
    x = flow.ones(2, 2, requires_grad=True)
    optimizer = flow.optim.Adam([x], lr=0.5)
    with pytest.raises(ShapeError, match="shape"):
        optimizer.load_state_dict(other.state_dict())
    two = flow.optim.Adam([x, flow.ones(1, requires_grad=True)])
    with pytest.raises(AttributeValueError, match="groups"):
        optimizer.load_state_dict(two.state_dict())
    assert not optimizer.state and optimizer.param_groups[0]["lr"] == 0.5
