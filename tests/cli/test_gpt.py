"""JOB-GPT, JOB-SAMPLE, JOB-LAYOUT, CLI-PLOT: `refflow train gpt`, to one hash, one loss and one text in every way."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import refflow as flow
from refflow.cli import main
from refflow.cli.digits import arrange
from refflow.cli.gpt import Recipe, Sampling, draw, gpt, next_character_loss
from refflow.cli.training import train
from refflow.data import load_text
from refflow.errors import AttributeValueError, ShapeError
from refflow.models import GPT, gpt_tensor_parallel

S, B = flow.sbp.split, flow.sbp.broadcast
TINY = {"layers": 2, "width": 32, "heads": 2, "context": 16, "batch": 8}
SIZES = [word for name, size in TINY.items() for word in (f"--{name}", str(size))]
SAME = ("sha256", "loss", "validation_loss", "sample")


def job(capsys: pytest.CaptureFixture[str], *args: str, steps: int = 2) -> dict[str, Any]:
    """What `refflow train gpt … --json` prints, of a tiny model."""
    assert main(["train", "gpt", *SIZES, "--json", "--steps", str(steps), *args]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


@pytest.fixture(scope="module")
def eager() -> dict[int, dict[str, Any]]:
    """What one eager step, and two, come to on one rank, with a sample of six characters."""
    found = {}
    for steps in (1, 2):
        with flow.virtual_world(1):
            result = train(gpt(sampling=Sampling(6)), TINY, arrange("data"), steps=steps)
        found[steps] = {"sha256": result.sha256, "loss": result.loss, **result.outcome.json}
    return found


@pytest.mark.parametrize(
    "steps, how",
    [(2, "--ranks 2"), (2, "--ranks 3"), (2, "--ranks 4"), (2, "--ranks 2 --parallel tensor"), (2, "--ranks 4 --parallel tensor"),
     (2, "--mesh 2x2"), (2, "--graph"), (1, "--ranks 2 --zero 1"), (1, "--micro-batches 2 --recompute"),
     (1, "--parallel pipeline --micro-batches 2")],
)  # fmt: skip
def test_one_hash_one_loss_one_text(capsys: pytest.CaptureFixture[str], eager: dict[int, dict[str, Any]], steps: int, how: str) -> None:
    """JOB-GPT, JOB-SAMPLE, JOB-LAYOUT, JOB-PIPELINE."""
    found = job(capsys, "--sample", "6", *how.split(), steps=steps)
    assert {name: found[name] for name in SAME} == {name: eager[steps][name] for name in SAME}
    assert (found["width"], found["context"], found["text"]) == (32, 16, Recipe().text)


def test_half_precision_has_a_hash_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    """JOB-GPT, JOB-GRAPH."""
    ways = ["--layers 1", "--layers 1 --amp bf16", "--layers 1 --amp bf16 --ranks 2 --parallel tensor"]
    plain, *halves = [job(capsys, *way.split(), steps=1)["sha256"] for way in ways]
    assert len(set(halves)) == 1 and plain not in halves


def test_a_run_goes_on_in_another_way(capsys: pytest.CaptureFixture[str], tmp_path: Path, eager: dict[int, dict[str, Any]]) -> None:
    """JOB-RESUME: the recipe, sizes and all, comes out of the checkpoint."""
    path = str(tmp_path / "state")
    job(capsys, "--save", path, "--mesh", "1x2", steps=1)
    assert main(["train", "gpt", "--json", "--steps", "2", "--resume", path, "--ranks", "4", "--sample", "6"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {name: found[name] for name in SAME} == {name: eager[2][name] for name in SAME}
    assert main(["train", "digits", "--quiet", "--resume", path]) == 2
    assert "not a checkpoint of `refflow train digits`" in capsys.readouterr().err
    assert main(["train", "gpt", "--quiet", "--resume", path, "--width", "64"]) == 2
    assert "trained with width 32, asked for is 64" in capsys.readouterr().err


def test_a_text_of_ones_own(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """JOB-GPT, JOB-RESUME: --data; a checkpoint knows its text."""
    text, path = tmp_path / "text.txt", str(tmp_path / "state")
    text.write_text("abcdefg" * 460, encoding="utf-8")
    sizes = ["--layers", "1", "--width", "16", "--heads", "2", "--context", "16", "--batch", "4", "--lr", "0.02"]
    command = ["train", "gpt", "--data", str(text), "--json", *sizes, "--save", path, "--prompt", "c", "--sample", "5"]
    assert main(command) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["steps"] == 45 and found["validation_loss"] < 0.1 and found["sample"] == "defga"
    assert found["prompt"] == "c"
    other = tmp_path / "other.txt"
    other.write_text("hgfedcba" * 400, encoding="utf-8")
    for wrong in ([], ["--data", str(other)]):
        assert main(["train", "gpt", "--quiet", "--resume", path, *wrong]) == 2
        assert "give its text with --data" in capsys.readouterr().err
    assert main(["train", "gpt", "--json", "--resume", path, "--data", str(text)]) == 0
    assert json.loads(capsys.readouterr().out)["sha256"] == found["sha256"]


def test_the_plot_and_the_table(capsys: pytest.CaptureFixture[str], tmp_path: Path, eager: dict[int, dict[str, Any]]) -> None:
    """CLI-PLOT, CLI-RESULT: the curve of every step, in the order of the losses; the table shows all."""
    path = tmp_path / "curve.svg"
    assert main(["train", "gpt", *SIZES, "--steps", "2", "--sample", "6", "--plot", str(path)]) == 0
    caught = capsys.readouterr()
    assert "prompt                   '\\n'" in caught.out
    for shown in (eager[2]["sha256"], f"{eager[2]['validation_loss']:.6f}", "characters/s", "back end"):
        assert shown in caught.out
    assert str(path) in "".join(caught.out.split())  # a long path is folded
    drawn = path.read_text(encoding="utf-8")
    assert drawn.startswith("<svg") and f"{eager[2]['loss']:.4f} at step 2" in drawn


@pytest.mark.parametrize(
    "args, words",
    [
        ("--heads 3", "a width that its heads divide"),
        ("--data nowhere.txt", "'nowhere.txt' cannot be read"),
        ("--context 40000", "a context of 40000 needs 40001"),
        ("--sample 2 --prompt ~", "the prompt of a sample has '~'"),
        ("--plot curve.png", "such as curve.svg"),
        ("--backend abacus", "no back end is named 'abacus'; there are: "),
        ("--parallel pipeline --stages 4", "a model of 2 blocks does not fall into 4 equal stages"),
        ("--epochs 0", "1 or more"),
        ("--model mlp", "unrecognized"),
    ],
)
def test_bad_arguments_are_said_clearly(capsys: pytest.CaptureFixture[str], args: str, words: str) -> None:
    """CLI-ARGUMENTS, CLI-BACKEND."""
    sizes = [] if "--context" in args or "--heads" in args else SIZES
    assert main(["train", "gpt", "--quiet", *sizes, *args.split()]) == 2
    caught = capsys.readouterr()
    assert words in caught.err.strip().splitlines()[-1] and not caught.out


def test_the_default_recipe_is_stated() -> None:
    """JOB-GPT"""
    assert str(Recipe()).startswith("gpt, 4 layers, width 128, 4 heads, context 64, seed 0, batches of 16")
    with flow.virtual_world(1):
        run = gpt().run(Recipe(), arrange("data"), None)
    assert run.total == 317 and run.per_step == 1024
    assert sum(p.numel() for p in run.model.parameters()) == 822_016


# --- the model ------------------------------------------------------------------------------------------------------


def test_nothing_looks_ahead() -> None:
    """JOB-GPT: scores do not depend on later characters, to the bit; at the start all characters are about as likely."""
    flow.manual_seed(1)
    model = GPT(vocabulary=11, width=16, layers=2, heads=4, context=8)
    text = np.arange(16).reshape(2, 8) % 11
    scores = model(flow.tensor(text)).detach().numpy()
    for t in range(1, 8):
        changed = text.copy()
        changed[:, t:] = 10 - changed[:, t:]
        assert flow.same_bits(model(flow.tensor(changed)).detach().numpy()[:, :t], scores[:, :t])
    loss = next_character_loss(model(flow.tensor(text)), flow.tensor(text)).item()
    assert abs(loss - math.log(11)) < 0.05


def test_it_starts_as_stated() -> None:
    """JOB-GPT: deviations 0.02 and 0.02 / sqrt(2 layers), biases 0, norms 1."""
    flow.manual_seed(3)
    model = GPT(vocabulary=50, width=64, layers=2, heads=4, context=16)
    for name, parameter in model.named_parameters():
        values = parameter.detach().numpy().astype(np.float64)
        if "norm" in name or name.endswith("bias"):
            assert (values == (1 if name.endswith("weight") else 0)).all(), name
        else:
            expected = 0.01 if name.endswith(("out.weight", "down.weight")) else 0.02
            assert abs(values.std() / expected - 1) < 0.1, name


def test_sizes_that_do_not_fit() -> None:
    """JOB-GPT"""
    with pytest.raises(AttributeValueError, match="heads 3"):
        GPT(vocabulary=5, width=8, heads=3)
    with pytest.raises(ShapeError, match="at most 4 characters"):
        GPT(vocabulary=5, width=8, heads=2, layers=1, context=4)(flow.zeros(1, 5, dtype=flow.int64))


def test_tensor_parallel_cuts_heads() -> None:
    """JOB-LAYOUT: each rank attends with its own heads, so only what leaves row layers moves, and comes back to columns."""
    with flow.virtual_world(2):
        model = GPT(vocabulary=10, width=32, layers=1, heads=2, context=4)
        pair = flow.placement("cpu", [0, 1])
        model.to_global(pair, lambda name, tensor: gpt_tensor_parallel(name))
        layouts = {name: p.sbp[0] for name, p in model.named_parameters()}
        assert layouts["layers.0.attention.key.bias"] == layouts["layers.0.network.up.weight"] == S(0)
        assert layouts["layers.0.attention.out.weight"] == layouts["layers.0.network.down.weight"] == S(1)
        assert layouts["layers.0.network.down.bias"] == layouts["head.scores.weight"] == layouts["embedding.position.weight"] == B
        with flow.comm_log() as log:
            model(flow.zeros(3, 4, dtype=flow.int64, placement=pair, sbp=B))
        moved = [(move.kind, move.bytes) for move in log.moves if move.bytes]
        assert moved == [(kind, 3 * 4 * 32 * 4) for kind in ("reduce_scatter", "all_gather", "reduce_scatter")]


# --- drawing --------------------------------------------------------------------------------------------------------


def test_text_is_drawn_by_the_rule() -> None:
    """JOB-SAMPLE: by hand, with scores that are a table by the last character, in exact powers of two."""
    table = np.log2(np.array([[0.5, 0.25, 0.25], [0.25, 0.0, 0.75], [1.0, 0.0, 0.0]]) + 2.0**-140).astype(np.float32)
    table *= np.float32(math.log(2))
    given, context, n = [1], 4, 40

    def model(window: flow.Tensor) -> flow.Tensor:
        seen.append(window.numpy()[0].tolist())
        return flow.tensor(table[window.numpy()], placement=window.placement, sbp=B)

    seen: list[list[int]] = []
    with flow.virtual_world(1):
        found = draw(model, given, n, context, 7, arrange("data"))
        uniform = flow.rand(n, generator=flow.Generator(7), placement=flow.placement("cpu", [0]), sbp=B).numpy()
    text = list(given)
    for k in range(n):
        window = text[-context:]
        assert seen[k] == window + [0] * (context - len(window))
        c = np.cumsum(np.exp(table[text[-1]].astype(np.float64)))
        text.append(int((c / c[-1] <= uniform[k]).sum()))
    assert found == text[1:] and {0, 1, 2} == set(found)
    assert not {(1, 1), (2, 1), (2, 2)} & set(pairwise(found))  # probability 0


@pytest.mark.mpi
def test_processes_draw_the_same_text(eager: dict[int, dict[str, Any]]) -> None:
    """JOB-GPT, JOB-SAMPLE, CLI-RANK0."""
    pytest.importorskip("mpi4py")
    launcher = Path(sys.executable).with_name("mpiexec")
    if not launcher.exists():
        pytest.skip("no mpiexec beside this Python")
    line = [str(launcher), "-n", "2", sys.executable, "-m", "mpi4py", "-m", "refflow", "train", "gpt", *SIZES]
    done = subprocess.run([*line, "--steps", "2", "--sample", "6", "--json"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert {name: found[name] for name in SAME} == {name: eager[2][name] for name in SAME} and found["ranks"] == 2


def test_the_book_is_what_it_trains_on_by_default() -> None:
    """JOB-GPT, DATA-TEXT."""
    with flow.virtual_world(1):
        run = gpt(load_text()).run(Recipe(**TINY), arrange("data"), None)
    assert "".join(run.vocabulary.decode(run.task.samples[0][0])) == load_text()[:16]  # type: ignore[attr-defined]
