"""What a function is held against: the C library's binary64 form with a bound of its error, or the reference's kernel.

Serves ACC-EXHAUST of spec/text/acceleration.md.  The binary64 forms are compiled, so each is a function with a name; of
one float64, two for pow.  Where they would raise in Python they give NaN or an infinity when they are compiled.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from refflow.numerics import dtypes, order

Array = npt.NDArray[Any]
PER_ROOT2 = 0.7071067811865476


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
    # (a sample is held against mpmath in tests/accel/test_scalar.py; gelu below 2^-60 and -38 is not relative)
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

KERNELS: dict[str, Callable[[Array], Array]] = {  # the reference's arrays
    "sqrt": np.sqrt,
    "floor32": np.floor,
    "ceil32": np.ceil,
    "trunc32": np.trunc,
    "round32": np.rint,
    "f16_encode": lambda x: dtypes.cast(x, dtypes.float16),
    "bf16_encode": lambda x: dtypes.cast(x, dtypes.bfloat16),
    "relu32": lambda x: order.maximum(x, np.zeros_like(x)),
    "sign32": lambda x: np.asarray(np.where((x == 0) | np.isnan(x), x, np.copysign(np.float32(1), x))),
}

NAMES = (*WIDE, *KERNELS)
