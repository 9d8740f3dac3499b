"""The scalar functions as CUDA code: compiled for sm_80 without a GPU, nothing contracted or approximated (ACC-SCALAR)."""

from __future__ import annotations

import inspect
import re
from typing import Any

import pytest

pytest.importorskip("numba_cuda")
target = pytest.importorskip("refflow_accel.cuda.target")

from refflow_accel.scalar.instantiate import FLOAT32, python  # noqa: E402

ALLOWED = re.compile(r"\b(div\.rn|sqrt\.rn|rcp\.rn)\.f(32|64)\b")
SUSPECT = re.compile(r"\b(fma|mad|div|sqrt|rsqrt|rcp|ex2|lg2|sin|cos|tanh)\.[\w.]*f(?:32|64)\b")


def code(name: str, result: Any, arguments: tuple[Any, ...]) -> str:
    """The PTX of a kernel that applies one function."""
    function = getattr(target.S, name)
    cuda = target.cuda

    def one(x: Any, out: Any) -> None:
        i = cuda.grid(1)
        out[i] = function(x[i])

    def two(x: Any, y: Any, out: Any) -> None:
        i = cuda.grid(1)
        out[i] = function(x[i], y[i])

    signature = tuple(target.pointer(t) for t in (*arguments, result))
    return str(target.ptx(one if len(arguments) == 1 else two, signature)[8, 0])


def check(text: str) -> None:
    wrong = [m.group(0) for m in SUSPECT.finditer(text) if not ALLOWED.fullmatch(m.group(0))]
    assert not wrong and ".ftz" not in text and ".approx" not in text
    assert not re.search(r"\.extern\s+\.func", text)


@pytest.mark.skipif(getattr(target, "SIMULATED", False), reason="the simulator compiles nothing")
@pytest.mark.parametrize("name", FLOAT32.values())
def test_ptx_rounds_every_operation(name: str) -> None:  # ACC-SCALAR
    f32 = target.f32
    count = len(inspect.signature(python()[name]).parameters)
    check(code(name, f32, (f32,) * count))


@pytest.mark.skipif(getattr(target, "SIMULATED", False), reason="the simulator compiles nothing")
@pytest.mark.parametrize("name", ["f16_encode", "bf16_encode", "f16_from64", "to_int64", "to_uint8"])
def test_conversions_compile(name: str) -> None:  # ACC-SCALAR
    check(code(name, target.i64, (target.f64 if "64" in name or "uint" in name else target.f32,)))


@pytest.mark.skipif(getattr(target, "SIMULATED", False), reason="the simulator compiles nothing")
@pytest.mark.parametrize("name", ["f16_decode", "bf16_decode", "int_to32", "uniform"])
def test_decoding_compiles(name: str) -> None:  # ACC-SCALAR
    check(code(name, target.f32, (target.i64,)))
