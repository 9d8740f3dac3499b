"""Elementwise chains: a small straight-line program carried out for each element of an index space.

Implements ACC-CHAIN of spec/text/acceleration.md.  One elementwise primitive is a chain of one step; a compiled graph
makes longer ones, so that what lies between never goes to memory.  The bits are the same: every step rounds as its
primitive does.  The CPU's and CUDA's kernels are generated from the same chain.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache


@dataclass(frozen=True)
class Step:
    """One primitive: its name, its operands as indices into (inputs, then earlier steps), the dtype of its result."""

    op: str
    operands: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class Chain:
    """dtypes of the inputs, the steps in order, and which of (inputs, steps) are results.

    Inputs broadcast to the space of the chain (NumPy's rule); a cast is a step named "cast" with the dtype it goes to.
    """

    inputs: tuple[str, ...]
    steps: tuple[Step, ...]
    outputs: tuple[int, ...]

    def dtype(self, index: int) -> str:
        """The dtype of an input or a step."""
        return self.inputs[index] if index < len(self.inputs) else self.steps[index - len(self.inputs)].dtype


@cache
def single(op: str, dtypes: tuple[str, ...], to: str) -> Chain:
    """The chain of one primitive on operands of these dtypes, with a result of dtype `to`."""
    return Chain(dtypes, (Step(op, tuple(range(len(dtypes))), to),), (len(dtypes),))
