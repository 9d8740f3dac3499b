"""The training step of the job: eager, or a graph with micro-batches, pipeline stages, ZeRO, recomputation, half precision.

Implements JOB-GRAPH and JOB-PIPELINE of spec/text/jobs.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any

from ..errors import AttributeValueError
from ..functional.arithmetic import eq
from ..functional.reduction import argmax
from ..functional.reduction import sum as sum_
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

Loss = Callable[[Tensor, Tensor], Tensor]


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

    def scores(self, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """What the model says of the images, and the labels beside it."""
        for block in self.blocks:
            images = block(images)
        if labels.placement != images.placement:
            labels = labels.to_global(images.placement, labels.sbp)
        return images, labels


class TrainStep(_Staged):
    """Forward, backward, optimizer and schedule (JOB-GRAPH)."""

    def __init__(
        self,
        model: Module,
        blocks: Sequence[Module],
        placements: Sequence[Placement],
        loss: Loss,
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

    def build(self, images: Tensor, labels: Tensor) -> Tensor:
        loss = self.loss(*self.scores(images, labels))
        loss.backward()
        return loss


class CountCorrect(_Staged):
    """How many images the model tells right."""

    def build(self, images: Tensor, labels: Tensor) -> Tensor:
        scores, labels = self.scores(images, labels)
        return sum_(eq(argmax(scores, -1), labels))
