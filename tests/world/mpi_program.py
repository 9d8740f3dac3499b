"""What one MPI process of the tests runs: `python -m mpi4py mpi_program.py FOLDER CASE`.

Each process writes what it found to FOLDER/RANK.json, because the processes' prints mix.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import refflow as flow
from refflow.errors import WorldError
from refflow.world import current_world
from tests.world.programs import PROGRAMS, misbehave

S, B = flow.sbp.split, flow.sbp.broadcast


def programs() -> dict[str, Any]:
    """All that must come out as in the virtual world; an unchanged script may ask for that one, too."""
    n = flow.get_world_size()
    flow.virtual_world(n)
    found: dict[str, Any] = {name: program() for name, program in PROGRAMS.items()}
    with flow.virtual_world(n), flow.mpi_world(), flow.mpi_world(n):
        found["world"] = [current_world().describe(), flow.get_rank(), current_world().owned]
    for wrong in (lambda: flow.mpi_world(n + 1), lambda: flow.virtual_world(1)):
        try:
            wrong()
        except WorldError as error:
            found.setdefault("wrong", []).append(str(error))
    if n == 3:
        found["misbehave"] = misbehave()
    return found


def step() -> None:
    flow.ones(4, 4, placement=flow.Placement.all("cpu"), sbp=S(0)).numpy()


def early() -> None:
    """Rank 1 leaves; two hundred collectives are waiting for it."""
    step()
    if flow.get_rank() == 1:
        sys.exit(0)
    for _ in range(200):
        step()


def failing() -> None:
    """Rank 1 fails while the others compute, so nobody waits for it yet."""
    step()
    if flow.get_rank() == 1:
        raise KeyError("only here")
    time.sleep(0.5)
    step()


def diverging() -> None:
    if flow.get_rank() == 1:
        flow.barrier()
    else:
        step()


def all_failing() -> None:
    flow.ones(4, 4, placement=flow.Placement.all("cpu"), sbp=S(0)).reshape(3, 3)


def ending_differently() -> None:
    x = flow.ones(4, 4, placement=flow.Placement.all("cpu"), sbp=S(0))
    _ = x + 1 if flow.get_rank() == 1 else x * 2


def large() -> None:
    """Messages too large to be buffered by MPI, for a process that has left."""
    x = flow.ones(4096, 1024, placement=flow.Placement.all("cpu"), sbp=S(0))
    step()
    if flow.get_rank() != 1:
        x.numpy()


def killed() -> None:
    step()
    if flow.get_rank() == 1:
        signal.raise_signal(signal.SIGKILL)
    step()


CASES: dict[str, Callable[[], Any]] = {
    f.__name__: f for f in (programs, early, failing, diverging, all_failing, ending_differently, large, killed)
}

if __name__ == "__main__":
    folder, case = sys.argv[1:]
    report = Path(folder, f"{flow.get_rank()}.json")
    try:
        result = CASES[case]()
    except flow.RefflowError as error:
        report.write_text(json.dumps([type(error).__name__, str(error)]))
        raise
    report.write_text(json.dumps(result))
