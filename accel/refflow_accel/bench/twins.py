"""The same training step twice: a graph of refflow under the back end "numba", and PyTorch's, eager, of the same layers.

Both see the same batch, drawn at random; a model of PyTorch begins with the weights of its twin.  A twin is made of
functions with names, so a process can be sent one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
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


@dataclass(frozen=True)
class Training:
    """A graph and the batch it is called on: a step each time."""

    graph: TrainingGraph
    batch: tuple[Tensor, Tensor]

    def __call__(self) -> Tensor:
        loss: Tensor = self.graph(*self.batch)
        return loss


def ours(twin: Twin) -> Training:
    """The step here, in the world and under the back end in force; traced and compiled."""
    manual_seed(0)
    x, y = (tensor(array, placement=Placement("cpu", [0]), sbp=broadcast) for array in twin.batch())
    training = Training(TrainingGraph(twin), (x, y))
    for _ in range(3):  # the first makes the optimizer's state, the second is recorded, the third compiled
        training()
    return training


def weights(training: Training) -> list[np.ndarray[Any, Any]]:
    """The parameters as they are now."""
    return [parameter.detach().numpy() for parameter in training.graph.model.parameters()]


def theirs(twin: Twin, weights: list[np.ndarray[Any, Any]]) -> Step:
    """A step of PyTorch's twin, with these weights to begin with, in the order of its parameters."""
    import torch

    model = twin.theirs()
    parameters = list(model.parameters())
    with torch.no_grad():
        for parameter, weight in zip(parameters, weights, strict=True):
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


def loss(step: Step) -> float:
    """The loss before one more step, of either side."""
    return float(step().item())


# --- batches ----------------------------------------------------------------------------------------------------------


def images(*shape: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """A batch of images of `shape` and their classes, one of ten."""
    rng = np.random.default_rng(0)
    return rng.random((BATCH, *shape), np.float32), rng.integers(0, 10, BATCH)


def texts(context: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """A batch of texts as character numbers, and the characters that follow."""
    made = np.random.default_rng(0).integers(0, CHARACTERS, (TEXTS, context + 1))
    return np.ascontiguousarray(made[:, :-1]), np.ascontiguousarray(made[:, 1:])


# --- models -----------------------------------------------------------------------------------------------------------


def mlp(*widths: int) -> Module:
    """Linear layers with ReLU between."""
    layers: list[Module] = []
    for a, b in pairwise(widths):
        layers += [Linear(a, b), ReLU()]
    return Sequential(*layers[:-1])


def torch_mlp(*widths: int) -> Any:
    """The same of PyTorch."""
    from torch import nn

    layers: list[Any] = []
    for a, b in pairwise(widths):
        layers += [nn.Linear(a, b), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


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


def gpt_twin(name: str, target: float, *sizes: int) -> Twin:
    """A language model of characters of these sizes (width, layers, heads, context), trained by AdamW."""
    model, theirs = partial(GPT, CHARACTERS, *sizes), partial(torch_gpt, *sizes)
    return Twin(name, target, model, theirs, next_character_loss, partial(texts, sizes[-1]), adam=True)


def mlp_twin(name: str, target: float, *widths: int) -> Twin:
    """A classifier of so many layers, trained by SGD with momentum."""
    model, theirs = partial(mlp, *widths), partial(torch_mlp, *widths)
    return Twin(name, target, model, theirs, cross_entropy, partial(images, widths[0]))


SMALL = mlp_twin("MLP 64-32-10", 1.5, 64, 32, 10)
TWINS = [
    SMALL,
    mlp_twin("MLP 784-256-10", 0.7, 784, 256, 10),
    Twin("CNN of the digits", 0.7, cnn, torch_cnn, cross_entropy, partial(images, 1, 8, 8)),
    gpt_twin("GPT, width 128, 4 layers", 0.7, 128, 4, 4, 64),
]
