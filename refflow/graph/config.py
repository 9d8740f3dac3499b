"""The configuration of a graph: what it is to do beyond its build function.

Implements the settings of GRAPH-RUNTIME, TIME-AXIS, TIME-PARTS, AMP-ALLOW and ZERO-* of spec/text; a setting is checked
when it is set.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import AttributeValueError
from ..numerics import float16, is_half
from .amp import require_half


def _is_bool(value: Any) -> bool:
    return isinstance(value, bool)


def _anything(value: Any) -> bool:
    return True


_SETTINGS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "accumulation_steps": (lambda n: isinstance(n, int) and not isinstance(n, bool) and n >= 1, "an int >= 1"),
    "zero_stage": (lambda n: isinstance(n, int) and not isinstance(n, bool) and 0 <= n <= 3, "0, 1, 2 or 3"),
    "amp_dtype": (lambda d: d is None or (isinstance(d, np.dtype) and is_half(d)), "None, float16 or bfloat16"),
    "runtime": (_anything, ""),  # refused in a call, with the names there are
    "schedule": (lambda make: make is None or callable(make), "None or a function that makes a schedule"),
    "log_events": (_is_bool, "True or False"),
    "order": (_anything, ""),
    "keep_parts": (_is_bool, "True or False"),
}


@dataclass
class GraphConfig:
    """What a graph is to do beyond its build function."""

    accumulation_steps: int = 1
    zero_stage: int = 0
    amp_dtype: np.dtype[Any] | None = None
    runtime: str | None = None  # "actors", "sequential" (node by node, in program order), "compiled"; None: see programs.py
    schedule: Any = None  # makes the schedule of a run; None: the canonical one
    log_events: bool = False
    order: str = "1f1b"  # in which streams act: a name in `order.ORDERS`
    keep_parts: bool = False  # also what each micro-batch alone made of the results: `graph.parts`

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in _SETTINGS:
            raise AttributeValueError(f"config: there is no setting {name!r}; there are {', '.join(_SETTINGS)}")
        allowed, room = _SETTINGS[name]
        if not allowed(value):
            raise AttributeValueError(f"config.{name}: must be {room}, found {value!r}")
        object.__setattr__(self, name, value)

    def enable_amp(self, mode: bool = True, *, dtype: Any = float16) -> None:
        """Rounds operands and results of contractions to float16 or bfloat16 (AMP-ALLOW): other bits, the same in every layout."""
        self.amp_dtype = require_half(dtype) if mode else None

    def enable_zero(self, mode: bool = True, *, stage: int = 2) -> None:
        """Holds optimizer state (1), gradients too (2), parameters too (3) in parts; the bits do not change (ZERO-*)."""
        if stage not in (1, 2, 3):
            raise AttributeValueError(f"enable_zero: the stage must be 1, 2 or 3, found {stage!r}")
        self.zero_stage = stage if mode else 0

    def set_gradient_accumulation_steps(self, steps: int) -> None:
        """Cuts each batch into `steps` micro-batches; the bits do not change (TIME-AXIS)."""
        if not isinstance(steps, int) or isinstance(steps, bool) or steps < 1:
            raise AttributeValueError(f"set_gradient_accumulation_steps: needs an int >= 1, found {steps!r}")
        self.accumulation_steps = steps
