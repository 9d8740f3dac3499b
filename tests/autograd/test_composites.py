"""Every differentiable function built from primitives against central differences; and the same bits in every layout.

Checks OPS-COMPOSITE, AUTO-VJP and AUTO-LAYOUT.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import refflow as flow
import refflow.nn.functional as F
from refflow.autograd import grad
from tests.autograd.differences import Array, Function, check_gradient, check_second
from tests.tensor.layouts import LINE4, MATRIX_LAYOUTS, B, P, S, laid, layout_id

RNG = np.random.default_rng(5)


def spaced(*shape: int) -> Array:
    """Distinct numbers of both signs, none within a step of another, of 0 or of a rounding boundary."""
    n = int(np.prod(shape))
    return ((RNG.permutation(n) + RNG.uniform(0.2, 0.8, n)) * 3.7 / n - 1.9).reshape(shape)


def positive(*shape: int) -> Array:
    return np.abs(spaced(*shape)) + 0.3


M, V, W = spaced(3, 4), spaced(4), spaced(4, 2)
ZEROS = np.array([[1.5, 0.0, 2.0, -1.0], [0.0, 0.0, 3.0, 1.2]])
IDX = np.array([2, 0, 2])
ALONG = np.array([[0, 3], [1, 1], [2, 0]])
IMAGE, FILTER = spaced(1, 2, 4, 5), spaced(3, 2, 2, 2)
TARGET = np.array([1, 0, 3])
MASK = np.array([[True, False, True, False]])

FUNCTIONS: dict[str, tuple[Function, tuple[Array, ...]]] = {
    "polynomial": (lambda x, y: (x + 1) * x - 2 * y + 3 - x, (M, V)),
    "quotient": (lambda x, y: x / y + 1 / y, (M, positive(4))),
    "power": (lambda x, y: x**y + x**3.0 + 2.0**y, (positive(3, 4), V)),
    "power of negatives": (lambda x: x**2.0 + x**3.0, (M,)),
    "square reciprocal": (lambda x: x.square().reciprocal(), (positive(4),)),
    "modulo": (lambda x: x % 0.7, (M,)),
    "clamp": (lambda x: x.clamp(-0.8, 1.1) + x.clamp(max=0.2), (M,)),
    "where": (lambda x, y: flow.where(flow.tensor(MASK), x, y) + flow.where(flow.tensor(MASK), 2.0, x), (M, V)),
    "masked_fill": (lambda x: x.masked_fill(flow.tensor(MASK), 3.0) * x, (M,)),
    "extremes": (lambda x, y: x.maximum(y) * 2 + flow.minimum(x, y), (M, V)),
    "abs sign": (lambda x: abs(x) * x.sign() + x.relu(), (M,)),
    "float chain": (lambda x: (x.sigmoid() * x.tanh()).exp().log1p(), (M,)),
    "reused": (lambda x: x * x.sum() + x.mean() * x.exp() - x, (V,)),
    "sum": (lambda x: x.sum(0) * x.sum(1, keepdim=True) + x.sum(), (M,)),
    "mean": (lambda x: x.mean(0) * x.mean((0, 1)) + x.mean(-1, keepdim=True), (M,)),
    "var": (lambda x: x.var(1) + x.var(), (M,)),
    "std": (lambda x: x.std(0, correction=0), (M,)),
    "norm 1": (lambda x: x.norm(1, 0), (M,)),
    "norm 2": (lambda x: x.norm(dim=1) * x.norm(), (M,)),
    "norm inf": (lambda x: x.norm(math.inf, 1), (M,)),
    "amax amin": (lambda x: x.amax(0) * x.amin(1).sum(), (M,)),
    "max": (lambda x: x.max() * x.max(1).values, (M,)),
    "min": (lambda x: x.min(0, keepdim=True).values * x.min(), (M,)),
    "prod": (lambda x: x.prod(1) + x.prod(), (M,)),
    "prod of zeros": (lambda x: x.prod(1), (ZEROS,)),
    "cumsum": (lambda x: x.cumsum(1) * x.cumsum(0), (M,)),
    "cumprod": (lambda x: x.cumprod(1), (M,)),
    "cumprod of zeros": (lambda x: x.cumprod(1), (ZEROS,)),
    "sort": (lambda x: x.sort(1).values * flow.tensor([1.0, 2, 3, 4]).double(), (M,)),
    "topk": (lambda x: x.topk(2, 0).values + x.topk(2, 0, largest=False).values, (M,)),
    "matmul": (lambda x, y: x @ y, (M, W)),
    "vectors": (lambda x, y: (x @ y) * y.dot(y) + (y @ x.T), (M, V)),
    "batch matmul": (lambda x, y: x.reshape(3, 2, 2) @ y.reshape(2, 4), (M, W)),
    "broadcast matmul": (lambda x, y: x.reshape(3, 1, 1, 4) @ y, (M, W)),
    "reshape chain": (lambda x: x.reshape(2, 6).T.flip(0).reshape(-1)[1:9:3] ** 2.0, (M,)),
    "views": (lambda x: x[1] * x[:, 2:3] + x[..., None, -1], (M,)),
    "unsqueeze squeeze": (lambda x: x.unsqueeze(0).squeeze(0).movedim(0, 1).flatten(), (M,)),
    "expand repeat": (lambda x: x.expand(3, 4) * x.repeat(3, 1), (V,)),
    "split cat": (lambda x: flow.cat(x.split([1, 3], 1)[::-1], 1) * x, (M,)),
    "chunk stack": (lambda x: flow.stack(x.chunk(2, 1), 1) ** 2.0, (M,)),
    "unbind": (lambda x: x.unbind(1)[0] * x.select(1, 3), (M,)),
    "roll pad": (lambda x: flow.pad(x.roll(1, 1), (1, 0, 0, 2)) ** 2.0, (M,)),
    "triangles": (lambda x: x.tril(-1) + x.triu(1) * x, (M,)),
    "index_select": (lambda x: x.index_select(0, flow.tensor(IDX)) ** 2.0, (M,)),
    "integer key": (lambda x: x[flow.tensor(IDX)].exp(), (M,)),
    "gather": (lambda x: x.gather(1, flow.tensor(ALONG)) ** 2.0, (M,)),
    "scatter_add": (lambda x, y: x.scatter_add(1, flow.tensor(ALONG), y) ** 2.0, (M, spaced(3, 2))),
    "index_add": (lambda x, y: x.index_add(0, flow.tensor(IDX), y) ** 2.0, (M, spaced(3, 4))),
    "float and double": (lambda x: x.double() * 2, (V,)),
    "softmax": (lambda x: F.softmax(x, 1), (M,)),
    "log_softmax": (lambda x: F.log_softmax(x, 0), (M,)),
    "activations": (lambda x: F.gelu(x) + F.silu(x) + F.elu(x) + F.leaky_relu(x) + F.softplus(x) + F.hardtanh(x), (V,)),
    "gelu tanh": (lambda x: F.gelu(x, approximate="tanh"), (V,)),
    "linear": (lambda x, w, b: F.linear(x, w, b), (M, spaced(2, 4), spaced(2))),
    "conv2d": (lambda x, w, b: F.conv2d(x, w, b, stride=(1, 2), padding=1), (IMAGE, FILTER, spaced(3))),
    "conv2d groups": (lambda x, w: F.conv2d(x, w, groups=2, dilation=(2, 1)), (IMAGE, spaced(4, 1, 2, 2))),
    "max_pool2d": (lambda x: F.max_pool2d(x, 2, 1), (IMAGE,)),
    "avg_pool2d": (lambda x: F.avg_pool2d(x, 2, 1, padding=1), (IMAGE,)),
    "adaptive_avg_pool2d": (lambda x: F.adaptive_avg_pool2d(x, (2, 3)), (IMAGE,)),
    "embedding": (lambda w: F.embedding(flow.tensor([[0, 2], [2, 2]]), w) ** 2.0, (M,)),
    "layer_norm": (lambda x, w, b: F.layer_norm(x, 4, w, b), (M, positive(4), V)),
    "rms_norm": (lambda x, w: F.rms_norm(x, 4, w, eps=1e-5), (M, positive(4))),
    "group_norm": (lambda x: F.group_norm(x.reshape(1, 4, 3), 2), (M,)),
    "batch_norm": (lambda x, w: F.batch_norm(x, None, None, w, training=True), (M, positive(4))),
    "normalize": (lambda x: F.normalize(x), (M,)),
    "cross_entropy": (lambda x: F.cross_entropy(x, flow.tensor(TARGET), label_smoothing=0.1), (M,)),
    "nll_loss": (lambda x: F.nll_loss(x, flow.tensor(TARGET), reduction="none"), (M,)),
    "regressions": (lambda x, y: F.mse_loss(x, y) + F.l1_loss(x, y) + F.smooth_l1_loss(x, y) + F.huber_loss(x, y), (M, spaced(3, 4))),
    "bce": (lambda x, y: F.binary_cross_entropy_with_logits(x, y), (M, positive(3, 4) / 4)),
    "kl_div": (lambda x, y: F.kl_div(x, y, reduction="batchmean"), (M, positive(3, 4))),
    "attention": (lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), (M, spaced(3, 4), spaced(3, 2))),
}  # fmt: skip

TWICE = (
    "polynomial", "quotient", "power", "float chain", "reused", "var", "norm 2", "prod", "prod of zeros", "cumprod of zeros", "max",
    "matmul", "batch matmul", "broadcast matmul", "reshape chain", "gather", "scatter_add", "softmax", "gelu tanh", "layer_norm",
    "cross_entropy", "conv2d", "attention", "activations",
)  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradient(name: str) -> None:
    """(AUTO-VJP)"""
    function, arrays = FUNCTIONS[name]
    check_gradient(function, *arrays)


@pytest.mark.parametrize("name", TWICE)
def test_second_gradient(name: str) -> None:
    """Gradients of gradients (create_graph)."""
    function, arrays = FUNCTIONS[name]
    check_second(lambda *xs: function(*xs) ** 2.0, *arrays)


def test_third_gradient() -> None:
    """d3/dx3 x^4 = 24 x, d3/dx3 exp(x) = exp(x)."""
    x = flow.tensor([0.5, -1.5], dtype=flow.float64, requires_grad=True)
    y: Any = x**4.0 + x.exp()
    for _ in range(3):
        (y,) = grad(y.sum(), x, create_graph=True)
    np.testing.assert_allclose(y.detach().numpy(), 24 * np.array([0.5, -1.5]) + np.exp([0.5, -1.5]), rtol=1e-12)


# --- what is defined at corners -------------------------------------------------------------------------------------


def test_ties() -> None:
    """maximum halves, amax shares equally, max(dim) goes to the chosen index, relu and abs are flat at 0."""

    def gradient(function: Function, *data: Any) -> list[Any]:
        xs = [flow.tensor(d, requires_grad=True) for d in data]
        return [g.tolist() for g in grad(function(*xs).sum(), xs) if g is not None]

    assert gradient(flow.maximum, [1.0, 2.0], [1.0, 5.0]) == [[0.5, 0], [0.5, 1]]
    assert gradient(flow.minimum, [1.0, 2.0], [1.0, 5.0]) == [[0.5, 1], [0.5, 0]]
    assert gradient(lambda x: x.amax(0), [3.0, 7.0, 7.0]) == [[0, 0.5, 0.5]]
    assert gradient(lambda x: x.max(), [7.0, 7.0, 7.0, 7.0]) == [[0.25] * 4]
    assert gradient(lambda x: x.max(0).values, [3.0, 7.0, 7.0]) == [[0, 1, 0]]
    assert gradient(lambda x: x.min(0).values, [3.0, 3.0, 7.0]) == [[1, 0, 0]]
    assert gradient(lambda x: x.relu(), [-1.0, 0.0, 2.0]) == [[0, 0, 1]]
    assert gradient(abs, [-1.0, 0.0, 2.0]) == [[-1, 0, 1]]
    assert gradient(lambda x: x.clamp(0.0, 1.0), [0.0, 1.0, -1.0, 2.0, 0.5]) == [[1, 1, 0, 0, 1]]
    assert gradient(lambda x: x**2.0, [0.0]) == [[0]] and gradient(lambda x: x**0.0, [0.0]) == [[0]]
    assert gradient(lambda x, y: x**y, [0.0, 2.0], [2.0, 0.0]) == [[0, 0], [0, pytest.approx(math.log(2))]]
    assert gradient(lambda x: flow.where(x > 0, x.sqrt(), 0.0), [4.0]) == [[0.25]]
    assert gradient(lambda x: x.norm(), [0.0, 0.0]) == [[0, 0]] and gradient(lambda x: x.std(), [3.0, 3.0]) == [[0, 0]]


# --- layouts --------------------------------------------------------------------------------------------------------

IN_LAYOUTS = (
    "polynomial", "quotient", "reused", "var", "amax amin", "cumsum", "matmul", "reshape chain", "views", "scatter_add",
    "softmax", "layer_norm", "cross_entropy", "linear",
)  # fmt: skip


def leaf(array: Array, placement: Any, sbp: Any) -> flow.Tensor:
    """A leaf near this value; under P every rank holds a random float, and the logical value is their fold."""
    array = array.astype(np.float32)
    if P not in sbp:
        return laid(array, placement, *sbp, grad=True)
    held = laid(array, placement, *[B if one == P else one for one in sbp]).to_local()
    axes = [a for a, one in enumerate(sbp) if one == P]
    noise = flow.per_rank(
        lambda rank: np.float32(0.37 * (1 + sum(2**a * placement.coords(rank)[a] for a in axes if rank in placement)))
    )
    return (held * noise).to_global(placement, sbp).requires_grad_()


def outcome(function: Function, xs: list[flow.Tensor]) -> list[Array]:
    """The result and the gradients of its squares, whose layouts are those of the leaves with P reduced."""
    out = function(*xs)
    grads = grad((out * out).sum(), xs, allow_unused=True)
    for x, g in zip(xs, grads, strict=True):
        assert g is None or g.is_local or g.sbp == tuple(B if one == P else one for one in x.sbp)
    return [out.detach().numpy(), *(g.numpy() for g in grads if g is not None)]


@pytest.mark.parametrize("layout", MATRIX_LAYOUTS, ids=layout_id)
def test_the_same_bits_in_every_layout(layout: Any) -> None:
    """A gradient does not depend on where its tensors live (AUTO-LAYOUT, SIG-EXACT)."""
    placement, sbp = layout
    for name, function in FUNCTIONS_F32.items():
        xs = [leaf(a, placement, sbp if a.ndim == 2 else (B,) * placement.ndim) for a in FUNCTIONS[name][1]]
        local = [flow.tensor(x.detach().numpy(), requires_grad=True) for x in xs]
        for a, b in zip(outcome(function, xs), outcome(function, local), strict=True):
            assert flow.same_bits(a, b), name


def beside(x: flow.Tensor, array: Any) -> flow.Tensor:
    """A constant on the placement of x."""
    return laid(np.array(array), x.placement, *[B] * x.placement.ndim) if x.is_global else flow.tensor(np.array(array))


FUNCTIONS_F32: dict[str, Function] = {
    **{name: FUNCTIONS[name][0] for name in IN_LAYOUTS if name not in ("scatter_add", "cross_entropy")},
    "scatter_add": lambda x, y: x.scatter_add(1, beside(x, ALONG), y),
    "cross_entropy": lambda x: F.cross_entropy(x, beside(x, TARGET), label_smoothing=0.1),
    "gather": lambda x: x.gather(1, beside(x, ALONG)).exp(),
}


def test_cheap_signatures_are_right_in_real_arithmetic() -> None:
    """With signatures("cheap") values may differ in the last bits, not more."""
    for name in FUNCTIONS_F32:
        arrays = [a.astype(np.float32) for a in FUNCTIONS[name][1]]
        results = []
        for policy in ("exact", "cheap"):
            with flow.signatures(policy):
                xs = [laid(a, LINE4, P if a.ndim == 2 else S(0), grad=True) for a in arrays]
                out = FUNCTIONS_F32[name](*xs)
                results.append([out.detach().numpy(), *(g.numpy() for g in grad(out.sum(), xs) if g is not None)])
        for a, b in zip(*results, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
