"""The back end "cuda" in Numba's simulator, in a process of its own: Numba decides at import whether it simulates (ACC-CUDA-SIM)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("numba_cuda")
ROOT = Path(__file__).parents[3]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(ROOT), str(ROOT / "accel"), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "NUMBA_ENABLE_CUDASIM": "1", "PYTHONPATH": path}
    return subprocess.run([sys.executable, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["simulated.py", "simulated_programs.py"])
def test_the_simulated_back_end_has_the_bits_of_the_reference(name: str) -> None:
    """ACC-CUDA-SIM, ACC-CUDA-MEMORY, ACC-CUDA-BACKEND; ACC-CUDA-PROGRAM."""
    done = run("-m", "pytest", "-q", "-p", "no:cacheprovider", str(Path(__file__).with_name(name)))
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
