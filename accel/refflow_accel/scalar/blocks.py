"""Block forms on the CPU: y[:n] = f(x[:n]) over flat float32 buffers, vectorised, to the bits of the scalar functions.

Implements ACC-BLOCK and ACC-JOINT of spec/text/acceleration.md.  A first pass takes a fast float64 value v (`fast`) and accepts it
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
MANY = 32  # undecided ones of a stretch above which the functions' own block forms are quicker

MARGINS = {"pow": 2.0**-33, "exp": 2.0**-42, "gelu": 2.0**-39}  # of fast forms that are less or more exact


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


def gelu_terms(x: Any, y: Any, z: Any, g: Any, r: Any, p: Any, n: int) -> None:
    """g, r, p[:n] = gelu(x), erf(y), exp(z)[:n], correctly rounded; quick where y is near x / sqrt(2), z near -x^2/2."""
    for start in range(0, n, STRETCH):
        stop = min(start + STRETCH, n)
        xs, ys, zs = x[start:stop], y[start:stop], z[start:stop]
        gs, rs, ps = g[start:stop], r[start:stop], p[start:stop]
        undecided = 0
        for i in range(xs.size):
            v, w, e = approximate(xs[i], ys[i], zs[i])
            low, middle, high = f32(v * LOW), f32(w * LOW), f32(e * LOW)
            first, second, third = low == f32(v * HIGH), middle == f32(w * HIGH), high == f32(e * HIGH)
            gs[i] = low if first else NAN32
            rs[i] = middle if second else NAN32
            ps[i] = high if third else NAN32
            undecided += 0 if first & second & third else 1
        if undecided > MANY:
            gelu_block(xs, gs, xs.size)
            erf_block(ys, rs, xs.size)
            exp_block(zs, ps, xs.size)
        elif undecided:
            repair_gelu(xs, gs)
            repair_erf(ys, rs)
            repair_exp(zs, ps)


def repair(x: Any, y: Any) -> None:
    """The accurate function of x where y is NaN."""
    for i in range(x.size):
        if y[i] != y[i]:
            y[i] = accurate(x[i])


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


approximate: Any = None  # these are a copy's scope's
accurate: Any = None
gelu_block: Any = None
erf_block: Any = None
exp_block: Any = None
repair_gelu: Any = None
repair_erf: Any = None
repair_exp: Any = None
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
    margin = MARGINS["gelu"]
    scope = {**globals(), **made, "approximate": approximations["gelu_terms"], "LOW": 1.0 - margin, "HIGH": 1.0 + margin}
    for name in ("gelu", "erf", "exp"):
        own = {**globals(), "accurate": functions[name]}
        scope[f"repair_{name}"] = numba.njit(**OPTIONS)(copied(repair, own, f"repair_{name}"))
    made["gelu_terms_block"] = numba.njit(**OPTIONS)(copied(gelu_terms, scope, "gelu_terms_block"))
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
