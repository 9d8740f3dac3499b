"""The job `refflow train gpt`: a language model of the characters of a text, and text drawn from it.

Implements JOB-GPT and JOB-SAMPLE of spec/text/jobs.md.  The weights it ends with are a function of the text, sizes, seed,
epochs, steps, learning rate, batch size and precision alone: not of ranks, mesh, parallel, back end or world.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..data import DataLoader, TensorDataset, TextWindows, Vocabulary, load_text, split_text
from ..data.text import BOOK_SHA256, text_sha256
from ..errors import AttributeValueError
from ..functional.arithmetic import le, mul
from ..functional.creation import rand, tensor
from ..functional.movement import narrow, reshape
from ..functional.reduction import cumsum
from ..functional.reduction import sum as sum_
from ..functional.softmax import softmax
from ..layout import broadcast
from ..models import GPT, gpt_tensor_parallel
from ..nn.functional import cross_entropy
from ..nn.module import Module
from ..optim import AdamW
from ..random import Generator
from ..tensor.backward import no_grad
from ..tensor.tensor import Tensor
from . import training
from .arrangement import Arrangement
from .steps import Execution
from .training import Job, Outcome, Task

VALIDATION_WINDOWS = 64
BETAS = (0.9, 0.99)
WEIGHT_DECAY = 0.1


@dataclass(frozen=True)
class Recipe(training.Recipe):
    """What the final weights depend on; a checkpoint holds it."""

    epochs: int | None = 1
    batch: int | None = 16
    lr: float | None = 1e-3
    layers: int = 4
    width: int = 128
    heads: int = 4
    context: int = 64
    text: str = BOOK_SHA256  # the SHA-256 of the text

    def __str__(self) -> str:
        sizes = f"{self.layers} layers, width {self.width}, {self.heads} heads, context {self.context}"
        return f"gpt, {sizes}, {super().__str__()}"


@dataclass(frozen=True)
class Sampling:
    """How many characters to draw at the end, and what comes before them."""

    length: int = 0
    prompt: str = "\n"


class Run(training.Run):
    """A run of this job, on `text`."""

    unit = "characters"
    recipe: Recipe

    def __init__(
        self,
        recipe: Recipe,
        arrangement: Arrangement,
        execution: Execution | None = None,
        *,
        text: str,
        sampling: Sampling | None = None,
    ) -> None:
        self.vocabulary, self.sampling = Vocabulary.of(text), sampling or Sampling()
        if text_sha256(text) != recipe.text:
            raise AttributeValueError(
                f"the checkpoint was trained on the text of SHA-256 {recipe.text}, this one's is {text_sha256(text)};"
                " give its text with --data, or leave --data out for the one that ships"
            )
        train, rest = split_text(self.vocabulary.encode(text))
        self.validation = TextWindows(rest, recipe.context)
        if not len(self.validation):
            raise AttributeValueError(
                f"the text has {len(text)} characters, of which the last {len(rest)} are for validation;"
                f" a context of {recipe.context} needs {recipe.context + 1} there"
            )
        self._prompt_known()
        size = len(self.vocabulary)
        task = Task(
            TextWindows(train, recipe.context),
            lambda: GPT(size, recipe.width, recipe.layers, recipe.heads, recipe.context),
            blocks, gpt_tensor_parallel, next_character_loss, optimizer,
        )  # fmt: skip
        super().__init__(recipe, arrangement, execution, task)

    @property
    def per_step(self) -> int:
        return self.loader.batch_size * self.validation.context

    def _prompt_known(self) -> None:
        unknown = sorted(set(self.sampling.prompt) - set(self.vocabulary.characters))
        if self.sampling.length and (unknown or not self.sampling.prompt):
            found = f"has {unknown[0]!r}, which the text has not" if unknown else "is empty"
            raise AttributeValueError(f"the prompt of a sample {found}; give another with --prompt")

    def validation_loss(self) -> float:
        """The loss on the first windows of the validation text, 64 at most, as one batch."""
        count = min(VALIDATION_WINDOWS, len(self.validation))
        first = TensorDataset(*self.validation.batch(range(count)))
        batches = DataLoader(first, count, placement=self.arrangement.of_stages[0], sbp=self.arrangement.batch_sbp)
        return float(self.measure(next_character_loss, *next(iter(batches))).item())

    def sample(self, length: int, prompt: str) -> str:
        """`length` characters drawn one after the other to follow `prompt` (JOB-SAMPLE)."""
        return self.vocabulary.decode(draw(
            self.predictor(), self.vocabulary.encode(prompt).tolist(), length, self.recipe.context, self.recipe.seed,
            self.arrangement,
        ))  # fmt: skip

    def outcome(self) -> Outcome:
        loss = self.validation_loss()
        rows, json = {"validation loss": f"{loss:.6f}"}, {"validation_loss": loss}
        if self.sampling.length:
            prompt, drawn = self.sampling.prompt, self.sample(self.sampling.length, self.sampling.prompt)
            shown = {"prompt": repr(prompt), "sample": drawn}
            return Outcome({**rows, **shown}, {**json, "prompt": prompt, "sample": drawn})
        return Outcome(rows, json)


def draw(
    model: Callable[[Tensor], Tensor],
    given: list[int],
    length: int,
    context: int,
    seed: int,
    arrangement: Arrangement,
) -> list[int]:
    """`length` character numbers that follow `given`, by inverse transform sampling (JOB-SAMPLE).

    The model sees the last `context` characters, filled up with number 0 behind, where no character looks.  Of the
    scores at the last one c = cumsum(softmax(scores)); character k is the number of j with c[j] <= u[k] c[-1], where u
    is a draw of `length` uniform numbers by a fresh generator of `seed`.
    """
    where, sbp = arrangement.of_stages[0], arrangement.batch_sbp
    last = arrangement.of_stages[-1]
    everywhere: dict[str, Any] = {"placement": last, "sbp": (broadcast,) * last.ndim}
    text = list(given)
    with no_grad():
        uniform = rand(length, generator=Generator(seed), **everywhere)
        for k in range(length):
            seen = text[-context:]
            window = np.array([seen + [0] * (context - len(seen))], dtype=np.int64)
            scores = model(tensor(window, placement=where, sbp=sbp))
            row = narrow(scores, 1, len(seen) - 1, 1).to_global(**everywhere)
            c = cumsum(softmax(reshape(row, (-1,)), 0), 0)
            below = le(c, mul(narrow(uniform, 0, k, 1), narrow(c, 0, c.shape[0] - 1, 1)))
            text.append(int(sum_(below).item()))
    return text[len(given) :]


def blocks(model: Module) -> list[Module]:
    """The model in as many blocks as layers."""
    assert isinstance(model, GPT)
    return model.blocks()


def optimizer(model: Module, lr: float) -> AdamW:
    """The optimizer of the job."""
    return AdamW(model.parameters(), lr=lr, betas=BETAS, weight_decay=WEIGHT_DECAY)


def next_character_loss(scores: Tensor, targets: Tensor) -> Tensor:
    """The mean cross entropy of the characters that follow, in nats: scores (n, t, v), targets (n, t)."""
    n, t, v = scores.shape
    return cross_entropy(reshape(scores, (n * t, v)), reshape(targets, (n * t,)))


def gpt(text: str | None = None, sampling: Sampling | None = None) -> Job:
    """The job on `text`, by default the book that ships."""
    known = load_text() if text is None else text

    def run(recipe: Recipe, arrangement: Arrangement, execution: Execution | None) -> Run:
        return Run(recipe, arrangement, execution, text=known, sampling=sampling)

    return Job("gpt", Recipe, run)
