"""Learning-rate schedules under PyTorch's names, each a function of the number of steps taken.

Implements OPT-SCHEDULE of spec/text/optim.md: a rate is computed in float32, powers by repeated multiplication and the
cosine correctly rounded, so that it is the same on every machine; a function of the step alone, so that resuming needs
nothing but the step.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..absent import absence
from ..errors import AttributeValueError
from ..numerics import apply
from .optimizer import Optimizer

F32 = np.float32
_ONE, _PI = F32(1.0), F32(np.pi)


class LRScheduler(ABC):
    """Base of the schedules: sets "lr" of every group when made and at each `step()`.

    `base_lrs` are the rates the groups began with ("initial_lr"); `last_epoch` is t, the number of steps taken.
    """

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        if not isinstance(optimizer, Optimizer):
            raise AttributeValueError(f"{type(self).__name__}: needs an optimizer, found {type(optimizer).__name__}")
        self.optimizer = optimizer
        for group in optimizer.param_groups:
            group.setdefault("initial_lr", group["lr"])
        self.base_lrs = [float(group["initial_lr"]) for group in optimizer.param_groups]
        self.last_epoch = last_epoch
        self.step()

    @abstractmethod
    def lr_at(self, t: int, base: np.float32, group: int) -> np.float32:
        """The rate of parameter group number `group`, whose first rate is `base`, after `t` steps."""

    def step(self) -> None:
        """One step on: t + 1."""
        self.last_epoch += 1
        self._set()

    def _set(self) -> None:
        for i, (group, base) in enumerate(zip(self.optimizer.param_groups, self.base_lrs, strict=True)):
            group["lr"] = float(F32(self.lr_at(self.last_epoch, F32(base), i)))

    def get_last_lr(self) -> list[float]:
        """The rates in force, one per group."""
        return [group["lr"] for group in self.optimizer.param_groups]

    def state_dict(self) -> dict[str, Any]:
        """Where the schedule is: t and the first rates."""
        return {"last_epoch": self.last_epoch, "base_lrs": list(self.base_lrs)}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Continues from there; sets the rates."""
        base_lrs = [float(lr) for lr in state_dict["base_lrs"]]
        if len(base_lrs) != len(self.optimizer.param_groups):
            found = f"{len(base_lrs)} rates for {len(self.optimizer.param_groups)} groups"
            raise AttributeValueError(f"{type(self).__name__}.load_state_dict: needs a rate for each group, found {found}")
        self.base_lrs, self.last_epoch = base_lrs, int(state_dict["last_epoch"])
        self._set()


class Power:
    """x^n by repeated multiplication in float32; remembers the last, so that counting up costs one product a step."""

    def __init__(self, x: float) -> None:
        self.x, self._n, self._value = F32(x), 0, _ONE

    def __call__(self, n: int) -> np.float32:
        if n < self._n:
            self._n, self._value = 0, _ONE
        with np.errstate(all="ignore"):
            for _ in range(n - self._n):
                self._value = F32(self._value * self.x)
        self._n = n
        return self._value


class LambdaLR(LRScheduler):
    """base * f(t), one product; `lr_lambda` is one function, or one per group.  What f computes is the user's."""

    def __init__(
        self,
        optimizer: Optimizer,
        lr_lambda: Callable[[int], float] | Sequence[Callable[[int], float]],
        last_epoch: int = -1,
    ) -> None:
        groups = len(optimizer.param_groups)
        self.lr_lambdas = [lr_lambda] * groups if callable(lr_lambda) else list(lr_lambda)
        if len(self.lr_lambdas) != groups:
            raise AttributeValueError(f"LambdaLR: {len(self.lr_lambdas)} functions for {groups} groups; give one for each")
        super().__init__(optimizer, last_epoch)

    def lr_at(self, t: int, base: np.float32, group: int) -> np.float32:
        return F32(base * F32(self.lr_lambdas[group](t)))


class StepLR(LRScheduler):
    """base * gamma^(t // step_size)."""

    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1) -> None:
        _positive("StepLR: step_size", step_size)
        self.step_size, self._power = step_size, Power(gamma)
        super().__init__(optimizer, last_epoch)

    def lr_at(self, t: int, base: np.float32, group: int) -> np.float32:
        return F32(base * self._power(t // self.step_size))


class MultiStepLR(LRScheduler):
    """base * gamma^(how many of the milestones are <= t)."""

    def __init__(self, optimizer: Optimizer, milestones: Sequence[int], gamma: float = 0.1, last_epoch: int = -1) -> None:
        self.milestones, self._power = sorted(milestones), Power(gamma)
        super().__init__(optimizer, last_epoch)

    def lr_at(self, t: int, base: np.float32, group: int) -> np.float32:
        return F32(base * self._power(bisect_right(self.milestones, t)))


class ExponentialLR(LRScheduler):
    """base * gamma^t."""

    def __init__(self, optimizer: Optimizer, gamma: float, last_epoch: int = -1) -> None:
        self._power = Power(gamma)
        super().__init__(optimizer, last_epoch)

    def lr_at(self, t: int, base: np.float32, group: int) -> np.float32:
        return F32(base * self._power(t))


class ConstantLR(LRScheduler):
    """base * factor for the first `total_iters` steps, then base."""

    def __init__(self, optimizer: Optimizer, factor: float = 1 / 3, total_iters: int = 5, last_epoch: int = -1) -> None:
        self.factor, self.total_iters = F32(factor), total_iters
        super().__init__(optimizer, last_epoch)

    def lr_at(self, t: int, base: np.float32, group: int) -> np.float32:
        return F32(base * self.factor) if t < self.total_iters else base


class LinearLR(LRScheduler):
    """base * (start + (end - start) * (t / total)), t at most total: a warm-up where start_factor < end_factor = 1."""

    def __init__(
        self,
        optimizer: Optimizer,
        start_factor: float = 1 / 3,
        end_factor: float = 1.0,
        total_iters: int = 5,
        last_epoch: int = -1,
    ) -> None:
        _positive("LinearLR: total_iters", total_iters)
        self.start_factor, self.end_factor, self.total_iters = F32(start_factor), F32(end_factor), total_iters
        super().__init__(optimizer, last_epoch)

    def lr_at(self, t: int, base: np.float32, group: int) -> np.float32:
        if t >= self.total_iters:
            return F32(base * self.end_factor)
        share = F32(F32(t) / F32(self.total_iters))
        return F32(base * F32(self.start_factor + F32(F32(self.end_factor - self.start_factor) * share)))


class CosineAnnealingLR(LRScheduler):
    """eta_min + (base - eta_min) * ((1 + cos(pi * (t / T_max))) * 0.5) (Loshchilov and Hutter, 2017)."""

    def __init__(self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0, last_epoch: int = -1) -> None:
        _positive("CosineAnnealingLR: T_max", T_max)
        self.T_max, self.eta_min = T_max, F32(eta_min)
        super().__init__(optimizer, last_epoch)

    def lr_at(self, t: int, base: np.float32, group: int) -> np.float32:
        angle = F32(_PI * F32(F32(t) / F32(self.T_max)))
        cosine = F32(apply("cos", np.asarray(angle)))
        return F32(self.eta_min + F32(F32(base - self.eta_min) * F32(F32(_ONE + cosine) * F32(0.5))))


class SequentialLR(LRScheduler):
    """Schedule i from milestone i - 1 on, each counting its own steps from 0; one more schedule than milestones."""

    def __init__(
        self, optimizer: Optimizer, schedulers: Sequence[LRScheduler], milestones: Sequence[int], last_epoch: int = -1
    ) -> None:
        self.schedulers, self.milestones = list(schedulers), list(milestones)
        if len(self.schedulers) != len(self.milestones) + 1 or self.milestones != sorted(self.milestones):
            found = f"{len(self.schedulers)} schedules and milestones {self.milestones}"
            raise AttributeValueError(f"SequentialLR: needs ascending milestones, one fewer than schedules; found {found}")
        if any(scheduler.optimizer is not optimizer for scheduler in self.schedulers):
            raise AttributeValueError("SequentialLR: every schedule must belong to the optimizer given")
        super().__init__(optimizer, last_epoch)

    def lr_at(self, t: int, base: np.float32, group: int) -> np.float32:
        i = bisect_right(self.milestones, t)
        return self.schedulers[i].lr_at(t - self.milestones[i - 1] if i else t, base, group)


def _positive(what: str, value: int) -> None:
    if not isinstance(value, int) or value < 1:
        raise AttributeValueError(f"{what} must be an int of 1 or more, found {value!r}")


def __getattr__(name: str) -> Any:
    raise AttributeError(f"module 'refflow.optim.lr_scheduler' has no attribute {name!r}{absence('optim.lr_scheduler', name)}")
