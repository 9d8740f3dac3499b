"""Back ends: the protocol, and the reference one (spec/text/kernels.md)."""

from __future__ import annotations

from .protocol import Array, Backend, Kernel
from .reference.backend import ReferenceBackend

__all__ = ["Array", "Backend", "Kernel", "ReferenceBackend"]
