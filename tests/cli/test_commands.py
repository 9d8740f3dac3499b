"""CLI-ARGUMENTS, CLI-RUN, CLI-RESULT: the other commands of `refflow`."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import refflow as flow
from refflow.cli import bench, bench_runtime, main, report
from refflow.errors import ShapeError, WorldError
from refflow.numerics import CheckResult
from refflow.world import current_world


def test_help_and_version(capsys):
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    assert all(word in text for word in ("train", "run", "check", "bench", "mpiexec"))
    assert main(["--version"]) == 0 and capsys.readouterr().out == f"refflow {flow.__version__}\n"
    assert main([]) == 2 and "COMMAND" in capsys.readouterr().err
    assert main(["bench", "lazily"]) == 2
    assert main(["train", "mnist"]) == 2 and "digits" in capsys.readouterr().err

    assert main(["train", "digits", "--help"]) == 0
    assert "fast with a back end that compiles (numba)" in " ".join(capsys.readouterr().out.split())


def test_python_m_refflow():
    done = subprocess.run([sys.executable, "-m", "refflow", "--version"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and done.stdout == f"refflow {flow.__version__}\n"


def test_run_gives_a_script_its_world_and_arguments(capsys, tmp_path):
    """CLI-RUN."""
    (tmp_path / "beside.py").write_text("WORD = 'found'\n")
    script = tmp_path / "script.py"
    script.write_text(
        "import sys, beside\nimport refflow as flow\n"
        "x = flow.ones(8, placement=flow.placement('cpu', [0, 1, 2, 3]), sbp=flow.sbp.split(0))\n"
        "print(__name__, sys.argv[1:], x.local_arrays()[3].shape, beside.WORD)\n"
    )
    before = list(sys.argv), list(sys.path)
    assert main(["run", "--ranks", "4", str(script), "--ranks", "a b"]) == 0
    assert capsys.readouterr().out == "__main__ ['--ranks', 'a b'] (2,) found\n"
    assert (sys.argv, sys.path) == before and current_world().size == 1


def test_run_keeps_the_world_it_was_told(tmp_path, capsys):
    """CLI-RUN, WORLD-VIRTUAL: a script cannot say otherwise; without --ranks it can."""
    script = tmp_path / "script.py"
    script.write_text("import refflow as flow\nflow.virtual_world(4)\nprint(flow.get_world_size())\n")
    assert main(["run", "--ranks", "4", str(script)]) == main(["run", str(script)]) == 0
    with pytest.raises(WorldError, match=r"virtual_world\(4\): the world is fixed, it has 2 ranks"):
        main(["run", "--ranks", "2", str(script)])
    assert current_world().size == 1 and capsys.readouterr().out == "4\n4\n"


@pytest.mark.parametrize("wrong", [["--ranks", "0"], ["--parallel", "tensr"], ["--batch", "many"], ["--nonsense"]])
def test_wrong_arguments_are_one_line(wrong, capsys):
    """CLI-ARGUMENTS."""
    assert main(["train", "digits", *wrong]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "error: " in said and wrong[-1] in said


@pytest.mark.parametrize("ending, code", [("", 0), ("raise SystemExit", 0), ("raise SystemExit(3)", 3), ("raise SystemExit('no')", 1)])
def test_run_ends_with_the_code_of_the_script(tmp_path, ending, code):
    """CLI-RUN."""
    script = tmp_path / "script.py"
    script.write_text(ending)
    assert main(["run", str(script)]) == code


def test_run_lets_the_errors_of_a_script_through(tmp_path, capsys):
    """CLI-RUN: a traceback is what its author needs."""
    script = tmp_path / "script.py"
    for text, kind in [("1 / 0", ZeroDivisionError), ("import refflow; refflow.ones(2) @ refflow.ones(3)", ShapeError)]:
        script.write_text(text)
        with pytest.raises(kind):
            main(["run", "--ranks", "2", str(script)])
        assert current_world().size == 1
    assert main(["run", "nowhere.py"]) == 2 and "no file 'nowhere.py'" in capsys.readouterr().err


def test_check_prints_the_profile_and_passes(capsys):
    """NUM-CHECK."""
    assert main(["check"]) == 0
    out = capsys.readouterr().out
    assert flow.PROFILE in out and "numpy" in out and "fused multiply-add" in out and "all passed" in out


def test_check_fails_where_a_check_does(capsys, monkeypatch):
    """NUM-CHECK."""
    monkeypatch.setattr("refflow.numerics.self_check", lambda: [CheckResult("trees", False, "found 1, not 2")])
    assert main(["check"]) == 1
    out = capsys.readouterr().out
    assert "FAILED: trees" in out and "found 1, not 2" in out


def test_bench_prints_what_it_measured(capsys, monkeypatch):
    monkeypatch.setattr(bench, "best", lambda function, tries, times: (function(), 0.01)[1])
    monkeypatch.setattr(bench, "seconds_of_import", lambda: 0.5)
    assert main(["bench", "eager"]) == 0
    out = capsys.readouterr().out
    assert "MLP 64-32-10, batch 64, 1 rank" in out and "4 virtual ranks" in out and "8 x 8" in out and "import" in out
    assert main(["bench", "eager", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [m["target"] for m in found] == [25, 8, 60, 0.4] and found[3]["found"] == 0.5


def test_bench_runtime_prints_what_it_measured(capsys, monkeypatch):
    monkeypatch.setattr(bench_runtime, "SIZES", ((1_000, 1), (2_000, 1)))
    monkeypatch.setattr(bench_runtime, "ACTIONS", 1_000)
    assert main(["bench", "runtime"]) == 0
    out = capsys.readouterr().out
    assert all(word in out for word in ("trace and compile a step of 1,080 tasks", "n^", "actions/s", "64 ranks"))
    assert main(["bench", "runtime", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [m["target"] for m in found] == [1.0, 1_000, 1.1, 60_000, 5.0] and all(m["found"] for m in found)


def test_the_import_is_timed_in_a_process_of_its_own():
    assert 0.01 < bench.seconds_of_import(tries=1) < 60


def test_a_measure_knows_its_target(capsys):
    fast, slow = bench.Measure("a", 30, 25, "steps/s", True), bench.Measure("b", 70, 60, "us", False)
    assert fast.met and not slow.met
    report.print_measures([fast, slow], as_json=False)
    assert "met" in capsys.readouterr().out
