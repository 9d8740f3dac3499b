"""The table of CPU kernels: what computes each primitive, written against a `Call`.

Implements ACC-KERNELS of spec/text/acceleration.md.  Three kinds of kernel: *native* ones only read NumPy arrays' shapes
and addresses and launch compiled code; *views* are the reference's own kernels where all they do is look at an array in
another way; *host* kernels are the reference's kernels as they are, for what is rare.  A compiled program may hold the
first two in native code.  What a kernel computes, and on which shapes, is said where the reference's of its name is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

Native = Callable[..., Any]  # (call, *arrays, **attrs) -> an array or a tuple of arrays
Function = TypeVar("Function", bound=Native)

NATIVE: dict[str, Native] = {}
VIEWS = frozenset({"transpose", "expand", "slice", "slice_box"})


def kernel(function: Function) -> Function:
    """Enters a native kernel under its own name, less a trailing underscore.

    It may return NotImplemented for operands it does not serve (a dtype, a shape): then the reference's kernel runs.
    """
    return register(function.__name__.rstrip("_"), function)


def register(name: str, function: Function) -> Function:
    """Enters a native kernel; a second one of a name is a programming error."""
    if name in NATIVE:
        raise ValueError(f"kernel {name!r} is registered twice")
    NATIVE[name] = function
    return function
