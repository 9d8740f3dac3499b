"""The table of reference kernels, and the three notions every kernel file shares.

`KERNELS` maps a primitive's name to a function on local NumPy arrays; `@kernel` enters one by its own name (a trailing
underscore only avoids a Python built-in).  A kernel's keyword arguments are the primitive's attributes; `shape` is the
local output shape; `at` says which part of a letter's logical extent this shard covers (KER-ORIGIN).  Results are
fresh arrays or views; nobody writes into them.  Sharding, shape and dtype checks are the primitive's business; what
depends on data (a bad index) is checked here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ...numerics.dtypes import float32, is_half

Array = NDArray[Any]
Dtype = np.dtype[Any]
Pair = tuple[int, int]
Extent = tuple[int, int, int]
At = Mapping[str, Extent]
WHOLE: At = MappingProxyType({})  # this shard is all there is

KERNELS: dict[str, Callable[..., Any]] = {}
Function = TypeVar("Function", bound=Callable[..., Any])


def register(name: str, function: Function) -> Function:
    """Enter `function` as the reference kernel of primitive `name`; a second one is a programming error."""
    if name in KERNELS:
        raise ValueError(f"kernel {name!r} is registered twice")
    KERNELS[name] = function
    return function


def kernel(function: Function) -> Function:
    """Register a function under its own name, less a trailing underscore."""
    return register(function.__name__.rstrip("_"), function)


def extent(at: At, letter: str, size: int) -> Extent:
    """Return (lo, hi, of) of a letter: this shard covers [lo, hi) of `of`; a letter not named is whole."""
    return at.get(letter, (0, size, size))


def widen(x: Array) -> Array:
    """Return `x` in the type it is computed in: float16 and bfloat16 are storage, exact in float32 (NUM-HALF)."""
    return x.astype(float32) if is_half(x.dtype) else x
