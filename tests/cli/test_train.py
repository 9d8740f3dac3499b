"""JOB-DIGITS, JOB-LAYOUT, JOB-RESUME: one hash for every arrangement of the ranks; a run goes on where it was left."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import refflow as flow
from refflow.cli import main, report, training
from refflow.cli.digits import MODELS, arrange, datasets, train
from refflow.data import load_digits
from refflow.errors import AttributeValueError


def run(capsys: pytest.CaptureFixture[str], *args: str) -> dict[str, Any]:
    """What `refflow train digits … --json` prints."""
    assert main(["train", "digits", "--json", *args]) == 0
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    return json.loads(out)


ARRANGEMENTS = [
    "--ranks 2", "--ranks 3", "--ranks 8", "--ranks 2 --parallel tensor", "--ranks 3 --parallel tensor",
    "--ranks 8 --parallel tensor", "--ranks 3 --parallel hybrid", "--mesh 2x2", "--mesh 1x3",
    "--ranks 8 --parallel hybrid", "--parallel hybrid --mesh 2x4 --ranks 8",
]  # fmt: skip


@pytest.fixture(scope="module")
def one_rank() -> dict[str, str]:
    """model -> the hash of three steps on one rank."""
    from refflow.cli.digits import train

    return {model: train({"model": model}, arrange("data"), steps=3).sha256 for model in MODELS}


@pytest.mark.parametrize("arrangement", ARRANGEMENTS)
def test_the_mlp_has_one_hash(capsys, one_rank, arrangement):
    """JOB-LAYOUT."""
    found = run(capsys, "--steps", "3", *arrangement.split())
    assert found["sha256"] == one_rank["mlp"] and found["steps"] == 3
    assert found["ranks"] > 1 and sum(kind["bytes"] for kind in found["comm"].values()) > 0


@pytest.mark.parametrize("arrangement", ["--ranks 4", "--ranks 3", "--ranks 4 --parallel tensor", "--mesh 2x2"])
def test_the_cnn_has_one_hash(capsys, one_rank, arrangement):
    """JOB-LAYOUT."""
    assert run(capsys, "--model", "cnn", "--steps", "3", *arrangement.split())["sha256"] == one_rank["cnn"]


def test_tensor_parallel_cuts_what_it_should():
    """JOB-LAYOUT: columns S(0), rows S(1), the last layer whole; images split along the data axis only."""
    S, B = flow.sbp.split, flow.sbp.broadcast
    mesh, model = arrange("hybrid", 4), MODELS["mlp"]
    assert mesh.placement.mesh == (2, 2) and mesh.batch_sbp == (S(0), B)
    names = ("1.weight", "1.bias", "3.weight", "3.bias", "5.weight", "7.weight")
    assert [mesh.weight_sbp(name, model.cut) for name in names] == [(B, one) for one in (S(0), S(0), S(1), B, S(0), B)]
    assert arrange("data", 3).batch_sbp == (S(0),) and arrange("data", 3).weight_sbp("1.weight", model.cut) == (B,)
    assert arrange("tensor", 3).batch_sbp == (B,)


@pytest.mark.parametrize(
    "before, after", [("--ranks 4", "--ranks 2"), ("--mesh 2x2", "--ranks 1"), ("--ranks 1", "--ranks 3 --parallel tensor")]
)
def test_a_run_goes_on_from_its_checkpoint(capsys, tmp_path, one_rank, before, after):
    """JOB-RESUME: to the hash of the uninterrupted run, whatever the ranks."""
    path = str(tmp_path / "state.safetensors")
    first = run(capsys, "--steps", "2", "--save", path, *before.split())
    assert first["saved"] == path and first["sha256"] != one_rank["mlp"]
    assert run(capsys, "--steps", "3", "--resume", path, *after.split())["sha256"] == one_rank["mlp"]


def test_a_checkpoint_at_the_end_of_an_epoch_goes_on(capsys, tmp_path):
    """JOB-RESUME, across an epoch; and the recipe comes out of the checkpoint."""
    path = str(tmp_path / "state.safetensors")
    recipe = ["--batch", "512", "--epochs", "2", "--seed", "7", "--lr", "0.01"]
    whole = run(capsys, *recipe)
    assert (whole["steps"], whole["batch"], whole["seed"], whole["lr"]) == (4, 512, 7, 0.01)
    run(capsys, *recipe, "--steps", "2", "--save", path)
    rest = run(capsys, "--resume", path, "--ranks", "2")
    assert rest["sha256"] == whole["sha256"] and rest["steps"] == 4 and rest["loss"] == whole["loss"]
    assert run(capsys, "--resume", path, "--steps", "2")["loss"] is None  # nothing left to do


def test_seed_and_rate_change_the_hash(capsys, one_rank):
    """JOB-DIGITS."""
    hashes = {run(capsys, "--steps", "3", *args)["sha256"] for args in (["--seed", "1"], ["--lr", "0.002"], ["--epochs", "2"])}
    assert len(hashes | {one_rank["mlp"]}) == 4


def test_the_images_are_drawn_once_for_every_seed():
    """JOB-DIGITS: 360 of the 1,797 for testing, all others for training."""
    train, test = datasets()
    assert (len(train), len(test)) == (1437, 360)
    assert flow.digest(test.arrays[1]) == "21025e70da2883081937eb29f1a9b53f8dacbb91d898e97930866b2c9ffc809c"
    digits = load_digits()
    drawn = np.concatenate([train.arrays[0], test.arrays[0]]).reshape(1797, 64)
    given = np.concatenate([digits.train_images, digits.test_images]).reshape(1797, 64)
    assert sorted(map(bytes, drawn)) == sorted(map(bytes, given))


def test_the_text_shows_accuracy_hash_and_bytes(capsys, one_rank):
    """CLI-RESULT."""
    assert main(["train", "digits", "--steps", "3", "--ranks", "2"]) == 0
    out = capsys.readouterr().out
    assert one_rank["mlp"] in out and "of 360 images" in out and flow.PROFILE in out
    assert "all_gather" in out and "reduce_scatter" in out


@pytest.mark.parametrize(
    "args, words",
    [
        ("--ranks 0", "1 or more"),
        ("--ranks two", "whole number"),
        ("--seed -1", "whole number"),
        (f"--seed {2**64}", "below 2\\*\\*64"),
        ("--lr nan", "0 or more"),
        ("--lr -1", "0 or more|expected one argument"),
        ("--mesh 2by2", "such as 2x2"),
        ("--mesh 2x0", "such as 2x2"),
        ("--model rnn", "invalid choice"),
        ("--parallel expert", "invalid choice"),
        ("--speed 3", "unrecognized"),
        ("--mesh 2x2 --ranks 3", "has 4 ranks, asked for are 3"),
        ("--mesh 2x2 --parallel data", "one axis"),
        ("--mesh 4 --parallel hybrid", "two axes"),
        ("--steps 331", "30 epochs are 330 steps; asked for are 331"),
        ("--batch 2000", "no step at all"),
        ("--resume nowhere.safetensors", "nowhere.safetensors"),
        ("--save no/such/folder/x --steps 0", "no/such/folder"),
    ],
)
def test_bad_arguments_are_said_clearly(capsys, args, words):
    """CLI-ARGUMENTS: exit code 2, one line on standard error, no traceback."""
    assert main(["train", "digits", "--quiet", *args.split()]) == 2
    caught = capsys.readouterr()
    last = caught.err.strip().splitlines()[-1]
    assert "error:" in last and "Traceback" not in caught.err and not caught.out
    assert re.search(words, last)


def test_a_checkpoint_of_another_run_is_refused(capsys, tmp_path):
    """JOB-RESUME: what is asked must agree with what is stored; another file is refused."""
    path = str(tmp_path / "state.safetensors")
    run(capsys, "--steps", "2", "--save", path)
    for args, words in [(["--seed", "4"], "trained with seed 0, asked for is 4"), (["--steps", "1"], "of which 2 are done")]:
        assert main(["train", "digits", "--quiet", "--resume", path, *args]) == 2
        assert words in capsys.readouterr().err
    other = str(tmp_path / "other.safetensors")
    flow.save({"x": flow.ones(1)}, other)
    assert main(["train", "digits", "--quiet", "--resume", other]) == 2
    assert "not a checkpoint of" in capsys.readouterr().err


def test_arrange_refuses_what_the_parser_cannot_send():
    with pytest.raises(AttributeValueError, match="parallel"):
        arrange("expert", 2)


@pytest.mark.mpi
@pytest.mark.parametrize("processes, args", [(2, ["--parallel", "tensor"]), (4, ["--parallel", "hybrid"])])
def test_mpi_gives_the_same_hash_and_one_process_prints(one_rank, processes, args):
    """JOB-LAYOUT, CLI-RANK0: one process a rank."""
    pytest.importorskip("mpi4py")
    launcher = Path(sys.executable).with_name("mpiexec")
    if not launcher.exists():
        pytest.skip("no mpiexec beside this Python")
    command = [str(launcher), "-n", str(processes), sys.executable, "-m", "mpi4py", "-m", "refflow", "train", "digits"]
    done = subprocess.run([*command, "--steps", "3", "--json", *args], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.strip().splitlines()
    assert len(lines) == 1 and json.loads(lines[0])["sha256"] == one_rank["mlp"]
    assert json.loads(lines[0])["ranks"] == processes


@pytest.mark.parametrize("option", ["--save", "--trace", "--plot"])
def test_a_file_that_cannot_be_written_is_refused_before_training(option, capsys, tmp_path, monkeypatch):
    """CLI-ARGUMENTS."""
    monkeypatch.setattr("refflow.cli.training.train", lambda *args, **options: pytest.fail("it trained"))
    assert main(["train", "digits", "--graph", option, str(tmp_path / "no" / "file.svg")]) == 2
    assert capsys.readouterr().err == f"refflow: error: {option}: there is no folder '{tmp_path}/no' for '{tmp_path}/no/file.svg'\n"
    (tmp_path / "taken.svg").mkdir()
    assert main(["train", "digits", "--graph", option, str(tmp_path / "taken.svg")]) == 2
    assert "cannot be written" in capsys.readouterr().err


def test_the_bar_looks_at_the_loss_now_and_then():
    """CLI-RESULT: after the first step, every few, and after the last; each look is a collective."""
    looked = []
    run = SimpleNamespace(step=3, first_step="", per_step=1, unit="steps", arrangement=arrange("data"))
    loss = SimpleNamespace(item=lambda: looked.append(run.step) or 1.0)
    with report.progress(shown=False) as bar:
        bar.begin(run, 17)
        while run.step < 17:
            run.step += 1
            bar.each(run, loss)
    assert looked == [4, 5, 10, 15, 17]


def test_the_speed_is_that_of_all_steps_but_the_first(monkeypatch):
    """CLI-RESULT."""
    counted = []
    monkeypatch.setattr(training, "speed", lambda run, steps, seconds: counted.append(steps) or "")
    train({"model": "mlp"}, arrange("data"), steps=4)
    train({"model": "mlp"}, arrange("data"), steps=1)
    assert counted == [3, 1]


def test_a_loss_that_is_no_number_is_told(capsys):
    """CLI-RESULT."""
    assert main(["train", "digits", "--steps", "8", "--lr", "1e30", "--quiet", "--json"]) == 0
    said = capsys.readouterr()
    assert "warning: the last loss is " in said.err and json.loads(said.out)["steps"] == 8


@pytest.mark.mpi
@pytest.mark.slow
def test_an_interrupt_of_processes_is_told_in_a_word(tmp_path):
    """ERR-LEFT: what is under way stays whole, so nobody takes half a message for a letter; nothing hangs."""
    pytest.importorskip("mpi4py")
    launcher, file = Path(sys.executable).with_name("mpiexec"), tmp_path / "state.safetensors"
    if not launcher.exists():
        pytest.skip("no mpiexec beside this Python")
    command = [str(launcher), "-n", "2", sys.executable, "-m", "mpi4py", "-m", "refflow", "train", "digits", "--graph"]
    options = ["--epochs", "500", "--quiet", "--save", str(file), "--save-every", "3"]
    with subprocess.Popen([*command, *options], stderr=subprocess.PIPE, text=True) as process:
        for _ in range(600):
            if file.exists() or process.poll() is not None:
                break
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=60)[1]
    assert process.returncode != 0 and "refflow: interrupted" in said
    assert "Traceback" not in said and "letter" not in said
