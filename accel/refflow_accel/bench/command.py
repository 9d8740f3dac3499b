"""`refflow bench accel`: the back end "numba" beside NumPy, PyTorch and the reference, in one run, in turns.

Implements CLI-BENCH-ACCEL of spec/text/jobs.md.  Times are no part of the meaning and decide no exit code; a table tells
them with what they were measured on.
"""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from rich.console import Console

from refflow.world import backend, virtual_world

from . import functions, profile, sections
from .process import Sides
from .ratios import Ratio, table
from .rounds import FEWEST

CLOCKS = (
    "refflow and its rivals, a process each on the same cores, run in turns;"
    f" a time is the median of the {FEWEST} quickest rounds, spread how far those differ."
    " One thread: the process's processor time; more: the clock on the wall. ratio = rival's time / refflow's."
)


def bench(
    chosen: Sequence[str], threads: Sequence[int], json_to: str | None = None,
    run: dict[str, sections.Section] | None = None,
) -> list[Ratio]:  # fmt: skip
    """Runs the chosen sections (none: all that can run here), prints the table, and writes the JSON.

    `json_to` is a file, or "-" for standard output in place of the table.
    """
    known = sections.SECTIONS if run is None else run
    told = Console(stderr=True)
    names = list(chosen) or list(known)
    if not sections.has_torch():
        missing = [name for name in names if name in sections.NEEDS_TORCH]
        if missing:
            told.print(f"without PyTorch there is nothing to compare with in: {', '.join(missing)} (pip install torch)")
        names = [name for name in names if name not in missing]
    found: list[Ratio] = []
    blas = "none"
    for count in threads:
        with Sides(count) as sides:
            for name in names:
                told.print(f"{name}, {count} thread(s) ...")
                found += known[name](sides)
            blas = sides["NumPy"].ask(functions.blas)
    where = {**machine(), "BLAS": blas, "threads": list(threads), "clocks": CLOCKS}
    report(found, where, json_to)
    return found


def report(found: list[Ratio], where: dict[str, Any], json_to: str | None) -> None:
    """The table under what it was measured on, and the same as JSON."""
    text = json.dumps({"machine": where, "ratios": [ratio.json for ratio in found]}, indent=1)
    if json_to == "-":
        print(text)
        return
    console = Console(width=max(Console().width, 150) if not sys.stdout.isatty() else None)
    for name, value in where.items():
        console.print(f"{name}: {value}", highlight=False)
    console.print(table(found))
    if json_to is not None:
        Path(json_to).write_text(text + "\n", encoding="utf-8")


def profiled(which: str) -> None:
    """Prints where the training steps whose name contains `which` spend their time."""
    console = Console(width=200 if not sys.stdout.isatty() else None)
    with virtual_world(1), backend("numba"):
        for name, costs in sections.profiles(which):
            console.print(profile.table(costs, name))


def machine() -> dict[str, Any]:
    """What the times depend on."""
    from llvmlite import binding

    versions = {name: _version(name) for name in ("numpy", "torch", "numba", "llvmlite")}
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else float("nan")
    return {
        "processor": f"{binding.get_host_cpu_name()}, {os.cpu_count()} seen, load {load:.1f}",
        "versions": ", ".join([f"Python {platform.python_version()}", *(f"{k} {v}" for k, v in versions.items())]),
    }


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "absent"
