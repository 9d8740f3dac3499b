"""Compiled programs of graphs: one call recorded kernel by kernel, fused, laid out in memory, and run natively.

To be read in this order: `local` records (ACC-RECORD), `exchange` adds what processes send each other (ACC-EXCHANGE),
`passes` rewrites (ACC-FOLD, ACC-TRANSPOSED, ACC-FUSE), `lower` and `arena` bring a program to rows and places (ACC-LOWER,
ACC-ARENA), `native` and `buffers` run them; `compiled` is what a graph calls (ACC-PROGRAM).  On CUDA `cuda.program` runs
what the passes leave (ACC-CUDA-PROGRAM).
"""

from __future__ import annotations

from .compiled import CompiledProgram

__all__ = ["CompiledProgram"]
