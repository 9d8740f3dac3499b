"""Block forms on the CPU: y[:n] = f(x[:n]) over flat float32 buffers, vectorised, to the bits of the scalar functions.

Implements ACC-BLOCK of spec/text/acceleration.md.  A first pass takes a fast float64 value v (`fast`) and accepts it
where v (1 - MARGIN) and v (1 + MARGIN) round to one float32; MARGIN is far above the error of v.  Elsewhere it leaves a
NaN, and a second pass, entered only for a stretch that needs it, asks the accurate function.  `x` and `y` are different
buffers.  Every name here is an njit function to be called from njit code: `exp_block(x, y, n)`.
"""

from __future__ import annotations

from types import FunctionType
from typing import Any

import numba

from . import fast
from .dialect import NAN32, f32
from .instantiate import copied
from .target_cpu import OPTIONS, Cpu, cpu, muladd

MARGIN = 2.0**-36
STRETCH = 512  # elements between the two passes: what is repaired is still in the first cache

MARGINS = {"pow": 2.0**-33}  # of a fast form that is less exact


def unary(x: Any, y: Any, n: int) -> None:
    """y[:n] = the function of x[:n], correctly rounded."""
    for start in range(0, n, STRETCH):
        xs = x[start : min(start + STRETCH, n)]
        ys = y[start : min(start + STRETCH, n)]
        undecided = 0
        for i in range(xs.size):
            v = approximate(xs[i])
            low = f32(v * LOW)
            settled = low == f32(v * HIGH)
            ys[i] = low if settled else NAN32
            undecided += 0 if settled else 1
        if undecided:
            for i in range(xs.size):
                if ys[i] != ys[i]:
                    ys[i] = accurate(xs[i])


def binary(x: Any, y: Any, out: Any, n: int) -> None:
    """out[:n] = the function of x[:n] and y[:n], correctly rounded."""
    for start in range(0, n, STRETCH):
        xs = x[start : min(start + STRETCH, n)]
        ys = y[start : min(start + STRETCH, n)]
        zs = out[start : min(start + STRETCH, n)]
        undecided = 0
        for i in range(xs.size):
            v = approximate(xs[i], ys[i])
            low = f32(v * LOW)
            settled = low == f32(v * HIGH)
            zs[i] = low if settled else NAN32
            undecided += 0 if settled else 1
        if undecided:
            for i in range(xs.size):
                if zs[i] != zs[i]:
                    zs[i] = accurate(xs[i], ys[i])


def plain(x: Any, y: Any, n: int) -> None:
    """y[:n] = the function of x[:n]; the scalar text itself vectorises."""
    xs = x[:n]
    ys = y[:n]
    for i in range(xs.size):
        ys[i] = accurate(xs[i])


def plain2(x: Any, y: Any, out: Any, n: int) -> None:
    """out[:n] = the function of x[:n] and y[:n]."""
    xs = x[:n]
    ys = y[:n]
    zs = out[:n]
    for i in range(xs.size):
        zs[i] = accurate(xs[i], ys[i])


approximate: Any = None  # these four are the scope's
accurate: Any = None
LOW = HIGH = 1.0


def _fast_scope() -> dict[str, Any]:
    scope: dict[str, Any] = {**vars(fast), **Cpu.primitives, "muladd": muladd}
    for name, value in vars(fast).items():
        if isinstance(value, FunctionType) and value.__module__ == fast.__name__:
            scope[name] = numba.njit(**OPTIONS, forceinline=True)(copied(value, scope, f"fast_{name}"))
    return scope


def _blocks() -> dict[str, Any]:
    """Return every block function: the template of its kind with its own scope and its own name in the cache."""
    functions, approximations = cpu(), _fast_scope()
    made: dict[str, Any] = {}
    kinds = [(unary, name) for name in FAST] + [(binary, "pow")]
    kinds += [(plain, name) for name in PLAIN] + [(plain2, name) for name in PLAIN2]
    for template, name in kinds:
        margin = MARGINS.get(name, MARGIN)
        scope = {
            **globals(),
            "accurate": functions[name],
            "approximate": approximations.get(name),
            "LOW": 1.0 - margin,
            "HIGH": 1.0 + margin,
        }
        made[f"{name}_block"] = numba.njit(**OPTIONS)(copied(template, scope, f"{name}_block"))
    return made


FAST = ("exp", "expm1", "sigmoid", "tanh", "log", "log1p", "softplus", "sin", "cos", "erf", "gelu", "rsqrt")
PLAIN = (
    "sqrt",
    "floor32",
    "ceil32",
    "trunc32",
    "round32",
    "sign32",
    "relu32",
    "f16_decode",
    "f16_encode",
    "bf16_decode",
    "bf16_encode",
)
PLAIN2 = ("maximum32", "minimum32", "floor_divide32", "remainder32")

globals().update(_blocks())


def __getattr__(name: str) -> Any:  # of names that are not there, and for type checkers
    raise AttributeError(f"no block form is called {name}")
