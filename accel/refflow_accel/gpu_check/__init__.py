"""`python -m refflow_accel.gpu_check --minutes 8 --out DIR`: does this GPU give refflow's bits, and how fast?

Implements ACC-GPU-CHECK of spec/text/acceleration.md, a module for each stage: `canaries` (is fma one rounding, are products
and sums two, are subnormals kept, do division and square root round, one chain, one matmul); `through_mpi` (where its
switches say that MPI reads the device's memory, a message to itself); `calls` (random calls of every kernel against the
reference, until half the time is gone); `training` (whole runs, eager and compiled, whose weights must have the reference's
hash); `speed`.  The report in DIR/gpu_check.json is written again after each: one that is cut off loses itself only.

It runs from a checkout, with the wheels of the extra `cuda` carried along:

    python -m pip install --no-index --find-links WHEELS numba-cuda[cu12]==0.30.4 cuda-toolkit==12.9.* ml_dtypes mpmath ...
    PYTHONPATH=.:accel python -m refflow_accel.gpu_check --minutes 8 --out DIR

Exit status: 0 all bits agree, 1 some do not, 2 there is no device (or no supported numba-cuda, or a wrong setting), 3 all
agree that there was time for, but some kernel or run was not reached.
"""

from __future__ import annotations

from .clock import Clock
from .command import check, main
from .report import table, verdict
from .speed import speed

__all__ = ["Clock", "check", "main", "speed", "table", "verdict"]
