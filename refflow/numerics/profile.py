"""The arithmetic profile: its name, its one constant, and whether this machine keeps to it.

Implements NUM-PROFILE and NUM-SUBNORMAL of spec/text/numerics.md.  The name enters digests, checkpoints and vectors;
a change of any bit a program can produce is another profile.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from refflow.errors import NumericsError

PROFILE = "refflow-arith-1"
LEAF = 16  # terms of a contraction that one fused multiply-add chain takes


@dataclass(frozen=True)
class CheckResult:
    """One line of `refflow check`."""

    name: str
    passed: bool
    detail: str


def check_subnormals() -> None:
    """Raise NumericsError if subnormal numbers are flushed to zero, as results or as operands.

    Some libraries switch a processor to flush-to-zero for the whole process when they load.  Source: NUM-SUBNORMAL.
    """
    for name, least, bits in (("float32", 2.0**-126, 0x00400000), ("float64", 2.0**-1022, 0x0008000000000000)):
        small = np.full(1, least, name)
        half = small / np.full(1, 2, name)
        found = int(half.view(f"u{half.itemsize}")[0])
        if found != bits or (half + half != small)[0]:
            raise NumericsError(
                f"{name}: half of {least:g} has the bits {found:#x}, not {bits:#x}: subnormals are flushed to zero; "
                "a library loaded earlier (built with -ffast-math?) changed the processor's mode"
            )


def self_check() -> list[CheckResult]:
    """Check this machine against known answers of the profile, in a few seconds; nothing is raised."""
    from refflow.numerics.checks import CHECKS  # late: the checks need every module, and every module needs PROFILE

    results = []
    for name, check in CHECKS.items():
        try:
            results.append(CheckResult(name, True, check()))
        except (NumericsError, AssertionError) as error:
            results.append(CheckResult(name, False, str(error)))
    return results
