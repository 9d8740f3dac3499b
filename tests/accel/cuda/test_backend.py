"""The back end "cuda" where there is no device, and what importing costs (ACC-CUDA-BACKEND)."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from types import SimpleNamespace

import pytest
from refflow_accel import launchers

import refflow as flow
from refflow.errors import BackendError
from refflow.world import devices

ROOT = Path(__file__).parents[3]


def test_importing_the_packages_does_not_import_numba() -> None:  # ACC-CUDA-BACKEND
    code = "import sys, refflow, refflow_accel, refflow_accel.cuda; sys.exit('numba' in sys.modules)"
    path = os.pathsep.join([str(ROOT), str(ROOT / "accel")])
    assert subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": path}).returncode == 0


def test_without_a_device_the_error_says_what_helps(monkeypatch: pytest.MonkeyPatch) -> None:  # ACC-CUDA-BACKEND
    pytest.importorskip("numba_cuda")
    from numba import cuda

    if cuda.is_available():
        pytest.skip("there is a device")
    plugin = EntryPoint("cuda", "refflow_accel.cuda.backend:CudaBackend", devices.GROUP)
    monkeypatch.setattr(devices, "_entry_points", lambda group: [plugin])
    with pytest.raises(BackendError, match="found no CUDA device or driver; NUMBA_ENABLE_CUDASIM=1 simulates one"):
        flow.backend("cuda")


@pytest.mark.parametrize("name", launchers.NUMBERS)
def test_processes_of_a_machine_take_its_devices_in_turn(name: str, monkeypatch: pytest.MonkeyPatch) -> None:  # ACC-CUDA-DEVICE
    pytest.importorskip("numba_cuda")
    from refflow_accel.cuda import backend

    taken: list[int] = []
    driver = SimpleNamespace(is_available=lambda: True, gpus=[None] * 3, select_device=taken.append)
    monkeypatch.setattr(backend, "cuda", driver)
    for other in launchers.NUMBERS:
        monkeypatch.delenv(other, raising=False)
    backend.CudaBackend()
    for number in ("0", "2", "4", "two"):
        monkeypatch.setenv(name, number)
        backend.CudaBackend()
    assert taken == [0, 0, 2, 1, 0]


def test_the_entry_point_names_the_back_end() -> None:  # ACC-CUDA-BACKEND
    assert 'cuda = "refflow_accel.cuda.backend:CudaBackend"' in (ROOT / "pyproject.toml").read_text()
