"""The command: all stages within the minutes, the report after each.

Part of ACC-GPU-CHECK of spec/text/acceleration.md.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from refflow.errors import BackendError, WorldError

from .calls import properties
from .clock import Clock
from .report import Row, description, not_reached, table, verdict
from .speed import speed
from .training import runs


def check(minutes: float, out: Path, workers: int | None = None) -> Row:
    """All stages within `minutes`; the report, which is also in `out`.  Errors: `BackendError` without a device."""
    clock = Clock(60 * minutes)
    from ..cuda.backend import CudaBackend
    from ..cuda.target import SIMULATED
    from .canaries import canaries
    from .through_mpi import probe

    backend = CudaBackend()
    out.mkdir(parents=True, exist_ok=True)
    report: Row = {**description(SIMULATED), "minutes": minutes}

    def keep(stage: str, value: Any) -> None:
        report[stage] = value
        report["passed"] = verdict(report)
        report["seconds"] = round(clock.seconds - clock.left, 1)
        (out / "gpu_check.json").write_text(json.dumps(report, indent=1) + "\n")
        print(f"{report['seconds']:8.1f} s  {stage}", flush=True)

    keep("canaries", list(canaries(backend)))
    keep("mpi", [probe()])
    if workers is None:
        workers = 1 if SIMULATED else max(1, min(8, (os.cpu_count() or 2) // 2))
    scales = (9,) if SIMULATED else (9, 37, 130, 300, 5000)
    keep("properties", properties((0.5 - clock.spent) * clock.seconds, workers, scales))
    keep("runs", list(runs(backend, clock, 0.8, SIMULATED)))
    keep("speed", list(speed(backend, clock, SIMULATED)))
    return report


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m refflow_accel.gpu_check", description="Does this GPU give refflow's bits, and how fast?"
    )
    parser.add_argument("--minutes", type=float, default=8.0, help="how long it may take (default: 8)")
    parser.add_argument("--out", type=Path, default=Path("gpu_check"), help="folder of the report (default: gpu_check)")
    parser.add_argument(
        "--workers", type=int, help="processes that call kernels (default: half the processors, up to 8)"
    )
    asked = parser.parse_args(arguments)
    try:
        with np.errstate(all="ignore"):
            report = check(asked.minutes, asked.out, asked.workers)
    except (BackendError, WorldError) as error:
        print(f"gpu_check: {error}", file=sys.stderr)
        return 2
    print(table(report))
    return (3 if not_reached(report) else 0) if report["passed"] else 1
