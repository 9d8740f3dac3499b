"""CLI-BENCH-ACCEL: the comparison runs, prints ratios, and says what is missing; no test looks at a time."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from functools import partial
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from refflow_accel.bench import command, first_use, peak, process, profile, ratios, rounds, sections, twins
from refflow_accel.bench.matmul import Case
from refflow_accel.bench.native import program_of, rows_of, rows_of_adamw
from refflow_accel.bench.process import Sides
from refflow_accel.bench.ratios import OURS, Ratio

import refflow as flow
from refflow.cli import main
from refflow.cli.arguments import ACCEL_SECTIONS

TINY = partial(sections.products, cases=[Case("4x8x3", (), 4, 8, 3)])


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Five rounds of little more than one run each."""
    monkeypatch.setattr(rounds, "QUIET", inf)
    race = rounds.race
    for module in (ratios, sections):
        monkeypatch.setattr(module, "race", lambda sides, names, patience: race(sides, names, 1e-5, patience))


@pytest.fixture(scope="module")
def sides() -> Iterator[Sides]:
    """Processes with one thread each, for all tests."""
    with Sides(1) as made:
        yield made


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


def test_small_sections(sides: Sides) -> None:
    """CLI-BENCH-ACCEL: sums and what else has a rival here."""
    names = [(r.name, r.rival) for r in sections.rows(sides, n=32) if r.rival == "NumPy"]
    assert names == [("sum of rows, 32 x 32", "NumPy"), ("sum of columns, 32 x 32", "NumPy")]
    assert ("exp, 32 x 32", "NumPy") in [(r.name, r.rival) for r in sections.elementwise(sides, n=32)]


def test_the_reference_and_the_peak(sides: Sides) -> None:
    """CLI-BENCH-ACCEL: no ratio can be above that of the peak, and none is asked for."""
    found, most = sections.reference(sides, n=32)
    assert (found.rival, found.target, most.rival, most.target) == ("reference", None, "reference", None)
    assert "at the processor's peak" in most.name and most.rival_seconds == found.rival_seconds
    assert most.seconds < found.seconds


def test_other_bits_than_the_references_are_refused(sides: Sides, monkeypatch: pytest.MonkeyPatch) -> None:
    """CLI-BENCH-ACCEL"""
    monkeypatch.setattr(sections, "result", unlike)
    with pytest.raises(AssertionError, match=r"matmul 8\^3: not the reference's bits"):
        list(sections.reference(sides, n=8))


def test_the_peak_is_of_that_many_operations() -> None:
    """s = s / 2 + 1/2, from where each sum begins: all end at 1."""
    from numba import njit

    multiply_add = peak._multiply_add
    ended = njit(lambda x, times: multiply_add(x, times))(np.float32(0.5), 100)
    assert ended == peak.SUMS * peak.LANES
    assert 2 * ended * peak.TASKS * peak.TIMES == peak.FLOPS


# --- processes --------------------------------------------------------------------------------------------------------


def made_here() -> Any:
    """Work that knows its process."""
    return lambda: os.getpid()


def process_of(work: Any) -> tuple[int, list[int], dict[str, str]]:
    """Where it runs: the process, its processors, its variables."""
    print("what is printed there is no answer")
    return work(), sorted(os.sched_getaffinity(0)), dict(os.environ)


def unlike(work: Any) -> Any:
    """A result that no two processes have."""
    return np.float32([os.getpid()])


def apart(step: Any) -> float:
    """A loss that the two sides do not share."""
    return float(type(step()).__module__.startswith("torch"))


def failing(work: Any) -> None:
    raise ValueError("there")


def ending(work: Any) -> None:
    os._exit(3)


def test_each_side_is_a_process_on_the_same_processors(sides: Sides, monkeypatch: pytest.MonkeyPatch) -> None:
    """CLI-BENCH-ACCEL: what a library reads when it is loaded is the same on all sides, and not the user's."""
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Haswell")
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    with Sides(1) as fresh:
        names = fresh.give({OURS: made_here, "other": made_here})
        (a, at, variables), (b, there, others) = (fresh[name].ask(process_of) for name in names)
    assert len({a, b, os.getpid()}) == 3 and at == there == process.cores(1) and variables == others
    assert "OPENBLAS_CORETYPE" not in variables and variables["OMP_NUM_THREADS"] == "1"
    assert variables["OMP_PLACES"] == f"{{{at[0]}}}"


def test_what_goes_wrong_in_a_process_is_told(sides: Sides) -> None:
    with pytest.raises(ValueError, match="there"):
        sides["other"].ask(failing)
    sides["other"].make(made_here)  # it goes on
    with Sides(1) as fresh, pytest.raises(ChildProcessError, match="ended with 3"):
        fresh["other"].ask(ending)


def test_sides_take_turns(sides: Sides) -> None:
    """Times of both, and the median of five."""
    found = rounds.race(sides, sides.give({OURS: made_here, "other": made_here}), 1e-5)
    assert list(found) == [OURS, "other"] and all(time.seconds > 0 for time in found.values())
    assert rounds._five([9.0, 1.0, 2.0, 3.0, 4.0, 5.0, 8.0]) == rounds.Time(3.0, 4.0)


# --- what is measured -------------------------------------------------------------------------------------------------


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


def test_training_against_pytorch(sides: Sides, monkeypatch: pytest.MonkeyPatch) -> None:
    """The twins begin with the same weights and have the same loss; what is measured is whole steps."""
    pytest.importorskip("torch")
    small = [twins.SMALL, twins.gpt_twin("GPT, tiny", 0.7, 16, 1, 2, 8)]
    found = sections.training(sides, chosen=small)
    assert [(r.name, r.rival) for r in found] == [("MLP 64-32-10", "PyTorch"), ("GPT, tiny", "PyTorch")]
    assert list(sections.conv(sides, cases=[(2, 1, 4, 2, 3, 1, 1)]))
    monkeypatch.setattr(twins, "loss", apart)
    with pytest.raises(AssertionError, match=r"MLP 64-32-10: a loss of 0\.0 here, 1\.0 in PyTorch"):
        list(sections.training(sides, chosen=small))


def test_without_numba_it_says_what_to_install(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "refflow_accel.bench", None)
    assert main(["bench", "accel"]) == 2
    assert "install refflow with the extra 'accel'" in capsys.readouterr().err


def test_a_profile_names_kernels_and_shapes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "accel", "--profile", "64-32"]) == 0
    said = capsys.readouterr().out
    assert all(word in said for word in ("MLP 64-32-10", "GF/s", "ns/el", "chain: mul*2 add sub", "64x64"))
    assert main(["bench", "accel", "--profile", "abacus"]) == 2


def test_a_profile_has_every_row() -> None:
    with flow.virtual_world(1), flow.backend("numba"):
        program = program_of(twins.ours(twins.SMALL).graph)
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
    cold, warm = sections.compiling(Sides(1))
    assert (cold.met, warm.met) == (False, True)
    assert len(set(folders)) == 1 and not Path(folders[0]).exists()


def test_ratios() -> None:
    """More is better; without a rival, less is."""
    assert Ratio("s", "a", 1, 2.0, "them", 3.0, target=1.5).met
    assert not Ratio("s", "a", 1, 2.0, "them", 2.9, target=1.5).met
    assert Ratio("s", "a", 1, 2.0, target=3.0).met and Ratio("s", "a", 1, 2.0, "them", 3.0).met is None
    assert [ratios.told(seconds) for seconds in (2.0, 0.0123, 4.5e-6)] == ["2 s", "12.3 ms", "4.5 µs"]
