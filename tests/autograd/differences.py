"""Gradients by central differences in float64, to hold against the tape."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import refflow as flow
from refflow.autograd import grad
from refflow.numerics import is_float

Array = np.ndarray[Any, Any]
Function = Callable[..., flow.Tensor]
STEP = 1e-6


def weights(shape: tuple[int, ...], seed: int = 1) -> Array:
    """Fixed numbers that tell every element of a result from every other."""
    return np.random.default_rng(seed).uniform(0.5, 1.5, shape)


def tensors(arrays: Sequence[Array], leaves: bool) -> list[flow.Tensor]:
    """Local tensors; the floats among them require a gradient if asked."""
    made = [flow.tensor(array) for array in arrays]
    return [x.requires_grad_() if leaves and is_float(x.dtype) else x for x in made]


def total(function: Function, arrays: Sequence[Array]) -> float:
    """sum(function(arrays) * weights), exactly enough."""
    out = function(*tensors(arrays, False)).numpy()
    return float(np.sum(out * weights(out.shape)))


def tape(function: Function, arrays: Sequence[Array], create_graph: bool = False) -> tuple[list[flow.Tensor], list[flow.Tensor]]:
    """The leaves and the gradients of `total` to them."""
    xs = tensors(arrays, True)
    leaves = [x for x in xs if x.requires_grad]
    out = function(*xs)
    loss = (out * flow.tensor(weights(out.shape))).sum()
    found = grad(loss, leaves, create_graph=create_graph, allow_unused=True)
    zeros = [flow.zeros_like(x.detach()) for x in leaves]
    return leaves, [z if g is None else g for g, z in zip(found, zeros, strict=True)]


def moved(arrays: Sequence[Array], directions: Sequence[Array], step: float) -> list[Array]:
    """The float arrays a step along the directions."""
    it = iter(directions)
    return [a + step * next(it) if a.dtype == np.float64 else a for a in arrays]


def directions_of(arrays: Sequence[Array], count: int) -> list[list[Array]]:
    """Random directions, so that any wrong entry of a gradient shows."""
    rng = np.random.default_rng(7)
    return [[rng.uniform(-1, 1, a.shape) for a in arrays if a.dtype == np.float64] for _ in range(count)]


def slope(function: Callable[[Sequence[Array]], float], arrays: Sequence[Array], along: Sequence[Array]) -> float:
    """The central difference of a number along a direction."""
    return (function(moved(arrays, along, STEP)) - function(moved(arrays, along, -STEP))) / (2 * STEP)


def check_gradient(function: Function, *arrays: Array, count: int = 3) -> None:
    """The tape's gradient, projected on random directions, is the central difference."""
    _, grads = tape(function, arrays)
    for along in directions_of(arrays, count):
        expected = slope(lambda moved_to: total(function, moved_to), arrays, along)
        found = sum(float(np.sum(g.numpy() * d)) for g, d in zip(grads, along, strict=True))
        np.testing.assert_allclose(found, expected, rtol=2e-6, atol=2e-7)


def check_second(function: Function, *arrays: Array, count: int = 2) -> None:
    """The gradient of <gradient, v> is the central difference of <gradient, v>."""

    def inner(at: Sequence[Array], create_graph: bool) -> tuple[list[flow.Tensor], flow.Tensor]:
        leaves, grads = tape(function, at, create_graph=create_graph)
        terms = [(g * flow.tensor(weights(g.shape, 2 + i))).sum() for i, g in enumerate(grads)]
        result = terms[0]
        for term in terms[1:]:
            result = result + term
        return leaves, result

    leaves, s = inner(arrays, True)
    seconds = grad(s, leaves, allow_unused=True) if s.requires_grad else [None] * len(leaves)
    for along in directions_of(arrays, count):
        expected = slope(lambda moved_to: inner(moved_to, False)[1].item(), arrays, along)
        found = sum(float(np.sum(g.numpy() * d)) for g, d in zip(seconds, along, strict=True) if g is not None)
        np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-6)
