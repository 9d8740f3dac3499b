"""OPT-SCHEDULE: rates are float32, a function of the step alone, and the same on every machine."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import refflow as flow
from refflow.errors import AttributeValueError
from refflow.optim import lr_scheduler as schedules

F = np.float32
BASE = 0.3
STEPS = 14


def optimizer(*lrs: float) -> flow.optim.SGD:
    return flow.optim.SGD([{"params": [flow.ones(1, requires_grad=True)], "lr": lr} for lr in lrs or (BASE,)])


def power(x: float, n: int) -> np.float32:
    out = F(1)
    for _ in range(n):
        out = F(out * F(x))
    return out


def cosine(t: int, T: int, low: float) -> np.float32:
    c = F(math.cos(float(F(F(np.pi) * F(F(t) / F(T))))))
    return F(F(low) + F(F(F(BASE) - F(low)) * F(F(F(1) + c) * F(0.5))))


def linear(t: int, start: float, total: int) -> np.float32:
    share = F(F(t) / F(total))
    return F(F(BASE) * F(F(start) + F(F(F(1) - F(start)) * share))) if t < total else F(BASE)


CASES: list[tuple[str, Callable[[Any], Any], Callable[[int], np.float32], Callable[[int], float]]] = [
    ("step", lambda o: schedules.StepLR(o, 3, 0.7), lambda t: F(F(BASE) * power(0.7, t // 3)), lambda t: BASE * 0.7 ** (t // 3)),
    ("exponential", lambda o: schedules.ExponentialLR(o, 0.9), lambda t: F(F(BASE) * power(0.9, t)), lambda t: BASE * 0.9**t),
    ("multistep", lambda o: schedules.MultiStepLR(o, [9, 4], 0.1),
     lambda t: F(F(BASE) * power(0.1, (t >= 4) + (t >= 9))), lambda t: BASE * 0.1 ** ((t >= 4) + (t >= 9))),
    ("cosine", lambda o: schedules.CosineAnnealingLR(o, 10, 0.01), lambda t: cosine(t, 10, 0.01),
     lambda t: 0.01 + (BASE - 0.01) * (1 + math.cos(math.pi * t / 10)) / 2),
    ("warm-up", lambda o: schedules.LinearLR(o, 0.25, total_iters=5), lambda t: linear(t, 0.25, 5),
     lambda t: BASE * min(1.0, 0.25 + 0.75 * t / 5)),
    ("constant", lambda o: schedules.ConstantLR(o, 0.5, 4), lambda t: F(F(BASE) * F(0.5)) if t < 4 else F(BASE),
     lambda t: BASE * (0.5 if t < 4 else 1)),
    ("lambda", lambda o: schedules.LambdaLR(o, lambda t: 1 / (1 + t)), lambda t: F(F(BASE) * F(1 / (1 + t))), lambda t: BASE / (1 + t)),
    ("sequential",
     lambda o: schedules.SequentialLR(o, [schedules.LinearLR(o, 0.25, total_iters=5), schedules.CosineAnnealingLR(o, 10)], [5]),
     lambda t: linear(t, 0.25, 5) if t < 5 else cosine(t - 5, 10, 0.0),
     lambda t: BASE * (0.25 + 0.75 * t / 5) if t < 5 else BASE * (1 + math.cos(math.pi * (t - 5) / 10)) / 2),
]  # fmt: skip


@pytest.mark.parametrize("make, exact, close", [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_rates_are_the_closed_form_in_float32(make, exact, close):
    o = optimizer()
    schedule = make(o)
    for t in range(STEPS):
        rate = o.param_groups[0]["lr"]
        assert type(rate) is float and rate == float(exact(t)), t
        assert math.isclose(rate, close(t), rel_tol=1e-5, abs_tol=1e-7)
        assert schedule.last_epoch == t and schedule.get_last_lr() == [rate]
        schedule.step()


@pytest.mark.parametrize("make", [case[1] for case in CASES], ids=[case[0] for case in CASES])
def test_a_schedule_goes_on_from_its_state(make):
    first, second = optimizer(), optimizer(BASE)
    a, b = make(first), make(second)
    for _ in range(6):
        a.step()
    b.load_state_dict(a.state_dict())
    for _ in range(4):
        assert second.param_groups[0]["lr"] == first.param_groups[0]["lr"]
        a.step(), b.step()


def test_the_cosine_ends_at_eta_min_exactly():
    o = optimizer()
    schedule = schedules.CosineAnnealingLR(o, 7, eta_min=0.125)
    for _ in range(7):
        schedule.step()
    assert o.param_groups[0]["lr"] == 0.125


def test_every_group_is_scaled_from_its_own_rate():
    o = optimizer(0.5, 0.25)
    schedule = schedules.LambdaLR(o, [lambda t: 0.5**t, lambda t: 1.0])
    schedule.step()
    assert schedule.get_last_lr() == [0.25, 0.25] and [g["initial_lr"] for g in o.param_groups] == [0.5, 0.25]


def test_wrong_arguments_are_refused():
    o = optimizer()
    for make, words in [
        (lambda: schedules.StepLR(o, 0), "step_size"),
        (lambda: schedules.CosineAnnealingLR(o, 0), "T_max"),
        (lambda: schedules.LinearLR(o, total_iters=0), "total_iters"),
        (lambda: schedules.ExponentialLR([], 0.9), "optimizer"),
        (lambda: schedules.LambdaLR(o, [abs, abs]), "2 functions for 1 groups"),
        (lambda: schedules.SequentialLR(o, [schedules.ConstantLR(o)], [3]), "milestones"),
        (lambda: schedules.SequentialLR(o, [schedules.ConstantLR(optimizer())], []), "belong"),
    ]:
        with pytest.raises(AttributeValueError, match=words):
            make()
    with pytest.raises(AttributeValueError, match="rate for each group"):
        schedules.ConstantLR(o).load_state_dict({"last_epoch": 1, "base_lrs": [0.1, 0.2]})
