"""`python -m refflow_accel.gpu_check`: without a device it says so; in the simulator it goes through all stages (ACC-GPU-CHECK)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("numba_cuda")
from refflow_accel import gpu_check
from refflow_accel.gpu_check import report

ROOT = Path(__file__).parents[3]


def run(out: Path, minutes: float, **variables: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(ROOT), str(ROOT / "accel"), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path, "CUDA_VISIBLE_DEVICES": "", **variables}
    command = [sys.executable, "-m", "refflow_accel.gpu_check", "--minutes", str(minutes), "--out", str(out)]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)


def test_without_a_device_it_says_so(tmp_path: Path) -> None:  # ACC-GPU-CHECK
    done = run(tmp_path, 1, NUMBA_ENABLE_CUDASIM="0")
    assert done.returncode == 2
    assert "found no CUDA device or driver" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.slow
def test_in_the_simulator_all_bits_agree(tmp_path: Path) -> None:  # ACC-GPU-CHECK
    done = run(tmp_path, 0.2, NUMBA_ENABLE_CUDASIM="1")
    last = next(line for line in reversed(done.stdout.splitlines()) if line)
    assert (done.returncode, last) == (0, "PASSED") or (
        done.returncode == 3 and last.startswith("PASSED as far as it went; no time for ")
    ), done.stdout + done.stderr
    told = json.loads((tmp_path / "gpu_check.json").read_text())
    assert told["passed"] and [row["passed"] for row in told["canaries"]] == [True] * 7
    assert [row["passed"] for row in told["mpi"]] == [None] and "is set" in told["mpi"][0]["found"]
    assert told["properties"]["cases"] > 100 and told["properties"]["differences"] == []


def test_mpi_is_asked_where_its_switch_is_set() -> None:  # ACC-GPU-CHECK, WORLD-CUDA-AWARE
    pytest.importorskip("mpi4py")
    path = os.pathsep.join([str(ROOT), str(ROOT / "accel"), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path, "NUMBA_ENABLE_CUDASIM": "1", "CUDA_VISIBLE_DEVICES": ""}
    code = "import json; from refflow_accel.gpu_check.through_mpi import probe; print(json.dumps(probe()))"

    def asked(**variables: str) -> Any:
        command = [sys.executable, "-c", code]
        done = subprocess.run(command, env={**environment, **variables}, capture_output=True, text=True, check=True)
        row = json.loads(done.stdout)
        return row["passed"], row["found"]

    assert asked(REFFLOW_CUDA_AWARE="0") == (None, "REFFLOW_CUDA_AWARE=0")
    assert asked(REFFLOW_CUDA_AWARE="1") == (True, "REFFLOW_CUDA_AWARE=1")
    passed, found = asked(REFFLOW_CUDA_AWARE="1", NUMBA_ENABLE_CUDASIM="0")
    assert passed is False and "found no CUDA device or driver" in found


def test_a_wrong_setting_ends_the_check(tmp_path: Path) -> None:  # ACC-GPU-CHECK, WORLD-CUDA-AWARE
    done = run(tmp_path, 0.01, NUMBA_ENABLE_CUDASIM="1", REFFLOW_CUDA_AWARE="yes")
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert "gpu_check: the environment variable REFFLOW_CUDA_AWARE must be 1 or 0" in done.stderr


def sample(**changed: Any) -> dict[str, Any]:
    """A report in which all agrees, but for what is changed."""
    good = {"name": "one", "passed": True, "found": None}
    made = {"canaries": [good], "properties": {"differences": []}, "runs": [good, {**good, "passed": None}]}
    return {**made, **changed}


@pytest.mark.parametrize(
    "changed",
    [
        {"canaries": [{"name": "fma", "passed": False}]},
        {"mpi": [{"name": "MPI on device memory", "passed": False}]},
        {"properties": {"differences": ["sum(...)"]}},
        {"runs": [{"name": "mlp", "passed": False}]},
        {"canaries": [], "runs": []},
    ],
)
def test_one_difference_fails_the_check(changed: dict[str, Any]) -> None:  # ACC-GPU-CHECK
    assert gpu_check.verdict(sample())
    assert not gpu_check.verdict(sample(**changed))


def test_what_was_not_reached_is_told() -> None:  # ACC-GPU-CHECK
    ran = [{"name": "mlp", "passed": True}]
    whole = {"properties": {"untested": []}, "runs": ran}
    assert report.not_reached(whole) == ""
    assert report.not_reached({**whole, "runs": [*ran, {"name": "cnn", "passed": None}]}) == "cnn"
    assert report.not_reached({"properties": {"untested": ["sum", "all"]}, "runs": ran}) == "2 kernels"
    assert report.not_reached({}) == "every kernel, any run"


def test_the_table_tells_how_many_calls_differ() -> None:  # ACC-GPU-CHECK
    """Not only those that are told in full."""
    found = {"cases": 99, "by_kernel": {"sum": 99}, "differing": 50, "differences": ["sum(..)"] * 40, "untested": []}
    head = {"device": "none", "numba_cuda": "0", "seconds": 1.0, "passed": False}
    assert "99 calls of 1 kernels: 50 differ" in gpu_check.table({**head, "properties": found})
