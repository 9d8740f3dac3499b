"""CLI-BENCH-ACCEL: the comparison runs, prints ratios, and says what is missing; no test looks at a time."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial
from math import inf
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from refflow_accel.bench import command, first_use, profile, ratios, rounds, sections, twins
from refflow_accel.bench.matmul import Case
from refflow_accel.bench.native import program_of, rows_of, rows_of_adamw
from refflow_accel.bench.ratios import Ratio

import refflow as flow
from refflow.cli import main
from refflow.cli.arguments import ACCEL_SECTIONS

TINY = partial(sections.matmul, cases=[Case("4x8x3", (), 4, 8, 3)])


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Five rounds of little more than one run each, in the environment that the command wants."""
    monkeypatch.setattr(rounds, "QUIET", inf)
    monkeypatch.setattr(
        ratios, "race", lambda contenders, threads, patience: rounds.race(contenders, threads, 1e-5, patience)
    )
    for name in command.MISLEADING:
        monkeypatch.delenv(name, raising=False)
    for name, value in command.PLACED.items():
        monkeypatch.setenv(name, value)


def test_one_section_prints_ratios(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """CLI-BENCH-ACCEL"""
    monkeypatch.setitem(sections.SECTIONS, "matmul", TINY)
    file = tmp_path / "found.json"
    assert main(["bench", "accel", "--section", "matmul", "--threads", "1", "--json", str(file)]) == 0
    said = capsys.readouterr().out
    assert all(word in said for word in ("matmul 4x8x3", "NumPy", "ratio", "processor", "BLAS", "threads"))
    found = json.loads(file.read_text())
    (ratio,) = found["ratios"]
    assert ratio["ratio"] == ratio["rival_seconds"] / ratio["seconds"] > 0
    assert found["machine"]["threads"] == [1]
    assert main(["bench", "accel", "--section", "matmul", "--threads", "1", "2", "--json"]) == 0
    assert [ratio["threads"] for ratio in json.loads(capsys.readouterr().out)["ratios"]] == [1, 2]


def test_the_command_knows_every_section() -> None:
    assert tuple(sections.SECTIONS) == ACCEL_SECTIONS
    assert set(sections.NEEDS_TORCH) < set(ACCEL_SECTIONS)
    assert main(["bench", "accel", "--section", "weather"]) == 2


def in_one_world(section: Any) -> list[Ratio]:
    with flow.virtual_world(1), flow.backend("numba"):
        return list(section(1))


def test_small_sections() -> None:
    """CLI-BENCH-ACCEL: the reference, sums and what else has a rival here."""
    (found,) = in_one_world(partial(sections.reference, n=32))
    assert (found.rival, found.target) == ("reference", None)
    names = [(r.name, r.rival) for r in in_one_world(partial(sections.rows, n=32)) if r.rival == "NumPy"]
    assert names == [("sum of rows, 32 x 32", "NumPy"), ("sum of columns, 32 x 32", "NumPy")]
    assert ("exp, 32 x 32", "NumPy") in [(r.name, r.rival) for r in in_one_world(partial(sections.elementwise, n=32))]


def test_rows_are_the_kernels_alone() -> None:
    """Run again, they leave the numbers of the function."""
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    with flow.virtual_world(1), flow.backend("numba"):
        rows = rows_of(lambda x: x.exp().sum(1), x)
        assert len(rows.runs) == 2
        rows()
        rows_of_adamw(x)()


def test_training_needs_pytorch(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sections, "has_torch", lambda: False)
    assert main(["bench", "accel", "--section", "training"]) == 2
    assert "PyTorch, which is not installed: pip install torch" in capsys.readouterr().err
    assert command.bench([], [1], "-", {"matmul": TINY, "training": sections.training})
    said = capsys.readouterr()
    assert "without PyTorch there is nothing to compare with in: training" in " ".join(said.err.split())
    assert [ratio["section"] for ratio in json.loads(said.out)["ratios"]] == ["matmul"]


def test_training_against_pytorch() -> None:
    """The twins begin with the same weights and have the same loss; what is measured is whole steps."""
    pytest.importorskip("torch")
    small = [twins.SMALL, twins.gpt_twin("GPT, tiny", 0.7, 16, 1, 2, 8)]
    found = in_one_world(partial(sections.training, chosen=small))
    assert [(r.name, r.rival) for r in found] == [("MLP 64-32-10", "PyTorch"), ("GPT, tiny", "PyTorch")]
    assert in_one_world(partial(sections.conv, cases=[(2, 1, 4, 2, 3, 1, 1)]))


def test_without_numba_it_says_what_to_install(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "refflow_accel.bench", None)
    assert main(["bench", "accel"]) == 2
    assert "install refflow with the extra 'accel'" in capsys.readouterr().err


def test_settings_that_favour_one_side_are_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a library reads when it is loaded: the command starts again without it."""
    started: list[Any] = []

    def run(arguments: list[str], env: dict[str, str], check: bool) -> Any:
        started.append((arguments[3:], "OPENBLAS_CORETYPE" in env))
        return SimpleNamespace(returncode=7)

    monkeypatch.setenv("OPENBLAS_CORETYPE", "Haswell")
    monkeypatch.setattr(subprocess, "run", run)
    asked = ["bench", "accel", "--section", "matmul", "--threads", "1", "--json", "x.json"]
    assert main(asked) == 7
    assert started == [(asked, False)]


def test_a_profile_names_kernels_and_shapes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "accel", "--profile", "64-32"]) == 0
    said = capsys.readouterr().out
    assert all(word in said for word in ("MLP 64-32-10", "GF/s", "ns/el", "chain: mul*2 add sub", "64x64"))
    assert main(["bench", "accel", "--profile", "abacus"]) == 2


def test_a_profile_has_every_row() -> None:
    with flow.virtual_world(1), flow.backend("numba"):
        graph, step = twins.ours(twins.SMALL)
        step()
        program = program_of(graph)
        costs = profile.profile(program)
        local, pieces = program.pieces()
    assert sum(len(cost.calls) for cost in costs) == len({id(call) for call, _, _ in pieces})
    products = [call for call in local.calls if call.name == "matmul"]
    assert sum(profile.flops(local, call) for call in products) == 2 * 64 * (2 * 64 * 32 + 3 * 32 * 10)


def test_the_first_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once with nothing compiled, then with what that run kept; the folder is its own."""
    folders: list[str] = []

    def run(folder: str, steps: int) -> first_use.Times:
        folders.append(folder)
        return first_use.Times(61.0 if len(folders) == 1 else 2.0, 80.0)

    monkeypatch.setattr(first_use, "run", run)
    cold, warm = sections.compiling(1)
    assert (cold.met, warm.met) == (False, True)
    assert len(set(folders)) == 1 and not Path(folders[0]).exists()


def test_ratios() -> None:
    """More is better; without a rival, less is."""
    assert Ratio("s", "a", 1, 2.0, "them", 3.0, target=1.5).met
    assert not Ratio("s", "a", 1, 2.0, "them", 2.9, target=1.5).met
    assert Ratio("s", "a", 1, 2.0, target=3.0).met and Ratio("s", "a", 1, 2.0, "them", 3.0).met is None
    assert [ratios.told(seconds) for seconds in (2.0, 0.0123, 4.5e-6)] == ["2 s", "12.3 ms", "4.5 µs"]
