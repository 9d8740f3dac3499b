"""The command `refflow`: train, run, check, bench.

`commands` reads the arguments; `digits` is the training job, `steps` its step as a graph; `script`, `bench` and
`bench_runtime` are the other commands; `report` says what came out.  None of it computes a value: everything
goes through the public names of refflow.
"""

from __future__ import annotations

from .commands import main

__all__ = ["main"]
