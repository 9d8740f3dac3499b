"""nn.functional: PyTorch's names, a file per chapter (spec/text/nn.md)."""

from __future__ import annotations

from typing import Any as _Any

from ...absent import absence as _absence
from .activations import *  # noqa: F403
from .attention import *  # noqa: F403
from .linear import *  # noqa: F403
from .losses import *  # noqa: F403
from .normalisation import *  # noqa: F403
from .pooling import *  # noqa: F403
from .windows import *  # noqa: F403


def __getattr__(name: str) -> _Any:
    raise AttributeError(f"module 'refflow.nn.functional' has no attribute {name!r}{_absence('nn.functional', name)}")
