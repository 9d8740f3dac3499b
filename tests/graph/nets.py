"""Small nets, and one training job told in many ways: eagerly on one rank, or as a graph in any layout.

The record of a job (losses, weights, optimizer state, generator) must not depend on how it was told.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import refflow as flow
from refflow import Tensor, nn
from refflow.graph.api import Graph
from refflow.graph.module import GraphModule
from refflow.layout import Placement, nested
from tests.graph.running import B, S

F = nn.functional
Array = np.ndarray[Any, Any]


class Attend(nn.Module):
    """Attention over itself, added to what it looks at, and normalised."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x + self.attention(x, x, x, need_weights=False)[0])


class Mean(nn.Module):
    """The mean over the places of a sequence."""

    def forward(self, x: Tensor) -> Tensor:
        return flow.mean(x, 1)


def mlp() -> nn.Sequential:
    """Four blocks, 8-16-16-16-4."""
    return nn.Sequential(
        nn.Sequential(nn.Linear(8, 16), nn.ReLU()), nn.Sequential(nn.Linear(16, 16), nn.Tanh()),
        nn.Sequential(nn.Linear(16, 16), nn.GELU()), nn.Linear(16, 4),
    )  # fmt: skip


def cnn() -> nn.Sequential:
    """Two convolutions with pooling (the two kinds of it), and a linear layer."""
    return nn.Sequential(
        nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.ReLU(), nn.AvgPool2d(2)),
        nn.Flatten(), nn.Linear(4, 4),
    )  # fmt: skip


def attention() -> nn.Sequential:
    """Embedding, dropout, attention and normalisation, twice."""
    return nn.Sequential(
        nn.Sequential(nn.Embedding(11, 8), nn.Dropout(0.25)), Attend(8, 2),
        nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.LayerNorm(8), Mean()), nn.Linear(8, 4),
    )  # fmt: skip


def normed() -> nn.Sequential:
    """With batch statistics."""
    return nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 4))


def dropped() -> nn.Sequential:
    """A perceptron that draws."""
    return nn.Sequential(
        nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.5)), nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Dropout(0.25)),
        nn.Linear(16, 16), nn.Linear(16, 4),
    )  # fmt: skip


def rows(n: int, *shape: int) -> Array:
    """Normal numbers, `n` of this shape."""
    size = int(np.prod((n, *shape)))
    return flow.numerics.normal(np.arange(size, dtype=np.uint64), 3, 0).reshape(n, *shape)


NETS: dict[Callable[[], nn.Sequential], Array] = {
    mlp: rows(128, 8),
    cnn: rows(128, 1, 4, 4),
    attention: np.arange(256).reshape(128, 2) * 7 % 11,
    normed: rows(128, 8),
    dropped: rows(128, 8),
}


def momentum(params: Any) -> Any:
    return flow.optim.SGD(params, lr=0.2, momentum=0.9, weight_decay=0.01, nesterov=True)


def descent(params: Any) -> Any:
    return flow.optim.SGD(params, lr=0.2)


def adamw(params: Any) -> Any:
    return flow.optim.AdamW(params, lr=0.05)


@dataclass(frozen=True)
class Told:
    """How a job is told.  `mesh` is that of a stage: its last axis is tensor parallel where `tensor` says so."""

    mesh: tuple[int, ...] = (1,)
    tensor: bool = False
    stages: int = 1
    micro: int = 1
    zero: int = 0
    recompute: bool = False
    runtime: str = "actors"
    schedule: Any = None
    config: dict[str, Any] = field(default_factory=dict, hash=False)

    def __str__(self) -> str:
        words = "x".join(map(str, self.mesh)) + (" tensor" if self.tensor else "")
        named = [("stages", self.stages, 1), ("M", self.micro, 1), ("zero", self.zero, 0)]
        words += "".join(f" {name} {value}" for name, value, plain in named if value != plain)
        return words + " recompute" * self.recompute + f" {self.runtime}" * (self.runtime != "actors")

    def placement(self, stage: int) -> Placement:
        """The ranks of a stage."""
        size = int(np.prod(self.mesh))
        return Placement("cpu", nested(range(stage * size, (stage + 1) * size), self.mesh))

    def input_sbp(self) -> tuple[Any, ...]:
        """Batches are cut along all axes but the tensor-parallel one."""
        return tuple(B if self.tensor and i == len(self.mesh) - 1 else S(0) for i in range(len(self.mesh)))

    def weight_sbp(self, name: str, tensor: Tensor) -> tuple[Any, ...]:
        """Weights are cut along their first dimension on the tensor-parallel axis."""
        cut = S(0) if self.tensor and tensor.ndim > 1 else B
        return (*[B] * (len(self.mesh) - 1), cut)


class Train(Graph):
    """A training step."""

    def __init__(self, model: nn.Module, optimizer: Any, schedule: Any, clip: float | None, told: Told) -> None:
        super().__init__()
        self.model = model
        self.add_optimizer(optimizer, schedule)
        self.clip = clip
        self.config.set_gradient_accumulation_steps(told.micro)
        self.config.runtime, self.config.schedule = told.runtime, told.schedule
        if told.zero:
            self.config.enable_zero(stage=told.zero)

    def build(self, x: Tensor, y: Tensor) -> Tensor:
        loss = F.cross_entropy(self.model(x), y)
        loss.backward()
        if self.clip is not None:
            nn.utils.clip_grad_norm_(list(self.model.parameters()), self.clip)
        return loss


@dataclass(frozen=True)
class Record:
    """What a job leaves behind, as digests, and the graph if there was one."""

    losses: tuple[str, ...]
    weights: tuple[str, ...]
    state: tuple[Any, ...]
    drawn: tuple[int, ...]
    graph: Graph | None = field(compare=False, default=None)


def digest(tensor: Tensor) -> str:
    """The digest of the logical value."""
    return flow.numerics.digest(tensor.detach().numpy())


def run(
    net: Callable[[], nn.Sequential],
    told: Told | None = None,
    *,
    optimizer: Callable[[Any], Any] = momentum,
    clip: float | None = None,
    steps: int = 3,
) -> Record:
    """The record of a job; eager on one rank if `told` is None."""
    flow.manual_seed(0)
    model = net()
    how = told or Told()
    length = -(-len(model) // how.stages)
    for i, block in enumerate(model):
        where = how.placement(i // length)
        block.to_global(where, how.weight_sbp)
        if told is not None and how.stages > 1:
            block.to(GraphModule).set_stage(i // length, where)
        if told is not None and how.recompute:
            block.to(GraphModule).activation_checkpointing = True
    data = NETS[net]
    labels = np.arange(len(data)) * 5 % 4
    x = flow.tensor(data, placement=how.placement(0), sbp=how.input_sbp())
    y = flow.tensor(labels, placement=how.placement(how.stages - 1), sbp=how.input_sbp())
    stepper = optimizer(model.parameters())
    schedule = flow.optim.lr_scheduler.StepLR(stepper, 1, 0.5)
    graph = Train(model, stepper, schedule, clip, how) if told is not None else None
    losses = []
    for _ in range(steps):
        if graph is not None:
            loss = graph(x, y)
        else:
            loss = F.cross_entropy(model(x), y)
            stepper.zero_grad()
            loss.backward()
            if clip is not None:
                nn.utils.clip_grad_norm_(list(model.parameters()), clip)
            stepper.step()
            schedule.step()
        losses.append(digest(loss))
    kept = [*model.parameters(), *model.buffers()]
    held = [
        (name, digest(entry) if isinstance(entry, Tensor) else entry)
        for p in model.parameters() for name, entry in stepper.state.get(p, {}).items()
    ]  # fmt: skip
    return Record(tuple(losses), tuple(map(digest, kept)), tuple(held), flow.default_generator().state, graph)
