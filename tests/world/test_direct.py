"""Transfers from device to device, with real processes: MPI reads and writes the memory of a back end that says where it is.

The memory is the host's, of a test's back end or of Numba's CUDA simulator; so any MPI can take it, CUDA-aware or not.
"""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import refflow as flow
from refflow.errors import WorldError
from refflow.kernels.wire import Wire, Wired
from refflow.world.direct import cuda_aware
from tests.graph.mpi_program import record
from tests.loopback import LoopbackBackend, WiredBackend
from tests.world.direct_program import GRAPHS, LARGE, moved
from tests.world.programs import EXPECTED, PROGRAMS, training
from tests.world.test_mpi import launch

PROGRAM = Path(__file__).with_name("direct_program.py")
SWITCHES = ("REFFLOW_CUDA_AWARE", "MPICH_GPU_SUPPORT_ENABLED", "MV2_USE_CUDA", "OMPI_MCA_opal_cuda_support")
S, B = flow.sbp.split, flow.sbp.broadcast
ON = {"REFFLOW_CUDA_AWARE": "1"}


def run(size: int, folder: Path, case: str, **variables: str) -> tuple[int, str, dict[int, Any]]:
    return launch(size, folder, case, program=PROGRAM, **{**ON, **variables})


# --- the same bits --------------------------------------------------------------------------------------------------


@pytest.mark.mpi
@pytest.mark.parametrize("size", [2, 3, 4])
def test_memory_to_memory_gives_the_bits_of_the_virtual_world(size: int, tmp_path: Path) -> None:
    """WORLD-DIRECT, KER-WIRE: boxing between all layouts, training, errors after which the world is usable."""
    status, stderr, reports = run(size, tmp_path, "programs")
    assert status == 0, stderr
    for name, program in PROGRAMS.items():
        with flow.virtual_world(size):
            expected = program()
        whole: dict[str, str] = {}
        for report in reports.values():
            for what, text in report[name].items():
                assert whole.setdefault(what, text) == text
        assert whole == expected, name
    for report in reports.values():
        assert min(report["count"].values()) > 0
        for case, (kind, message) in EXPECTED.items() if size == 3 else ():
            found_kind, text = report["misbehave"][case]
            assert found_kind == kind and re.search(message, text, re.DOTALL), (case, found_kind, text)


@pytest.mark.mpi
@pytest.mark.parametrize("on", ["1", "0"])
def test_what_stays_is_not_sent_and_nothing_is_copied(on: str, tmp_path: Path) -> None:
    """WORLD-DIRECT: bytes from and to each rank; with the switch off all goes through the host, as from other back ends."""
    status, stderr, reports = run(3, tmp_path, "moves", REFFLOW_CUDA_AWARE=on)
    assert status == 0, stderr
    piece = {"all_gather": 24, "all_to_all": 8, "empty": 0}
    for rank, found in reports.items():
        if on == "0":
            assert all(moved["sent"] == moved["landed"] == 0 for moved in found.values())
            assert all(moved["copied"] > 0 for name, moved in found.items() if name != "empty")
            continue
        assert all(moved["copied"] == 0 for moved in found.values()), found
        for name in ("all_gather", "all_to_all", "empty"):
            assert found[name]["sent"] == found[name]["landed"] == 2 * piece[name], (rank, name)
        assert found["all_reduce"]["sent"] == found["all_reduce"]["landed"] > 0
        assert found["empty shards"] == {"sent": 8 if rank == 0 else 0, "landed": 0 if rank == 0 else 4, "copied": 0}


@pytest.mark.mpi
@pytest.mark.parametrize("size", [2, 4])
def test_the_cuda_back_end_trains_to_the_same_bits(size: int, tmp_path: Path) -> None:
    """WORLD-DIRECT, KER-WIRE, ACC-CUDA-BACKEND: in the simulator; its arrays' memory is what MPI is given."""
    pytest.importorskip("numba_cuda")
    status, stderr, reports = run(size, tmp_path, "simulated", NUMBA_ENABLE_CUDASIM="1")
    assert status == 0, stderr
    with flow.virtual_world(size):
        expected = {"training": training(), "tensor parallel": training(B, S(1)), "moved": moved()}
    for report in reports.values():
        assert report.pop("sent") > 0
        assert report == expected


@pytest.mark.mpi
def test_graphs_across_processes_on_a_back_end_with_arrays_of_its_own(tmp_path: Path) -> None:
    """WORLD-DIRECT, ACT-PACKET, PLAN-BOXING, TIME-WORLD: node by node from device to device; by actors through the host."""
    status, stderr, reports = run(2, tmp_path, "graphs")
    assert status == 0, stderr
    for report in reports.values():
        for name, (net, optimizer, _) in GRAPHS.items():
            found, direct = report[name]
            assert found == record(net, optimizer, None), name
            assert direct == (name == "micro-steps")


# --- errors instead of hangs ----------------------------------------------------------------------------------------

CALL = r"all_gather S\(0\) on .* float32, device to device \(REFFLOW_CUDA_AWARE\)"


@pytest.mark.mpi
@pytest.mark.parametrize(
    ("case", "number", "said"),
    [
        ("failing", 2, "failed: KeyError: 'only here'"), ("half", 2, "failed: KeyError: 'only here'"),
        ("leaving", 2, "failed: SystemExit: 0"), ("early", 2, "left: its program ended"),
        ("without_memory", 2, "failed: OutOfMemory: no room"),
    ],
)  # fmt: skip
def test_a_process_that_does_not_send_is_an_error_on_the_others(case: str, number: int, said: str, tmp_path: Path) -> None:
    """WORLD-DIRECT, ERR-LEFT"""
    status, stderr, reports = run(3, tmp_path, case)
    assert status != 0
    for rank in (2,) if case == "half" else (0, 2):  # half: rank 0 has all it waits for
        kind, text = reports[rank]
        assert kind == "DivergenceError" and "a rank is gone" in text
        assert re.search(rf"\(collective {number}\):\n  ranks 0, 2: {CALL}\n  rank 1: {re.escape(said)}", text), text
    assert "DivergenceError: a rank is gone" in stderr


@pytest.mark.mpi
def test_who_goes_on_after_a_failure_is_told_again(tmp_path: Path) -> None:
    """WORLD-DIRECT: the process that failed, too: it has said that it takes part no more."""
    _, _, reports = run(3, tmp_path, "going_on")
    for rank, told in reports.items():
        assert len(told) == 3, (rank, told)
        assert told[0].startswith("KeyError" if rank == 1 else "DivergenceError")
        for text in told[1:] if rank == 1 else told:
            assert "DivergenceError: a rank is gone" in text and "rank 1: failed: KeyError: 'only here'" in text


@pytest.mark.mpi
def test_what_is_posted_goes_through(tmp_path: Path) -> None:
    """WORLD-DIRECT: a process is interrupted while it waits; the others have what it sent, and hear of it after that."""
    status, stderr, reports = run(3, tmp_path, "interrupted")
    assert status != 0 and "KeyboardInterrupt" in stderr
    assert set(reports) == {0, 2}
    for total, told in reports.values():
        assert float(total) == 3 * LARGE // 4
        assert "rank 1: failed: KeyboardInterrupt" in told


@pytest.mark.mpi
@pytest.mark.parametrize(
    ("case", "number", "said"),
    [("diverging", 2, "barrier"), ("switched_off", 1, r"all_gather S\(0\) on .* float32\n")],
)
def test_processes_that_diverge_all_raise(case: str, number: int, said: str, tmp_path: Path) -> None:
    """WORLD-DIRECT, WORLD-CUDA-AWARE, ERR-DIVERGENCE: another call; the same one, but not from device to device."""
    status, stderr, reports = run(3, tmp_path, case)
    assert status != 0, stderr
    for rank in range(3):
        kind, text = reports[rank]
        assert kind == "DivergenceError"
        assert re.search(rf"collective {number}\):\n  ranks 0, 2: {CALL}\n  rank 1: {said}", text), text


# --- the switch -----------------------------------------------------------------------------------------------------


@pytest.mark.mpi
def test_a_wrong_switch_is_an_error_at_the_first_move(tmp_path: Path) -> None:
    """WORLD-CUDA-AWARE"""
    status, _, reports = run(2, tmp_path, "wrong_switch")
    assert status != 0
    for kind, text in reports.values():
        assert kind == "WorldError" and "REFFLOW_CUDA_AWARE must be 1 or 0, found 'yes'" in text


@pytest.mark.mpi
@pytest.mark.parametrize(("own", "mpichs", "found"), [("", "1", True), ("0", "1", False), ("", "0", False), ("1", "0", True)])
def test_a_world_asks_the_switches(own: str, mpichs: str, found: bool, tmp_path: Path) -> None:
    """WORLD-CUDA-AWARE"""
    status, stderr, reports = run(2, tmp_path, "switch", REFFLOW_CUDA_AWARE=own, MV2_USE_CUDA=mpichs)
    assert status == 0, stderr
    assert reports == {0: found, 1: found}


@pytest.fixture
def unset(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """An environment without any switch."""
    for name in SWITCHES:
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


def test_what_switches_say(unset: pytest.MonkeyPatch) -> None:
    """WORLD-CUDA-AWARE: ours before those of MPI libraries, which count only where mpi4py is."""
    if importlib.util.find_spec("mpi4py") is not None:
        assert not cuda_aware().found and cuda_aware().how.startswith("none of MPICH_GPU_SUPPORT_ENABLED, ")
        for name, value in (("MPICH_GPU_SUPPORT_ENABLED", "1"), ("MV2_USE_CUDA", "1"), ("OMPI_MCA_opal_cuda_support", "True")):
            with unset.context() as patch:
                patch.setenv(name, "0")
                assert not cuda_aware().found
                patch.setenv(name, value)
                assert cuda_aware().found and cuda_aware().how == f"{name}={value.lower()}"
                patch.setenv("REFFLOW_CUDA_AWARE", "0")
                assert not cuda_aware().found and cuda_aware().how == "REFFLOW_CUDA_AWARE=0"
    with unset.context() as patch:
        patch.setattr(importlib.util, "find_spec", lambda name: None)
        patch.setenv("MV2_USE_CUDA", "1")
        assert not cuda_aware().found and cuda_aware().how == "mpi4py is not installed"


@pytest.mark.parametrize("told", ["2", "yes", "true", " 1"])
def test_another_value_is_refused(told: str, unset: pytest.MonkeyPatch) -> None:
    """WORLD-CUDA-AWARE"""
    unset.setenv("REFFLOW_CUDA_AWARE", told)
    with pytest.raises(WorldError, match=rf"REFFLOW_CUDA_AWARE must be 1 or 0, found '{told}'; unset, MPI's own switches"):
        cuda_aware()


# --- memory ---------------------------------------------------------------------------------------------------------


def read(wire: Wire) -> bytes:
    """What lies there, as a reader of the interface sees it."""
    told = wire.__cuda_array_interface__
    size, read_only = told["shape"][0], told["data"][1]
    assert told["typestr"] == "|u1" and told["strides"] is None and not read_only and size == wire.nbytes
    view = type("View", (), {"__array_interface__": told})()
    return np.asarray(view).tobytes() if size else b""


def test_a_wire_is_the_elements_in_order() -> None:
    """KER-WIRE: also of an array that is seen transposed or in steps."""
    backend = WiredBackend()
    assert isinstance(backend, Wired) and not isinstance(LoopbackBackend(), Wired)
    whole = np.arange(24, dtype=np.int16).reshape(4, 6)
    for array in (whole, whole.T, whole[::2, 1:4], whole[:0], whole[1, 1, ...], np.broadcast_to(whole[0], (3, 6))):
        assert read(backend.wire(backend.from_host(array))) == array.tobytes()
    made, wire = backend.landing((2, 3), np.dtype(flow.bfloat16))
    assert wire.nbytes == 12 and backend.shape(made) == (2, 3) and read(wire) == b"\xa5" * 12
