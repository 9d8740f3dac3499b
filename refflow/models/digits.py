"""Two networks for images of 8 by 8 pixels and ten classes.

Implements JOB-LAYOUT of spec/text/jobs.md: what tensor parallelism cuts (Shoeybi et al. 2019, arXiv:1909.08053).
"""

from __future__ import annotations

from ..layout import Sbp, Split, broadcast
from ..nn import Conv2d, Flatten, Linear, MaxPool2d, ReLU, Sequential


def mlp() -> Sequential:
    """Four linear layers, 64-128-128-128-10: images (n, 1, 8, 8) -> scores (n, 10), float32.  Source: JOB-DIGITS."""
    return Sequential(
        Flatten(),
        Linear(64, 128), ReLU(),
        Linear(128, 128), ReLU(),
        Linear(128, 128), ReLU(),
        Linear(128, 10),
    )  # fmt: skip


def cnn() -> Sequential:
    """Two convolutions of 3 by 3 with pooling, 16 and 32 channels, and a linear layer: (n, 1, 8, 8) -> (n, 10), float32."""
    return Sequential(
        Conv2d(1, 16, 3, padding=1), ReLU(), MaxPool2d(2),
        Conv2d(16, 32, 3, padding=1), ReLU(), MaxPool2d(2),
        Flatten(),
        Linear(128, 10),
    )  # fmt: skip


def mlp_tensor_parallel(name: str) -> Sbp:
    """Columns, rows, columns, whole."""
    return columns_or_rows(name, columns=("1", "5"), rows=("3",))


def cnn_tensor_parallel(name: str) -> Sbp:
    """Columns, rows, whole; a convolution's columns are its output channels, its rows the input channels."""
    return columns_or_rows(name, columns=("0",), rows=("3",))


def columns_or_rows(name: str, columns: tuple[str, ...], rows: tuple[str, ...]) -> Sbp:
    """The sbp of the parameter `name`: of a layer in `columns` S(0), of one in `rows` weight S(1) and bias B, else B.

    A layer's outputs are its columns: with weight (out, in) and bias (out,) S(0), its result is split along its last
    dimension, which is just what the inputs of a row layer must be: so nothing moves between a pair of them.
    """
    layer, _, kind = name.rpartition(".")
    if layer in columns:
        return Split(0)
    return Split(1) if layer in rows and kind == "weight" else broadcast
