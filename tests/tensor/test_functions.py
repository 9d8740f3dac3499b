"""Functions and methods against NumPy on exact integers, in every layout.

Checks OPS-MOVEMENT, OPS-REDUCTION, OPS-CONTRACTION, OPS-ORDER, OPS-INDEXING, OPS-ELEMENTWISE and TENSOR-METHODS.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import refflow as flow
from tests.tensor.layouts import LINE4, MATRIX_LAYOUTS, B, S, in_layout, laid, layout_id, numbers

Function = Callable[[Any], Any]
WHOLE = (numbers(4, 6) * 7) % 11 - 5  # small integers with ties, negatives and a zero


def indices(x: flow.Tensor, array: Any) -> flow.Tensor:
    """An integer tensor beside x."""
    return laid(np.array(array), x.placement, *([B] * x.placement.ndim))


ROWS = np.array([3, 0, 3])
ALONG = np.array([[0, 5], [1, 1], [2, 0], [5, 5]])

MOVEMENT: dict[str, tuple[Function, Function]] = {
    "reshape": (lambda x: x.reshape(3, -1), lambda a: a.reshape(3, -1)),
    "view": (lambda x: x.view(2, 2, 6), lambda a: a.reshape(2, 2, 6)),
    "flatten": (lambda x: x.flatten(), lambda a: a.ravel()),
    "flatten some": (lambda x: x.reshape(2, 2, 2, 3).flatten(1, 2), lambda a: a.reshape(2, 4, 3)),
    "squeeze": (lambda x: x.reshape(4, 1, 6, 1).squeeze(), lambda a: a),
    "squeeze one": (lambda x: x.reshape(4, 1, 6, 1).squeeze(-1).squeeze(0), lambda a: a.reshape(4, 1, 6)),
    "unsqueeze": (lambda x: x.unsqueeze(-1).unsqueeze(0), lambda a: a[None, :, :, None]),
    "permute": (lambda x: x.reshape(2, 2, 6).permute(2, 0, 1), lambda a: a.reshape(2, 2, 6).transpose(2, 0, 1)),
    "transpose": (lambda x: x.transpose(0, -1), lambda a: a.T),
    "t": (lambda x: x.t() @ x.T.T, lambda a: a.T @ a),
    "movedim": (lambda x: x.reshape(2, 2, 6).movedim(0, 2), lambda a: np.moveaxis(a.reshape(2, 2, 6), 0, 2)),
    "expand": (lambda x: x.unsqueeze(1).expand(4, 2, -1), lambda a: np.repeat(a[:, None], 2, 1)),
    "expand_as": (lambda x: x[0].expand_as(x), lambda a: np.tile(a[0], (4, 1))),
    "broadcast_to": (lambda x: x[:1].broadcast_to((3, 6)), lambda a: np.tile(a[:1], (3, 1))),
    "repeat": (lambda x: x.repeat(2, 1, 3), lambda a: np.tile(a, (2, 1, 3))),
    "narrow": (lambda x: x.narrow(1, -4, 3), lambda a: a[:, 2:5]),
    "select": (lambda x: x.select(-1, 2), lambda a: a[:, 2]),
    "split": (lambda x: flow.cat(x.split(4, 1)[::-1], 1), lambda a: np.concatenate([a[:, 4:], a[:, :4]], 1)),
    "split sizes": (lambda x: x.split([1, 0, 3])[2], lambda a: a[1:]),
    "chunk": (lambda x: x.chunk(4, 1)[2], lambda a: a[:, 4:6]),
    "unbind": (lambda x: x.unbind(1)[4], lambda a: a[:, 4]),
    "flip": (lambda x: x.flip(0, 1), lambda a: a[::-1, ::-1]),
    "roll": (lambda x: x.roll(-2, 1), lambda a: np.roll(a, -2, 1)),
    "roll flat": (lambda x: x.roll(5), lambda a: np.roll(a, 5)),
    "roll two": (lambda x: x.roll((1, 2), (0, 1)), lambda a: np.roll(a, (1, 2), (0, 1))),
    "tril": (lambda x: x.tril(1), lambda a: np.tril(a, 1)),
    "triu": (lambda x: x.triu(-1), lambda a: np.triu(a, -1)),
    "cat": (lambda x: flow.cat([x, x[:1], x]), lambda a: np.concatenate([a, a[:1], a])),
    "stack": (lambda x: flow.stack([x, -x], -1), lambda a: np.stack([a, -a], -1)),
    "pad": (lambda x: flow.pad(x, (1, 2, 0, 3), value=9.0), lambda a: np.pad(a, ((0, 3), (1, 2)), constant_values=9)),
    "clone": (lambda x: x.clone(), lambda a: a),
}

REDUCTION: dict[str, tuple[Function, Function]] = {
    "sum": (lambda x: x.sum(), lambda a: a.sum()),
    "sum 0": (lambda x: x.sum(0), lambda a: a.sum(0)),
    "sum -1 keepdim": (lambda x: x.sum(-1, keepdim=True), lambda a: a.sum(-1, keepdims=True)),
    "sum both": (lambda x: x.sum((1, 0)), lambda a: a.sum()),
    "sum none": (lambda x: x.sum([]), lambda a: a.sum()),
    "mean": (lambda x: x.reshape(-1)[:16].mean(), lambda a: a.ravel()[:16].mean()),
    "mean 0": (lambda x: x.mean(0), lambda a: a.mean(0)),
    "var": (lambda x: x.mul(4).var(0, correction=0), lambda a: (a * 4).var(0)),
    "amax": (lambda x: x.amax(), lambda a: a.max()),
    "amax 1": (lambda x: x.amax(1, keepdim=True), lambda a: a.max(1, keepdims=True)),
    "amin": (lambda x: x.amin((0, 1)), lambda a: a.min()),
    "max": (lambda x: x.max(), lambda a: a.max()),
    "max 0": (lambda x: x.max(0).values, lambda a: a.max(0)),
    "max 0 indices": (lambda x: x.max(0).indices, lambda a: a.argmax(0)),
    "min 1": (lambda x: x.min(1, keepdim=True).indices, lambda a: a.argmin(1)[:, None]),
    "max of two": (lambda x: x.max(-x), lambda a: np.maximum(a, -a)),
    "argmax": (lambda x: x.argmax(), lambda a: a.argmax()),
    "argmax keepdim": (lambda x: x.argmax(keepdim=True), lambda a: a.argmax(keepdims=True)),
    "argmin 0": (lambda x: x.argmin(0, keepdim=True), lambda a: a.argmin(0, keepdims=True)),
    "prod": (lambda x: x[:, :2].prod(), lambda a: a[:, :2].prod()),
    "prod 1": (lambda x: x.prod(1), lambda a: a.prod(1)),
    "any": (lambda x: (x > 4).any(), lambda a: (a > 4).any()),
    "any 0": (lambda x: x.sub(5).any(0), lambda a: (a - 5).any(0)),
    "all": (lambda x: x.all(1), lambda a: a.all(1)),
    "norm 1": (lambda x: x.norm(1), lambda a: np.abs(a).sum()),
    "norm inf": (lambda x: x.norm(math.inf, 0), lambda a: np.abs(a).max(0)),
    "cumsum": (lambda x: x.cumsum(0), lambda a: a.cumsum(0)),
    "cumsum -1": (lambda x: x.cumsum(-1), lambda a: a.cumsum(-1)),
    "cumprod": (lambda x: x.cumprod(0), lambda a: a.cumprod(0)),
    "argsort": (lambda x: x.argsort(0), lambda a: a.argsort(0, kind="stable")),
    "sort": (lambda x: x.sort(1).values, lambda a: np.sort(a, 1)),
    "sort down": (lambda x: x.sort(1, descending=True).indices, lambda a: (-a).argsort(1, kind="stable")),
    "topk": (lambda x: x.topk(2).values, lambda a: -np.sort(-a, 1)[:, :2]),
    "topk least": (lambda x: x.topk(2, 0, largest=False).indices, lambda a: a.argsort(0, kind="stable")[:2]),
}

CONTRACTION: dict[str, tuple[Function, Function]] = {
    "matmul": (lambda x: x @ x.T, lambda a: a @ a.T),
    "vector": (lambda x: x @ x[1], lambda a: a @ a[1]),
    "row": (lambda x: x[:, 0] @ x, lambda a: a[:, 0] @ a),
    "dot": (lambda x: x[0].dot(x[3]), lambda a: a[0] @ a[3]),
    "batch": (lambda x: x.reshape(2, 2, 6) @ x.reshape(2, 6, 2), lambda a: a.reshape(2, 2, 6) @ a.reshape(2, 6, 2)),
    "broadcast batch": (lambda x: x.reshape(2, 1, 2, 6) @ x.T, lambda a: a.reshape(2, 1, 2, 6) @ a.T),
    "index_select": (lambda x: x.index_select(0, indices(x, ROWS)), lambda a: a[ROWS]),
    "index_select 1": (lambda x: x.index_select(-1, indices(x, [5, 5])), lambda a: a[:, [5, 5]]),
    "gather": (lambda x: x.gather(1, indices(x, ALONG)), lambda a: np.take_along_axis(a, ALONG, 1)),
    "scatter_add": (lambda x: x.scatter_add(1, indices(x, ALONG), x[:, :2]), lambda a: _scatter(a, a[:, :2])),
    "index_add": (lambda x: x.index_add(0, indices(x, ROWS), x[:3]), lambda a: _index_add(a, a[:3])),
    "one_hot": (lambda x: flow.one_hot(indices(x, ROWS), 5), lambda a: np.eye(5)[ROWS]),
}

ELEMENTWISE: dict[str, tuple[Function, Function]] = {
    "arithmetic": (lambda x: (x + 1) * x - 2 * x, lambda a: (a + 1) * a - 2 * a),
    "divide": (lambda x: x / 4 + 8 / (x * 0 + 2), lambda a: a / 4 + 4),
    "floor divide": (lambda x: x // 3, lambda a: a // 3),
    "remainder": (lambda x: x % 3 + x.remainder(-2), lambda a: a % 3 + a % -2),
    "power": (lambda x: x**2, lambda a: a**2),
    "compare": (lambda x: (x < 2) | (x == 3) & (x != 0), lambda a: (a < 2) | (a == 3) & (a != 0)),
    "logic": (lambda x: ~(x > 0) ^ (x >= 2), lambda a: ~(a > 0) ^ (a >= 2)),
    "unary": (lambda x: abs(-x) + x.sign() + x.square(), lambda a: np.abs(a) + np.sign(a) + a * a),
    "round": (lambda x: (x / 4).floor() + (x / 4).ceil() + (x / 2).round() + (x / 4).trunc(),
              lambda a: np.floor(a / 4) + np.ceil(a / 4) + np.round(a / 2) + np.trunc(a / 4)),
    "relu": (lambda x: x.relu(), lambda a: np.maximum(a, 0)),
    "clamp": (lambda x: x.clamp(-1, 2), lambda a: np.clip(a, -1, 2)),
    "where": (lambda x: flow.where(x > 0, x, 7.0), lambda a: np.where(a > 0, a, 7)),
    "masked_fill": (lambda x: x.masked_fill(x < 0, 9), lambda a: np.where(a < 0, 9, a)),
    "extremes": (lambda x: x.maximum(x.T.reshape(4, 6)) - x.minimum(x * 0), lambda a: np.maximum(a, a.T.reshape(4, 6)) - np.minimum(a, 0)),
    "cast": (lambda x: x.long() // 2 + x.int(), lambda a: a.astype(int) // 2 + a.astype(int)),
    "sqrt": (lambda x: x.square().sqrt(), np.abs),
    "reciprocal": (lambda x: (x * 0 + 4).reciprocal(), lambda a: a * 0 + 0.25),
    "broadcast": (lambda x: x[:, :1] + x[:1], lambda a: a[:, :1] + a[:1]),
}  # fmt: skip


def _scatter(a: Any, source: Any) -> Any:
    out = a.copy()
    for i in range(4):
        for j in range(2):
            out[i, ALONG[i, j]] += source[i, j]
    return out


def _index_add(a: Any, source: Any) -> Any:
    out = a.copy()
    for row, part in zip(ROWS, source, strict=True):
        out[row] += part
    return out


@pytest.mark.parametrize("table", [MOVEMENT, REDUCTION, CONTRACTION, ELEMENTWISE], ids=["move", "reduce", "contract", "each"])
@pytest.mark.parametrize("layout", MATRIX_LAYOUTS, ids=layout_id)
def test_function(table: dict[str, tuple[Function, Function]], layout: Any) -> None:
    """Shape and values are NumPy's, whatever the layout and the signatures (TENSOR-METHODS)."""
    for name, (function, model) in table.items():
        expected = np.asarray(model(WHOLE))
        for policy in ("exact", "cheap"):
            with flow.signatures(policy):
                found = function(in_layout(WHOLE, *layout))
            assert found.shape == expected.shape, name
            assert found.tolist() == expected.tolist(), name


def test_views_of_integers_and_bools() -> None:
    """Movement is for every dtype."""
    for dtype in (np.int8, np.uint8, np.int64, np.bool_, np.float16):
        array = numbers(4, 6).astype(dtype)
        x = laid(array, LINE4, S(0))
        assert x.reshape(6, 4).T.flip(0)[1:3].dtype == np.dtype(dtype)
        assert x.reshape(6, 4).T.flip(0)[1:3].tolist() == array.reshape(6, 4).T[::-1][1:3].tolist()
        assert flow.cat([x, x]).tolist() == np.concatenate([array, array]).tolist()


def test_nan_and_signed_zero_in_orders() -> None:
    """NaN is the largest, -0 equals +0, the lowest index wins (NUM-ORDER)."""
    x = laid([0.0, float("nan"), -0.0, 5.0, float("nan")], LINE4, S(0))
    assert x.argsort().tolist() == [0, 2, 3, 1, 4] and x.argmax().item() == 1 and x.argmin().item() == 1
    assert math.isnan(x.amax().item()) and math.isnan(x.amin().item())
    assert laid([3.0, 7.0, 7.0], LINE4, S(0)).argmax().item() == 1


def test_allclose_and_equal() -> None:
    """equal compares values, allclose within tolerances."""
    x = laid([1.0, 2.0], LINE4, S(0))
    assert flow.equal(x, x + 0) and not flow.equal(x, x + 1e-3) and not flow.equal(x, x[:1])
    assert x.allclose(x + 1e-7) and not x.allclose(x + 1e-3) and x.equal(laid([1, 2], LINE4, B))
