"""The same training step twice: a graph of refflow under the back end "numba", and PyTorch's, eager, of the same layers.

Both see inputs of one shape, at random; a model of PyTorch begins with the weights of its twin.  Needs torch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from refflow.cli.gpt import next_character_loss
from refflow.functional.creation import tensor
from refflow.graph.api import Graph
from refflow.layout import Placement, broadcast
from refflow.models import GPT, cnn
from refflow.nn import Linear, ReLU, Sequential
from refflow.nn.functional import cross_entropy
from refflow.nn.module import Module
from refflow.optim import SGD, AdamW
from refflow.state import manual_seed
from refflow.tensor.tensor import Tensor

Step = Callable[[], Any]
BATCH = 64
CHARACTERS, TEXTS = 80, 16  # of the book that ships, and in a batch


@dataclass(frozen=True)
class Twin:
    """A model of both, and the least speed of ours over PyTorch's that the project asks for."""

    name: str
    target: float
    model: Callable[[], Module]
    theirs: Callable[[], Any]
    loss: Callable[[Tensor, Tensor], Tensor]
    batch: Callable[[], tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]]
    adam: bool = False


class TrainingGraph(Graph):
    """Forward, backward and the optimizer's step; the runtime is left to the graph."""

    def __init__(self, twin: Twin) -> None:
        super().__init__()
        self.model, self.loss = twin.model(), twin.loss
        self.model.to_global(Placement("cpu", [0]), broadcast)
        weights = self.model.parameters()
        self.add_optimizer(AdamW(weights) if twin.adam else SGD(weights, lr=0.01, momentum=0.9))

    def build(self, x: Tensor, y: Tensor) -> Tensor:
        loss = self.loss(self.model(x), y)
        loss.backward()
        return loss


def ours(twin: Twin) -> tuple[TrainingGraph, Step]:
    """The graph and a step of it, in the world and under the back end in force; traced and compiled."""
    manual_seed(0)
    graph = TrainingGraph(twin)
    x, y = (tensor(array, placement=Placement("cpu", [0]), sbp=broadcast) for array in twin.batch())
    for _ in range(3):  # the first makes the optimizer's state, the second is recorded, the third compiled
        graph(x, y)
    return graph, lambda: graph(x, y)


def theirs(twin: Twin, weights: list[np.ndarray[Any, Any]] | None = None) -> Step:
    """A step of PyTorch's twin, with these weights to begin with, in the order of its parameters."""
    import torch

    model = twin.theirs()
    parameters = list(model.parameters())
    with torch.no_grad():
        for parameter, weight in zip(parameters, weights or (), strict=weights is not None):
            parameter.copy_(torch.from_numpy(weight.copy()))
    adam, sgd = torch.optim.AdamW, torch.optim.SGD
    optimizer = adam(parameters) if twin.adam else sgd(parameters, lr=0.01, momentum=0.9)
    x, y = (torch.from_numpy(array) for array in twin.batch())

    def step() -> Any:
        scores = model(x)
        loss = torch.nn.functional.cross_entropy(scores.reshape(-1, scores.shape[-1]), y.reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return step


# --- batches ----------------------------------------------------------------------------------------------------------


def images(*shape: int) -> Callable[[], tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]]:
    """A batch of images of `shape` and their classes, one of ten."""

    def batch() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        rng = np.random.default_rng(0)
        return rng.random((BATCH, *shape), np.float32), rng.integers(0, 10, BATCH)

    return batch


def texts(context: int) -> Callable[[], tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]]:
    """A batch of texts as character numbers, and the characters that follow."""

    def batch() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        made = np.random.default_rng(0).integers(0, CHARACTERS, (TEXTS, context + 1))
        return np.ascontiguousarray(made[:, :-1]), np.ascontiguousarray(made[:, 1:])

    return batch


# --- models -----------------------------------------------------------------------------------------------------------


def mlp(*widths: int) -> Callable[[], Module]:
    """Linear layers with ReLU between."""

    def made() -> Module:
        layers: list[Module] = []
        for a, b in pairwise(widths):
            layers += [Linear(a, b), ReLU()]
        return Sequential(*layers[:-1])

    return made


def torch_mlp(*widths: int) -> Callable[[], Any]:
    """The same of PyTorch."""

    def made() -> Any:
        from torch import nn

        layers: list[Any] = []
        for a, b in pairwise(widths):
            layers += [nn.Linear(a, b), nn.ReLU()]
        return nn.Sequential(*layers[:-1])

    return made


def torch_cnn() -> Any:
    """`refflow.models.cnn` of PyTorch."""
    from torch import nn

    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(128, 10),
    )  # fmt: skip


def torch_gpt(width: int, layers: int, heads: int, context: int) -> Any:
    """`refflow.models.GPT` of PyTorch."""
    import torch
    from torch import nn
    from torch.nn import functional as F

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm1 = nn.LayerNorm(width)
            self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
            self.norm2 = nn.LayerNorm(width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x: Any) -> Any:
            n, t, _ = x.shape
            y = self.norm1(x)
            q, k, v = (of(y).view(n, t, heads, -1).transpose(1, 2) for of in (self.query, self.key, self.value))
            seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(seen.transpose(1, 2).reshape(n, t, width))
            return x + self.down(F.gelu(self.up(self.norm2(x))))

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.character, self.position = nn.Embedding(CHARACTERS, width), nn.Embedding(context, width)
            self.layers = nn.Sequential(*(Layer() for _ in range(layers)))
            self.norm, self.scores = nn.LayerNorm(width), nn.Linear(width, CHARACTERS, bias=False)

        def forward(self, text: Any) -> Any:
            x = self.character(text) + self.position.weight[: text.shape[1]]
            return self.scores(self.norm(self.layers(x)))

    made: Any = Model()
    assert isinstance(made, torch.nn.Module)
    return made


def gpt_twin(name: str, target: float, width: int, layers: int, heads: int, context: int) -> Twin:
    """A language model of characters, trained by AdamW."""
    return Twin(
        name, target, lambda: GPT(CHARACTERS, width, layers, heads, context), lambda: torch_gpt(width, layers, heads, context),
        next_character_loss, texts(context), adam=True,
    )  # fmt: skip


SMALL = Twin("MLP 64-32-10", 1.5, mlp(64, 32, 10), torch_mlp(64, 32, 10), cross_entropy, images(64))
TWINS = [
    SMALL,
    Twin("MLP 784-256-10", 0.7, mlp(784, 256, 10), torch_mlp(784, 256, 10), cross_entropy, images(784)),
    Twin("CNN of the digits", 0.7, cnn, torch_cnn, cross_entropy, images(1, 8, 8)),
    gpt_twin("GPT, width 128, 4 layers", 0.7, 128, 4, 4, 64),
]
