"""Compiled graphs over MPI processes: the reference's bits, the same error on every rank, and never a hang.

ACC-EXCHANGE, GRAPH-RUNTIME, ERR-AGREED, WORLD-HISTORY.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from refflow_accel.program.exchange import digest
from refflow_accel.program.local import EXCHANGE, LocalCall, LocalProgram
from refflow_accel.program.passes import optimized

import refflow as flow
from refflow.world import Transfer
from tests.accel import exchange_program
from tests.accel.exchange_program import JOBS, WRONG, compiled, division, tiny, together
from tests.graph import mpi_errors
from tests.graph.mpi_program import record
from tests.world.test_mpi import ROOT, left_over, mpiexec

HANG = 400  # seconds: kernels may have to be compiled first


def launch(size: int, folder: Path, case: str, backend: str = "numba", **more: str) -> tuple[int, str, list[Any]]:
    """Exit status, standard error and the reports of a case run in `size` processes, with `more` in the environment."""
    program = Path(exchange_program.__file__)
    command = [mpiexec(), "-n", str(size), sys.executable, "-m", "mpi4py", str(program), str(folder), case, backend]
    path = os.pathsep.join([str(ROOT), str(ROOT / "accel"), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path, **more}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=HANG, check=False)
    assert not left_over(str(folder))
    return done.returncode, done.stderr, [json.loads(file.read_text()) for file in sorted(folder.glob("*.json"))]


@pytest.mark.mpi
@pytest.mark.parametrize("size", [2, 4])
def test_processes_train_what_the_reference_trains(size: int, tmp_path: Path) -> None:
    """ACC-EXCHANGE: data and tensor parallel, a mesh of two axes, ZeRO, stages, micro-batches; digests of all they leave."""
    expected = [record(net, optimizer, None) for net, optimizer, _ in JOBS[size]]
    with flow.virtual_world(size), flow.backend("numba"):  # compiles the kernels, once
        assert [record(net, optimizer, compiled(told)) for net, optimizer, told in JOBS[size]] == expected
    status, stderr, reports = launch(size, tmp_path, "jobs")
    assert status == 0, stderr
    for rank, (records, exchanges) in enumerate(reports):
        for job, found, wanted in zip(JOBS[size], records, expected, strict=True):
            assert found == wanted, f"rank {rank}: {job[0].__name__} {job[2]}"
        assert all(exchanges) and exchanges == reports[0][1], f"rank {rank}: not native, or not the same exchanges"


@pytest.mark.mpi
@pytest.mark.parametrize("size", [2, 4])
def test_bad_data_on_one_rank_are_one_error_on_all(size: int, tmp_path: Path) -> None:
    """ACC-EXCHANGE, ERR-AGREED: the interpreter's error on every rank, nothing changed, and the next call is right."""
    with flow.virtual_world(size):
        expected = [mpi_errors.story(replace(told, runtime="sequential"), rows) for told, rows in WRONG[size]]
        quotients = division("sequential")
    assert all(story[0][1][0] == "IndexOutOfRange" and "(on rank " in story[0][1][1] for story in expected)
    assert quotients[1][0] == "DataError" and f"(on rank {size - 1})" in quotients[1][1]
    status, stderr, reports = launch(size, tmp_path, "wrong")
    assert status == 0, stderr
    assert reports == [[expected, quotients]] * size


@pytest.mark.mpi
@pytest.mark.parametrize("size", [2, 3])
def test_a_process_that_calls_another_graph_is_a_divergence(size: int, tmp_path: Path) -> None:
    """ACC-EXCHANGE, WORLD-HISTORY: the same exchanges or others, another rate, no graph, a graph not yet recorded."""
    with flow.virtual_world(size):
        wanted = together(size)
    status, stderr, reports = launch(size, tmp_path, "diverging")
    assert status == 0, stderr
    for before, same, other, none, rate, fresh, after, weights, natively in reports:
        assert [before, after, weights] == wanted and natively == 1
        assert "the same call by different operations" in same and "the same call by different operations" in rate
        assert "the ranks reached different calls" in other and "the ranks reached different calls" in none
        assert fresh == "DivergenceError"


@pytest.mark.mpi
@pytest.mark.slow
def test_programs_of_simulated_devices_exchange(tmp_path: Path) -> None:
    """ACC-EXCHANGE, ACC-CUDA-PROGRAM: training, with labels that are none on one rank in one call."""
    pytest.importorskip("numba_cuda")
    with flow.virtual_world(2):
        expected = tiny("sequential")
    assert expected[0][2][0] == "IndexOutOfRange"
    status, stderr, reports = launch(2, tmp_path, "tiny", "cuda", NUMBA_ENABLE_CUDASIM="1")
    assert status == 0, stderr
    assert reports == [expected] * 2


@pytest.mark.mpi
def test_a_process_killed_in_a_call_ends_the_program(tmp_path: Path) -> None:
    """ACC-EXCHANGE, WORLD-MPI: it cannot say anything; the launcher ends the others."""
    status, _, reports = launch(2, tmp_path, "killed")
    assert status != 0 and not reports


def test_passes_keep_exchanges_in_their_order() -> None:
    """ACC-EXCHANGE: one whose results nobody reads, one of constants, and two that nothing orders but the program."""
    f32 = np.dtype(np.float32)
    arrays = [np.ones(2, f32) for _ in range(8)]

    def swap(name: str, source: int, target: int) -> LocalCall:
        attrs = {"call": name, "transfers": (Transfer(0, 1, (2,), f32),), "sent": (0,), "received": (0,)}
        return LocalCall(EXCHANGE, (source,), attrs, (target,))

    calls = [
        LocalCall("neg", (0,), {}, (1,)), swap("first", 1, 2), LocalCall("exp", (0,), {}, (3,)), swap("second", 4, 5),
        LocalCall("add", (3, 2), {}, (6,)), swap("third", 6, 7),
    ]  # fmt: skip
    program = LocalProgram(arrays, calls, constants={4}, results=[7])
    after = optimized(program)
    assert [call.attrs["call"] for call in after.calls if call.effect] == ["first", "second", "third"]
    assert digest(after) == digest(program)
