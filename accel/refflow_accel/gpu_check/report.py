"""The report of the check: what computed, the table, and whether all agrees.

Part of ACC-GPU-CHECK of spec/text/acceleration.md.
"""

from __future__ import annotations

import platform
from typing import Any

import numpy as np

from refflow.numerics import PROFILE

Row = dict[str, Any]  # of JSON


def description(simulated: bool) -> Row:
    """What computes, and with what."""
    import numba
    import numba_cuda  # type: ignore[import-untyped]

    from ..cuda import target

    device = "Numba's simulator" if simulated else str(target.cuda.get_current_device().name)
    return {
        "device": device, "profile": PROFILE, "numba": numba.__version__, "numba_cuda": numba_cuda.__version__,
        "python": platform.python_version(), "numpy": np.__version__, "machine": platform.platform(),
        "compute_capability": None if simulated else list(target.cuda.get_current_device().compute_capability),
    }  # fmt: skip


def table(report: Row) -> str:
    """The report in a few lines."""
    told = {True: "same bits", False: "DIFFERS", None: "left out"}
    lines = [f"{report['device']}, numba-cuda {report['numba_cuda']}, {report['seconds']} s"]
    for row in (*report.get("canaries", []), *report.get("mpi", [])):
        lines.append(f"  canary {row['name']:28} {told[row['passed']]:10} {row['found'] or ''}")
    found = report.get("properties")
    if found:
        verdict = f"{found['differing']} differ" if found["differences"] else "same bits"
        lines.append(f"  {found['cases']} calls of {len(found['by_kernel'])} kernels: {verdict}")
        lines += [f"    {line}" for line in found["differences"][:5]]
        if found["untested"]:
            lines.append(f"    not reached: {', '.join(found['untested'])}")
    for row in report.get("runs", []):
        lines.append(f"  run {row['name']:31} {told[row['passed']]:10} {row.get('sha256', row.get('found', ''))[:60]}")
    for row in report.get("speed", []):
        beside = f"   torch {row['torch']:>10}" if "torch" in row else ""
        lines.append(f"  {row['name']:35} {row['refflow']:>10} {row['unit']}{beside}")
    missed = not_reached(report)
    last = "FAILED" if not report["passed"] else "PASSED" if not missed else f"PASSED as far as it went; no time for {missed}"
    return "\n".join([*lines, last])


def not_reached(report: Row) -> str:
    """What there was no time for, in words; nothing where every kernel was called and every run made."""
    untested = report.get("properties", {"untested": ["every kernel"]})["untested"]
    runs = [row["name"] for row in report.get("runs", []) if row["passed"] is None] if report.get("runs") else ["any run"]
    kernels = [f"{len(untested)} kernels"] if len(untested) > 1 else untested
    return ", ".join([*kernels, *runs])


def verdict(report: Row) -> bool:
    """Whether all that was looked at agrees, and something was; what there was no time for counts neither way."""
    looked = [row["passed"] for stage in ("canaries", "mpi", "runs") for row in report.get(stage, [])]
    return False not in looked and bool(looked) and not report.get("properties", {}).get("differences")
