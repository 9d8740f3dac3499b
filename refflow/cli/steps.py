"""The training step of a job: eager, or a graph with micro-batches, pipeline stages, ZeRO, recomputation, half precision.

Implements JOB-GRAPH and JOB-PIPELINE of spec/text/jobs.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any

from ..errors import AttributeValueError
from ..graph.amp import GradScaler
from ..graph.api import Graph
from ..graph.module import GraphModule
from ..layout import Placement
from ..nn import Sequential
from ..nn.module import Module
from ..numerics import bfloat16, float16
from ..runtime.clock import Machine
from ..tensor.tensor import Tensor

AMP = {"bf16": bfloat16, "f16": float16}

TRACED_ON = Machine(Fraction(10**5), Fraction(10**4), Fraction(10**3), Fraction(5))
"""The machine whose virtual time `--trace` shows, per microsecond: 100 Gflop/s, 10 GB/s of memory, 1 GB/s a link, 5 us latency."""

Measure = Callable[[Tensor, Tensor], Tensor]
"""(scores, targets) -> a number: a loss, or how many are right."""


@dataclass(frozen=True)
class Execution:
    """How a step is carried out; never changes a bit."""

    graph: bool = False
    micro_batches: int = 1
    zero: int = 0
    recompute: bool = False

    @property
    def lazy(self) -> bool:
        """Whether something asked for needs a graph."""
        return self.graph or self.micro_batches > 1 or bool(self.zero) or self.recompute

    def __str__(self) -> str:
        if not self.lazy:
            return "eager"
        parts = ["graph", f"micro-batches: {self.micro_batches}"]
        parts += [f"ZeRO stage {self.zero}"] if self.zero else []
        parts += ["recomputation"] if self.recompute else []
        return ", ".join(parts)


def blocks_of(model: Module, starts: Sequence[int]) -> list[Module]:
    """The layers of a sequential model in blocks that begin at `starts`; the layers, and their names, stay the model's."""
    layers = list(model.children())
    return [Sequential(*layers[a:b]) for a, b in pairwise([*starts, len(layers)])]


def stage_of(block: int, blocks: int, stages: int) -> int:
    """Which pipeline stage a block belongs to: equally many to each (JOB-PIPELINE)."""
    if blocks % stages:
        raise AttributeValueError(f"a model of {blocks} blocks does not fall into {stages} equal stages")
    return block * stages // blocks


class _Staged(Graph):
    """A graph of a model cut into blocks, each on the placement of its stage."""

    def __init__(self, model: Module, blocks: Sequence[Module], placements: Sequence[Placement]) -> None:
        super().__init__()
        self.model, self.blocks = model, list(blocks)
        if len(placements) > 1:
            for i, block in enumerate(self.blocks):
                stage = stage_of(i, len(self.blocks), len(placements))
                GraphModule.of(block).set_stage(stage, placements[stage])

    def scores(self, inputs: Tensor) -> Tensor:
        """What the model says of the inputs."""
        for block in self.blocks:
            inputs = block(inputs)
        return inputs

    def measured(self, measure: Measure, inputs: Tensor, targets: Tensor) -> Tensor:
        """`measure` of the scores and the targets, which come to where the scores are."""
        scores = self.scores(inputs)
        if targets.placement != scores.placement:
            targets = targets.to_global(scores.placement, targets.sbp)
        return measure(scores, targets)


class TrainStep(_Staged):
    """Forward, backward, optimizer and schedule (JOB-GRAPH)."""

    def __init__(
        self,
        model: Module,
        blocks: Sequence[Module],
        placements: Sequence[Placement],
        loss: Measure,
        optimizer: Any,
        schedule: Any,
        execution: Execution,
        amp: str | None,
    ) -> None:
        super().__init__(model, blocks, placements)
        self.loss = loss
        self.add_optimizer(optimizer, schedule)
        self.config.set_gradient_accumulation_steps(execution.micro_batches)
        if execution.zero:
            self.config.enable_zero(stage=execution.zero)
        if execution.recompute:
            for block in self.blocks:
                GraphModule.of(block).activation_checkpointing = True
        self.scaler: GradScaler | None = None
        if amp is not None:
            self.config.enable_amp(dtype=AMP[amp])
        if amp == "f16":
            self.scaler = GradScaler()
            self.set_grad_scaler(self.scaler)

    def build(self, inputs: Tensor, targets: Tensor) -> Tensor:
        loss = self.measured(self.loss, inputs, targets)
        loss.backward()
        return loss


class Evaluation(_Staged):
    """A measure of the model's scores, without training."""

    def __init__(
        self, model: Module, blocks: Sequence[Module], placements: Sequence[Placement], measure: Measure
    ) -> None:
        super().__init__(model, blocks, placements)
        self.measure = measure

    def build(self, inputs: Tensor, targets: Tensor) -> Tensor:
        return self.measured(self.measure, inputs, targets)


class Prediction(_Staged):
    """The model's scores."""

    def build(self, inputs: Tensor) -> Tensor:
        return self.scores(inputs)
