"""Graphs across MPI processes: actors and packets give what one process gives, on every rank.  ACT-MPI, ACT-SAME, TIME-PARTS."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.graph.mpi_program import JOBS, PARTS, parts, record
from tests.world.test_mpi import ROOT, mpiexec

PROGRAM = Path(__file__).with_name("mpi_program.py")


@pytest.mark.mpi
@pytest.mark.parametrize("size", [2, 4])
def test_processes_train_what_one_process_trains(size: int, tmp_path: Path) -> None:
    """Data parallel, pipelines with micro-batches, ZeRO 3, tensor parallel, recomputation; digests of all they leave."""
    command = [mpiexec(), "-n", str(size), sys.executable, "-m", "mpi4py", str(PROGRAM), str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    expected = [record(net, optimizer, None) for net, optimizer, _ in JOBS[size]]
    pieces = parts(PARTS[size])
    for rank in range(size):
        found = json.loads((tmp_path / f"{rank}.json").read_text())
        assert found["parts"] == pieces, f"rank {rank}: parts of {PARTS[size]}"
        for job, one, other in zip(JOBS[size], found["jobs"], expected, strict=True):
            assert one == other, f"rank {rank}: {job[0].__name__} {job[2]}"
