"""GPT: a language model of characters, and how tensor parallelism lays it out.

Implements JOB-GPT of spec/text/jobs.md; Radford et al. 2019 ("Language models are unsupervised multitask learners"), with
Vaswani et al. 2017 (arXiv:1706.03762) for attention.  Shapes in comments: n texts, t characters, e = width, h heads, v
characters of the vocabulary.  Whether the ranks share texts, heads or layers, not a line here changes, nor a bit.
"""

from __future__ import annotations

import math

from ..errors import AttributeValueError, ShapeError
from ..functional.arithmetic import add
from ..functional.movement import narrow, permute, reshape
from ..layout import Sbp, Split, broadcast
from ..nn import Embedding, LayerNorm, Linear, Sequential, init
from ..nn import functional as F
from ..nn.module import Module
from ..tensor.tensor import Tensor

STD = 0.02


class GPT(Module):
    """Scores (n, t, v) of the next character after each of the character numbers (n, t), t at most `context`.

    Embeddings of characters and of positions, `layers` layers, a head that is not tied to the embedding of characters.
    Weights start normal with deviation 0.02, those that write to the residual stream with 0.02 / sqrt(2 layers);
    biases start at 0.  Errors: `AttributeValueError` for sizes below 1 or a width that the heads do not divide;
    `ShapeError` for a text longer than the context.  Source: JOB-GPT.
    """

    def __init__(self, vocabulary: int, width: int = 128, layers: int = 4, heads: int = 4, context: int = 64) -> None:
        super().__init__()
        sizes = {"vocabulary": vocabulary, "width": width, "layers": layers, "heads": heads, "context": context}
        if min(sizes.values()) < 1 or width % heads:
            said = ", ".join(f"{name} {size}" for name, size in sizes.items())
            raise AttributeValueError(f"GPT: needs sizes of 1 or more, and a width that its heads divide; found {said}")
        self.embedding = Embeddings(vocabulary, context, width)
        self.layers = Sequential(*(Layer(width, heads) for _ in range(layers)))
        self.head = Head(width, vocabulary)
        for name, weight in self.named_parameters():
            if name.endswith((".out.weight", ".down.weight")):
                init.normal_(weight, std=STD / math.sqrt(2 * layers))
            elif name.endswith(".bias"):
                init.zeros_(weight)
            elif "norm" not in name:
                init.normal_(weight, std=STD)

    def forward(self, text: Tensor) -> Tensor:
        return self.head(self.layers(self.embedding(text)))  # type: ignore[no-any-return]

    def blocks(self) -> list[Module]:
        """The model in `layers` blocks, one after the other: a layer each, the embeddings with the first, the head with
        the last.  What pipeline stages and recomputation take whole (JOB-PIPELINE).
        """
        parts = [[layer] for layer in self.layers.children()]
        parts[0].insert(0, self.embedding)
        parts[-1].append(self.head)
        return [Sequential(*part) for part in parts]


class Embeddings(Module):
    """A vector for each character, plus one for its position: (n, t) -> (n, t, e)."""

    def __init__(self, vocabulary: int, context: int, width: int) -> None:
        super().__init__()
        self.context = context
        self.character = Embedding(vocabulary, width)
        self.position = Embedding(context, width)

    def forward(self, text: Tensor) -> Tensor:
        if text.ndim != 2 or text.shape[1] > self.context:
            raise ShapeError(f"GPT: needs texts (n, t) of at most {self.context} characters, found shape {text.shape}")
        return add(self.character(text), narrow(self.position.weight, 0, 0, text.shape[1]))


class Layer(Module):
    """Attention, then a network for each character alone; each reads a normalised copy and adds its result (pre-norm)."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1, self.attention = LayerNorm(width), CausalAttention(width, heads)
        self.norm2, self.network = LayerNorm(width), Network(width)

    def forward(self, x: Tensor) -> Tensor:
        x = add(x, self.attention(self.norm1(x)))
        return add(x, self.network(self.norm2(x)))


class CausalAttention(Module):
    """Each character looks at itself and those before it, in `heads` ways at once."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value = Linear(width, width), Linear(width, width), Linear(width, width)
        self.out = Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        n, t, e = x.shape
        q, k, v = (
            permute(reshape(of(x), (n, t, self.heads, e // self.heads)), 0, 2, 1, 3)  # (n, h, t, e / h)
            for of in (self.query, self.key, self.value)
        )
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(reshape(permute(seen, 0, 2, 1, 3), (n, t, e)))  # type: ignore[no-any-return]


class Network(Module):
    """Two linear layers with GELU between, four times as wide inside."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.up, self.down = Linear(width, 4 * width), Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.gelu(self.up(x)))  # type: ignore[no-any-return]


class Head(Module):
    """Scores of the next character: (n, t, e) -> (n, t, v)."""

    def __init__(self, width: int, vocabulary: int) -> None:
        super().__init__()
        self.norm, self.scores = LayerNorm(width), Linear(width, vocabulary, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.scores(self.norm(x))  # type: ignore[no-any-return]


COLUMNS = ("query", "key", "value", "up")  # their outputs are split: heads, and the inside of the network
ROWS = ("out", "down")  # their inputs are


def gpt_tensor_parallel(name: str) -> Sbp:
    """The sbp of parameter `name` along the axis that cuts weights (Shoeybi et al. 2019, arXiv:1909.08053; JOB-LAYOUT).

    The rows of query, key and value are whole heads, so S(0) of them is S(1) of the attention weights (n, h, t, t): each
    rank attends with its own heads.  Embeddings, norms and the head are B.

    >>> gpt_tensor_parallel("layers.0.attention.query.weight"), gpt_tensor_parallel("layers.0.attention.out.weight")
    (S(0), S(1))
    >>> gpt_tensor_parallel("layers.0.attention.out.bias"), gpt_tensor_parallel("embedding.character.weight")
    (B, B)
    """
    *_, layer, kind = name.split(".")
    if layer in COLUMNS:
        return Split(0)
    return Split(1) if layer in ROWS and kind == "weight" else broadcast
