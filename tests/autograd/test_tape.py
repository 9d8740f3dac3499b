"""The tape: what is recorded, in which order gradients are added, where they go, when the graph is freed.

Checks AUTO-RECORD, AUTO-ORDER, AUTO-LEAF, AUTO-ACCUMULATE, AUTO-SEED, AUTO-FREE, AUTO-SAVED and AUTO-LAYOUT.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import refflow as flow
from refflow.autograd import grad
from refflow.errors import AutogradError, DtypeError, LocalGlobalError, ShapeError
from tests.tensor.layouts import LINE2, LINE4, MESH, B, P, S, laid, locals_of, numbers


def gradient(x: flow.Tensor) -> flow.Tensor:
    assert x.grad is not None
    return x.grad


def leaf(*data: float) -> flow.Tensor:
    return flow.tensor(list(data), requires_grad=True)


# --- order ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("factors", "expected"), [((1.0, 1e8, -1e8), 1.0), ((-1e8, 1e8, 1.0), 0.0)])
def test_uses_are_added_in_reverse_program_order(factors: tuple[float, ...], expected: float) -> None:
    """((third + second) + first) in float32: the two orders of adding give 1 and 0 (AUTO-ORDER)."""
    makers = (leaf, lambda v: laid([v], LINE4, B, grad=True), lambda v: laid([v], LINE4, S(0), grad=True))
    for make in makers:
        x = make(1.0)
        uses = [x * factor for factor in factors]
        for order in ((0, 1, 2), (2, 0, 1)):  # the order in which results are used does not matter
            loss = uses[order[0]] + uses[order[1]] + uses[order[2]]
            (g,) = grad(loss, x, retain_graph=True)
            assert g is not None and g.tolist() == [expected]


def test_each_use_is_reduced_before_it_is_added() -> None:
    """Parts of two uses are never added rank by rank: (1e8 - 1e8) + (1 + 1), not (1e8 + 1) + (-1e8 + 1) (AUTO-ORDER)."""
    w = laid(1.0, LINE2, B, grad=True)
    first = w * laid([1.0, 1.0], LINE2, S(0))
    second = w * laid([1e8, -1e8], LINE2, S(0))
    (first.sum() + second.sum()).backward()
    assert gradient(w).item() == 2


def test_a_value_used_as_output_and_inside() -> None:
    """The seed of an output is its latest use."""
    x = leaf(2.0)
    y = x * 3.0
    z = y * y
    found = grad([y, z], x, [flow.tensor([10.0]), flow.tensor([1.0])])
    assert found[0] is not None and found[0].tolist() == [10 * 3 + 2 * 6 * 3]


# --- leaves ---------------------------------------------------------------------------------------------------------

LINE3 = flow.placement("cpu", [2, 0, 1])
LEAVES = [
    *[(LINE2, (one,)) for one in (S(0), S(1), B, P)],
    *[(LINE3, (one,)) for one in (S(0), S(1), B, P)],
    *[(MESH, pair) for pair in ((S(0), S(0)), (S(0), S(1)), (S(1), B), (B, B), (P, S(0)), (B, P), (P, P))],
]


@pytest.mark.parametrize("layout", LEAVES, ids=str)
def test_leaf_gradients_have_the_leaf_s_layout(layout: Any) -> None:
    """placement and sbp of the leaf, P reduced, whatever the layout of the use (AUTO-LEAF)."""
    placement, sbp = layout
    w = laid(numbers(4, 3), placement, *sbp, grad=True)
    x = laid(numbers(5, 4) - 9, placement, S(0), *[B] * (placement.ndim - 1))
    (x @ w).sum().backward()
    column = (numbers(5, 4) - 9).sum(0)
    assert gradient(w).tolist() == np.repeat(column[:, None], 3, 1).tolist()
    assert (gradient(w).placement, gradient(w).sbp) == (placement, tuple(B if s == P else s for s in sbp))
    (w.sum()).backward()
    assert gradient(w).sbp == tuple(B if s == P else s for s in sbp)


def test_gradients_accumulate() -> None:
    """Two backwards add; None starts again; the sum is a float32 sum."""
    x = laid([1.0, 2.0], LINE2, S(0), grad=True)
    for times in (1, 2, 3):
        (x * x).sum().backward()
        assert gradient(x).tolist() == [2 * times, 4 * times] and gradient(x).sbp == (S(0),)
    x.grad = None
    x.sum().backward()
    assert gradient(x).tolist() == [1, 1] and not gradient(x).requires_grad


def test_what_is_a_leaf() -> None:
    """Leaves are made by factories, requires_grad_ and detach; results of operations are not."""
    x = leaf(1.0)
    y = x * 2
    assert x.is_leaf and x.grad_fn is None and not y.is_leaf and y.requires_grad and "mul" in repr(y.grad_fn.primitive)
    assert y.detach().is_leaf and not y.detach().requires_grad
    assert not (x > 0).requires_grad and not x.long().requires_grad and not x.argmax().requires_grad
    assert flow.tensor([1.0]).requires_grad_().requires_grad
    z = flow.tensor([1.0])
    z.requires_grad = True
    assert z.requires_grad and not z.requires_grad_(False).requires_grad
    with pytest.raises(AutogradError, match="int64"):
        flow.tensor([1]).requires_grad_()
    with pytest.raises(AutogradError, match=r"detach\(\)"):
        y.requires_grad_(False)
    assert y.requires_grad_() is y


def test_a_dropped_leaf_is_no_trouble() -> None:
    """A leaf nobody holds any more gets no gradient."""
    x = leaf(1.0)
    y = x * flow.tensor([2.0], requires_grad=True)
    y.backward()
    assert gradient(x).tolist() == [2]


# --- backward -------------------------------------------------------------------------------------------------------


def test_seeds() -> None:
    """1 for one element, else the gradient given; shape, dtype and kind must fit (AUTO-SEED)."""
    x = leaf(1.0, 2.0)
    (x * x).backward(flow.tensor([10.0, 100.0]))
    assert gradient(x).tolist() == [20, 400]
    with pytest.raises(AutogradError, match=r"shape \(2,\).*one element"):
        (x * x).backward()
    with pytest.raises(ShapeError, match=r"\(3,\).*\(2,\)"):
        (x * x).backward(flow.ones(3))
    with pytest.raises(DtypeError, match="float64.*float32"):
        (x + 1).backward(flow.ones(2, dtype=flow.float64))
    with pytest.raises(LocalGlobalError, match="global.*local"):
        (x + 1).backward(laid([1.0, 1.0], LINE2, B))
    with pytest.raises(LocalGlobalError, match="local.*global"):
        (laid([1.0, 1.0], LINE2, B, grad=True) + 1).backward(flow.ones(2))
    with pytest.raises(AutogradError, match="requires_grad_"):
        flow.tensor([1.0]).backward()
    assert gradient(x).tolist() == [20, 400]
    one = flow.tensor([[3.0]], requires_grad=True)
    (one * one).backward()
    assert gradient(one).tolist() == [[6]]
    scalar = flow.tensor(2.0, requires_grad=True)
    scalar.backward()
    assert gradient(scalar).item() == 1


def test_a_seed_in_another_layout() -> None:
    """The seed is a logical value: S, B, P and other placements do."""
    for seed in (laid([1.0, 3.0], LINE2, P), laid([1.0, 3.0], LINE4, S(0)), laid([1.0, 3.0], LINE2, B)):
        x = laid([1.0, 2.0], LINE2, S(0), grad=True)
        (x * x).backward(seed)
        assert gradient(x).tolist() == [2, 12] and gradient(x).placement == LINE2


def test_the_graph_is_freed() -> None:
    """A second backward is refused, also through a shared part; retain_graph keeps it (AUTO-FREE)."""
    x = leaf(1.0, 2.0)
    shared = x * x
    a, b = shared.sum(), (shared * 2).sum()
    a.backward()
    for again in (a, b):
        with pytest.raises(AutogradError, match="mul a second time|sum a second time"):
            again.backward()
    assert gradient(x).tolist() == [2, 4]
    y = (x * x).sum()
    y.backward(retain_graph=True)
    y.backward()
    assert gradient(x).tolist() == [6, 12]
    with pytest.raises(AutogradError, match="retain_graph=True"):
        y.backward()


def test_create_graph_fills_grads_that_can_be_differentiated() -> None:
    """backward(create_graph=True)."""
    x = leaf(3.0)
    (x**3.0).backward(create_graph=True)
    first = gradient(x)
    assert first.tolist() == [27] and first.requires_grad
    x.grad = None
    first.backward()
    assert gradient(x).tolist() == [18]


def test_saved_values_are_safe_from_later_writes() -> None:
    """Values never change, so what backward needs is what forward saw (AUTO-SAVED)."""
    x = laid([1.0, 2.0, 3.0], LINE4, S(0), grad=True)
    y = x * 1.0
    square, view = y * y, y[1:]
    cube = view * view * view
    y.zero_()
    view.fill_(50.0)
    with flow.no_grad():
        x.fill_(9.0)
    (square.sum() + cube.sum()).backward()
    assert gradient(x).tolist() == [2, 4 + 12, 6 + 27]


# --- grad -----------------------------------------------------------------------------------------------------------


def test_grad_leaves_dot_grad_alone() -> None:
    """autograd.grad returns; nothing is accumulated."""
    x, y = leaf(1.0, 2.0), leaf(3.0, 4.0)
    gx, gy = grad((x * y).sum(), [x, y])
    assert gx is not None and gy is not None
    assert (gx.tolist(), gy.tolist()) == ([3, 4], [1, 2]) and x.grad is None and y.grad is None


def test_grad_to_a_non_leaf() -> None:
    """An input may be any value of the graph, an output too."""
    x = leaf(2.0)
    y = x * x
    z = y * y
    (gy,), (gx,), (gz,) = (grad(z, one, retain_graph=True) for one in (y, x, z))
    assert gy is not None and gx is not None and gz is not None
    assert (gy.tolist(), gx.tolist(), gz.tolist()) == ([8], [32], [1])
    both = grad(z, [x, y])
    assert [g.tolist() for g in both if g is not None] == [[32], [8]]


def test_unused_inputs() -> None:
    """An input without a part in the outputs is an error, or None."""
    x, y = leaf(1.0), leaf(1.0)
    z = x * 2
    with pytest.raises(AutogradError, match="input 1 has no part.*allow_unused"):
        grad(z, [x, y], retain_graph=True)
    found = grad(z, [x, y], allow_unused=True)
    assert found[0] is not None and found[0].tolist() == [2] and found[1] is None
    with pytest.raises(AutogradError, match="input 0 requires no gradient"):
        grad(x * 2, [flow.tensor([1.0])])
    with pytest.raises(AutogradError, match="requires no gradient"):
        grad(flow.tensor([1.0]), [x])


def test_grad_in_the_layout_of_its_input() -> None:
    """The gradient of each input has its layout, P reduced."""
    x = laid(numbers(4), LINE4, P, grad=True)
    y = x.to_global(sbp=S(0))
    z = (y * laid(numbers(4), LINE4, B)).sum()
    gx, gy = grad(z, [x, y])
    assert gx is not None and gy is not None and gx.sbp == (B,) and gy.sbp == (S(0),)
    assert gx.tolist() == gy.tolist() == [0, 1, 2, 3]


# --- hooks ----------------------------------------------------------------------------------------------------------


def test_hooks() -> None:
    """Each is called once with the complete gradient, in order; what it returns replaces it; the remover removes."""
    x = leaf(1.0, 2.0)
    seen: list[Any] = []
    x.register_hook(lambda g: seen.append(("leaf", g.tolist())))
    y = x * 2.0
    y.register_hook(lambda g: seen.append(("middle", g.tolist())))
    y.register_hook(lambda g: g * 10)
    remove = y.register_hook(lambda g: seen.append(("after", g.tolist())))
    (y * 3.0 + y).sum().backward()
    assert seen == [("middle", [4, 4]), ("after", [40, 40]), ("leaf", [80, 80])]
    assert gradient(x).tolist() == [80, 80]
    seen.clear()
    z = x * 1.0
    remove()
    z.sum().backward()
    assert seen == [("leaf", [1, 1])]


def test_a_leaf_hook_replaces_what_is_accumulated() -> None:
    """The gradient that reaches .grad is the hook's, in the leaf's layout."""
    x = laid([1.0, 2.0], LINE2, S(0), grad=True)
    remove = x.register_hook(lambda g: laid([7.0, 8.0], LINE2, P))
    (x * x).sum().backward()
    assert gradient(x).tolist() == [7, 8] and gradient(x).sbp == (S(0),)
    remove()
    remove()
    x.sum().backward()
    assert gradient(x).tolist() == [8, 9]


def test_what_a_hook_may_return() -> None:
    """A tensor of the gradient's shape, dtype and kind, or None."""
    for value, error in ((flow.ones(3), ShapeError), (flow.ones(2).double(), DtypeError), (3, AutogradError)):
        x = leaf(1.0, 2.0)
        x.register_hook(lambda g, value=value: value)
        with pytest.raises(error, match="hook"):
            x.sum().backward()
        assert x.grad is None
    with pytest.raises(AutogradError, match="requires no gradient"):
        flow.tensor([1.0]).register_hook(lambda g: None)


def test_retain_grad() -> None:
    """The result of an operation keeps its gradient if asked, and accumulates like a leaf."""
    x = leaf(1.0, 2.0)
    y, silent = x * 2.0, x * 3.0
    y.retain_grad()
    loss = (y * y + silent).sum()
    loss.backward(retain_graph=True)
    assert gradient(y).tolist() == [4, 8] and silent.grad is None
    loss.backward()
    assert gradient(y).tolist() == [8, 16] and gradient(x).tolist() == [22, 38]


# --- grad mode ------------------------------------------------------------------------------------------------------


def test_grad_mode() -> None:
    """no_grad, enable_grad, set_grad_enabled: blocks, nested blocks, decorators, after an exception."""
    x = leaf(1.0)
    assert flow.is_grad_enabled()
    with flow.no_grad():
        assert not flow.is_grad_enabled() and not (x * 2).requires_grad
        with flow.enable_grad():
            assert (x * 2).requires_grad
            with flow.set_grad_enabled(False):
                assert not (x * 2).requires_grad
        assert not (x * 2).requires_grad
    with pytest.raises(ZeroDivisionError), flow.no_grad():
        raise ZeroDivisionError
    assert flow.is_grad_enabled()

    @flow.no_grad()
    def off(depth: int) -> bool:
        """Recursion uses the decorator again."""
        return (x * 2).requires_grad or (depth > 0 and off(depth - 1))

    @flow.enable_grad()
    def on() -> bool:
        return (x * 2).requires_grad

    assert not off(2) and off.__doc__ is not None and on()
    with flow.no_grad():
        assert on()
    restore = flow.set_grad_enabled(False)
    assert not flow.is_grad_enabled()
    restore.__exit__(None, None, None)
    assert flow.is_grad_enabled()


def test_backward_inside_no_grad() -> None:
    """A recorded graph can be run backward while nothing new is recorded."""
    x = leaf(3.0)
    y = x * x
    with flow.no_grad():
        y.backward()
    assert gradient(x).tolist() == [6]


def test_a_view_stays_recorded_whoever_reads_it_first() -> None:
    """After its base changed, a view read first under no_grad still carries the gradient; one made there never does."""
    w = flow.tensor([[1.0, 2.0]], requires_grad=True)
    view = w.t()
    with flow.no_grad():
        constant = w.t()
        w.mul_(3.0)
        assert view.tolist() == constant.tolist() == [[3], [6]]
    (view * constant).sum().backward()
    assert gradient(w).tolist() == [[3, 6]]
    base = flow.zeros(2)
    part, x = base[:1], leaf(5.0)
    base.add_(x)
    with flow.no_grad():
        assert part.tolist() == [5]
    part.backward()
    assert gradient(x).tolist() == [1]


def test_detach() -> None:
    """The same value, cut off."""
    x = leaf(3.0)
    y = x * x.detach()
    (y * 1).backward()
    assert gradient(x).tolist() == [3] and x.data.tolist() == [3] and not x.data.requires_grad


def test_nothing_is_recorded_for_constants() -> None:
    """Only what has a gradient behind it is on the tape (AUTO-RECORD)."""
    constant = flow.tensor([1.0]) * 2
    assert constant.grad_fn is None and constant.is_leaf
    x = leaf(1.0)
    assert len((x * constant).grad_fn.inputs) == 2


# --- across layouts -------------------------------------------------------------------------------------------------


def test_through_to_global_in_every_direction() -> None:
    """Boxing is recorded: the gradient of a move is a move, values unchanged."""
    seed = numbers(4) + 1
    layouts = [(LINE2, S(0)), (LINE4, B), (LINE4, P), (flow.placement("cpu", [3, 2]), P), (LINE4, S(0))]
    for placement, sbp in layouts:
        x = laid(numbers(4), placement, sbp, grad=True)
        y = x
        for target, one in layouts:
            y = y.to_global(target, one)
        (y * laid(seed, LINE4, B)).sum().backward()
        assert gradient(x).tolist() == seed.tolist()
        assert (gradient(x).placement, gradient(x).sbp) == (placement, (B if sbp == P else sbp,))


def test_second_gradient_through_the_border() -> None:
    """to_local and to_global are primitives: their gradients have gradients."""
    x = laid([1.0, 2.0, 3.0, 4.0], LINE4, S(0), grad=True)
    y = x.to_local()
    z = (y * y * y).to_global(LINE4, S(0)).sum()
    (first,) = grad(z, x, create_graph=True)
    assert first is not None and first.tolist() == [3, 12, 27, 48]
    (second,) = grad(first.sum(), x)
    assert second is not None and second.tolist() == [6, 12, 18, 24] and second.sbp == (S(0),)


def test_gradient_of_a_broadcast_operand_is_one_sum() -> None:
    """What broadcasting added is summed over, as one flat range in dimension order (AUTO-UNBROADCAST)."""
    for placement, sbp in ((LINE4, (S(0),)), (LINE4, (S(1),)), (MESH, (S(0), S(1)))):
        x = laid(numbers(3, 4), placement, *sbp)
        for shape in ((), (4,), (1, 4), (3, 1), (1, 1), (1, 3, 4)):
            w = laid(np.ones(shape, np.float32), placement, *[B] * placement.ndim, grad=True)
            (x * w).sum().backward()
            dims = tuple(d for d in range(2) if d < 2 - len(shape) or (len(shape) == 2 and shape[d] == 1))
            expected = numbers(3, 4).sum(dims).reshape(shape) if len(shape) < 3 else numbers(1, 3, 4)
            assert gradient(w).tolist() == expected.tolist(), shape
            assert set(locals_of(gradient(w)).keys()) == set(placement)


def test_gradients_do_not_need_the_values_of_other_ranks() -> None:
    """Data parallel: one all-reduce for the weight, none for what is split; the log shows it."""
    w = laid(numbers(4, 4), LINE4, B, grad=True)
    x = laid(numbers(8, 4), LINE4, S(0))
    loss = (x @ w).sum()
    with flow.comm_log() as log:
        loss.backward()
    assert len(log) > 0 and log.bytes > 0
    assert math.isfinite(gradient(w).sum().item())


def test_generator_functions_in_a_grad_mode() -> None:
    """AUTO-RECORD: the mode holds while the body runs, not between its items; what is sent and thrown arrives."""

    @flow.no_grad()
    def items(n: int) -> Any:
        """Doc."""
        got: Any = None
        try:
            for i in range(n):
                try:
                    got = yield i, got, flow.is_grad_enabled()
                except KeyError as error:
                    got = error.args[0]
        finally:
            closed.append(flow.is_grad_enabled())
        return "end"

    closed: list[bool] = []
    assert items.__name__ == "items" and items.__doc__ == "Doc."
    one = items(9)
    assert next(one) == (0, None, False) and flow.is_grad_enabled()
    assert one.send(5) == (1, 5, False) and one.throw(KeyError("k")) == (2, "k", False) and flow.is_grad_enabled()
    other = items(9)  # two of them, by turns
    assert [next(other)[0], next(one)[0], next(other)[0]] == [0, 3, 1] and flow.is_grad_enabled()
    one.close()
    with pytest.raises(ValueError, match="unforeseen"):
        other.throw(ValueError("unforeseen"))
    assert closed == [False, False] and flow.is_grad_enabled()

    def around() -> Any:
        return (yield from items(2))

    outer = around()
    assert [next(outer)[0], next(outer)[0]] == [0, 1]
    with pytest.raises(StopIteration) as end:
        next(outer)
    assert end.value.value == "end" and flow.is_grad_enabled()


def test_a_gradient_that_is_assigned_must_fit() -> None:
    """AUTO-LEAF: shape, dtype, placement; its sbp is its own."""
    errors = flow.errors
    row, pair = flow.placement("cpu", [0, 1, 2, 3]), flow.placement("cpu", [0, 1])
    w = flow.ones(4, placement=row, sbp=flow.sbp.broadcast, requires_grad=True)
    given = {"placement": row, "sbp": flow.sbp.split(0)}
    kept = w.grad = flow.ones(4, **given)
    for wrong, kind, words in (
        (flow.ones(3, **given), errors.ShapeError, r"\(4,\), its gradient \(3,\)"),
        (flow.ones(4, dtype=flow.float64, **given), errors.DtypeError, "float32, its gradient float64"),
        (flow.ones(4), errors.LocalGlobalError, "global, its gradient local"),
        (flow.ones(4, placement=pair, sbp=flow.sbp.broadcast), errors.PlacementError, "its gradient on"),
        (1.0, errors.DtypeError, "a tensor or None, found float"),
    ):
        with pytest.raises(kind, match=words):
            w.grad = wrong
        assert w.grad is kept
    w.grad = None
    ragged = flow.per_rank(lambda r: [1.0] * (r + 1)).requires_grad_()
    ragged.grad = ragged.detach() * 2
    with pytest.raises(errors.ShapeError, match="its gradient"):
        ragged.grad = flow.ones(2)
