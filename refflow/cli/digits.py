"""The job `refflow train digits`: a small network on handwritten digits, laid out over ranks in several ways.

Implements JOB-DIGITS, JOB-LAYOUT, JOB-RESUME and JOB-SAVE of spec/text/jobs.md.  The weights it ends with are a function
of model, seed, epochs, steps, learning rate, batch size and precision alone: not of ranks, mesh, parallel or world.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from ..boxing import CommLog, comm_log
from ..checkpoint import load, save
from ..data import DataLoader, TensorDataset, load_digits, random_split
from ..errors import AttributeValueError, CheckpointError
from ..functional.arithmetic import eq
from ..functional.reduction import argmax
from ..functional.reduction import sum as sum_
from ..graph.amp import GradScaler
from ..layout import NdSbp, Placement, Sbp, Split, broadcast, nested
from ..nn import Conv2d, Flatten, Linear, MaxPool2d, ReLU, Sequential
from ..nn.functional import cross_entropy
from ..nn.module import Module
from ..numerics import digest_many
from ..optim import AdamW
from ..optim.lr_scheduler import CosineAnnealingLR
from ..state import default_generator, manual_seed
from ..tensor.backward import no_grad
from ..tensor.tensor import Tensor
from ..world import current_world
from .steps import TRACED_ON, CountCorrect, Execution, TrainStep, blocks_of, stage_of

TEST_IMAGES = 360
SPLIT_SEED = 0  # the test images are the same for every --seed
WEIGHT_DECAY = 0.1
LABEL_SMOOTHING = 0.1


def mlp() -> Module:
    """Four linear layers, 64-128-128-128-10."""
    return Sequential(
        Flatten(),
        Linear(64, 128), ReLU(),
        Linear(128, 128), ReLU(),
        Linear(128, 128), ReLU(),
        Linear(128, 10),
    )  # fmt: skip


def cnn() -> Module:
    """Two convolutions of 3 by 3 with pooling, 16 and 32 channels, and a linear layer."""
    return Sequential(
        Conv2d(1, 16, 3, padding=1), ReLU(), MaxPool2d(2),
        Conv2d(16, 32, 3, padding=1), ReLU(), MaxPool2d(2),
        Flatten(),
        Linear(128, 10),
    )  # fmt: skip


@dataclass(frozen=True)
class Model:
    """A network of the job: how it is made, its learning rate, and what tensor parallelism cuts."""

    make: Callable[[], Module]
    lr: float
    columns: tuple[str, ...]  # layers whose outputs are split: weight and bias S(0)
    rows: tuple[str, ...]  # layers whose inputs are split: weight S(1), bias B
    blocks: tuple[int, ...]  # the layers at which its blocks begin: what pipeline stages and recomputation take whole


MODELS: Mapping[str, Model] = {
    "mlp": Model(mlp, 3e-3, columns=("1", "5"), rows=("3",), blocks=(0, 3, 5, 7)),
    "cnn": Model(cnn, 1e-2, columns=("0",), rows=("3",), blocks=(0, 2, 3, 6)),
}
PARALLELS = ("data", "tensor", "hybrid", "pipeline")
STAGES = (2, 4)


@dataclass(frozen=True)
class Recipe:
    """What the final weights depend on; a checkpoint holds it."""

    model: str = "mlp"
    seed: int = 0
    epochs: int = 30
    batch: int = 128
    lr: float | None = None  # None: the model's own
    amp: str | None = None  # "bf16" or "f16"; None: float32 throughout


@dataclass(frozen=True)
class Arrangement:
    """How the ranks share the work: a placement, the sbp of a batch, and which axes cut weights."""

    placement: Placement
    parallel: str
    stages: int = 1

    @property
    def of_stages(self) -> tuple[Placement, ...]:
        """The placement of each pipeline stage: equally many ranks, in order (JOB-PIPELINE)."""
        ranks, each = self.placement.ranks, self.placement.size // self.stages
        if self.stages == 1:
            return (self.placement,)
        return tuple(Placement("cpu", list(ranks[s * each : (s + 1) * each])) for s in range(self.stages))

    @property
    def batch_sbp(self) -> NdSbp:
        """The images are S(0) along the data axis, B along the tensor axis (JOB-LAYOUT)."""
        return tuple(Split(0) if self._is_data(axis) else broadcast for axis in range(self.placement.ndim))

    def weight_sbp(self, name: str, model: Model) -> NdSbp:
        """Weights are B along the data axis; along the tensor axis cut by columns or rows (Shoeybi et al., 2019)."""
        layer, _, kind = name.rpartition(".")
        cut: Sbp = broadcast
        if layer in model.columns:
            cut = Split(0)
        elif layer in model.rows and kind == "weight":
            cut = Split(1)
        return tuple(broadcast if self._is_data(axis) else cut for axis in range(self.placement.ndim))

    def _is_data(self, axis: int) -> bool:
        return self.parallel in ("data", "pipeline") or (self.parallel == "hybrid" and axis == 0)

    def __str__(self) -> str:
        stages = "" if self.stages == 1 else f", {self.stages} stages of {self.placement.size // self.stages}"
        return f"{self.parallel} parallel on {self.placement}{stages}"


def arrange(
    parallel: str, ranks: int | None = None, mesh: tuple[int, ...] | None = None, stages: int | None = None
) -> Arrangement:
    """Ranks 0 … R-1 in a row, for hybrid in a mesh of data by tensor: the one asked for, or the squarest.

    `ranks` defaults to the mesh's or the number of pipeline stages (default 2), else to 1.  Errors:
    `AttributeValueError`.
    """
    if parallel not in PARALLELS:
        raise AttributeValueError(f"parallel must be one of {', '.join(PARALLELS)}, found {parallel!r}")
    if parallel == "pipeline":
        return _arrange_stages(ranks, mesh, STAGES[0] if stages is None else stages)
    if stages is not None:
        raise AttributeValueError(f"stages are for pipeline parallel, found {stages} stages for {parallel} parallel")
    if ranks is None:
        ranks = math.prod(mesh) if mesh else 1
    if mesh is None:
        tensor = max(d for d in range(1, math.isqrt(ranks) + 1) if ranks % d == 0) if ranks > 0 else 1
        mesh = (ranks // tensor, tensor) if parallel == "hybrid" else (ranks,)
    wanted = 2 if parallel == "hybrid" else 1
    if len(mesh) != wanted:
        room = "two axes, data x tensor, such as 2x2" if wanted == 2 else f"one axis; --parallel hybrid takes {mesh}"
        raise AttributeValueError(f"a mesh for {parallel} parallel must have {room}, found {_times(mesh)}")
    if math.prod(mesh) != ranks:
        raise AttributeValueError(f"a mesh of {_times(mesh)} has {math.prod(mesh)} ranks, asked for are {ranks}")
    return Arrangement(Placement("cpu", nested(range(ranks), mesh)), parallel)


def _arrange_stages(ranks: int | None, mesh: tuple[int, ...] | None, stages: int) -> Arrangement:
    if mesh is not None:
        raise AttributeValueError("pipeline parallel takes ranks and stages, not a mesh; ranks / stages share the data")
    if stages not in STAGES:
        raise AttributeValueError(f"stages must be one of {', '.join(map(str, STAGES))}, found {stages}")
    ranks = stages if ranks is None else ranks
    if ranks % stages:
        raise AttributeValueError(f"{ranks} ranks do not fall into {stages} stages of equally many")
    return Arrangement(Placement("cpu", list(range(ranks))), "pipeline", stages)


def _times(mesh: tuple[int, ...]) -> str:
    return "x".join(map(str, mesh))


@dataclass(frozen=True)
class Result:
    """What a run came to; `sha256` is that of the logical weights, `comm` collective -> (how often, bytes)."""

    recipe: Recipe
    arrangement: Arrangement
    execution: Execution
    steps: int
    loss: float | None
    correct: int
    images: int
    sha256: str
    comm: Mapping[str, tuple[int, int]]
    seconds: float
    skipped: int = 0  # steps left out because a gradient overflowed

    @property
    def accuracy(self) -> float:
        """Share of the test images told right, in percent."""
        return 100 * self.correct / self.images


def datasets() -> tuple[TensorDataset, TensorDataset]:
    """Training and test images: 1,437 and 360 of the 1,797, drawn by `random_split` with seed 0.

    The same people wrote both.  The cut `load_digits` makes, the last 360 as the file lies, is harder: other hands.
    """
    digits = load_digits()
    images = np.concatenate([digits.train_images, digits.test_images])
    labels = np.concatenate([digits.train_labels, digits.test_labels])
    everything = TensorDataset(images, labels)
    parts = random_split(everything, [len(everything) - TEST_IMAGES, TEST_IMAGES], seed=SPLIT_SEED)
    train, test = (TensorDataset(*part.batch(range(len(part)))) for part in parts)
    return train, test


class Run:
    """A training run: model, optimizer, schedule and loader, at some step."""

    def __init__(self, recipe: Recipe, arrangement: Arrangement, execution: Execution | None = None) -> None:
        if recipe.model not in MODELS:
            raise AttributeValueError(f"model must be one of {', '.join(MODELS)}, found {recipe.model!r}")
        kind, where = MODELS[recipe.model], arrangement.placement
        lr = kind.lr if recipe.lr is None else recipe.lr
        self.recipe, self.arrangement = replace(recipe, lr=lr), arrangement
        self.execution = execution or Execution()
        if recipe.amp is not None or arrangement.stages > 1 or self.execution.lazy:
            self.execution = replace(self.execution, graph=True)
        self.step = 0
        self.loss: Tensor | None = None
        self.train, self.test = datasets()
        self.loader = DataLoader(
            self.train, recipe.batch, shuffle=True, drop_last=True, seed=recipe.seed, placement=arrangement.of_stages[0],
            sbp=arrangement.batch_sbp,
        )  # fmt: skip
        self.total = recipe.epochs * len(self.loader)
        if not self.total:
            found = f"{recipe.epochs} epochs of batches of {recipe.batch}"
            raise AttributeValueError(f"{found} from {len(self.train)} training images make no step at all")
        manual_seed(recipe.seed)
        self.model = kind.make()
        self.blocks = blocks_of(self.model, kind.blocks)
        if arrangement.stages == 1:
            self.model.to_global(where, lambda name, tensor: arrangement.weight_sbp(name, kind))
        else:
            for i, block in enumerate(self.blocks):
                block.to_global(arrangement.of_stages[stage_of(i, len(self.blocks), arrangement.stages)], broadcast)
        self.optimizer = AdamW(self.model.parameters(), lr=lr, weight_decay=WEIGHT_DECAY)
        self.schedule = CosineAnnealingLR(self.optimizer, T_max=self.total)
        self.graph = None if not self.execution.lazy else TrainStep(
            self.model, self.blocks, arrangement.of_stages, smoothed_loss, self.optimizer, self.schedule, self.execution,
            recipe.amp,
        )  # fmt: skip

    def one_step(self, images: Tensor, labels: Tensor) -> Tensor:
        """One step of training, eager or by the graph; the loss of its batch."""
        if self.graph is not None:
            loss: Tensor = self.graph(images, labels)
            return loss
        loss = smoothed_loss(self.model(images), labels)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.schedule.step()
        return loss

    def until(self, step: int, log: CommLog, each: Callable[[Run, Tensor], None] = lambda run, loss: None) -> None:
        """Trains up to `step` steps in all; `each` is called after every one with the loss of its batch."""
        while self.step < step:
            for images, labels in self.loader:
                with log_to(log):
                    loss = self.one_step(images, labels)
                self.step, self.loss = self.step + 1, loss.snapshot()
                each(self, loss)
                if self.step >= step:
                    return

    def correct(self) -> int:
        """How many test images the model tells right."""
        size, where = len(self.test), self.arrangement.of_stages
        batches = DataLoader(self.test, size, placement=where[0], sbp=self.arrangement.batch_sbp)
        with no_grad():
            images, labels = next(iter(batches))
            if self.arrangement.stages > 1:
                return int(CountCorrect(self.model, self.blocks, where)(images, labels).item())
            return int(sum_(eq(argmax(self.model(images), -1), labels)).item())

    def sha256(self) -> str:
        """The SHA-256 of the logical weights by name (NUM-DIGEST)."""
        with no_grad():
            return digest_many({name: tensor.numpy() for name, tensor in self.model.state_dict().items()})

    @property
    def scaler(self) -> GradScaler | None:
        """The loss scaler of a float16 run."""
        return None if self.graph is None else self.graph.scaler

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes all that the rest of the run depends on."""
        tree = {
            "recipe": asdict(self.recipe), "step": self.step, "generator": list(default_generator().state),
            "model": dict(self.model.state_dict()), "optimizer": self.optimizer.state_dict(),
            "schedule": self.schedule.state_dict(), "loader": self.loader.state_dict(),
            "scaler": None if self.scaler is None else self.scaler.state_dict(),
        }  # fmt: skip
        save(tree, path)

    def restore(self, tree: Mapping[str, Any]) -> None:
        """Takes over what `save` wrote, whatever the ranks and the parallel then."""
        self.model.load_state_dict(tree["model"])
        self.optimizer.load_state_dict(tree["optimizer"])
        self.schedule.load_state_dict(tree["schedule"])
        self.loader.load_state_dict(tree["loader"])
        if self.scaler is not None:
            self.scaler.load_state_dict(tree["scaler"])
        seed, next_global, next_local = tree["generator"]
        default_generator().state = (seed, next_global, next_local)
        self.step = tree["step"]


def smoothed_loss(scores: Tensor, labels: Tensor) -> Tensor:
    """The loss of the job: cross entropy with smoothed labels."""
    return cross_entropy(scores, labels, label_smoothing=LABEL_SMOOTHING)


class log_to:
    """Adds the moves of a block to an open-ended log."""

    def __init__(self, log: CommLog) -> None:
        self._log, self._inner = log, comm_log()

    def __enter__(self) -> None:
        self._inner.__enter__()

    def __exit__(self, *trace: Any) -> None:
        self._inner.__exit__(*trace)
        self._log.moves += self._inner.moves


def read(path: str | os.PathLike[str], placement: Placement) -> Mapping[str, Any]:
    """The checkpoint of a run, its tensors on `placement`.  Errors: `CheckpointError`."""
    tree = load(path, placement=placement, sbp=(broadcast,) * placement.ndim)
    wanted = {"recipe", "step", "generator", "model", "optimizer", "schedule", "loader", "scaler"}
    if not isinstance(tree, Mapping) or not wanted <= set(tree) or set(tree["recipe"]) != set(Recipe.__annotations__):
        raise CheckpointError(f"'{os.fspath(path)}' is not a checkpoint of `refflow train digits`")
    return tree


def train(
    asked: Mapping[str, Any],
    arrangement: Arrangement,
    execution: Execution | None = None,
    *,
    steps: int | None = None,
    save_to: str | os.PathLike[str] | None = None,
    save_every: int | None = None,
    trace_to: str | os.PathLike[str] | None = None,
    resume: str | os.PathLike[str] | None = None,
    begin: Callable[[Run, int], None] = lambda run, goal: None,
    each: Callable[[Run, Tensor], None] = lambda run, loss: None,
) -> Result:
    """Trains, or goes on training a checkpoint, until `steps` in all (default: all epochs), and looks at the outcome.

    `asked` holds what the caller says of the `Recipe`; a checkpoint says the rest, and must not say otherwise.
    With `save_every` the checkpoint is written after each so many steps too; `trace_to` takes the Perfetto trace of the
    last step of a graph.  `begin(run, goal)` is called once and `each(run, loss)` after each step.  Errors:
    `AttributeValueError`, `CheckpointError`, `GraphError`.  Source: JOB-DIGITS, JOB-RESUME, JOB-SAVE, JOB-TRACE.
    """
    started = time.perf_counter()
    if arrangement.placement.size > current_world().size:
        raise AttributeValueError(
            f"asked for {arrangement.placement.size} ranks, there are {current_world().size} ({current_world().describe()})"
        )
    tree = None if resume is None else read(resume, arrangement.placement)
    if save_every is not None and save_to is None:
        raise AttributeValueError("save-every needs --save, the file to write")
    run = Run(Recipe(**asked) if tree is None else _continued(tree["recipe"], asked), arrangement, execution)
    if tree is not None:
        run.restore(tree)
    goal = run.total if steps is None else steps
    if not run.step <= goal <= run.total:
        done = f", of which {run.step} are done" if run.step else ""
        raise AttributeValueError(f"{run.recipe.epochs} epochs are {run.total} steps{done}; asked for are {goal} steps")
    if trace_to is not None and (run.graph is None or run.step == goal):
        raise AttributeValueError("there is a trace only of a graph that takes a step; add --graph, or leave --trace out")

    def each_and_save(run: Run, loss: Tensor) -> None:
        each(run, loss)
        if save_to is not None and save_every is not None and run.step % save_every == 0 and run.step < goal:
            run.save(save_to)

    log = CommLog()
    begin(run, goal)
    run.until(goal, log, each_and_save)
    if save_to is not None:
        run.save(save_to)
    if trace_to is not None and run.graph is not None and 0 in current_world().owned:
        run.graph.trace(TRACED_ON).save(os.fspath(trace_to))
    correct, sha256 = run.correct(), run.sha256()
    loss = None if run.loss is None else float(run.loss.item())
    seconds = time.perf_counter() - started
    skipped = 0 if run.scaler is None else run.scaler.skipped
    return Result(
        run.recipe, arrangement, run.execution, run.step, loss, correct, len(run.test), sha256, log.by_kind(), seconds, skipped
    )  # fmt: skip


def _continued(stored: Mapping[str, Any], asked: Mapping[str, Any]) -> Recipe:
    """The recipe of a checkpoint, which what is asked now must agree with (JOB-RESUME)."""
    for name, value in asked.items():
        if stored[name] != value:
            raise AttributeValueError(
                f"the checkpoint was trained with {name} {stored[name]}, asked for is {value}; leave --{name} out to continue"
            )
    return Recipe(**stored)
