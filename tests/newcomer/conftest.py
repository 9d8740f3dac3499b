"""Every test here runs in a world of four ranks."""

from __future__ import annotations

from tests.tensor.layouts import world

__all__ = ["world"]
