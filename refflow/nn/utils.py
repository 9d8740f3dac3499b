"""nn.utils under PyTorch's import path; the functions are in gradients.py."""

from __future__ import annotations

from .gradients import *  # noqa: F403
