"""Check a scalar function and its block form against the reference on all 2^32 float32 inputs, or every Nth.

Implements ACC-EXHAUST of spec/text/acceleration.md: `python -m refflow_accel.exhaust NAME [--stride N] [--threads T]`, and
for pow, a function of two numbers, `--exponent Y` or `--base X`, which fix one of them.
`wide` has what a function is held against, `compare` holds it, `command` prints what was seen.
"""

from __future__ import annotations

from .command import main
from .compare import Outcome, Subject, check, forms_of
from .wide import KERNELS, WIDE

__all__ = ["KERNELS", "WIDE", "Outcome", "Subject", "check", "forms_of", "main"]
