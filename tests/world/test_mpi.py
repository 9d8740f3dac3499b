"""The MPI world, with real processes: the virtual world's bits, and an error on every rank instead of a hang."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import refflow as flow
from refflow.errors import WorldError
from refflow.world import current_world, detect
from tests.world.programs import EXPECTED, PROGRAMS

ROOT = Path(__file__).parents[2]
PROGRAM = Path(__file__).with_name("mpi_program.py")
HANG = 120  # seconds: far above what any case takes, even on a busy machine


def mpiexec() -> str:
    """The launcher next to this Python (the wheel `mpich` puts one there), else one on the path."""
    beside = Path(sys.executable).with_name("mpiexec")
    found = str(beside) if beside.exists() else shutil.which("mpiexec")
    if found is None or importlib.util.find_spec("mpi4py") is None:
        pytest.skip("needs mpiexec and mpi4py: pip install 'refflow[mpi]'")
    return found


def launch(
    size: int,
    folder: Path,
    case: str,
    runner: tuple[str, ...] = ("-m", "mpi4py"),
    *,
    program: Path = PROGRAM,
    **variables: str,
) -> tuple[int, str, dict[int, Any]]:
    """Exit status, standard error and rank -> what it reported, of a case run in `size` processes.

    `variables` are changes of their environment.
    """
    command = [mpiexec(), "-n", str(size), sys.executable, *runner, str(program), str(folder), case]
    path = os.pathsep.join(filter(None, [str(ROOT), str(ROOT / "accel"), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": path, **variables}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=environment, stdout=pipe, stderr=pipe, text=True, start_new_session=True) as process:
        try:
            _, stderr = process.communicate(timeout=HANG)
        except subprocess.TimeoutExpired:
            process.terminate()  # the launcher ends its processes
            raise
    reports = {int(file.stem): json.loads(file.read_text()) for file in sorted(folder.glob("*.json"))}
    assert not left_over(str(folder))
    return process.returncode, stderr, reports


def left_over(word: str) -> list[str]:
    """The command lines of processes that still run and have `word` in them, after a moment to end."""
    if not Path("/proc/self/cmdline").exists():
        return []
    for _ in range(50):
        running = []
        for file in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                line = file.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if word in line:
                running.append(line)
        if not running:
            break
        time.sleep(0.1)
    return running


@pytest.mark.mpi
@pytest.mark.parametrize("size", [2, 3, 4])
def test_processes_compute_what_the_virtual_world_does(size: int, tmp_path: Path) -> None:
    """WORLD-MPI, WORLD-DETECT, WORLD-VIRTUAL: boxing, training, printing, random numbers, the border; then errors."""
    status, stderr, reports = launch(size, tmp_path, "programs")
    assert status == 0, stderr
    assert sorted(reports) == list(range(size))
    for name, program in PROGRAMS.items():
        with flow.virtual_world(size):
            expected = program()
        whole: dict[str, str] = {}
        for report in reports.values():
            for what, text in report[name].items():
                assert whole.setdefault(what, text) == text
        assert whole == expected, name
    for rank, report in reports.items():
        assert report["world"] == [f"MPI world of {size} processes, this is rank {rank}", rank, [rank]]
        wrong_mpi, wrong_virtual = report["wrong"]
        assert f"the ranks are the MPI processes, of which there are {size}; mpiexec -n {size + 1}" in wrong_mpi
        assert f"virtual_world(1): the world is fixed, it has {size} ranks" in wrong_virtual
        for case, (kind, message) in EXPECTED.items() if size == 3 else ():
            found_kind, text = report["misbehave"][case]
            assert found_kind == kind and re.search(message, text, re.DOTALL), (case, rank, found_kind, text)


CALL = r"all_gather S\(0\) on .* of \(4, 4\) float32"


@pytest.mark.mpi
@pytest.mark.parametrize(
    ("case", "message"),
    [
        ("early", rf"collective 2\):\n  ranks 0, 2: {CALL}\n  rank 1: left: its program ended"),
        ("failing", rf"collective 2\):\n  ranks 0, 2: {CALL}\n  rank 1: failed: KeyError: 'only here'"),
        ("large", r"collective 2\):\n  ranks 0, 2: all_gather .* \(4096, 1024\) float32\n  rank 1: left: its program"),
    ],
    ids=["early", "failing", "large"],
)
def test_a_process_that_ends_early_is_an_error_on_the_others(case: str, message: str, tmp_path: Path) -> None:
    """ERR-LEFT"""
    status, stderr, reports = launch(3, tmp_path, case)
    assert status != 0
    for rank in (0, 2):
        kind, text = reports[rank]
        assert kind == "DivergenceError" and re.search(message, text), text
    assert stderr.count("DivergenceError: a rank is gone") == 2
    if case == "failing":
        assert stderr.count("KeyError: 'only here'\n") == 3  # its own traceback, and what the two others say


@pytest.mark.mpi
@pytest.mark.parametrize("runner", [("-m", "mpi4py"), ()], ids=["mpi4py", "plain"])
def test_processes_that_diverge_all_raise(runner: tuple[str, ...], tmp_path: Path) -> None:
    """ERR-DIVERGENCE, WORLD-DETECT: without `-m mpi4py`, too."""
    status, stderr, reports = launch(4, tmp_path, "diverging", runner)
    assert status != 0
    assert stderr.count("DivergenceError: the ranks reached different calls (collective 1):") == 4
    for rank in range(4):
        kind, text = reports[rank]
        assert kind == "DivergenceError"
        assert re.search(rf"ranks 0, 2, 3: {CALL}\n  rank 1: barrier", text), text


@pytest.mark.mpi
def test_an_error_all_processes_have_is_shown_by_each(tmp_path: Path) -> None:
    """ERR-AGREED"""
    status, stderr, reports = launch(3, tmp_path, "all_failing")
    assert status != 0
    assert {rank: kind for rank, (kind, _) in reports.items()} == dict.fromkeys(range(3), "ShapeError")
    assert stderr.count("ShapeError: reshape") == 3


@pytest.mark.mpi
def test_processes_that_end_after_different_operations(tmp_path: Path) -> None:
    """WORLD-HISTORY"""
    status, stderr, _ = launch(2, tmp_path, "ending_differently")
    assert status != 0
    assert re.search(r"refflow: the ranks ended after different operations .*\n  rank 0: .* mul\n  rank 1: .* add\n", stderr)


@pytest.mark.mpi
def test_a_killed_process_ends_the_program(tmp_path: Path) -> None:
    """WORLD-MPI: it cannot say anything; the launcher ends the others."""
    status, _, reports = launch(2, tmp_path, "killed")
    assert status != 0 and not reports


@pytest.mark.mpi
def test_one_process_is_an_mpi_world_too(tmp_path: Path) -> None:
    """WORLD-MPI: without a launcher there is one process; the default world stays virtual."""
    code = (
        "import refflow as flow; print(flow.world.current_world().describe()); flow.mpi_world(1); flow.barrier();"
        "x = flow.arange(3, placement=flow.placement('cpu', [0]), sbp=flow.sbp.split(0));"
        "print(flow.world.current_world().describe(), x.sum().item());"
        "flow.mpi_world(2)"
    )
    mpiexec()
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=HANG, check=False)
    assert done.stdout.splitlines() == ["virtual world of 1 rank in one process", "MPI world of 1 process, this is rank 0 3"]
    assert "WorldError: mpi_world(2): the ranks are the MPI processes, of which there are 1; mpiexec -n 2" in done.stderr


def test_a_launcher_without_mpi4py_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """WORLD-DETECT: never several programs that each think they are alone."""
    for name in detect.LAUNCHERS:
        monkeypatch.delenv(name, raising=False)
    assert detect.launched_size() == 1 and detect.default_world().size == 1
    assert current_world().size == 1
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "4")
    assert detect.launched_size() == 4
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    with pytest.raises(WorldError, match="mpi4py cannot be imported"):
        detect.default_world()
