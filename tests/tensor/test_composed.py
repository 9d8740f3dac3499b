"""einsum and the short compositions: values, layouts, gradients and refusals.  OPS-EINSUM, OPS-COMPOSED."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import refflow as flow
from refflow.errors import AttributeValueError, DtypeError, RefflowError, ShapeError
from refflow.numerics import contract, tree_sum
from refflow.tensor.backward import grad
from tests.tensor.layouts import LINE4, MATRIX_LAYOUTS, B, S, in_layout, laid, layout_id, numbers

EQUATIONS: list[tuple[str, tuple[tuple[int, ...], ...]]] = [
    ("ij,jk->ik", ((3, 4), (4, 5))), ("ij,jk", ((3, 4), (4, 5))), ("bij,bjk->bik", ((2, 3, 4), (2, 4, 5))),
    ("ii->i", ((4, 4),)), ("ii", ((4, 4),)), ("ij->ji", ((3, 4),)), ("ij->", ((3, 4),)), ("ba", ((2, 3),)), ("iij->ij", ((3, 3, 0),)),
    ("i,j->ij", ((3,), (4,))), ("a,b,c->cab", ((2,), (3,), (4,))), ("ijk,jkl,l->i", ((2, 3, 4), (3, 4, 5), (5,))),
    ("...ij,...jk->...ik", ((2, 1, 3, 4), (6, 4, 5))), ("...ij->...ji", ((2, 3, 4),)), ("i...,i...->...", ((3, 2), (3, 2))),
    ("...,...", ((2, 3), (3,))), ("bhqd,bhkd->bhqk", ((2, 3, 4, 5), (2, 3, 6, 5))), ("aba,bc->ca", ((2, 3, 2), (3, 4))),
    ("ij,j->i", ((1, 3), (3,))), ("ij,ij->ij", ((3, 1), (3, 4))), ("ij,k->ij", ((2, 3), (4,))), (",->", ((), ())),
    ("ij,jk->ik", ((2, 0), (0, 3))), (" i j , j k -> k i ", ((3, 4), (4, 5))), ("abc,cd,be->ade", ((2, 3, 4), (4, 5), (3, 6))),
]  # fmt: skip


def whole(shape: tuple[int, ...], start: int = 0) -> Any:
    """Small integers, as float32."""
    return ((np.arange(start, start + int(np.prod(shape))) * 7) % 11 - 5).astype(np.float32).reshape(shape)


@pytest.mark.parametrize(("equation", "shapes"), EQUATIONS)
def test_einsum_of_whole_numbers(equation: str, shapes: tuple[tuple[int, ...], ...]) -> None:
    """NumPy's values, split along the first dimension, the last, or not at all."""
    arrays = [whole(shape, i) for i, shape in enumerate(shapes)]
    expected = np.einsum(equation, *arrays)
    for cut in (lambda n: B, lambda n: S(0) if n else B, lambda n: S(n - 1) if n else B):
        tensors = [laid(a, LINE4, cut(a.ndim)) for a in arrays]
        found = flow.einsum(equation, *tensors)
        assert found.shape == expected.shape and found.tolist() == expected.tolist()
    assert flow.einsum(equation, [flow.tensor(a) for a in arrays]).tolist() == expected.tolist()


def test_einsum_keeps_the_bits_of_its_parts() -> None:
    """The order of every fold is stated: left to right, in the order of the left operand's letters."""
    x, y, z = (flow.randn(*shape, placement=LINE4, sbp=S(0)) for shape in ((6, 4, 20), (20, 4, 5), (5, 7)))
    a, b, c = (t.numpy() for t in (x, y, z))
    first = contract(a.reshape(6, 80), b.transpose(1, 0, 2).reshape(80, 5))
    assert flow.same_bits(flow.einsum("ijk,kjl,lm->im", x, y, z).numpy(), contract(first, c))
    assert flow.same_bits(flow.einsum("ijk->i", x).numpy(), tree_sum(a.reshape(6, 80), 1))
    only_left = contract(tree_sum(a, 1), b[:, 0])  # j is nobody else's: summed first
    assert flow.same_bits(flow.einsum("ijk,kl->il", x, y[:, 0]).numpy(), only_left)


@pytest.mark.parametrize("layout", MATRIX_LAYOUTS, ids=layout_id)
def test_einsum_does_not_read_the_layout(layout: Any) -> None:
    """A product of a matrix with itself, in every layout: the bits of one rank."""
    array = flow.numerics.normal(np.arange(24, dtype=np.uint64), 1, 0).reshape(4, 6)
    x = in_layout(array, *layout)
    alone = flow.tensor(x.numpy())
    for equation in ("ij,kj->ik", "ij,ij->j", "ij,ik->jk"):
        assert flow.same_bits(flow.einsum(equation, x, x).numpy(), flow.einsum(equation, alone, alone).numpy())


def test_gradients_of_einsum() -> None:
    """They are those of the matmul it is."""
    x, w = laid(numbers(6, 4), LINE4, S(0)).requires_grad_(), laid(numbers(5, 4), LINE4, B).requires_grad_()
    found = grad(flow.einsum("ij,kj->ki", x, w).square().sum(), [x, w])
    expected = grad((w @ x.t()).square().sum(), [x, w])
    for one, other in zip(found, expected, strict=True):
        assert one.sbp == other.sbp and flow.same_bits(one.numpy(), other.numpy())


REFUSED: list[tuple[str, tuple[tuple[int, ...], ...], type[Exception], str]] = [
    ("ij,jk->ik", ((2, 3),), AttributeValueError, "about 2 operands, found 1"),
    ("ij->ij", ((2,),), ShapeError, "is 'ij', but has shape"), ("i->i", ((2, 3),), ShapeError, "is 'i', but has shape"),
    ("i1->i", ((2, 3),), AttributeValueError, "letters"), ("......->", ((2,),), AttributeValueError, "letters"),
    ("ij->ik", ((2, 3),), AttributeValueError, "occurs once there, and in an operand"),
    ("ij->ii", ((2, 3),), AttributeValueError, "occurs once there"), ("ii->i", ((2, 3),), ShapeError, "'i' is 2 and 3"),
    ("ij,jk->ik", ((2, 3), (4, 5)), ShapeError, "'j' is 3 in one operand and 4 in another"),
]  # fmt: skip


@pytest.mark.parametrize(("equation", "shapes", "kind", "words"), REFUSED)
def test_equations_that_do_not_fit(equation: str, shapes: Any, kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words):
        flow.einsum(equation, *[flow.ones(shape) for shape in shapes])


def test_einsum_needs_text_and_tensors() -> None:
    with pytest.raises(AttributeValueError, match="must be text"):
        flow.einsum(flow.ones(2), "i->")  # type: ignore[arg-type]
    with pytest.raises(DtypeError, match="needs a tensor"):
        flow.einsum("i->", np.ones(2))


@pytest.mark.parametrize("k", range(-4, 5))
def test_diag(k: int) -> None:
    """There and back, on every diagonal, and what is added is +0."""
    vector = np.array([1.0, -0.0, np.inf], np.float32)
    made = flow.diag(laid(vector, LINE4, S(0)), k)
    assert flow.same_bits(made.numpy(), np.diag(vector, k))
    assert flow.same_bits(made.diag(k).numpy(), vector)
    for shape in ((3, 4), (4, 2), (0, 3)):
        matrix = numbers(*shape)
        assert flow.diag(laid(matrix, LINE4, S(0)), k).tolist() == np.diag(matrix, k).tolist()
    assert flow.diag(flow.zeros(0), k).shape == np.diag(np.zeros(0), k).shape


COMPOSED: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "tile": (lambda x: x.tile(2), lambda a: np.tile(a, 2)),
    "tile more": (lambda x: flow.tile(x, (2, 1, 3)), lambda a: np.tile(a, (2, 1, 3))),
    "interleave": (lambda x: x.repeat_interleave(3, 0), lambda a: np.repeat(a, 3, 0)),
    "interleave flat": (lambda x: x.repeat_interleave(2), lambda a: np.repeat(a, 2)),
    "interleave none": (lambda x: x.repeat_interleave(0, -1), lambda a: np.repeat(a, 0, -1)),
    "hstack": (lambda x: flow.hstack([x, x]), lambda a: np.hstack([a, a])),
    "hstack vectors": (lambda x: flow.hstack([x[0], x[1, 0]]), lambda a: np.hstack([a[0], a[1, 0]])),
    "vstack": (lambda x: flow.vstack([x, x[0]]), lambda a: np.vstack([a, a[0]])),
    "meshgrid": (lambda x: flow.stack(flow.meshgrid(x[0], x[:, 1])), lambda a: np.stack(np.meshgrid(a[0], a[:, 1], indexing="ij"))),
    "meshgrid xy": (lambda x: flow.stack(flow.meshgrid([x[0], x[:, 1]], indexing="xy")), lambda a: np.stack(np.meshgrid(a[0], a[:, 1]))),
    "lerp": (lambda x: x.lerp(x * 3, 0.5), lambda a: a + 0.5 * (a * 3 - a)),
    "addmm": (lambda x: x.addmm(x, x.t() @ x), lambda a: a + a @ (a.T @ a)),
    "addmm scaled": (lambda x: flow.addmm(x[0], x, x.t() @ x, beta=2, alpha=-3), lambda a: 2 * a[0] - 3 * (a @ (a.T @ a))),
    "addmm without": (lambda x: flow.addmm(x / 0, x, x.t() @ x, beta=0), lambda a: a @ (a.T @ a)),
}  # fmt: skip


@pytest.mark.parametrize("layout", MATRIX_LAYOUTS, ids=layout_id)
def test_compositions(layout: Any) -> None:
    array = whole((4, 6))
    for name, (function, model) in COMPOSED.items():
        expected = model(array)
        found = function(in_layout(array, *layout))
        assert (found.shape, found.tolist()) == (expected.shape, expected.tolist()), name


def test_gradients_of_what_moves() -> None:
    """Each use of an element counts once."""
    x = laid(numbers(4), LINE4, S(0)).requires_grad_()
    total = x.tile(3).sum() + x.repeat_interleave(2).sum() + flow.diag(x, 1).sum() + flow.hstack([x, x]).sum()
    (slope,) = grad(total, [x])
    assert slope.tolist() == [8.0] * 4


MISUSED: dict[str, Callable[[], Any]] = {
    "diag of three": lambda: flow.diag(flow.ones(1, 2, 3)), "meshgrid of matrices": lambda: flow.meshgrid(flow.ones(2, 2)),
    "meshgrid of what": lambda: flow.meshgrid(flow.ones(2), indexing="yx"), "hstack of nothing": lambda: flow.hstack([]),
    "repeats": lambda: flow.ones(2).repeat_interleave(-1), "repeats of a tensor": lambda: flow.ones(2).repeat_interleave(flow.ones(2)),
    "addmm of vectors": lambda: flow.addmm(flow.ones(2), flow.ones(2), flow.ones(2)), "no tensor": lambda: flow.lerp(1.0, 2.0, 0.5),
}  # fmt: skip


@pytest.mark.parametrize("name", MISUSED)
def test_misuse_is_told(name: str) -> None:
    with pytest.raises(RefflowError):
        MISUSED[name]()
