"""The job `refflow train digits`: a small network on handwritten digits.

Implements JOB-DIGITS of spec/text/jobs.md.  The weights it ends with are a function of model, seed, epochs, steps,
learning rate, batch size and precision alone: not of ranks, mesh, parallel, back end or world.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from ..data import DataLoader, TensorDataset, load_digits, random_split
from ..errors import AttributeValueError
from ..functional.arithmetic import eq
from ..functional.reduction import argmax
from ..functional.reduction import sum as sum_
from ..models import cnn, cnn_tensor_parallel, mlp, mlp_tensor_parallel
from ..nn.functional import cross_entropy
from ..nn.module import Module
from ..optim import AdamW
from ..tensor.tensor import Tensor
from . import training
from .arrangement import Arrangement, Cut, arrange
from .steps import Execution, blocks_of
from .training import Job, Outcome, Task

__all__ = ["DIGITS", "MODELS", "Arrangement", "Model", "Recipe", "Run", "arrange", "datasets", "train"]

TEST_IMAGES = 360
SPLIT_SEED = 0  # the test images are the same for every --seed
WEIGHT_DECAY = 0.1
LABEL_SMOOTHING = 0.1


@dataclass(frozen=True)
class Model:
    """A network of the job: how it is made, its learning rate, what tensor parallelism cuts, where its blocks begin."""

    make: Callable[[], Module]
    lr: float
    cut: Cut
    blocks: tuple[int, ...]


MODELS: Mapping[str, Model] = {
    "mlp": Model(mlp, 3e-3, mlp_tensor_parallel, blocks=(0, 3, 5, 7)),
    "cnn": Model(cnn, 1e-2, cnn_tensor_parallel, blocks=(0, 2, 3, 6)),
}


@dataclass(frozen=True)
class Recipe(training.Recipe):
    """What the final weights depend on; a checkpoint holds it."""

    epochs: int | None = 30
    batch: int | None = 128
    lr: float | None = None  # None: the model's own
    model: str = "mlp"

    def __str__(self) -> str:
        return f"{self.model}, {super().__str__()}"


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


class Run(training.Run):
    """A run of this job."""

    unit = "images"

    def __init__(self, recipe: Recipe, arrangement: Arrangement, execution: Execution | None = None) -> None:
        if recipe.model not in MODELS:
            raise AttributeValueError(f"model must be one of {', '.join(MODELS)}, found {recipe.model!r}")
        kind = MODELS[recipe.model]
        recipe = replace(recipe, lr=kind.lr if recipe.lr is None else recipe.lr)
        train, self.test = datasets()
        task = Task(train, kind.make, lambda model: blocks_of(model, kind.blocks), kind.cut, smoothed_loss, optimizer)
        super().__init__(recipe, arrangement, execution, task)

    def correct(self) -> int:
        """How many test images the model tells right."""
        where = self.arrangement.of_stages[0]
        batches = DataLoader(self.test, len(self.test), placement=where, sbp=self.arrangement.batch_sbp)
        return int(self.measure(told_right, *next(iter(batches))).item())

    def outcome(self) -> Outcome:
        correct, images = self.correct(), len(self.test)
        accuracy = 100 * correct / images
        return Outcome(
            {"test accuracy": f"{accuracy:.2f} %  ({correct} of {images} images)"},
            {"accuracy": accuracy, "correct": correct, "test_images": images},
        )


def optimizer(model: Module, lr: float) -> AdamW:
    """The optimizer of the job."""
    return AdamW(model.parameters(), lr=lr, weight_decay=WEIGHT_DECAY)


def smoothed_loss(scores: Tensor, labels: Tensor) -> Tensor:
    """The loss of the job: cross entropy with smoothed labels."""
    return cross_entropy(scores, labels, label_smoothing=LABEL_SMOOTHING)


def told_right(scores: Tensor, labels: Tensor) -> Tensor:
    """How many images have their highest score at their label."""
    return sum_(eq(argmax(scores, -1), labels))


DIGITS = Job("digits", Recipe, Run)
train = partial(training.train, DIGITS)
