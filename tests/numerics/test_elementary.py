"""NUM-ELEMENTARY: every function is the exact value, computed to many digits, rounded once."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from fractions import Fraction
from subprocess import run
from typing import Any

import mpmath
import numpy as np
import pytest

from refflow.errors import DtypeError, NumericsError
from refflow.numerics import FUNCTIONS, apply, bfloat16, same_bits
from refflow.numerics import elementary as module

from .exact import BINARY32, BINARY64, patterns, round_once

mp = mpmath
UNARY: dict[str, Callable[[Any], Any]] = {
    "exp": mp.exp,
    "log": mp.log,
    "log1p": mp.log1p,
    "expm1": mp.expm1,
    "tanh": mp.tanh,
    "sigmoid": lambda x: 1 / (1 + mp.exp(-x)),
    "softplus": lambda x: mp.log1p(mp.exp(x)),
    "gelu": lambda x: x * mp.ncdf(x) if abs(x) < 1e6 else mp.mpf(max(x, -mp.ldexp(1, -2000))),
    "erf": mp.erf,
    "sin": mp.sin,
    "cos": mp.cos,
    "rsqrt": lambda x: mp.sqrt(1 / x),
}
DOMAIN = {"log": 0.0, "log1p": -1.0, "rsqrt": 0.0}  # NaN below


def rounded(value: Any, shape: tuple[int, int, int]) -> float:
    if not mp.isfinite(value):
        return float(value)
    sign, man, exponent, _ = value._mpf_
    if man and exponent + man.bit_length() < -1200:  # too small for any format; keeps the fraction small
        return -0.0 if sign else 0.0
    if man and exponent + man.bit_length() > 1200:
        return -math.inf if sign else math.inf
    return round_once((-1) ** sign * Fraction(int(man)) * Fraction(2) ** exponent, shape)


def samples(name: str) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(len(name))
    powers = np.exp2(np.arange(-149.0, 128, 7)).astype(np.float32)
    near = (rng.choice([-1, 1], 60) * np.exp2(rng.uniform(-20, 7, 60))).astype(np.float32)
    edge = [
        88.72283,
        88.72284,
        87.33,
        103.97,
        103.98,
        9.01,
        4.0,
        3.9192,
        0.5,
        14.2,
        13.9,
        1.0,
        2.5,
        math.pi,
        math.pi / 2,
    ]
    x = np.concatenate(
        [patterns(7, 80), powers, near, np.array(edge, np.float32), rng.uniform(-6, 6, 60).astype(np.float32)]
    )
    x = np.concatenate([x, -x])
    return np.asarray(x[np.isfinite(x) & (x != 0) & (x > DOMAIN.get(name, -math.inf))])


@pytest.mark.parametrize("name", UNARY)
def test_float32_is_correctly_rounded(name: str) -> None:
    x = samples(name)
    with mp.workprec(400):
        wanted = np.array([rounded(UNARY[name](mp.mpf(float(v))), BINARY32) for v in x], np.float32)
    found = apply(name, x)
    bad = found != wanted
    assert not bad.any(), (x[bad][:3], found[bad][:3], wanted[bad][:3])


@pytest.mark.parametrize("name", UNARY)
def test_the_binary64_forms_keep_their_bound(name: str) -> None:
    """The answer rests on binary64 values good to `error`; ask for eight times better, here and on every machine."""
    function = FUNCTIONS[name]
    x = samples(name).astype(np.float64)
    x = x[(np.abs(x) < 80) & (np.abs(x) > 1e-30) & ((name != "gelu") | (x > -14))]
    with np.errstate(all="ignore"), mp.workprec(200):
        for v, y in zip(x, function.wide(x), strict=True):
            exact = UNARY[name](mp.mpf(v))
            assert abs(mp.mpf(y) - exact) <= abs(exact) * function.error / 8, (name, v)


@pytest.mark.parametrize("name", UNARY)
def test_float64_is_correctly_rounded(name: str) -> None:
    rng = np.random.default_rng(3)
    x = np.concatenate(
        [samples(name)[::16].astype(np.float64), rng.uniform(-5, 5, 10), [1e300, -1e300, 1e-300, -1e-310, 5e-324]]
    )
    x = x[x > DOMAIN.get(name, -math.inf)]
    with mp.workprec(5000 if name == "gelu" else 1500):
        wanted = np.array([rounded(UNARY[name](mp.mpf(float(v))), BINARY64) for v in x])
    found = apply(name, x)
    bad = found != wanted
    assert not bad.any(), (x[bad][:3], found[bad][:3], wanted[bad][:3])


INF, NAN = math.inf, math.nan
SPECIAL = {  # at -inf, -0, +0, +inf, NaN
    "exp": (0.0, 1.0, 1.0, INF, NAN),
    "log": (NAN, -INF, -INF, INF, NAN),
    "log1p": (NAN, -0.0, 0.0, INF, NAN),
    "expm1": (-1.0, -0.0, 0.0, INF, NAN),
    "tanh": (-1.0, -0.0, 0.0, 1.0, NAN),
    "sigmoid": (0.0, 0.5, 0.5, 1.0, NAN),
    "softplus": (0.0, math.log(2), math.log(2), INF, NAN),
    "gelu": (-0.0, -0.0, 0.0, INF, NAN),
    "erf": (-1.0, -0.0, 0.0, 1.0, NAN),
    "sin": (NAN, -0.0, 0.0, NAN, NAN),
    "cos": (NAN, 1.0, 1.0, NAN, NAN),
    "rsqrt": (NAN, -INF, INF, 0.0, NAN),
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, bfloat16])
def test_special_values(dtype: Any) -> None:
    x = np.array([-INF, -0.0, 0.0, INF, NAN], dtype)
    assert set(SPECIAL) == set(UNARY)
    for name, wanted in SPECIAL.items():
        assert same_bits(
            apply(name, x), np.array(wanted, np.float32 if dtype != np.float64 else dtype).astype(dtype)
        ), name
    for name in ("log", "log1p", "rsqrt"):
        assert np.isnan(apply(name, np.array([-2.0], dtype))).all()
    assert same_bits(apply("log1p", np.array([-1.0], dtype)), np.array([-INF], dtype))


POW = [  # C99 F.10.4.4
    (0.0, 0.0, 1.0), (NAN, 0.0, 1.0), (1.0, NAN, 1.0), (1.0, INF, 1.0), (-1.0, INF, 1.0), (-1.0, -INF, 1.0),
    (-8.0, 1 / 3, NAN), (-2.0, 3.0, -8.0), (-2.0, -2.0, 0.25), (0.0, -1.0, INF), (-0.0, -1.0, -INF), (-0.0, -2.0, INF),
    (-0.0, 3.0, -0.0), (-0.0, 0.5, 0.0), (INF, -1.0, 0.0), (-INF, 3.0, -INF), (-INF, -3.0, -0.0), (0.5, INF, 0.0),
    (0.5, -INF, INF), (NAN, 1.0, NAN), (2.0, NAN, NAN), (2.0, 127.0, 2.0**127), (2.0, -149.0, 2.0**-149),
]  # fmt: skip


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_pow_special_values(dtype: Any) -> None:
    x, y, wanted = np.array(POW, dtype).T
    assert same_bits(apply("pow", x, y), wanted)


def exact_pow(x: float, y: float, shape: tuple[int, int, int]) -> float:
    with mp.workprec(600):
        value = mp.power(mp.mpf(abs(x)), mp.mpf(y))
    return rounded(-value if x < 0 and y % 2 == 1 else value, shape)


def test_pow_is_correctly_rounded() -> None:
    rng = np.random.default_rng(5)
    x = np.exp(rng.uniform(-80, 80, 300)).astype(np.float32)
    y = (rng.uniform(-103, 89, 300) / np.log(x.astype(np.float64))).astype(np.float32)
    y[:100] = rng.integers(-64, 64, 100) / 8
    x[50:100] *= -1
    y[50:100] = np.rint(y[50:100])
    wanted = [exact_pow(float(a), float(b), BINARY32) for a, b in zip(x, y)]
    assert same_bits(apply("pow", x, y), np.array(wanted, np.float32))
    x64, y64 = x[::10].astype(np.float64) * (1 + 1e-12), y[::10].astype(np.float64)
    wanted = [exact_pow(a, b, BINARY64) for a, b in zip(x64, y64)]
    assert same_bits(apply("pow", x64, y64), np.array(wanted))


def test_pow_at_exact_midpoints() -> None:
    """Ties go to even: 2^-150 to 0, 4097^2 down, and roots of such numbers."""
    x = [2.0, 0.5, 4.0, 2.0**-100, 4097.0, 4099.0, 2.0**-120, 2.0**-148]
    y = [-150.0, 150.0, -75.0, 1.5, 2.0, 2.0, 1.25, 150 / 148]
    found = apply("pow", np.array(x, np.float32), np.array(y, np.float32))
    assert found[:7].tolist() == [0.0, 0.0, 0.0, 0.0, 16785408.0, 16801800.0, 0.0]
    assert Fraction(4099) ** 2 == 16801801
    assert apply("pow", np.array([2.0**-1024]), np.array([1075 / 1024])).tolist() == [0.0]
    assert apply("pow", np.array([2.0**27 + 1]), np.array([2.0])).tolist() == [2.0**54 + 2.0**28]


def test_halves_are_float32_rounded_once_more() -> None:
    for dtype in (np.float16, bfloat16):
        x = np.random.default_rng(0).integers(0, 2**16, 300, dtype=np.uint16).view(dtype)
        for name in ("exp", "tanh", "gelu"):
            with np.errstate(all="ignore"):
                assert same_bits(apply(name, x), apply(name, x.astype(np.float32)).astype(dtype))


def test_shapes_and_errors() -> None:
    x = np.array(2.0, np.float32)
    assert apply("exp", x).shape == () and apply("exp", np.zeros((0, 3))).shape == (0, 3)
    assert apply("pow", np.ones((2, 1), np.float32), np.ones(3, np.float32)).shape == (2, 3)
    for name, args in (("cosh", (x,)), ("pow", (x,)), ("exp", (x, x))):
        with pytest.raises(NumericsError):
            apply(name, *args)
    with pytest.raises(DtypeError):
        apply("exp", np.ones(2, np.int64))
    with pytest.raises(DtypeError):
        apply("pow", x, np.array(2.0))


def test_mpmath_decides_what_binary64_leaves_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a bound so loose that every element is doubtful, nothing changes."""
    x = samples("tanh")[:60]
    f = FUNCTIONS["tanh"]
    monkeypatch.setitem(module.FUNCTIONS, "tanh", module.Function(f.wide, f.exact, error=2.0**-10))
    loose = apply("tanh", x)
    monkeypatch.undo()
    assert same_bits(loose, apply("tanh", x))


def test_mpmath_is_imported_late() -> None:
    code = "import sys, refflow.numerics; sys.exit('mpmath' in sys.modules)"
    assert run([sys.executable, "-c", code], check=False).returncode == 0
