"""Holds the scalar and the block form of a function against the reference's values, inputs at a time, in threads.

Serves ACC-EXHAUST of spec/text/acceleration.md.  A correctly rounded function is compared with its binary64 form: where
all numbers within its error round alike, that is the answer; the rest, and every difference, is put to
refflow.numerics.elementary (mpmath at the end).  Other functions are compared with the reference's kernel, array by array.
All are compiled as functions of two numbers, of which most ignore the second.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import Any

import numba
import numpy as np

from refflow.numerics import dtypes, elementary

from ..scalar import blocks
from ..scalar.dialect import f32, f64
from ..scalar.instantiate import copied
from ..scalar.target_cpu import OPTIONS, Cpu, cpu
from .wide import KERNELS, WIDE, Array

ALL = 1 << 32
SLICE = 1 << 20  # inputs of one task
BUFFER = 1 << 10  # inputs at a time inside one
ROOM = 1 << 18  # inputs of one task that may be left to the reference; more are told as differences
HARD = 24  # of those that were left to it, how many an outcome lists
EXAMPLES = 8  # of differences, likewise
HALVES = {"f16_encode": dtypes.float16, "bf16_encode": dtypes.bfloat16}  # what their patterns stand for

from32 = Cpu.primitives["from32"]
bits32 = Cpu.primitives["bits32"]


# --- the arguments (x, y) that belong to the input number u -----------------------------------------------------------


def of_patterns(u: int, fixed: Any) -> Any:
    """Every x; the y that is given, or ignored."""
    return from32(u), fixed


def of_base(u: int, fixed: Any) -> Any:
    """The given x; every y."""
    return fixed, from32(u)


def of_mixture(u: int, fixed: Any) -> Any:
    """Every x; for y eighths, any bits, or such that pow is in range."""
    x = from32(u)
    h = (u * 0x2545F4914F6CDD1D + 0x1234567) ^ (u >> 3)
    h = (h ^ (h >> 29)) * 0x1B873593
    h = (h ^ (h >> 31)) & 0xFFFFFFFF
    kind = u % 3
    if kind == 0:
        return x, f32(f64((h & 255) - 128) * 0.125)
    if kind == 1 or not 0.0 < x < math.inf or x == 1.0:
        return x, from32(h)
    return x, f32((f64(h) * 2.0**-32 * 192.0 - 103.0) / math.log(f64(x)))


# --- compiled loops, as texts whose names a scope fills in ------------------------------------------------------------


def sweep(first: int, stride: int, count: int, fixed: Any, left: Any) -> int:
    """Put the arguments of inputs first, first + stride, .. that are not settled in the rows of `left`; how many are not."""
    x = np.empty(BUFFER, np.float32)
    y = np.empty(BUFFER, np.float32)
    b = np.empty(BUFFER, np.float32)
    found = 0
    for start in range(0, count, BUFFER):
        n = min(BUFFER, count - start)
        for i in range(n):
            x[i], y[i] = arguments(first + (start + i) * stride, fixed)
        block(x, y, b, n)
        for i in range(n):
            w = wide(f64(x[i]), f64(y[i]))
            want = bits32(f32(w * LOW))
            settled = want == bits32(f32(w * HIGH))
            got = scalar(x[i], y[i]) if SCALAR else b[i]
            alike = (want == bits32(got)) and (want == bits32(b[i]))
            void = (w != w) and (got != got) and (b[i] != b[i])
            if not ((settled and alike) or void):
                if found < left.shape[1]:
                    left[0, found] = x[i]
                    left[1, found] = y[i]
                found += 1
    return found


def each(x: Any, y: Any, out: Any) -> None:
    """The scalar form over arrays."""
    for i in range(x.size):
        out[i] = scalar(x[i], y[i])


def number_of_one(x: Any, y: Any) -> Any:
    """A function of one number as one of two."""
    return one(x)


def block_of_one(x: Any, y: Any, out: Any, n: int) -> None:
    """A block form of one number as one of two."""
    one(x, out, n)


arguments: Any = None  # the scope of a copy has these
block: Any = None
scalar: Any = None
wide: Any = None
one: Any = None
LOW = HIGH = 1.0
SCALAR = True


def _compiled(text: Any, name: str, **scope: Any) -> Any:
    """`text` with these meanings of the names it uses; `name` tells its copies apart."""
    return numba.njit(**OPTIONS)(copied(text, {**globals(), **scope}, f"{text.__name__}_{name}"))


@cache
def _forms(name: str) -> dict[str, Any]:
    """The block and the scalar form, both of two arguments."""
    of_two, of_numbers = getattr(blocks, f"{name}_block"), cpu()[name]
    if name != "pow":
        of_two = _compiled(block_of_one, name, one=of_two)
        of_numbers = _compiled(number_of_one, name, one=of_numbers)
    return {"block": of_two, "scalar": of_numbers}


@cache
def _each(name: str) -> Any:
    return _compiled(each, name, **_forms(name))


@cache
def _sweep(name: str, with_scalar: bool, chosen: Callable[[int, Any], Any]) -> Any:
    function, error = WIDE[name]
    value = numba.njit(**OPTIONS)(function)
    scope = {
        **_forms(name),
        "arguments": _compiled(chosen, name),
        "wide": value if name == "pow" else _compiled(number_of_one, f"wide_{name}", one=value),
        "LOW": 1.0 - error,
        "HIGH": 1.0 + error,
        "SCALAR": with_scalar,
    }
    return _compiled(sweep, f"{name}_{chosen.__name__}_{int(with_scalar)}", **scope)


# --- comparing --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Outcome:
    """What was run and seen; inputs are listed as the patterns of their float32 arguments, in hexadecimal."""

    function: str
    forms: str  # "both", or "block" alone
    stride: int
    inputs: int
    undecided: int  # settled by the reference, not by the quick check
    differences: int
    examples: list[str]
    hard: list[str]  # some of the undecided
    seconds: float


@dataclass(frozen=True)
class Subject:
    """A function and its arguments: all 2^32 of one number, for pow with the other fixed, or taken from a mixture."""

    name: str
    exponent: float | None = None
    base: float | None = None

    def __str__(self) -> str:
        fixed = {"exponent": self.exponent, "base": self.base}
        return ", ".join([self.name, *(f"{which} {value:g}" for which, value in fixed.items() if value is not None)])

    @property
    def arguments(self) -> tuple[Callable[[int, Any], Any], np.float32]:
        """The function of input numbers that makes them, and the fixed one."""
        if self.base is not None:
            return of_base, np.float32(self.base)
        if self.name == "pow" and self.exponent is None:
            return of_mixture, np.float32(0)
        return of_patterns, np.float32(self.exponent or 0)


def forms_of(name: str, given: list[Array], with_scalar: bool = True) -> dict[str, Array]:
    """The results of the block form and of the scalar form on arrays of arguments."""
    x, y = given[0], given[-1]
    out = {"block": np.empty(x.size, np.uint16 if name in HALVES else np.float32)}
    _forms(name)["block"](x, y, out["block"], x.size)
    if with_scalar:
        out["scalar"] = np.empty_like(out["block"])
        _each(name)(x, y, out["scalar"])
    return out


def unlike(got: Array, want: Array) -> Array:
    """Where two arrays of floats differ, all NaNs being one value."""
    word = np.dtype(f"u{got.dtype.itemsize}")
    return np.asarray((got.view(word) != np.ascontiguousarray(want).view(word)) & ~((got != got) & (want != want)))


def _slice(
    subject: Subject, first: int, stride: int, count: int, with_scalar: bool
) -> tuple[int, list[str], list[str]]:
    """Of one task: how many inputs the quick check left open, some of them, and the differences from the reference."""
    name = subject.name
    if name in KERNELS:
        found, patterns = 0, np.arange(first, first + count * stride, stride, dtype=np.int64).astype(np.uint32)
        given = [patterns.view(np.float32)]
        with np.errstate(all="ignore"):
            want = KERNELS[name](*given)
    else:
        chosen, fixed = subject.arguments
        left = np.empty((2, ROOM), np.float32)
        found = _sweep(name, with_scalar, chosen)(first, stride, count, fixed, left)
        given = [row[:found] for row in left[: 2 if name == "pow" else 1]]
        want = elementary.apply(name, *given)

    def told(i: int) -> str:
        return " ".join(hex(x.view(np.uint32)[i]) for x in given)

    wrong = [f"{found - ROOM} more than there is room for"] if found > ROOM else []
    for form, got in forms_of(name, given, with_scalar).items():
        values = got.view(HALVES.get(name, np.float32))
        wrong += [f"{form} {told(int(i))}" for i in np.flatnonzero(unlike(values, want))]
    return found, [told(i) for i in range(min(found, HARD))], wrong


def check(subject: Subject | str, stride: int = 1, threads: int = 1, with_scalar: bool = True,
          first: int = 0, last: int = ALL, advance: Callable[[int], object] = lambda n: None) -> Outcome:  # fmt: skip
    """Check a function on the patterns first, first + stride, .. below last; `advance` is told how many more are done.

    `with_scalar` False leaves the scalar form out.  Errors: `KeyError` for a function that `NAMES` lacks.
    """
    begin = time.perf_counter()
    held = Subject(subject) if isinstance(subject, str) else subject
    total = -(-(last - first) // stride)
    tasks = [(first + s * stride, min(SLICE, total - s)) for s in range(0, total, SLICE)]
    undecided = 0
    hard: list[str] = []
    wrong: list[str] = []
    _slice(held, first, stride, 1, with_scalar)  # compile before there are threads

    def one(task: tuple[int, int]) -> tuple[int, list[str], list[str]]:
        result = _slice(held, task[0], stride, task[1], with_scalar)
        advance(task[1])
        return result

    with ThreadPoolExecutor(threads) as pool:
        for found, some, bad in pool.map(one, tasks):
            undecided += found
            hard = (hard + some)[:HARD]
            wrong += bad
    forms = "both" if with_scalar else "block"
    seconds = round(time.perf_counter() - begin, 1)
    return Outcome(str(held), forms, stride, total, undecided, len(wrong), wrong[:EXAMPLES], hard, seconds)
