"""Constants: one value everywhere.

Implements the constants of OPS-CREATION in spec/text/primitives.md; every gradient needs them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..ir import Primitive, Rule, Sample, Value, names, primitive
from ..layout import broadcast
from ..numerics import float32


def _full_rule(*, shape: tuple[int, ...], value: float, dtype: np.dtype[Any]) -> Rule:
    letters = names("d", len(shape))
    return Rule(f" -> {' '.join(letters)}", (dtype,), sizes=dict(zip(letters, shape, strict=True)))


full: Primitive = primitive(
    "full",
    _full_rule,
    local_shape=True,
    doc="one value everywhere",
    samples=(
        Sample((), {"shape": (3, 4), "value": 1.5, "dtype": float32}),
        Sample((), {"shape": (), "value": 2.0, "dtype": float32}),
    ),
)


def whole_beside(like: Value) -> dict[str, Any]:
    """Layout attributes of a constant on the placement of `like`, whole on every rank; none beside a local tensor."""
    placement = like.meta.placement
    return {} if placement is None else {"placement": placement, "sbp": (broadcast,) * placement.ndim}


def scalar(value: float, like: Value) -> Value:
    """A 0-d constant with the dtype and placement of `like`, whole on every rank."""
    return full(shape=(), value=float(value), dtype=like.meta.dtype, **whole_beside(like))
