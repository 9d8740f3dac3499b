"""examples/own_training.py: one last line however it is run, and after a stop in the middle (CLI-RUN, CKPT-RESHARD)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.world.test_mpi import mpiexec

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "examples" / "own_training.py"


def last_line(*command: str, **variables: str) -> str:
    path = os.pathsep.join([str(ROOT), str(ROOT / "accel"), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path, **variables}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.splitlines()
    return line


def run(*arguments: str, ranks: int = 1, script: Path = SCRIPT, **variables: str) -> str:
    return last_line(sys.executable, "-m", "refflow", "run", "--ranks", str(ranks), str(script), *arguments, **variables)


@pytest.fixture(scope="module")
def expected() -> str:
    """What one rank says."""
    line = run()
    right, of = line.split(" right")[0].split(" of ")
    assert of == "360" and int(right) > 300
    return line


@pytest.mark.parametrize("arguments", [(), ("--graph",)], ids=["eager", "graph"])
def test_on_virtual_ranks(arguments: tuple[str, ...], expected: str) -> None:
    assert run(*arguments, ranks=3) == expected


def test_compiled(expected: str) -> None:
    pytest.importorskip("numba")
    assert run("--graph", REFFLOW_BACKEND="numba") == expected


def test_as_processes(expected: str) -> None:
    python = (sys.executable, "-m", "mpi4py", "-m", "refflow")
    assert last_line(mpiexec(), "-n", "2", *python, "run", str(SCRIPT), "--graph") == expected


def test_a_run_goes_on_where_it_stopped(tmp_path: Path, expected: str) -> None:
    """Two epochs on two ranks, the rest on three, in a graph."""
    file, short = tmp_path / "state.safetensors", tmp_path / "short.py"
    short.write_text(SCRIPT.read_text().replace("while loader.epoch < EPOCHS", "while loader.epoch < 2"))
    assert run("--checkpoint", str(file), ranks=2, script=short) != expected
    assert run("--graph", "--checkpoint", str(file), ranks=3) == expected
