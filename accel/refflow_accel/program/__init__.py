"""Compiled programs of graphs: one call recorded kernel by kernel, fused, laid out in memory, and run natively."""

from __future__ import annotations

from .compiled import CompiledProgram

__all__ = ["CompiledProgram"]
