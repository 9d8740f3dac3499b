"""The calling convention, threads and the cache's folder: ACC-ABI, ACC-THREADS, ACC-CACHE."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from refflow_accel import cache, launchers
from refflow_accel.cpu import abi
from refflow_accel.cpu.abi import CALL, Refused, entry, f32, f32s, f64, i8s, i64, i64s, u16s

import refflow as flow


@entry
def copies(words, lo, hi):  # type: ignore[no-untyped-def]
    """Every kind of argument, in one output; refuses a negative number."""
    floats, longs, bytes_, halves, out = f32s(words, 0), i64s(words, 1), i8s(words, 2), u16s(words, 3), f32s(words, 4)
    single, double, whole = f32(words, 5), f64(words, 6), i64(words, 7)
    for i in range(lo, hi):
        if longs[i] < 0:
            return i + 1
        out[i] = floats[i] + longs[i] + bytes_[i] + halves[i] + single + np.float32(double) + whole
    return 0


def launched(longs: list[int], tasks: int | None = None, cost: float = 1.0) -> list[float]:
    n = len(longs)
    out = np.zeros(n, np.float32)
    CALL.launch(
        copies, np.float32([0.5] * n), np.int64(longs), np.int8([-1] * n), np.uint16([7] * n), out,
        np.float32(0.25), 100.0, 1000, tasks=n if tasks is None else tasks, cost=cost,
    )  # fmt: skip
    return [float(x) for x in out]


def test_every_kind_of_argument_arrives() -> None:  # ACC-ABI
    assert launched([1, 2, 3]) == [1107.75, 1108.75, 1109.75]
    assert launched([1, 2, 3], tasks=2) == [1107.75, 1108.75, 0.0]
    assert launched([1], tasks=0) == [0.0]


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_refused_data_are_told_from_any_thread(threads: int) -> None:  # ACC-ABI, ACC-THREADS
    before = abi.set_threads(threads)
    try:
        assert launched(list(range(10)), cost=abi.WORTH * 4) == [1106.75 + i for i in range(10)]
        for bad in (0, 9):
            with pytest.raises(Refused):
                launched([-1 if i == bad else 1 for i in range(10)], cost=abi.WORTH * 4)
    finally:
        abi.set_threads(before)


@pytest.mark.parametrize(("tasks", "cost", "ranges"), [(1, 1e9, 1), (100, 1.0, 1), (100, 1e3, 3), (100, 1e9, 64)])
def test_small_work_is_not_cut(tasks: int, cost: float, ranges: int) -> None:  # ACC-THREADS
    assert abi.parts(tasks, cost) == ranges


def test_bits_do_not_depend_on_threads() -> None:  # ACC-THREADS
    rng = np.random.default_rng(0)
    a = rng.standard_normal((130, 200)).astype(np.float32)
    results = []
    for threads in (1, 2, 3):
        before = abi.set_threads(threads)
        try:
            with flow.backend("numba"):
                x = flow.tensor(a)
                results.append([(x @ x.T).numpy(), x.sum().numpy(), flow.exp(x).numpy(), x.sum(0).numpy()])
        finally:
            abi.set_threads(before)
    for other in results[1:]:
        assert all(flow.same_bits(one, two) for one, two in zip(results[0], other, strict=True))


def test_refflow_does_not_import_numba() -> None:  # ACC-CUDA-BACKEND
    code = "import sys, refflow, refflow_accel; print('numba' in sys.modules)"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "False"


def test_other_sources_have_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # ACC-CACHE
    monkeypatch.setenv("REFFLOW_CACHE", str(tmp_path / "kept"))
    cache.folder.cache_clear()
    here = cache.folder()
    assert here.parent == tmp_path / "kept"
    copied = tmp_path / "copy" / "refflow_accel"
    shutil.copytree(Path(cache.__file__).parent, copied, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(cache, "__file__", str(copied / "cache.py"))
    cache.folder.cache_clear()
    assert cache.folder() == here
    source = copied / "scalar" / "philox.py"
    source.write_text(source.read_text() + "\n")
    cache.folder.cache_clear()
    assert cache.folder() != here
    monkeypatch.undo()
    cache.folder.cache_clear()


# --- forks, and damaged caches ----------------------------------------------------------------------------------------


def python(program: str, **environment: str) -> str:
    """What a fresh process prints."""
    done = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, **environment}, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_forked_process_computes_alone() -> None:
    """OpenMP ends a forked process that asks for its threads."""
    program = """
import os
import refflow as flow
flow.bind_device("cpu", "numba")
a = flow.ones(300, 300)
wanted = (a @ a).tolist()
child = os.fork()
if not child:
    from refflow_accel.cpu.abi import set_threads
    set_threads(2)
    os._exit(int((a @ a).tolist() != wanted))
print(os.waitpid(child, 0)[1])
"""
    assert python(program, REFFLOW_THREADS="2") == "0"


ADDS = """
import refflow as flow
with flow.backend("numba"):
    print((flow.ones(2) + 1.5).tolist())
"""


@pytest.mark.slow
def test_a_damaged_cache_is_made_anew(tmp_path: Path) -> None:
    for ending in ("nothing yet", "nbi", "nbc", "py"):
        for path in tmp_path.rglob(f"*.{ending}"):
            path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
        assert python(ADDS, REFFLOW_CACHE=str(tmp_path)) == "[2.5, 2.5]"


def test_a_file_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    """ACC-CACHE: no half of it, and no temporary file, should it end on a folder of its name."""
    (tmp_path / "kernel.ptx").mkdir()
    cache.write(tmp_path / "kernel.ptx", "text")
    assert [path.name for path in tmp_path.iterdir()] == ["kernel.ptx"]


@pytest.mark.slow
def test_a_cache_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    assert python(ADDS, REFFLOW_CACHE=str(tmp_path / "file")) == "[2.5, 2.5]"


@pytest.mark.parametrize("name", launchers.COUNTS)
def test_processes_of_a_job_share_the_processors(name: str, monkeypatch: pytest.MonkeyPatch) -> None:  # ACC-THREADS
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(6)))
    counts = [abi.threads_asked_for(made) for made in ({}, {name: "1"}, {name: "2"}, {name: "3"}, {name: "99"}, {name: "two"})]
    assert counts == [6, 6, 4, 2, 1, 6]
    assert abi.threads_asked_for({name: "4", "REFFLOW_THREADS": "5"}) == 5


def test_threads_must_be_a_number() -> None:
    with pytest.raises(AssertionError, match="BackendError: REFFLOW_THREADS: must be a number of threads, found 'many'"):
        python(ADDS, REFFLOW_THREADS="many")
