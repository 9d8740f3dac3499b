"""In-place forms and views: the left side keeps what it is, writes go through, nothing is lost.

Checks TENSOR-INPLACE, TENSOR-VIEW and TENSOR-DETACH.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import refflow as flow
from refflow.errors import AutogradError, LocalGlobalError, ShapeError
from tests.tensor.layouts import (
    LINE2,
    LINE4,
    MATRIX_LAYOUTS,
    MESH,
    B,
    P,
    S,
    fresh_world,
    in_layout,
    laid,
    layout_id,
    numbers,
)

Edit = Callable[[Any], Any]

EDITS: dict[str, tuple[Edit, Edit]] = {
    "add": (lambda x: x.add_(2.0), lambda a: a + 2),
    "sub": (lambda x: x.sub_(laid(numbers(6), x.placement, *([B] * x.placement.ndim))), lambda a: a - numbers(6)),
    "mul": (lambda x: x.mul_(3), lambda a: a * 3),
    "div": (lambda x: x.div_(2), lambda a: a / 2),
    "neg": (lambda x: x.neg_(), lambda a: -a),
    "abs": (lambda x: x.abs_(), np.abs),
    "relu": (lambda x: x.sub_(9.0).relu_(), lambda a: np.maximum(a - 9, 0)),
    "clamp": (lambda x: x.clamp_(3.0, 11.0), lambda a: np.clip(a, 3, 11)),
    "floor": (lambda x: x.div_(4).floor_(), lambda a: np.floor(a / 4)),
    "ceil": (lambda x: x.div_(4).ceil_(), lambda a: np.ceil(a / 4)),
    "round": (lambda x: x.div_(4).round_(), lambda a: np.round(a / 4)),
    "square": (lambda x: x.square_(), lambda a: a * a),
    "sqrt": (lambda x: x.square_().sqrt_(), lambda a: a),
    "fill": (lambda x: x.fill_(4), lambda a: np.full_like(a, 4)),
    "zero": (lambda x: x.zero_(), np.zeros_like),
    "copy": (lambda x: x.copy_(laid(numbers(6), x.placement, *([B] * x.placement.ndim))), lambda a: a * 0 + numbers(6)),
    "masked_fill": (lambda x: x.masked_fill_(x > 10, -1.0), lambda a: np.where(a > 10, -1, a)),
    "pow": (lambda x: x.pow_(2.0), lambda a: a * a),
}


@pytest.mark.parametrize("name", EDITS)
@pytest.mark.parametrize("layout", MATRIX_LAYOUTS[::2], ids=layout_id)
def test_in_place_keeps_layout_and_dtype(name: str, layout: Any) -> None:
    """x.f_(..) is x.f(..) written into x: its placement, sbp and dtype stay (TENSOR-INPLACE)."""
    edit, model = EDITS[name]
    x = in_layout(numbers(4, 6), *layout)
    same, before, version = x, (x.placement, x.sbp, x.dtype), x.version
    assert edit(x) is same
    assert (x.placement, x.sbp, x.dtype) == before and x.version > version
    assert x.tolist() == model(numbers(4, 6)).tolist()


def test_operators_in_place() -> None:
    """+=, -=, *=, /= write into the left side, which keeps its sbp and dtype."""
    x = laid(numbers(4), LINE4, B)
    same = x
    x += laid(numbers(4), LINE4, S(0))
    x -= 1.0
    x *= laid([2.0, 2.0, 2.0, 2.0], LINE4, P)
    x /= 4
    assert x is same and x.sbp == (B,) and x.tolist() == [-0.5, 0.5, 1.5, 2.5]
    small = flow.tensor([1, 2], dtype=flow.int8)
    small += flow.tensor([1000, 1], dtype=flow.int64)
    assert small.dtype == flow.int8 and small.tolist() == [1001 - 1024, 3]
    half = flow.tensor([1.0], dtype=flow.float16)
    half += flow.tensor([2.0**-11])  # the sum is a tie in float16, once rounded: to even
    assert half.dtype == flow.float16 and half.tolist() == [1]


def test_in_place_between_placements_and_kinds() -> None:
    """copy_ moves between placements; local and global do not mix."""
    x = flow.zeros(4, placement=LINE2, sbp=S(0))
    x.copy_(laid(numbers(4), LINE4, P))
    assert (x.placement, x.sbp, x.tolist()) == (LINE2, (S(0),), [0, 1, 2, 3])
    for left, right in ((x, flow.tensor(numbers(4))), (flow.tensor(numbers(4)), x)):
        before = left.tolist()
        with pytest.raises(LocalGlobalError, match="in-place"):
            left.copy_(right)
        assert left.tolist() == before


def test_in_place_cannot_grow() -> None:
    """A result of another shape is refused and changes nothing."""
    x = laid(numbers(3), LINE4, S(0))
    with pytest.raises(ShapeError, match=r"\(2, 3\).*\(3,\)"):
        x.add_(laid(numbers(2, 3), LINE4, B))
    assert x.tolist() == [0, 1, 2] and x.version == 0


def test_leaf_in_place() -> None:
    """A leaf that requires a gradient changes only under no_grad, and stays the same leaf with the same hooks."""
    w = laid([1.0, 2.0], LINE2, B, grad=True)
    seen: list[Any] = []
    w.register_hook(lambda g: seen.append(g.tolist()))
    for write in (
        lambda: w.add_(1.0), lambda: w[0].add_(1.0), lambda: w.reshape(2, 1).mul_(2.0), lambda: w.__setitem__(0, 3.0),
    ):  # fmt: skip
        with pytest.raises(AutogradError, match="no_grad"):
            write()
    assert w.tolist() == [1, 2]
    with flow.no_grad():
        w.sub_(1.0)
        w[1] = 5.0
    assert w.requires_grad and w.is_leaf and w.tolist() == [0, 5]
    (w * w).sum().backward()
    assert w.grad is not None and w.grad.tolist() == [0, 10] and seen == [[0, 10]]


def test_two_leaves_never_share_a_value() -> None:
    """copy_ between parameters leaves two cells: the gradient of one is not the other's."""
    a, b = (laid([1.0], LINE2, B, grad=True) for _ in range(2))
    with flow.no_grad():
        a.copy_(b)
        a.write(b.value)
    (a * 2).sum().backward()
    assert a.grad is not None and a.grad.tolist() == [2] and b.grad is None


def test_detach_and_data_write_through() -> None:
    """A write through detach() or data reaches the tensor, in any grad mode, and a leaf stays the leaf it is."""
    w = laid([1.0, 2.0], LINE2, S(0), grad=True)
    seen: list[Any] = []
    w.register_hook(lambda g: seen.append(g.tolist()))
    w.data.mul_(3.0)
    w.detach()[0] = 9.0
    assert w.tolist() == [9, 6] and w.is_leaf and w.requires_grad and w.sbp == (S(0),)
    w.data.copy_(w * 2.0)  # what is written may be recorded: the leaf is not
    w.detach().add_(laid([1.0, 1.0], LINE2, B, grad=True))
    assert w.tolist() == [19, 13] and w.is_leaf and w.requires_grad
    (w * w).sum().backward()
    assert w.grad is not None and w.grad.tolist() == [38, 26] and seen == [[38, 26]]
    with pytest.raises(AutogradError, match=r"detach\(\)\.clone\(\)"):
        (w * 2).detach().zero_()
    before = w.snapshot()
    w.data.zero_()
    assert before.tolist() == [19, 13] and not before.requires_grad


def test_gradient_flows_through_an_in_place_result() -> None:
    """An operation in place on a non-leaf is part of the graph."""
    x = laid([1.0, 2.0, 3.0], LINE4, S(0), grad=True)
    y = x * 1.0
    y.mul_(y)
    y[1] = 0.0
    y[0:1].add_(x[2:3])
    y.sum().backward()
    assert x.grad is not None and x.grad.tolist() == [2, 0, 7]


# --- views ----------------------------------------------------------------------------------------------------------

VIEWS: dict[str, Edit] = {
    "slice": lambda a: a[1:3],
    "step": lambda a: a[::2, 1::2],
    "select": lambda a: a[2],
    "element": lambda a: a[1, 4],
    "reshape": lambda a: a.reshape(3, 8),
    "flat": lambda a: a.reshape(-1),
    "transpose": lambda a: a.transpose(1, 0),
    "new axis": lambda a: a[:, None],
    "dots": lambda a: a[..., 3],
    "chain": lambda a: a.reshape(2, 2, 6)[1].transpose(1, 0)[2:5].reshape(-1)[1:],
    "empty": lambda a: a[2:2],
}


@pytest.mark.parametrize("name", VIEWS)
@pytest.mark.parametrize("layout", MATRIX_LAYOUTS[1::2], ids=layout_id)
def test_views_read_and_write_through(name: str, layout: Any) -> None:
    """A view shows the base's present value and a write to it is a write to the base, as in NumPy (TENSOR-VIEW)."""
    whole = numbers(4, 6)
    where = VIEWS[name](np.arange(24).reshape(4, 6)).ravel()  # which elements of the base the view shows
    flat = whole.reshape(-1)
    x = in_layout(whole, *layout)
    view = VIEWS[name](x)
    shown = VIEWS[name](np.arange(24).reshape(4, 6)).shape
    assert view.shape == shown and view.reshape(-1).tolist() == flat[where].tolist()
    view.mul_(10.0)
    flat[where] *= 10
    assert x.tolist() == whole.tolist()
    x.add_(1.0)  # the base changes under the view
    flat += 1
    assert view.reshape(-1).tolist() == flat[where].tolist()
    view.sub_(0.5)  # and the view writes on top of that
    flat[where] -= 0.5
    assert x.tolist() == whole.tolist() and (x.placement, x.sbp) == layout
    VIEWS[name](x).fill_(7.0)
    flat[where] = 7
    assert view.reshape(-1).tolist() == flat[where].tolist() and x.tolist() == whole.tolist()


def test_views_by_name() -> None:
    """Every function said to be a view writes through."""
    views: list[Edit] = [
        lambda x: x.narrow(0, 1, 2), lambda x: x.select(1, 2), lambda x: x.split(2)[1], lambda x: x.chunk(2, 1)[0],
        lambda x: x.unbind()[3], lambda x: x.t(), lambda x: x.T, lambda x: x.mT, lambda x: x.flatten(),
        lambda x: x.unsqueeze(1), lambda x: x.unsqueeze(0).squeeze(), lambda x: x.permute(1, 0),
        lambda x: x.movedim(0, 1), lambda x: x.swapaxes(0, 1), lambda x: x.view(2, 12), lambda x: next(iter(x)),
        lambda x: x.contiguous(),
    ]  # fmt: skip
    for i, view in enumerate(views):
        x = laid(numbers(4, 6), LINE4, S(0))
        view(x).zero_()
        assert x.sum().item() != 276, i


def test_copies_do_not_write_through() -> None:
    """clone, results of operations and to_global to another layout are cells of their own."""
    x = laid(numbers(4), LINE4, S(0))
    for copy in (x.clone(), x + 0.0, x.to_global(sbp=B), x.flip(0), x.roll(1), flow.cat([x]), x.repeat(1), x.double()):
        copy.zero_()
    assert x.tolist() == [0, 1, 2, 3]


def test_a_cast_to_the_same_dtype_is_the_tensor_itself() -> None:
    """float() of a float32 tensor is that tensor, as in PyTorch: a write to it is not lost."""
    x = laid(numbers(2), LINE2, S(0))
    assert x.float() is x and x.to(flow.float32) is x and x.type_as(x) is x
    x.float().add_(1.0)
    assert x.tolist() == [1, 2]


def test_expand_is_read_only() -> None:
    """Writing through an expanded view would write one element many times (TENSOR-VIEW)."""
    x = laid(numbers(2, 1), LINE2, S(0))
    wide = x.expand(2, 3)
    for write in (lambda: wide.add_(1.0), lambda: wide[0].zero_(), lambda: wide.reshape(-1)[1:].mul_(2.0)):
        with pytest.raises(AutogradError, match="expanded.*clone"):
            write()
    assert x.tolist() == [[0], [1]]
    x.add_(1.0)
    assert wide.tolist() == [[1, 1, 1], [2, 2, 2]]
    free = wide.clone()
    free[0, 1] = 9.0
    assert free.tolist() == [[1, 9, 1], [2, 2, 2]] and x.tolist() == [[1], [2]]


def test_gradient_through_views_and_writes() -> None:
    """A view of a recorded value carries its gradient, before and after a write."""
    x = laid([1.0, 2.0, 3.0, 4.0], LINE2, S(0), grad=True)
    base = x * 2.0
    view = base[1:3]
    view.mul_(3.0)
    (base.sum() + view[0] * 10).backward()
    assert x.grad is not None and x.grad.tolist() == [2, 66, 6, 2]


step = st.tuples(st.sampled_from(["slice", "reshape", "transpose", "select"]), st.integers(0, 5))


def _apply(a: Any, kind: str, n: int) -> Any:
    """One step of a random chain of views that means the same for NumPy and for refflow."""
    if kind == "slice":
        return a[n % 3 :: 1 + n % 2]
    if kind == "select":
        return a[n % a.shape[0]] if len(a.shape) > 1 and a.shape[0] else a
    if kind == "transpose":
        return a.transpose(1, 0) if len(a.shape) == 2 else a
    size = int(np.prod(a.shape))
    return a.reshape(2, size // 2) if n % 2 and size % 2 == 0 else a


@given(st.lists(step, max_size=5), st.sampled_from(MATRIX_LAYOUTS))
def test_random_chains_of_views(chain: list[tuple[str, int]], layout: Any) -> None:
    """Any chain of views reads like NumPy's, and a write through it lands where NumPy's does."""
    with fresh_world(4):
        whole = numbers(4, 6)
        x = in_layout(whole, *layout)
        view, where = x, np.arange(24).reshape(4, 6)
        for kind, n in chain:
            view, where = _apply(view, kind, n), _apply(where, kind, n)
        assert view.tolist() == whole.ravel()[where].tolist()
        view.add_(100.0)
        whole.ravel()[where.ravel()] += 100
        assert x.tolist() == whole.tolist()


def test_set_item_of_two_mesh_axes() -> None:
    """A write through a view of a nested split lands on every rank's own part."""
    x = laid(numbers(5, 3), MESH, S(0), S(0))
    x[4, 1:] = 50.0
    assert x.sbp == (S(0), S(0)) and x.local_arrays()[3].tolist() == [[12, 50, 50]]
