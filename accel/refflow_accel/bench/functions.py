"""Functions of matrices as refflow, PyTorch and NumPy say them, by name, and the work of each side on an n x n matrix."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from refflow.nn import functional as F

from .native import Rows, rows_of, rows_of_adamw


@dataclass(frozen=True)
class Function:
    """Of a matrix, and of vectors of ones where it takes more; PyTorch's module of functions comes first."""

    ours: Callable[..., Any]
    torch: Callable[..., Any]
    numpy: Callable[..., Any] | None = None  # (matrix, out), where NumPy has one function for it
    ones: int = 0


FUNCTIONS = {
    "sum of rows": Function(lambda x: x.sum(1), lambda f, x: x.sum(1), lambda x, out: np.sum(x, 1, out=out[0])),
    "sum of columns": Function(lambda x: x.sum(0), lambda f, x: x.sum(0), lambda x, out: np.sum(x, 0, out=out[0])),
    "softmax": Function(lambda x: F.softmax(x, 1), lambda f, x: x.softmax(1)),
    "layer norm": Function(
        lambda x, w, b: F.layer_norm(x, w.shape, w, b), lambda f, x, w, b: f.layer_norm(x, w.shape, w, b), ones=2
    ),
    "exp": Function(lambda x: x.exp(), lambda f, x: x.exp(), lambda x, out: np.exp(x, out=out)),
    "gelu": Function(F.gelu, lambda f, x: f.gelu(x)),
}


def matrix(n: int) -> np.ndarray[Any, Any]:
    """Always the same."""
    return np.random.default_rng(0).standard_normal((n, n)).astype(np.float32)


def _arguments(name: str, n: int) -> list[np.ndarray[Any, Any]]:
    return [matrix(n), *[np.ones(n, np.float32)] * FUNCTIONS[name].ones]


def native(name: str, n: int) -> Rows:
    """The compiled kernels alone."""
    return rows_of(FUNCTIONS[name].ours, *_arguments(name, n))


def numpy(name: str, n: int) -> Callable[[], Any]:
    """NumPy's function, into an array that exists."""
    function, x = FUNCTIONS[name].numpy, matrix(n)
    assert function is not None
    return partial(function, x, np.empty_like(x))


def torch(name: str, n: int) -> Callable[[], Any]:
    """PyTorch's function."""
    import torch

    return partial(FUNCTIONS[name].torch, torch.nn.functional, *map(torch.from_numpy, _arguments(name, n)))


def native_adamw(n: int) -> Rows:
    """The kernel of AdamW's step on one parameter."""
    return rows_of_adamw(matrix(n))


def torch_adamw(n: int, fused: bool) -> Callable[[], Any]:
    """A step of PyTorch's AdamW on one parameter whose gradient stays."""
    import torch

    parameter = torch.nn.Parameter(torch.from_numpy(matrix(n)))
    parameter.grad = torch.from_numpy(matrix(n))
    step: Callable[[], Any] = torch.optim.AdamW([parameter], fused=fused).step
    return step


def blas(work: object) -> str:
    """Which kernels NumPy's BLAS chose in this process."""
    try:
        from threadpoolctl import threadpool_info
    except ImportError:
        return "not known (no threadpoolctl)"
    found = [info for info in threadpool_info() if info["user_api"] == "blas"]
    return ", ".join(f"{info['internal_api']} {info['version']} {info.get('architecture', '')}" for info in found)
