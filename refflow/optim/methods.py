"""SGD, Adam, AdamW, Adagrad, RMSprop under PyTorch's names and defaults.

Implements OPT-SGD, OPT-ADAM, OPT-ADAMW, OPT-ADAGRAD and OPT-RMSPROP of spec/text/optim.md.  Each update is the sequence
of float32 operations written here, every one rounded, in this order and with these parentheses; scalars are combined in
float32 first (OPT-SCALAR).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from ..functional.arithmetic import add, div, maximum, mul, neg, sqrt, sub
from ..functional.creation import full_like
from ..tensor.tensor import Tensor
from .optimizer import Group, Number, Optimizer, State, keep, number, power, require

Betas = tuple[float, float]


class SGD(Optimizer):
    """Stochastic gradient descent: p - lr g, with momentum, dampening, Nesterov's form and weight decay (OPT-SGD).

    Sutskever et al., "On the importance of initialization and momentum in deep learning", 2013, as PyTorch reads it:
    g = g + wd p;  m = mu m + (1 - dampening) g (first: m = g);  g = g + mu m (Nesterov) or m;  p = p - lr g.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
    ) -> None:
        defaults = {"lr": lr, "momentum": momentum, "dampening": dampening, "weight_decay": weight_decay,
                    "nesterov": nesterov, "maximize": maximize}  # fmt: skip
        super().__init__(params, defaults)

    def check(self, group: Group) -> None:
        _check_not_negative(group, "lr", "momentum", "weight_decay")
        ok = not group["nesterov"] or (group["momentum"] > 0 and group["dampening"] == 0)
        require(ok, "nesterov", True, "used with a momentum above 0 and no dampening")

    def update(self, p: Tensor, g: Tensor, state: State, group: Group) -> Tensor:
        g = _decayed(p, g, group)
        if group["momentum"]:
            m, mu = g, group["momentum"]
            if "momentum_buffer" in state:
                kept = float(number(1.0, p) - number(group["dampening"], p))
                m = add(mul(state["momentum_buffer"], mu), g if kept == 1.0 else mul(g, kept))
            m = keep(state, "momentum_buffer", m, p)
            g = add(g, mul(m, mu)) if group["nesterov"] else m
        return sub(p, mul(g, group["lr"]))


class Adam(Optimizer):
    """Adam (Kingma and Ba, 2015), weight decay added to the gradient (OPT-ADAM).

    g = g + wd p;  m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) (g g);  with c1 = 1 - b1^t, c2 = 1 - b2^t:
    p = p - (lr / c1) (m / (sqrt(v) / sqrt(c2) + eps)).  b^t by repeated multiplication (OPT-POWER).
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: Betas = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
    ) -> None:
        defaults = {"lr": lr, "betas": tuple(betas), "eps": eps, "weight_decay": weight_decay, "amsgrad": amsgrad,
                    "maximize": maximize}  # fmt: skip
        super().__init__(params, defaults)

    def check(self, group: Group) -> None:
        _check_not_negative(group, "lr", "eps", "weight_decay")
        for beta in group["betas"]:
            require(0 <= beta < 1, "each of betas", beta, "in [0, 1)")

    def decay(self, p: Tensor, g: Tensor, group: Group) -> tuple[Tensor, Tensor]:
        """Parameter and gradient after weight decay."""
        return p, _decayed(p, g, group)

    def update(self, p: Tensor, g: Tensor, state: State, group: Group) -> Tensor:
        decayed, g = self.decay(p, g, group)
        one, lr = number(1.0, p), number(group["lr"], p)
        b1, b2 = (number(beta, p) for beta in group["betas"])
        state["step"] = state.get("step", 0) + 1
        first, second = one - power(state, "beta1_power", b1), one - power(state, "beta2_power", b2)
        m, v = _average(state, "exp_avg", g, b1, p), _average(state, "exp_avg_sq", mul(g, g), b2, p)
        if group["amsgrad"]:
            v = keep(state, "max_exp_avg_sq", maximum(state["max_exp_avg_sq"], v) if state["step"] > 1 else v, p)
        spread = add(div(sqrt(v), float(np.sqrt(second))), group["eps"])
        return sub(decayed, mul(div(m, spread), float(lr / first)))


class AdamW(Adam):
    """Adam with decoupled weight decay (Loshchilov and Hutter, 2019): p = (1 - lr wd) p, then Adam's step (OPT-ADAMW)."""

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: Betas = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
    ) -> None:
        super().__init__(params, lr, betas, eps, weight_decay, amsgrad, maximize=maximize)

    def decay(self, p: Tensor, g: Tensor, group: Group) -> tuple[Tensor, Tensor]:
        g = neg(g) if group["maximize"] else g
        if not group["weight_decay"]:
            return p, g
        kept = number(1.0, p) - number(group["lr"], p) * number(group["weight_decay"], p)
        return mul(p, float(kept)), g


class Adagrad(Optimizer):
    """Adagrad (Duchi et al., 2011): s = s + g g;  p = p - (lr / (1 + (t - 1) lr_decay)) (g / (sqrt(s) + eps))
    (OPT-ADAGRAD).
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-2,
        lr_decay: float = 0.0,
        weight_decay: float = 0.0,
        initial_accumulator_value: float = 0.0,
        eps: float = 1e-10,
        *,
        maximize: bool = False,
    ) -> None:
        defaults = {"lr": lr, "lr_decay": lr_decay, "weight_decay": weight_decay, "eps": eps, "maximize": maximize,
                    "initial_accumulator_value": initial_accumulator_value}  # fmt: skip
        super().__init__(params, defaults)

    def check(self, group: Group) -> None:
        _check_not_negative(group, "lr", "lr_decay", "weight_decay", "initial_accumulator_value", "eps")

    def update(self, p: Tensor, g: Tensor, state: State, group: Group) -> Tensor:
        g = _decayed(p, g, group)
        state["step"] = state.get("step", 0) + 1
        if "sum" not in state:
            state["sum"] = full_like(p, group["initial_accumulator_value"])
        s = keep(state, "sum", add(state["sum"], mul(g, g)), p)
        rate = number(group["lr"], p) / (number(1.0, p) + number(state["step"] - 1, p) * number(group["lr_decay"], p))
        return sub(p, mul(div(g, add(sqrt(s), group["eps"])), float(rate)))


class RMSprop(Optimizer):
    """RMSprop (Hinton, 2012), optionally centred and with momentum (OPT-RMSPROP).

    v = a v + (1 - a) (g g);  centred: u = a u + (1 - a) g, w = v - u u, else w = v;  d = g / (sqrt(w) + eps);
    with momentum b = mu b + d, p = p - lr b, else p = p - lr d.  States begin as +0.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        momentum: float = 0.0,
        centered: bool = False,
        *,
        maximize: bool = False,
    ) -> None:
        defaults = {"lr": lr, "alpha": alpha, "eps": eps, "weight_decay": weight_decay, "momentum": momentum,
                    "centered": centered, "maximize": maximize}  # fmt: skip
        super().__init__(params, defaults)

    def check(self, group: Group) -> None:
        _check_not_negative(group, "lr", "eps", "weight_decay", "momentum")
        require(0 <= group["alpha"] < 1, "alpha", group["alpha"], "in [0, 1)")

    def update(self, p: Tensor, g: Tensor, state: State, group: Group) -> Tensor:
        g = _decayed(p, g, group)
        alpha = number(group["alpha"], p)
        v = _average(state, "square_avg", mul(g, g), alpha, p)
        if group["centered"]:
            u = _average(state, "grad_avg", g, alpha, p)
            v = sub(v, mul(u, u))
        d = div(g, add(sqrt(v), group["eps"]))
        if group["momentum"]:
            b = state["momentum_buffer"] if "momentum_buffer" in state else full_like(p, 0.0)
            d = keep(state, "momentum_buffer", add(mul(b, group["momentum"]), d), p)
        return sub(p, mul(d, group["lr"]))


def _decayed(p: Tensor, g: Tensor, group: Group) -> Tensor:
    """The gradient to descend along: negated to maximize, then plus wd p."""
    g = neg(g) if group["maximize"] else g
    return add(g, mul(p, group["weight_decay"])) if group["weight_decay"] else g


def _average(state: State, name: str, term: Tensor, beta: Number, p: Tensor) -> Tensor:
    """s = beta s + (1 - beta) term, s beginning as +0, in float32 (float64) with 1 - beta rounded."""
    before = state[name] if name in state else full_like(p, 0.0)
    return keep(state, name, add(mul(before, float(beta)), mul(term, float(type(beta)(1.0) - beta))), p)


def _check_not_negative(group: Group, *names: str) -> None:
    for name in names:
        require(group[name] >= 0, name, group[name], "0 or more")
