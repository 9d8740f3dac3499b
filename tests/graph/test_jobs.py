"""JOB-GRAPH, JOB-PIPELINE, JOB-SAVE, JOB-TRACE: `refflow train digits` as a graph, in every way, to one hash."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import refflow as flow
from refflow.cli import main
from refflow.cli.digits import MODELS, Run, arrange
from refflow.cli.steps import Execution, stage_of
from refflow.errors import AttributeValueError

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def world() -> Iterator[None]:
    """A command makes its own world."""
    with flow.virtual_world(1):
        yield


def job(capsys: pytest.CaptureFixture[str], *args: str, steps: int = 2) -> dict[str, Any]:
    """What `refflow train digits … --json` prints."""
    assert main(["train", "digits", "--json", "--steps", str(steps), *args]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.fixture(scope="module")
def eager() -> dict[str, str]:
    """model -> the hash of two eager steps on one rank."""
    from refflow.cli.digits import train

    return {model: train({"model": model}, arrange("data"), steps=2).sha256 for model in MODELS}


PLAIN = [
    "--graph", "--micro-batches 8", "--recompute", "--ranks 2 --micro-batches 4", "--ranks 4 --micro-batches 2 --zero 1",
    "--ranks 4 --zero 2", "--ranks 4 --micro-batches 2 --zero 3 --recompute", "--ranks 8 --graph", "--mesh 2x2 --graph",
    "--ranks 2 --parallel tensor --micro-batches 2",
    *(f"--parallel pipeline --micro-batches {m}" for m in (1, 2, 4)),
    *(f"--parallel pipeline --stages 4 --micro-batches {m}" for m in (1, 2, 4)),
    "--parallel pipeline --ranks 4 --micro-batches 4 --zero 3", "--parallel pipeline --stages 4 --ranks 8 --micro-batches 4 --recompute",
]  # fmt: skip


@pytest.mark.parametrize("how", PLAIN)
def test_the_mlp_has_one_hash(capsys: pytest.CaptureFixture[str], eager: dict[str, str], how: str) -> None:
    """JOB-GRAPH, JOB-PIPELINE."""
    found = job(capsys, *how.split())
    assert found["sha256"] == eager["mlp"]
    assert found["graph"] or found["micro_batches"] > 1 or found["zero"] or found["recompute"]


@pytest.mark.parametrize("how", ["--ranks 2 --micro-batches 4 --zero 2", "--parallel pipeline --stages 4 --micro-batches 2"])
def test_the_cnn_has_one_hash(capsys: pytest.CaptureFixture[str], eager: dict[str, str], how: str) -> None:
    """JOB-GRAPH, JOB-PIPELINE."""
    assert job(capsys, "--model", "cnn", *how.split())["sha256"] == eager["cnn"]


@pytest.mark.parametrize("half", ["bf16", "f16"])
def test_half_precision_has_a_hash_of_its_own(capsys: pytest.CaptureFixture[str], eager: dict[str, str], half: str) -> None:
    """JOB-GRAPH, AMP-ALLOW."""
    ways = ["", "--ranks 4 --micro-batches 2 --zero 2", "--parallel pipeline --micro-batches 4 --recompute"]
    found = [job(capsys, "--amp", half, *way.split()) for way in ways]
    hashes = {one["sha256"] for one in found}
    assert len(hashes) == 1 and hashes != {eager["mlp"]}
    assert all(one["amp"] == half and one["skipped"] == 0 for one in found)


def test_the_graph_logs_what_eager_code_moves(capsys: pytest.CaptureFixture[str]) -> None:
    """GRAPH-COMM: the same collectives with the same bytes; micro-batches of one rank move nothing."""
    one = job(capsys, "--ranks", "4")["comm"]
    assert job(capsys, "--ranks", "4", "--graph")["comm"] == one
    cut = job(capsys, "--ranks", "4", "--micro-batches", "2")["comm"]
    assert {kind: move["bytes"] for kind, move in cut.items()} == {kind: move["bytes"] for kind, move in one.items()}
    alone = job(capsys, "--micro-batches", "4")["comm"]
    assert sum(move["bytes"] for move in alone.values()) == 0


@pytest.mark.parametrize(
    "how, most", [("--ranks 4 --micro-batches 4", 2), ("--micro-batches 16", 8), ("--micro-batches 5", 4),
                  ("--ranks 8 --micro-batches 2", 1), ("--ranks 3 --micro-batches 2", 1)],
)  # fmt: skip
def test_too_many_micro_batches_are_refused(capsys: pytest.CaptureFixture[str], how: str, most: int) -> None:
    """TIME-REFUSED: what cannot keep the bits names the largest number that does; exit code 2."""
    assert main(["train", "digits", "--quiet", "--steps", "1", *how.split()]) == 2
    said = capsys.readouterr().err.strip()
    assert said.endswith(f"the largest number of micro-batches below that works is {most}") and "\n" not in said


@pytest.mark.parametrize(
    "before, after",
    [("--parallel pipeline --micro-batches 2", "--ranks 2 --zero 3"), ("--ranks 4 --zero 2", "--parallel pipeline --stages 4"),
     ("", "--graph --micro-batches 4"), ("--micro-batches 2", "")],
)  # fmt: skip
def test_runs_go_on_in_another_way(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, eager: dict[str, str], before: str, after: str
) -> None:
    """JOB-RESUME, between eager code and graphs, stages and parts."""
    path = str(tmp_path / "state")
    job(capsys, "--save", path, *before.split(), steps=1)
    assert job(capsys, "--resume", path, *after.split())["sha256"] == eager["mlp"]


def test_a_half_precision_run_goes_on(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """JOB-RESUME: the checkpoint says that it is one, and holds the scaler."""
    path = str(tmp_path / "state")
    whole = job(capsys, "--amp", "f16", steps=3)
    job(capsys, "--amp", "f16", "--save", path, "--ranks", "2")
    assert flow.load(path)["scaler"]["growth_tracker"] == 2
    assert job(capsys, "--resume", path, "--micro-batches", "2", steps=3)["sha256"] == whole["sha256"]
    assert main(["train", "digits", "--quiet", "--resume", path, "--amp", "bf16"]) == 2
    assert "trained with amp f16" in capsys.readouterr().err


def test_it_saves_every_few_steps(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """JOB-SAVE: after every N steps and at the end."""
    saved = []
    monkeypatch.setattr(Run, "save", lambda run, path: saved.append(run.step))
    job(capsys, "--save", str(tmp_path / "state"), "--save-every", "2", steps=5)
    assert saved == [2, 4, 5]


def test_the_trace_opens_in_perfetto(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """JOB-TRACE: Chrome's format, a process a rank, times of the stated machine."""
    path = tmp_path / "run.json"
    job(capsys, "--parallel", "pipeline", "--micro-batches", "2", "--trace", str(path), steps=1)
    rows = json.loads(path.read_text())["traceEvents"]
    assert {row["pid"] for row in rows} == {0, 1} and {"X", "C", "s", "f", "M"} <= {row["ph"] for row in rows}
    assert max(row["dur"] for row in rows if row["ph"] == "X") > 10


@pytest.mark.parametrize(
    "args, words",
    [
        ("--stages 4", "stages are for pipeline parallel"),
        ("--parallel pipeline --stages 3", "one of 2, 4"),
        ("--parallel pipeline --ranks 3", "3 ranks do not fall into 2 stages"),
        ("--parallel pipeline --mesh 2x2", "not a mesh"),
        ("--zero 4", "1, 2 or 3"),
        ("--save-every 2", "needs --save"),
        ("--trace x.json", "only of a graph"),
        ("--micro-batches 0", "1 or more"),
        ("--amp fp8", "invalid choice"),
    ],
)
def test_bad_arguments_are_said_clearly(capsys: pytest.CaptureFixture[str], args: str, words: str) -> None:
    """CLI-ARGUMENTS."""
    assert main(["train", "digits", "--quiet", *args.split()]) == 2
    caught = capsys.readouterr()
    assert words in caught.err.strip().splitlines()[-1] and not caught.out


def test_stages_get_equally_many_blocks() -> None:
    """JOB-PIPELINE: ranks and blocks in order."""
    assert [stage_of(b, 4, 2) for b in range(4)] == [0, 0, 1, 1] and [stage_of(b, 4, 4) for b in range(4)] == [0, 1, 2, 3]
    assert [place.ranks for place in arrange("pipeline", 4, stages=2).of_stages] == [(0, 1), (2, 3)]
    with pytest.raises(AttributeValueError, match="equal stages"):
        stage_of(0, 3, 2)
    assert str(Execution()) == "eager" and "ZeRO stage 2" in str(Execution(zero=2, micro_batches=2))


# --- processes ------------------------------------------------------------------------------------------------------


def command(processes: int, *args: str) -> tuple[list[str], dict[str, str]]:
    """The command that trains in MPI processes, and its environment."""
    beside = Path(sys.executable).with_name("mpiexec")
    found = str(beside) if beside.exists() else shutil.which("mpiexec")
    if found is None or importlib.util.find_spec("mpi4py") is None:
        pytest.skip("needs mpiexec and mpi4py: pip install 'refflow[mpi]'")
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    line = [found, "-n", str(processes), sys.executable, "-m", "mpi4py", "-m", "refflow", "train", "digits", "--json", *args]
    return line, {**os.environ, "PYTHONPATH": path}


@pytest.mark.mpi
@pytest.mark.parametrize(
    "processes, how", [(2, "--parallel pipeline --micro-batches 4"), (4, "--parallel pipeline --micro-batches 2 --zero 1"),
                       (2, "--zero 2 --micro-batches 4 --recompute"), (4, "--parallel pipeline --stages 4 --micro-batches 2")],
)  # fmt: skip
def test_processes_give_the_same_hash(eager: dict[str, str], processes: int, how: str, tmp_path: Path) -> None:
    """JOB-GRAPH, JOB-PIPELINE, ACT-MPI."""
    line, environment = command(processes, "--steps", "2", "--trace", str(tmp_path / "t.json"), *how.split())
    done = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["sha256"] == eager["mlp"] and found["ranks"] == processes
    assert len({row["pid"] for row in json.loads((tmp_path / "t.json").read_text())["traceEvents"]}) == processes


def ranks_of(launcher: int, word: str) -> list[int]:
    """The processes under `launcher` that run Python with `word` in their command line."""
    parents, found = {}, []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            if word in (entry / "cmdline").read_text() and os.path.basename(os.readlink(entry / "exe")).startswith("python"):
                found.append(int(entry.name))
        except (OSError, ValueError):
            continue

    def under(pid: int) -> bool:
        while pid in parents and pid != launcher:
            pid = parents[pid]
        return pid == launcher

    return sorted(pid for pid in found if under(pid))


@pytest.mark.mpi
@pytest.mark.parametrize("how", ["--parallel pipeline --micro-batches 2", "--graph"])
def test_a_killed_process_ends_the_others_and_the_run_goes_on(capsys: pytest.CaptureFixture[str], tmp_path: Path, how: str) -> None:
    """JOB-SAVE, ACT-MPI: SIGKILL of one of two processes in mid-run; the job ends within 10 s with an error, and
    continues from its last periodic checkpoint to the hash of the uninterrupted run.
    """
    if not Path("/proc/self/stat").exists():
        pytest.skip("finds the processes in /proc")
    path = tmp_path / "state"
    recipe = ["--batch", "512", "--epochs", "40"]  # 80 steps
    line, environment = command(2, *recipe, "--save", str(path), "--save-every", "3", *how.split())
    with subprocess.Popen(line, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + 120
        while not path.exists() and time.monotonic() < deadline and process.poll() is None:
            time.sleep(0.02)
        assert path.exists() and process.poll() is None, process.communicate()
        ranks = ranks_of(process.pid, str(path))
        assert len(ranks) == 2
        os.kill(ranks[-1], signal.SIGKILL)
        killed = time.monotonic()
        process.wait(timeout=60)
        took = time.monotonic() - killed
        _, stderr = process.communicate()
    assert process.returncode != 0 and took < 10, (took, stderr)
    while ranks_of(process.pid, str(path)):
        assert time.monotonic() - killed < 10
    done = flow.load(path)["step"]
    assert 0 < done < 80
    goal = done + 3
    whole = job(capsys, *recipe, steps=goal)["sha256"]
    assert job(capsys, "--resume", str(path), "--graph", steps=goal)["sha256"] == whole
