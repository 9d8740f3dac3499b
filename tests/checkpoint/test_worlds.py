"""Checkpoints where each process or thread owns one rank: rank 0 writes, and all agree: CKPT-AGREED."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

import refflow as flow
from refflow.errors import CheckpointError, LocalGlobalError, RefflowError

S, B = flow.sbp.split, flow.sbp.broadcast


def test_ranks_in_lockstep_write_the_file_of_the_virtual_world(tmp_path: Path) -> None:
    """CKPT-AGREED"""

    def program(path: Path) -> list[float]:
        where = flow.placement("cpu", [0, 1, 2])
        w = flow.tensor(np.arange(7, dtype=np.float32), placement=where, sbp=S(0))
        flow.save({"w": w, "b": flow.ones(2), "step": 3}, path)
        return flow.load(path, sbp=lambda name, shape: B if name == "w" else None)["w"].tolist()

    with flow.virtual_world(3):
        expected = program(tmp_path / "virtual")
    assert list(flow.spmd(3, lambda: program(tmp_path / "lockstep"))) == [expected] * 3
    assert (tmp_path / "virtual").read_bytes() == (tmp_path / "lockstep").read_bytes()


def test_what_one_rank_alone_does_wrong_is_an_error_on_all(tmp_path: Path) -> None:
    """CKPT-AGREED: every rank raises, none waits, and no file is written."""
    caught: list[tuple[int, type[BaseException], str]] = []

    def program(obj_of: object) -> None:
        try:
            flow.save(obj_of(flow.get_rank()), tmp_path / "f")  # type: ignore[operator]
        except RefflowError as error:
            caught.append((flow.get_rank(), type(error), str(error)))

    cases = [
        (lambda r: {1} if r == 1 else 0, CheckpointError, "the object is a set"),
        (lambda r: r, CheckpointError, "have another tree"),
        (lambda r: flow.tensor([float(r)]), LocalGlobalError, "differs between ranks 0 and 1"),
    ]
    for obj_of, kind, message in cases:
        caught.clear()
        flow.spmd(3, lambda obj_of=obj_of: program(obj_of))
        assert sorted(rank for rank, _, _ in caught) == [0, 1, 2]
        assert all(k is kind and message in text for _, k, text in caught)
    assert not (tmp_path / "f").exists()


def test_a_disk_that_is_full_on_rank_0_is_an_error_on_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """CKPT-AGREED"""

    def full(path: str, data: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("refflow.checkpoint.store.write_atomically", full)
    caught: list[str] = []

    def program() -> None:
        with pytest.raises(CheckpointError) as error:
            flow.save(1, tmp_path / "f")
        caught.append(str(error.value))

    flow.spmd(2, program)
    assert len(caught) == 2 and all("No space left on device" in text for text in caught)


SCRIPT = """
import sys
import refflow as flow

where = flow.placement("cpu", [1, 0])
x = flow.arange(7, placement=where, sbp=flow.sbp.split(0))
flow.save({"x": x, "y": flow.tensor([1.5])}, sys.argv[1])
back = flow.load(sys.argv[1])
assert back["x"].sbp == x.sbp and back["x"].tolist() == list(range(7)), back
try:
    flow.save(flow.per_rank(lambda r: [r]), sys.argv[1])
    raise SystemExit("differing local tensors were saved")
except flow.errors.LocalGlobalError:
    pass
try:
    flow.load(sys.argv[1] + ".absent")
    raise SystemExit("an absent file was loaded")
except flow.errors.CheckpointError:
    pass
"""


@pytest.mark.mpi
def test_mpi_processes_write_the_file_of_the_virtual_world(tmp_path: Path) -> None:
    """CKPT-AGREED"""
    pytest.importorskip("mpi4py")
    mpiexec = shutil.which("mpiexec", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]))
    if mpiexec is None:
        pytest.skip("no mpiexec")
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(SCRIPT))
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(flow.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])}
    command = [mpiexec, "-n", "2", sys.executable, "-m", "mpi4py", str(script), str(tmp_path / "mpi")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=env, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    with flow.virtual_world(2):
        x = flow.arange(7, placement=flow.placement("cpu", [1, 0]), sbp=S(0))
        flow.save({"x": x, "y": flow.tensor([1.5])}, tmp_path / "virtual")
    assert (tmp_path / "virtual").read_bytes() == (tmp_path / "mpi").read_bytes()
