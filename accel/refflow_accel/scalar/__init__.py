"""The scalar functions of both back ends: one text, instantiated for the CPU, for CUDA and for plain Python.

Implements ACC-SCALAR of spec/text/acceleration.md.  `instantiate` gives the text a target, `target_cpu.cpu()` and
`instantiate.python()` are two of them; `blocks` has the vectorised forms on float32 buffers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .instantiate import FLOAT32, Target, instantiate, python

__all__ = ["FLOAT32", "Target", "instantiate", "python", "cpu"]


def cpu() -> Mapping[str, Any]:
    """Return the scalar functions compiled for this CPU, by name (imports Numba)."""
    from .target_cpu import cpu as compiled

    return compiled()
