"""The arithmetic profile: its name, its one constant, and whether this machine keeps to it.

Implements NUM-PROFILE and NUM-SUBNORMAL of spec/text/numerics.md.  The name enters digests, checkpoints and vectors;
a change of any bit a program can produce is another profile.
"""

from __future__ import annotations

import numpy as np

from ..errors import NumericsError

PROFILE = "refflow-arith-1"
LEAF = 16  # terms of a contraction that one fused multiply-add chain takes


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
