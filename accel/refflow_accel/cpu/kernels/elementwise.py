"""Elementwise primitives on the CPU: each is a chain of one step.

Implements ACC-CHAIN of spec/text/acceleration.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...chains import single
from ...expressions import OPERANDS, result
from ..chain import Prepared, prepare
from ..registry import register


def primitive(op: str) -> Callable[..., Any]:
    """The kernel of `op`, which keeps what it has made ready for each combination of dtypes."""
    ready: dict[Any, Prepared | None] = {}

    def run(call, *arrays, dtype=None):
        key = (dtype, *[array.dtype for array in arrays])
        try:
            prepared = ready[key]
        except KeyError:
            dtypes = tuple(array.dtype.name for array in arrays)
            prepared = ready[key] = prepare(single(op, dtypes, result(op, dtypes) if dtype is None else dtype.name))
        if prepared is None:
            return NotImplemented
        made = prepared(call, arrays)
        return made if made is NotImplemented else made[0]

    run.__name__ = op
    return run


for _name in OPERANDS:
    register(_name, primitive(_name))
