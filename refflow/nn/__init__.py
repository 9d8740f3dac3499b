"""nn: modules, their functions, initialisation and gradient clipping, PyTorch's names (spec/text/nn.md)."""

from __future__ import annotations

from . import functional, init, utils
from .activations import *  # noqa: F403
from .attention import *  # noqa: F403
from .containers import *  # noqa: F403
from .layers import *  # noqa: F403
from .losses import *  # noqa: F403
from .module import Module
from .normalisation import *  # noqa: F403
from .parameter import Parameter
