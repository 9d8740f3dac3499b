"""The command `refflow`: train, run, check, bench.

`commands` and `arguments` read the command line.  `training` is what all training runs share, `digits` and `gpt` are the
jobs; `arrangement` says how ranks share the work, `steps` how a step is carried out.  `script`, `bench` and
`bench_runtime` are the other commands; `report` says what came out.  None of it computes a value: everything goes through
the public names of refflow.
"""

from __future__ import annotations

from .commands import main

__all__ = ["main"]
