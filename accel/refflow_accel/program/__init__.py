"""Compiled programs of graphs: one call recorded kernel by kernel, fused, laid out in memory, and run natively.

`local` records (ACC-RECORD), `passes` rewrites (ACC-FOLD, ACC-TRANSPOSED, ACC-FUSE), `lower` and `layout` bring a program
to rows and places (ACC-LOWER, ACC-ARENA), `native` runs them; `compiled` is what a graph calls (ACC-PROGRAM).  On CUDA
`cuda.program` takes the place of the last three but for the graph's side (ACC-CUDA-PROGRAM).
"""

from __future__ import annotations

from .compiled import CompiledProgram

__all__ = ["CompiledProgram"]
