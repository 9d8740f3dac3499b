"""Check a scalar function and its block form against the reference on all 2^32 float32 inputs, or every Nth.

Implements ACC-EXHAUST of spec/text/acceleration.md.  `python -m refflow_accel.exhaust NAME [--stride N] [--threads T]`.
A correctly rounded function is compared with the C library's binary64 value: where all numbers within its error round
alike, that is the answer; the rest, and every difference, is put to refflow.numerics.elementary (mpmath at the end).
Other functions are compared with the reference's kernel, array by array.  pow takes its exponents from a fixed mixture.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from refflow.numerics import dtypes, elementary, order

from .scalar import blocks
from .scalar.dialect import f32, f64
from .scalar.instantiate import copied
from .scalar.target_cpu import OPTIONS, Cpu, cpu

Array = npt.NDArray[Any]

ALL = 1 << 32
SLICE = 1 << 20  # inputs of one task
BUFFER = 1 << 10  # inputs at a time inside one
ROOM = 1 << 18  # suspects of one task that are kept
HARD = 24  # and reported
PER_ROOT2 = 0.7071067811865476


# The C library's binary64 forms.


def wide_exp(x: Any) -> Any:
    return math.exp(x)


def wide_expm1(x: Any) -> Any:
    return math.expm1(x)


def wide_log(x: Any) -> Any:
    return math.log(x) if x > 0.0 else (-math.inf if x == 0.0 else math.nan)


def wide_log1p(x: Any) -> Any:
    return math.log1p(x) if x > -1.0 else (-math.inf if x == -1.0 else math.nan)


def wide_tanh(x: Any) -> Any:
    return math.tanh(x)


def wide_sigmoid(x: Any) -> Any:
    return 1.0 / (1.0 + math.exp(-x))


def wide_softplus(x: Any) -> Any:
    return x + math.log1p(math.exp(-x)) if x > 0.0 else math.log1p(math.exp(x))


def wide_erf(x: Any) -> Any:
    return math.erf(x)


def wide_sin(x: Any) -> Any:
    return math.sin(x) if abs(x) < math.inf else math.nan


def wide_cos(x: Any) -> Any:
    return math.cos(x) if abs(x) < math.inf else math.nan


def wide_rsqrt(x: Any) -> Any:
    return 1.0 / math.sqrt(x)


def wide_gelu(x: Any) -> Any:
    if x == -math.inf:
        return -0.0
    if abs(x) < 2.0**-60:  # x/2 + x^2/sqrt(2 pi): just above x/2, which settles the ties (multiples of 2^-150)
        return x * 0.5 + 2.0**-155
    if x < -38.0:
        return -(2.0**-1000)
    return x * math.erfc(-x * PER_ROOT2) * 0.5


def wide_pow(x: Any, y: Any) -> Any:
    return math.pow(x, y)


WIDE: dict[str, tuple[Callable[..., Any], float]] = {  # with the relative error they are trusted to
    "exp": (wide_exp, 2.0**-49),
    "expm1": (wide_expm1, 2.0**-49),
    "log": (wide_log, 2.0**-49),
    "log1p": (wide_log1p, 2.0**-49),
    "tanh": (wide_tanh, 2.0**-49),
    "sigmoid": (wide_sigmoid, 2.0**-49),
    "softplus": (wide_softplus, 2.0**-48),
    "erf": (wide_erf, 2.0**-49),
    "sin": (wide_sin, 2.0**-49),
    "cos": (wide_cos, 2.0**-49),
    "rsqrt": (wide_rsqrt, 2.0**-50),
    "gelu": (wide_gelu, 2.0**-42),
    "pow": (wide_pow, 2.0**-49),
}

KERNELS: dict[str, Callable[..., Array]] = {  # the reference's arrays
    "sqrt": np.sqrt,
    "floor32": np.floor,
    "ceil32": np.ceil,
    "trunc32": np.trunc,
    "round32": np.rint,
    "f16_encode": lambda x: dtypes.cast(x, dtypes.float16).view(np.uint16),
    "bf16_encode": lambda x: dtypes.cast(x, dtypes.bfloat16).view(np.uint16),
    "relu32": lambda x: order.maximum(x, np.zeros_like(x)),
    "sign32": lambda x: np.asarray(np.where((x == 0) | np.isnan(x), x, np.copysign(np.float32(1), x))),
}


NAMES = (*WIDE, *KERNELS)


def exponent(x: Any, u: int) -> Any:
    """The y of pow for the input number u: eighths, any bits, or such that the result is in range."""
    h = (u * 0x2545F4914F6CDD1D + 0x1234567) ^ (u >> 3)
    h = (h ^ (h >> 29)) * 0x1B873593
    h = (h ^ (h >> 31)) & 0xFFFFFFFF
    kind = u % 3
    if kind == 0:
        return f32(f64((h & 255) - 128) * 0.125)
    if kind == 1 or not 0.0 < x < math.inf or x == 1.0:
        return from32(h)
    return f32((f64(h) * 2.0**-32 * 192.0 - 103.0) / math.log(f64(x)))


from32 = Cpu.primitives["from32"]
bits32 = Cpu.primitives["bits32"]


def run_unary(first: int, stride: int, count: int, suspects: Any) -> int:
    """Keep in `suspects` the inputs first, first + stride, .. that are not settled; returns their number."""
    x = np.empty(BUFFER, np.float32)
    b = np.empty(BUFFER, np.float32)
    found = 0
    for start in range(0, count, BUFFER):
        n = min(BUFFER, count - start)
        for i in range(n):
            x[i] = from32(first + (start + i) * stride)
        block(x, b, n)
        for i in range(n):
            w = wide(f64(x[i]))
            want = bits32(f32(w * LOW))
            settled = want == bits32(f32(w * HIGH))
            got = scalar(x[i]) if SCALAR else b[i]
            alike = (want == bits32(got)) and (want == bits32(b[i]))
            void = (w != w) and (got != got) and (b[i] != b[i])
            if not ((settled and alike) or void):
                if found < suspects.size:
                    suspects[found] = first + (start + i) * stride
                found += 1
    return found


def run_pow(first: int, stride: int, count: int, suspects: Any) -> int:
    """The same for pow, whose exponents come from `exponent`."""
    x = np.empty(BUFFER, np.float32)
    y = np.empty(BUFFER, np.float32)
    b = np.empty(BUFFER, np.float32)
    found = 0
    for start in range(0, count, BUFFER):
        n = min(BUFFER, count - start)
        for i in range(n):
            u = first + (start + i) * stride
            x[i] = from32(u)
            y[i] = power(x[i], u)
        block(x, y, b, n)
        for i in range(n):
            w = wide(f64(x[i]), f64(y[i]))
            want = bits32(f32(w * LOW))
            settled = want == bits32(f32(w * HIGH))
            got = scalar(x[i], y[i]) if SCALAR else b[i]
            alike = (want == bits32(got)) and (want == bits32(b[i]))
            void = (w != w) and (got != got) and (b[i] != b[i])
            if not ((settled and alike) or void):
                if found < suspects.size:
                    suspects[found] = first + (start + i) * stride
                found += 1
    return found


block: Any = None  # the scope of a copy has these
scalar: Any = None
wide: Any = None
power: Any = None
LOW = HIGH = 1.0
SCALAR = True


@dataclass
class Outcome:
    """What was run and seen."""

    function: str
    forms: str
    stride: int
    inputs: int
    undecided: int  # settled by the reference, not by the quick check
    differences: int
    examples: list[str]
    hard: list[str]  # some of the undecided inputs, as patterns
    seconds: float


@cache
def _compiled(name: str, with_scalar: bool) -> Any:
    function, error = WIDE[name]
    scope = {
        **globals(),
        "block": getattr(blocks, f"{name}_block"),
        "scalar": cpu()[name],
        "wide": numba.njit(**OPTIONS)(function),
        "LOW": 1.0 - error,
        "HIGH": 1.0 + error,
        "SCALAR": with_scalar,
    }
    if name == "pow":
        scope["power"] = numba.njit(**OPTIONS)(copied(exponent, scope))
    template: Any = run_pow if name == "pow" else run_unary
    return numba.njit(**OPTIONS)(copied(template, scope, f"check_{name}_{int(with_scalar)}"))


@cache
def _loop(name: str) -> Any:
    """The scalar form over an array."""
    scope = {**globals(), "accurate": cpu()[name], "scalar": cpu()[name]}
    template: Any = _loop2 if name == "pow" else _loop1
    return numba.njit(**OPTIONS)(copied(template, scope, f"loop_{name}"))


def _loop1(x: Any, y: Any) -> None:
    for i in range(x.size):
        y[i] = scalar(x[i])


def _loop2(x: Any, z: Any, y: Any) -> None:
    for i in range(x.size):
        y[i] = scalar(x[i], z[i])


def forms_of(name: str, arguments: list[Array], with_scalar: bool = True) -> dict[str, Array]:
    """The results of the block form and of the scalar form on arrays of arguments."""
    dtype = np.uint16 if name.endswith("_encode") else np.float32
    n = arguments[0].size
    out = {"block": np.empty(n, dtype)}
    getattr(blocks, f"{name}_block")(*arguments, out["block"], n)
    if with_scalar:
        out["scalar"] = np.empty(n, dtype)
        _loop(name)(*arguments, out["scalar"])
    return out


def unlike(got: Array, want: Array) -> Array:
    """Where two arrays of floats or patterns differ, all NaNs being one value."""
    word = np.dtype(f"u{got.dtype.itemsize}")
    apart = got.view(word) != np.ascontiguousarray(want).view(word)
    return np.asarray(apart & ~((got != got) & (want != want)) if got.dtype.kind == "f" else apart)


def _arguments(name: str, patterns: Array) -> list[Array]:
    x = patterns.astype(np.uint32).view(np.float32)
    if name != "pow":
        return [x]
    power = _compiled(name, True).py_func.__globals__["power"]
    return [x, np.array([power(a, int(u)) for a, u in zip(x, patterns)], np.float32)]


def check_slice(name: str, first: int, stride: int, count: int, with_scalar: bool) -> tuple[int, list[str], list[str]]:
    """Return (inputs the quick check left open, some of them, differences from the reference) of one task."""
    if name in KERNELS:
        x = np.arange(first, first + count * stride, stride, dtype=np.int64).astype(np.uint32).view(np.float32)
        with np.errstate(all="ignore"):
            want = KERNELS[name](x)
        if name.endswith("_encode"):  # NaN patterns are one value
            nan = np.isnan(x)
            want = np.where(nan, np.uint16(0x7E00 if name[0] == "f" else 0x7FC0), want)
        wrong: list[str] = []
        for form, got in forms_of(name, [x], with_scalar).items():
            got = np.where(nan, got & np.uint16(0x7FFF), got) if name.endswith("_encode") else got
            wrong += [f"{form} {hex(x.view(np.uint32)[i])}" for i in np.flatnonzero(unlike(got, want))]
        return 0, [], wrong
    suspects = np.empty(ROOM, np.int64)
    found = _compiled(name, with_scalar)(first, stride, count, suspects)
    arguments = _arguments(name, suspects[: min(found, ROOM)])
    want = elementary.apply(name, *arguments)
    wrong = [f"{found - ROOM} more than there is room for"] if found > ROOM else []
    for form, got in forms_of(name, arguments, with_scalar).items():
        wrong += [f"{form} {hex(int(suspects[i]))}" for i in np.flatnonzero(unlike(got, want))]
    return found, [hex(int(u)) for u in suspects[: min(found, HARD)]], wrong


def check(name: str, stride: int = 1, threads: int = 1, with_scalar: bool = True, first: int = 0, last: int = ALL,
          advance: Callable[[int], object] = lambda n: None) -> Outcome:
    """Check `name` on the patterns first, first + stride, .. below last; `advance` hears of every input done."""
    begin = time.perf_counter()
    total = -(-(last - first) // stride)
    tasks = [(first + s * stride, min(SLICE, total - s)) for s in range(0, total, SLICE)]
    undecided = 0
    hard: list[str] = []
    wrong: list[str] = []
    check_slice(name, first, stride, 1, with_scalar)  # compile before there are threads

    def one(task: tuple[int, int]) -> tuple[int, list[str], list[str]]:
        result = check_slice(name, task[0], stride, task[1], with_scalar)
        advance(task[1])
        return result

    with ThreadPoolExecutor(threads) as pool:
        for found, some, bad in pool.map(one, tasks):
            undecided += found
            hard = (hard + some)[:HARD]
            wrong += bad
    forms = "both" if with_scalar else "block"
    seconds = round(time.perf_counter() - begin, 1)
    return Outcome(name, forms, stride, total, undecided, len(wrong), wrong[:8], hard, seconds)


def main(argv: list[str] | None = None) -> int:
    """Command line; the exit status is 0 if nothing differs."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
    from rich.table import Table

    parser = argparse.ArgumentParser(prog="refflow_accel.exhaust", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="+", choices=NAMES, metavar="NAME", help=", ".join(NAMES))
    parser.add_argument("--stride", type=int, default=1, help="every Nth input only")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--block-only", action="store_true", help="leave out the scalar form")
    options = parser.parse_args(argv)
    outcomes = []
    console = Console(stderr=True)
    percent = TextColumn("{task.percentage:.1f} %")
    columns = (TextColumn("{task.description}"), BarColumn(), percent, TimeRemainingColumn())
    with Progress(*columns, console=console) as progress:
        for name in options.names:
            task = progress.add_task(name, total=-(-ALL // options.stride))
            outcomes.append(
                check(name, options.stride, options.threads, not options.block_only,
                      advance=lambda n, task=task: progress.advance(task, n))  # type: ignore[misc]
            )
    table = Table("function", "forms", "every", "inputs", "undecided", "differ", "seconds")
    for o in outcomes:
        row = (o.function, o.forms, o.stride, f"{o.inputs:,}", o.undecided, o.differences, o.seconds)
        table.add_row(*(str(v) for v in row))
    console.print(table)
    for o in outcomes:
        print(json.dumps(asdict(o)))
    return 0 if all(o.differences == 0 for o in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
