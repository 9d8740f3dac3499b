"""Training runs: what every job of `refflow train` shares, from the first step to the last checkpoint.

Implements JOB-RESUME, JOB-SAVE and JOB-TRACE of spec/text/jobs.md.  A job (`digits`, `gpt`) says what is trained: its
samples, its model, how its outcome is looked at.  How ranks share the work is `arrangement`'s, how a step is carried
out `steps`'; neither changes a bit of the weights.
"""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, ClassVar

from ..boxing import CommLog, comm_log
from ..checkpoint import load, save
from ..data import DataLoader, Dataset
from ..errors import AttributeValueError, CheckpointError
from ..graph.amp import GradScaler
from ..layout import Placement, broadcast
from ..nn.module import Module
from ..optim import AdamW
from ..optim.lr_scheduler import CosineAnnealingLR
from ..state import default_generator, manual_seed, settings
from ..tensor.backward import no_grad
from ..tensor.digest import digest
from ..tensor.tensor import Tensor
from ..world import current_world
from .arrangement import Arrangement, Cut
from .steps import TRACED_ON, Evaluation, Execution, Measure, Prediction, TrainStep, stage_of


@dataclass(frozen=True)
class Recipe:
    """What the final weights depend on; a checkpoint holds it.  Jobs add to it, and say what is used for None."""

    seed: int = 0
    epochs: int | None = None
    batch: int | None = None
    lr: float | None = None
    amp: str | None = None  # "bf16" or "f16"; None: float32 throughout

    def __str__(self) -> str:
        half = "" if self.amp is None else f", {self.amp} contractions"
        return f"seed {self.seed}, batches of {self.batch}, first learning rate {self.lr}{half}"


@dataclass(frozen=True)
class Task:
    """What a job trains: samples (input, target), a model, and how the model falls apart."""

    samples: Dataset
    make: Callable[[], Module]
    blocks: Callable[[Module], Sequence[Module]]  # what pipeline stages and recomputation take whole, in order
    cut: Cut  # what tensor parallelism cuts
    loss: Measure
    optimizer: Callable[[Module, float], AdamW]  # of a model and its first learning rate


@dataclass(frozen=True)
class Outcome:
    """How good the model is: as lines of text by their titles, and as JSON."""

    rows: Mapping[str, str]
    json: Mapping[str, Any]


@dataclass(frozen=True)
class Result:
    """What a run came to; `sha256` is that of the logical weights, `comm` collective -> (how often, bytes)."""

    recipe: Recipe
    arrangement: Arrangement
    execution: Execution
    backend: str
    steps: int
    loss: float | None
    outcome: Outcome
    sha256: str
    comm: Mapping[str, tuple[int, int]]
    seconds: float
    speed: str  # of the steps taken
    skipped: int = 0  # steps left out because a gradient overflowed
    curve: Sequence[tuple[int, float]] = field(default=(), repr=False)  # (step, loss), if asked for


class Run(ABC):
    """A training run: model, optimizer, schedule and loader, at some step."""

    unit: ClassVar[str]  # what a batch is counted in
    recipe: Recipe

    def __init__(self, recipe: Recipe, arrangement: Arrangement, execution: Execution | None, task: Task) -> None:
        assert recipe.epochs is not None and recipe.batch is not None and recipe.lr is not None
        self.recipe, self.arrangement, self.task = recipe, arrangement, task
        self.execution = execution or Execution()
        if recipe.amp is not None or arrangement.stages > 1 or self.execution.lazy:
            self.execution = replace(self.execution, graph=True)
        self.step = 0
        self.loss: Tensor | None = None
        self.loader = DataLoader(
            task.samples, recipe.batch, shuffle=True, drop_last=True, seed=recipe.seed,
            placement=arrangement.of_stages[0], sbp=arrangement.batch_sbp,
        )  # fmt: skip
        self.total = recipe.epochs * len(self.loader)
        if not self.total:
            found = f"{recipe.epochs} epochs of batches of {recipe.batch}"
            raise AttributeValueError(f"{found} from {len(task.samples)} training {self.unit} make no step at all")
        manual_seed(recipe.seed)
        self.model = task.make()
        self.blocks = task.blocks(self.model)
        self._lay_out()
        self.optimizer = task.optimizer(self.model, recipe.lr)
        self.schedule = CosineAnnealingLR(self.optimizer, T_max=self.total)
        self.graph = None if not self.execution.lazy else TrainStep(
            self.model, self.blocks, arrangement.of_stages, task.loss, self.optimizer, self.schedule, self.execution,
            recipe.amp,
        )  # fmt: skip

    def _lay_out(self) -> None:
        """Brings the model from one rank to all."""
        arrangement, cut = self.arrangement, self.task.cut
        if arrangement.stages == 1:
            self.model.to_global(arrangement.placement, lambda name, tensor: arrangement.weight_sbp(name, cut))
            return
        for i, block in enumerate(self.blocks):
            block.to_global(arrangement.of_stages[stage_of(i, len(self.blocks), arrangement.stages)], broadcast)

    @property
    def per_step(self) -> int:
        """How many units a step takes."""
        return self.loader.batch_size

    @abstractmethod
    def outcome(self) -> Outcome:
        """Looks at the model, on samples that it was not trained on."""

    def one_step(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """One step of training, eager or by the graph; the loss of its batch."""
        if self.graph is not None:
            loss: Tensor = self.graph(inputs, targets)
            return loss
        loss = self.task.loss(self.model(inputs), targets)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.schedule.step()
        return loss

    def until(self, step: int, log: CommLog, each: Callable[[Run, Tensor], None] = lambda run, loss: None) -> None:
        """Trains up to `step` steps in all; `each` is called after every one with the loss of its batch."""
        while self.step < step:
            for inputs, targets in self.loader:
                with log_to(log):
                    loss = self.one_step(inputs, targets)
                self.step, self.loss = self.step + 1, loss.snapshot()
                each(self, loss)
                if self.step >= step:
                    return

    def measure(self, measure: Measure, inputs: Tensor, targets: Tensor) -> Tensor:
        """`measure` of the model's scores, by a graph where the model is in stages."""
        with no_grad():
            if self.arrangement.stages > 1:
                found: Tensor = Evaluation(self.model, self.blocks, self.arrangement.of_stages, measure)(inputs, targets)
                return found
            return measure(self.model(inputs), targets)

    def predictor(self) -> Callable[[Tensor], Tensor]:
        """The model as a function, by a graph where the model is in stages."""
        if self.arrangement.stages > 1:
            return Prediction(self.model, self.blocks, self.arrangement.of_stages)
        return self.model

    def sha256(self) -> str:
        """The SHA-256 of the logical weights by name (NUM-DIGEST)."""
        return digest(self.model.state_dict())

    @property
    def first_step(self) -> str:
        """What the first step has to do beside, in words, or nothing: the others, and with compiled code the next run, have it."""
        compiles = settings().backend("cpu").name != "reference"
        what = ["tracing"] * (self.graph is not None) + ["compiling"] * compiles
        return f"first step: {', '.join(what)}" if what else ""

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


@dataclass(frozen=True)
class Job:
    """A command `refflow train NAME`: its recipe, and how a run of it is made."""

    name: str
    recipe: type[Recipe]
    run: Callable[[Any, Arrangement, Execution | None], Run]


class log_to:
    """Adds the moves of a block to an open-ended log."""

    def __init__(self, log: CommLog) -> None:
        self._log, self._inner = log, comm_log()

    def __enter__(self) -> None:
        self._inner.__enter__()

    def __exit__(self, *trace: Any) -> None:
        self._inner.__exit__(*trace)
        self._log.moves += self._inner.moves


def read(job: Job, path: str | os.PathLike[str], placement: Placement) -> Mapping[str, Any]:
    """The checkpoint of a run, its tensors on `placement`.  Errors: `CheckpointError`."""
    tree = load(path, placement=placement, sbp=(broadcast,) * placement.ndim)
    wanted = {"recipe", "step", "generator", "model", "optimizer", "schedule", "loader", "scaler"}
    names = {entry.name for entry in fields(job.recipe)}
    if not isinstance(tree, Mapping) or not wanted <= set(tree) or set(tree["recipe"]) != names:
        raise CheckpointError(f"'{os.fspath(path)}' is not a checkpoint of `refflow train {job.name}`")
    return tree


def train(
    job: Job,
    asked: Mapping[str, Any],
    arrangement: Arrangement,
    execution: Execution | None = None,
    *,
    steps: int | None = None,
    save_to: str | os.PathLike[str] | None = None,
    save_every: int | None = None,
    trace_to: str | os.PathLike[str] | None = None,
    curve: bool = False,
    resume: str | os.PathLike[str] | None = None,
    begin: Callable[[Run, int], None] = lambda run, goal: None,
    each: Callable[[Run, Tensor], None] = lambda run, loss: None,
) -> Result:
    """Trains, or goes on training a checkpoint, until `steps` in all (default: all epochs), and looks at the outcome.

    `asked` holds what the caller says of the job's recipe; a checkpoint says the rest, and must not say otherwise.
    With `save_every` the checkpoint is written after each so many steps too; `trace_to` takes the Perfetto trace of the
    last step of a graph; with `curve` the result has the loss of every step.  `begin(run, goal)` is called once and
    `each(run, loss)` after each step.  Errors: `AttributeValueError`, `CheckpointError`, `GraphError`.  Source:
    JOB-RESUME, JOB-SAVE, JOB-TRACE.
    """
    started = time.perf_counter()
    if save_every is not None and save_to is None:
        raise AttributeValueError("save-every needs --save, the file to write")
    run = _begun(job, asked, arrangement, execution, resume)
    goal = _goal(run, steps)
    if trace_to is not None and (run.graph is None or run.step == goal):
        raise AttributeValueError("there is a trace only of a graph that takes a step; add --graph, or leave --trace out")
    losses: list[tuple[int, Tensor]] = []
    log, begun = CommLog(), run.step
    first, training = begun, time.perf_counter()

    def after_each(run: Run, loss: Tensor) -> None:
        nonlocal training, first
        each(run, loss)
        if run.step == begun + 1 < goal:  # a first step traces and compiles: the speed is that of the others
            training, first = time.perf_counter(), run.step
        if curve:
            losses.append((run.step, loss.snapshot()))
        if save_to is not None and save_every is not None and run.step % save_every == 0 and run.step < goal:
            run.save(save_to)

    begin(run, goal)
    training = time.perf_counter()
    run.until(goal, log, after_each)
    training = time.perf_counter() - training
    if save_to is not None:
        run.save(save_to)
    if trace_to is not None and run.graph is not None and 0 in current_world().owned:
        run.graph.trace(TRACED_ON).save(os.fspath(trace_to))
    outcome, sha256 = run.outcome(), run.sha256()
    return Result(
        run.recipe, arrangement, run.execution, backend_in_force(), run.step,
        None if run.loss is None else float(run.loss.item()), outcome, sha256, log.by_kind(),
        time.perf_counter() - started, speed(run, run.step - first, training),
        0 if run.scaler is None else run.scaler.skipped, [(step, float(loss.item())) for step, loss in losses],
    )  # fmt: skip


def _begun(
    job: Job,
    asked: Mapping[str, Any],
    arrangement: Arrangement,
    execution: Execution | None,
    resume: str | os.PathLike[str] | None,
) -> Run:
    """A run at its first step, or where its checkpoint left it."""
    world = current_world()
    if arrangement.placement.size > world.size:
        found = f"there are {world.size} ({world.describe()})"
        raise AttributeValueError(f"asked for {arrangement.placement.size} ranks, {found}")
    if resume is None:
        return job.run(job.recipe(**asked), arrangement, execution)
    tree = read(job, resume, arrangement.placement)
    run = job.run(_continued(job, tree["recipe"], asked), arrangement, execution)
    run.restore(tree)
    return run


def _goal(run: Run, steps: int | None) -> int:
    """The step to train up to; `AttributeValueError` for one that is past the end, or done already."""
    goal = run.total if steps is None else steps
    if not run.step <= goal <= run.total:
        done = f", of which {run.step} are done" if run.step else ""
        raise AttributeValueError(f"{run.recipe.epochs} epochs are {run.total} steps{done}; asked for are {goal} steps")
    return goal


def speed(run: Run, steps: int, seconds: float) -> str:
    """How many units of the job `steps` steps took a second, in words."""
    return f"{steps * run.per_step / seconds:,.0f} {run.unit}/s" if steps and seconds > 0 else ""


def backend_in_force() -> str:
    """The name of the back end that computes on "cpu"."""
    return settings().backend("cpu").name


def _continued(job: Job, stored: Mapping[str, Any], asked: Mapping[str, Any]) -> Recipe:
    """The recipe of a checkpoint, which what is asked now must agree with (JOB-RESUME)."""
    for name, value in asked.items():
        if stored[name] != value:
            raise AttributeValueError(
                f"the checkpoint was trained with {name} {stored[name]}, asked for is {value}; leave --{name} out to continue"
            )
    return job.recipe(**stored)
