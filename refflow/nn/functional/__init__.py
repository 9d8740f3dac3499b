"""nn.functional: PyTorch's names, a file per chapter (spec/text/nn.md)."""

from __future__ import annotations

from .activations import *  # noqa: F403
from .attention import *  # noqa: F403
from .linear import *  # noqa: F403
from .losses import *  # noqa: F403
from .normalisation import *  # noqa: F403
from .pooling import *  # noqa: F403
