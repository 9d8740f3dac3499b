"""What `refflow check` runs on a machine: known answers of the arithmetic profile.

Implements NUM-CHECK of spec/text/numerics.md.  Each check returns a line saying what it covered, or raises
NumericsError.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import NumericsError
from . import elementary, philox
from .bits import digest, same_bits
from .contraction import contract
from .dtypes import bfloat16, cast, float16, float32, int32, int64, promote
from .order import argsort, maximum, minimum
from .profile import LEAF, check_subnormals
from .rounding import fma32
from .trees import aligned, fold_parts, scatter_tree, tree_sum

Array = npt.NDArray[Any]


def _f32(*values: float) -> Array:
    return np.array(values, np.float32)


def _expect(found: Array, wanted: Array, what: str) -> None:
    if not same_bits(found, wanted):
        raise NumericsError(f"{what}: found {found}, the profile says {wanted}")


def _subnormals() -> str:
    check_subnormals()
    return "subnormal numbers are kept, as operands and as results"


# a, b, c and a * b + c rounded once.
FMA_CASES: tuple[tuple[float, float, float, float], ...] = (
    (4097.0, 4097.0, 2.0**-60, 16785410.0),  # 2^24 + 8193 is a midpoint: the tiny addend breaks the tie upwards
    (4097.0, 4097.0, -(2.0**-60), 16785408.0),
    (4097.0, 4097.0, 0.0, 16785408.0),
    (2.0**-75, 2.0**-75, 0.0, 0.0),  # half the least subnormal: a tie, to even
    (2.0**-75, -(2.0**-75), 2.0**-149, 0.0),  # 2^-149 - 2^-150: a tie again
    (2.0**-75, 1.5 * 2.0**-75, 0.0, 2.0**-149),
    (1.0 + 2.0**-23, 1.0 + 2.0**-23, -(1.0 + 2.0**-22), 2.0**-46),
    (2.0**64, 2.0**63, 2.0**127, math.inf),
    (2.0**64, 2.0**64, -math.inf, -math.inf),
    (math.inf, 0.0, 1.0, math.nan),
    (-0.0, 1.0, -0.0, -0.0),
    (-0.0, 1.0, 0.0, 0.0),
    (1.0, 1.0, -1.0, 0.0),
)


def _fma() -> str:
    a, b, c, wanted = np.array(FMA_CASES, np.float32).T
    _expect(fma32(a, b, c), wanted, "fma32")
    return f"{len(FMA_CASES)} triples: ties, subnormals, overflow, signed zeros"


def _trees() -> str:
    x = _f32(2.0**24, 1, 1, 2.0**24, 1)
    _expect(tree_sum(x, 0), np.asarray(((x[0] + x[1]) + x[2]) + (x[3] + x[4])), "tree_sum of five")
    _expect(tree_sum(x[:0], 0), np.array(-0.0, np.float32), "tree_sum of none")
    _expect(fold_parts([x[i] for i in range(5)], "sum"), tree_sum(x, 0), "fold_parts of five")
    out = scatter_tree(x, np.array([1, 0, 1, 1, 3]), 4, 5)
    _expect(out, _f32(1, (x[0] + x[2]) + x[3], -0.0, 1), "scatter_tree")
    rules = [aligned((0, 2, 4), 1), aligned((0, 3, 4), 1), aligned((0, 16, 32), 16), aligned((0, 8, 16), 16)]
    if rules != [True, False, True, False]:
        raise NumericsError(f"aligned: found {rules}")
    return "shape of the tree, empty sum, partials over ranks, scatter, alignment"


def _contraction() -> str:
    k = 2 * LEAF + 1
    a = philox.normal(np.arange(3 * k, dtype=np.uint64), 1, 0).reshape(3, k)
    b = philox.normal(np.arange(k * 2, dtype=np.uint64), 1, 1).reshape(k, 2)

    def node(lo: int, hi: int) -> Array:
        if hi - lo > LEAF:
            middle = lo + (hi - lo + 1) // 2
            return node(lo, middle) + node(middle, hi)
        chain = np.full((3, 2), -0.0, np.float32)
        for t in range(lo, hi):
            chain = fma32(a[:, t, None], b[t], chain)
        return chain

    _expect(contract(a, b), node(0, k), f"contract over {k} terms")
    _expect(contract(a[:, :0], b[:0]), np.full((3, 2), -0.0, np.float32), "contract over no terms")
    return f"chains of {LEAF} in a tree, empty range"


SAMPLES = 60


def _elementary() -> str:
    index = np.arange(2 * SAMPLES, dtype=np.uint64)
    for stream, (name, function) in enumerate(elementary.FUNCTIONS.items()):
        x = philox.normal(index, 2, stream).reshape(2, SAMPLES) * np.float32(3)
        args = [np.abs(x[0])] if name in ("log", "log1p", "rsqrt", "pow") else [x[0]]
        args += [x[1]] if name == "pow" else []
        exact = [elementary.decide(function, [float(a[i]) for a in args], 24, -149) for i in range(SAMPLES)]
        _expect(elementary.apply(name, *args), np.array(exact, np.float32), name)
    _expect(elementary.apply("gelu", _f32(-math.inf, -0.0)), _f32(-0.0, -0.0), "gelu")
    _expect(elementary.apply("rsqrt", _f32(0.0, -0.0)), _f32(math.inf, -math.inf), "rsqrt")
    _expect(elementary.apply("pow", _f32(0, 1, -1, -2), _f32(0, math.nan, math.inf, 3)), _f32(1, 1, 1, -8), "pow")
    return f"{len(elementary.FUNCTIONS)} functions at {SAMPLES} points against 200-bit arithmetic"


# Random123's known answers for Philox4x32-10: counter, key, words.
PHILOX_ANSWERS: tuple[tuple[tuple[int, ...], tuple[int, int], tuple[int, ...]], ...] = (
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
)


def _philox() -> str:
    for (low, high, s0, s1), (k0, k1), words in PHILOX_ANSWERS:
        c0, c1, c2, c3 = (np.array([c], np.uint64) for c in (low, high, s0, s1))
        found = np.concatenate(philox.philox4x32((c0, c1, c2, c3), (k0, k1))).astype(np.uint32)
        _expect(found, np.array(words, np.uint32), "Philox4x32-10")
    return f"{len(PHILOX_ANSWERS)} known answers of Random123"


def _conversions() -> str:
    twice = np.array([1 + 2.0**-8 + 2.0**-40, 1 + 2.0**-11 + 2.0**-40])  # wrong if rounded through float32 first
    _expect(cast(cast(twice, bfloat16), float32), _f32(1 + 2.0**-7, 1), "float64 to bfloat16")
    _expect(cast(cast(twice, float16), float32), _f32(1 + 2.0**-8, 1 + 2.0**-10), "float64 to float16")
    _expect(cast(_f32(-1.9, math.nan, 1e30), int32), np.array([-1, 0, 2**31 - 1], np.int32), "float32 to int32")
    _expect(cast(np.array([2**24 + 1, 2**53 + 1]), float32), _f32(2.0**24, 2.0**53), "int64 to float32")
    if promote(int64, float16) != float16 or promote(bfloat16, float16) != float32:
        raise NumericsError("promote: the table of dtypes is damaged")
    return "one rounding, to nearest even; saturation; promotion"


def _order() -> str:
    x = _f32(0.0, -0.0, math.nan, -math.inf, 0.0)
    _expect(maximum(x[:3], x[1:4]), _f32(0.0, math.nan, math.nan), "maximum")
    _expect(minimum(x[:2], x[1::-1]), _f32(-0.0, -0.0), "minimum")
    _expect(argsort(x), np.array([3, 0, 1, 4, 2]), "argsort")
    _expect(argsort(x, descending=True), np.array([2, 0, 1, 4, 3]), "argsort, descending")
    return "NaN largest, -0 below +0 in max and min and equal to it when sorted, stable both ways"


KNOWN_DIGEST = "e021937c690344727457150f10b1d37d8b05427e4cd1333cad5e26a388c53a31"


def _digest() -> str:
    found = digest(_f32(0.0, -0.0, 1.0, math.inf, math.nan, 2.0**-149).reshape(2, 3))
    if found != KNOWN_DIGEST:
        raise NumericsError(f"digest: found {found}, the profile says {KNOWN_DIGEST}")
    return "the digest of a small array"


CHECKS: dict[str, Callable[[], str]] = {
    "subnormals": _subnormals,
    "fused multiply-add": _fma,
    "trees": _trees,
    "contraction": _contraction,
    "elementary functions": _elementary,
    "random numbers": _philox,
    "conversions": _conversions,
    "order": _order,
    "digest": _digest,
}


@dataclass(frozen=True)
class CheckResult:
    """One line of `refflow check`."""

    name: str
    passed: bool
    detail: str


def self_check() -> list[CheckResult]:
    """Check this machine against known answers of the profile, in a few seconds; nothing is raised."""
    results = []
    for name, check in CHECKS.items():
        try:
            results.append(CheckResult(name, True, check()))
        except (NumericsError, AssertionError) as error:
            results.append(CheckResult(name, False, str(error)))
    return results
