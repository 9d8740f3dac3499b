"""Graphs across MPI processes: actors and packets give what one process gives, on every rank.

ACT-MPI, ACT-SAME, TIME-PARTS, ERR-AGREED.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import refflow as flow
from tests.graph import mpi_errors
from tests.graph.mpi_program import JOBS, PARTS, parts, record
from tests.graph.nets import Told
from tests.world.test_mpi import ROOT, mpiexec

PROGRAM = Path(__file__).with_name("mpi_program.py")


def launch(size: int, program: Path, folder: Path) -> list[Any]:
    """What each rank of a program reports."""
    command = [mpiexec(), "-n", str(size), sys.executable, "-m", "mpi4py", str(program), str(folder)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(size)]


@pytest.mark.mpi
@pytest.mark.parametrize("size", [2, 4])
def test_processes_train_what_one_process_trains(size: int, tmp_path: Path) -> None:
    """Data parallel, pipelines with micro-batches, ZeRO 3, tensor parallel, recomputation; digests of all they leave."""
    reports = launch(size, PROGRAM, tmp_path)
    expected = [record(net, optimizer, None) for net, optimizer, _ in JOBS[size]]
    pieces = parts(PARTS[size])
    for rank in range(size):
        found = reports[rank]
        assert found["parts"] == pieces, f"rank {rank}: parts of {PARTS[size]}"
        for job, one, other in zip(JOBS[size], found["jobs"], expected, strict=True):
            assert one == other, f"rank {rank}: {job[0].__name__} {job[2]}"


@pytest.mark.mpi
@pytest.mark.parametrize("size", [2, 4])
def test_a_call_that_fails_on_one_rank_fails_on_all_and_the_next_is_right(size: int, tmp_path: Path) -> None:
    """ERR-AGREED, ACT-MPI: the interpreter's error for wrong data, a typed one for a crash, nothing left under way."""
    reports = launch(size, Path(mpi_errors.__file__), tmp_path)
    with flow.virtual_world(size):
        for i, (told, wrong) in enumerate(mpi_errors.JOBS[size]):
            expected = mpi_errors.story(replace(told, runtime="sequential"), wrong)
            assert expected[0][1][0] == "IndexOutOfRange" and "(on rank " in expected[0][1][1]
            assert mpi_errors.story(told, wrong) == expected, f"one process: {told}"
            assert [found["jobs"][i] for found in reports] == [expected] * size, str(told)
        without = mpi_errors.story(replace(Told((size,)), runtime="sequential"), (70,))
        del without[0][1]
    told = [found["diverged"] for found in reports]
    assert told == [told[0]] * size and "the ranks reached different calls" in told[0][0], told
    others = ("WorldError", "WorldError", "OutOfMemory", "DivergenceError")
    for i, (crash, other) in enumerate(zip(mpi_errors.CRASHES, others, strict=True)):
        stories = [found["crashes"][i] for found in reports]
        kinds, texts = zip(*(story[0].pop(1) for story in stories), strict=True)
        assert kinds == (*[other] * (size - 1), type(crash).__name__)
        if isinstance(crash, KeyboardInterrupt):  # caught by the script, which went elsewhere
            assert all(f"rank {size - 1}: barrier" in text and "running plan Train" in text for text in texts)
        else:
            assert all(f"on rank {size - 1}" in text for text in texts[:-1])
        assert stories == [without] * size, kinds
