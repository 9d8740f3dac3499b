"""Rules whose best test is a short direct one: a check each, named by its rule.

Searches over layouts, primitives and programs are elsewhere; here a rule's sentence is held against the smallest case that could break it.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Mapping
from contextvars import copy_context
from typing import Any

import numpy as np
import pytest

import refflow as flow
from refflow.boxing import Layout, plan
from refflow.ir import REGISTRY, Meta, Value, bind_space, candidates, derive, lower, parse
from refflow.kernels.reference.elementwise import CORRECTLY_ROUNDED
from refflow.numerics import fold_parts, random_bits
from refflow.tensor.backward import grad

S, B = flow.sbp.split, flow.sbp.broadcast
P, PMAX, PMIN = flow.sbp.partial_sum, flow.sbp.partial_max, flow.sbp.partial_min
PAIR, ROW = flow.placement("cpu", [0, 1]), flow.placement("cpu", [0, 1, 2, 3])
GRID = flow.placement("cpu", [[0, 1], [2, 3]])
F32 = np.dtype(np.float32)


@pytest.fixture(autouse=True)
def four_ranks() -> Iterator[None]:
    with flow.virtual_world(4), flow.state.Override(generator=flow.Generator()):
        yield


def normal(*shape: int, stream: int = 0) -> np.ndarray[Any, Any]:
    """Dense float32 data: no zeros, no ties."""
    index = np.arange(int(np.prod(shape)), dtype=np.uint64)
    return flow.numerics.normal(index, 11, stream).reshape(shape)


def dense(shape: tuple[int, ...], placement: flow.Placement, sbp: Any) -> flow.Tensor:
    """A partial tensor whose addends are all real numbers."""
    return flow.per_rank(lambda r: normal(*shape, stream=r)).to_global(placement, sbp)


def held(x: flow.Tensor) -> dict[int, Any]:
    """rank -> local array as lists."""
    return {rank: array.tolist() for rank, array in x.local_arrays().items()}


def same(a: flow.Tensor, b: flow.Tensor) -> bool:
    """Whether two tensors have the same logical bits."""
    return flow.same_bits(a.detach().numpy(), b.detach().numpy())


def space_of(name: str, *metas: Meta, **attrs: Any) -> tuple[Any, Any]:
    """The rule and the space of a primitive on operands."""
    rule = REGISTRY[name].rule(*metas, **attrs)
    return rule, bind_space(name, parse(rule.space, len(metas)), [m.shape for m in metas], rule.sizes)


# --- numbers --------------------------------------------------------------------------------------------------------


def test_subnormals_are_kept() -> None:
    """NUM-SUBNORMAL"""
    tiny = flow.tensor([2.0**-149, 2.0**-126])
    assert (tiny + tiny).tolist() == [2.0**-148, 2.0**-125] and (tiny / 2).tolist() == [0.0, 2.0**-127]
    flow.check_subnormals()


@pytest.mark.parametrize("dtype", [flow.float16, flow.bfloat16], ids=str)
def test_halves_compute_in_float32_and_round_once(dtype: np.dtype[Any]) -> None:
    """NUM-HALF"""
    x, y = normal(3, 40).astype(dtype), normal(40, 2, stream=1).astype(dtype)
    wide = flow.numerics.contract(x.astype(F32), y.astype(F32))
    assert flow.same_bits(flow.matmul(flow.tensor(x), flow.tensor(y)).numpy(), wide.astype(dtype))
    assert flow.same_bits(flow.tensor(x).sum(1).numpy(), flow.numerics.tree_sum(x.astype(F32), 1).astype(dtype))


@pytest.mark.parametrize("dtype", [flow.float16, flow.bfloat16], ids=str)
def test_halves_do_not_read_the_layout(dtype: np.dtype[Any]) -> None:
    """NUM-HALF, SIG-EXACT: the gradient of a broadcast 16-bit operand is folded in float32 under any sbp."""

    def bias_gradient(sbp: Any) -> np.ndarray[Any, Any]:
        bias = flow.zeros(16, dtype=dtype, placement=ROW, sbp=B, requires_grad=True)
        g = flow.tensor(normal(8, 16), dtype=dtype, placement=ROW, sbp=sbp)
        (flow.zeros(8, 16, dtype=dtype, placement=ROW, sbp=sbp) + bias).backward(g)
        assert bias.grad is not None
        return bias.grad.numpy()

    assert flow.same_bits(bias_gradient(S(0)), bias_gradient(B))


@pytest.mark.parametrize("dtype", flow.numerics.DTYPES, ids=str)
def test_dtypes_are_these(dtype: np.dtype[Any]) -> None:
    """NUM-DTYPE"""
    x = flow.tensor([1, 0], dtype=dtype)
    assert x.dtype == dtype and x.to(flow.float64).tolist() == [1.0, 0.0]


def test_other_dtypes_are_refused() -> None:
    """NUM-DTYPE"""
    with pytest.raises(flow.errors.DtypeError, match="complex64"):
        flow.tensor(np.zeros(2, np.complex64))


@pytest.mark.parametrize(("x", "y"), list(itertools.product([7, -7, 1, 0], [2, -2, 3])))
def test_division_is_pythons(x: int, y: int) -> None:
    """NUM-DIVISION"""
    a, b = flow.tensor([x]), flow.tensor([y])
    assert ((a // b).item(), (a % b).item()) == divmod(x, y)
    assert ((a.float() // b).item(), (a.float() % b).item()) == divmod(float(x), float(y))


def test_integer_division_by_zero_is_refused() -> None:
    """NUM-DIVISION"""
    for f in (flow.floor_divide, flow.remainder):
        with pytest.raises(flow.errors.DataError, match="divided by"):
            f(flow.tensor([1]), 0)
    with pytest.raises(flow.errors.DataError, match="negative"):
        flow.pow(flow.tensor([2]), -1)


# --- layout and partial ---------------------------------------------------------------------------------------------


def test_placements_are_meshes_of_distinct_ranks() -> None:
    """LAY-PLACEMENT"""
    assert GRID.mesh == (2, 2) and [GRID.coords(r) for r in GRID] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert flow.placement("cpu", [0, 1]) == PAIR != flow.placement("cuda", [0, 1])
    for bad in ([], [0, 0], [-1], [[0, 1], [2]]):
        with pytest.raises(flow.errors.PlacementError):
            flow.placement("cpu", bad)


def test_the_order_of_ranks_is_kept() -> None:
    """LAY-MESH-ORDER"""
    back = flow.placement("cpu", [1, 0])
    assert back != PAIR and held(flow.arange(2, placement=back, sbp=S(0))) == {1: [0], 0: [1]}
    x = flow.per_rank(lambda r: np.float32([2.0**24, 1, 1, 0][r]))
    folds = [x.to_global(flow.placement("cpu", ranks), P).item() for ranks in ([0, 1, 2, 3], [1, 2, 0, 3])]
    assert folds == [2.0**24, 2.0**24 + 2]


def test_one_sbp_per_mesh_axis() -> None:
    """LAY-SBP"""
    assert flow.ones(2, 3, placement=PAIR, sbp=S(-1)).sbp == (S(1),)
    for bad in (S(2), S(-3), (B, B), "B"):
        with pytest.raises(flow.errors.SbpError):
            flow.ones(2, 3, placement=PAIR, sbp=bad)


@pytest.mark.parametrize(("n", "parts"), list(itertools.product(range(10), range(1, 6))))
def test_balanced_split(n: int, parts: int) -> None:
    """LAY-BALANCED"""
    offsets = flow.layout.balanced(0, n, parts)
    sizes = [b - a for a, b in itertools.pairwise(offsets)]
    assert offsets[0] == 0 and offsets[-1] == n
    assert sizes == [-(-n // parts) if k < n % parts else n // parts for k in range(parts)]


def test_mesh_axes_cut_left_to_right() -> None:
    """LAY-ND-SPLIT"""
    x = flow.arange(7, placement=flow.placement("cpu", [[0, 1], [2, 3]]), sbp=(S(0), S(0)))
    assert held(x) == {0: [0, 1], 1: [2, 3], 2: [4, 5], 3: [6]}


def test_locate_agrees_with_what_ranks_hold() -> None:
    """LAY-INDEX"""
    x = flow.arange(5, placement=GRID, sbp=(S(0), B))
    for i in range(5):
        for rank, (local,) in flow.layout.locate((i,), (5,), GRID, x.sbp):
            assert held(x)[rank][local] == i


def test_replicas_must_be_equal_to_the_bit() -> None:
    """LAY-REPLICA"""
    zeros = flow.per_rank(lambda r: np.float32([1.0, 0.0 if r < 2 else -0.0]))
    with pytest.raises(flow.errors.ReplicaError, match=r"ranks 0 and 2.*\(1,\)"):
        zeros.to_global(ROW, B)
    assert zeros.to_global(GRID, (S(0), B)).shape == (4,)
    zeros.to_global(ROW, B, check_meta=False)
    flow.per_rank(lambda r: np.float32(np.nan)).to_global(ROW, B)


@pytest.mark.parametrize("sbp", list(itertools.product([P, PMAX, PMIN], repeat=2)), ids=str)
def test_the_value_of_mixed_partials_is_the_nested_fold(sbp: Any) -> None:
    """PART-VALUE, BOX-FOLD-ORDER"""
    x = dense((5,), GRID, sbp)
    part = x.local_arrays()
    rows = [fold_parts([part[r] for r in ranks], sbp[1].kind) for ranks in ([0, 1], [2, 3])]
    assert flow.same_bits(x.numpy(), fold_parts(rows, sbp[0].kind))


@pytest.mark.parametrize("sbp", list(itertools.product([B, P, PMAX, PMIN, S(0)], repeat=2)), ids=str)
@pytest.mark.parametrize("dtype", [flow.float32, flow.int64], ids=str)
def test_whatever_becomes_partial_keeps_its_value(sbp: Any, dtype: np.dtype[Any]) -> None:
    """BOX-B2P, BOX-S2P, PART-MADE: from any layout, kinds mixed or not."""
    data = np.array([-3, 0, 2, 7, -1], dtype)
    for start in itertools.product([B, S(0), P, PMAX], repeat=2):
        x = flow.tensor(data, placement=GRID, sbp=start)
        assert flow.same_bits(x.to_global(sbp=sbp).numpy(), data), start


def test_slices_beside_another_partial_axis() -> None:
    """BOX-S2P: the identity is that of the new axis, also where an outer P axis of another kind stays."""
    whole = flow.per_rank(lambda r: normal(4, stream=r // 2)).to_global(GRID, (PMAX, B))
    split = whole.to_global(sbp=(PMAX, S(0)))
    assert same(split.to_global(sbp=(PMAX, P)), whole)
    assert same(split.flip(0), whole.to_global(sbp=(B, B)).flip(0))


def test_reading_sees_the_logical_value() -> None:
    """PART-READ"""
    x = flow.per_rank(lambda r: np.float32(r - 1)).to_global(ROW, P)  # -1 + 0 + 1 + 2
    assert x.item() == 2.0 and bool(x == 2) and float(x) == 2.0 and x.tolist() == 2.0 and "2." in repr(x)
    assert not bool(x * -5 == x * 2)


@pytest.mark.parametrize("f", [flow.isnan, flow.relu, flow.abs, flow.sqrt, lambda x: x / 0, lambda x: x.to(flow.int32)])
def test_what_does_not_carry_partial_reduces_first(f: Callable[[flow.Tensor], flow.Tensor]) -> None:
    """PART-REDUCE"""
    x = flow.per_rank(lambda r: np.float32([np.inf, 1.5, -2.0] if r else [-np.inf, 1.5, 4.0])).to_global(PAIR, P)
    assert same(f(x), f(x.to_global(sbp=B)))


@pytest.mark.parametrize("sbp", [P, PMAX, PMIN], ids=str)
def test_making_a_partial_tensor_makes_its_value(sbp: Any) -> None:
    """PART-MADE"""
    for x in (flow.arange(3, placement=ROW, sbp=sbp), flow.tensor([0, 1, 2], placement=ROW, sbp=sbp)):
        assert x.sbp == (sbp,) and x.tolist() == [0, 1, 2]
    assert flow.zeros(2, placement=ROW, sbp=sbp).fill_(5).tolist() == [5.0, 5.0]
    with pytest.raises(flow.errors.SbpError):
        flow.rand(2, placement=ROW, sbp=sbp)


# --- boxing ---------------------------------------------------------------------------------------------------------

LAYOUTS = [
    *((PAIR, (one,)) for one in (B, P, PMAX, S(0), S(1))),
    *((ROW, (one,)) for one in (B, P, S(0), S(1))),
    *((GRID, two) for two in ((B, B), (P, P), (S(0), S(0)), (S(1), P), (P, S(0)), (B, S(1)))),
    (flow.placement("cpu", [3, 1, 2]), (S(0),)),
    (flow.placement("cpu", [2]), (B,)),
]


@pytest.mark.parametrize("shape", [(5, 3), (1, 2), (0, 4)], ids=str)
def test_any_layout_reaches_any_other(shape: tuple[int, ...]) -> None:
    """BOX-PLAN, BOX-RUN: the logical value stays, in two steps at most."""
    data = normal(*shape)
    for source, target in itertools.product(LAYOUTS, repeat=2):
        x = flow.tensor(data, placement=source[0], sbp=source[1])
        assert flow.same_bits(x.to_global(*target).numpy(), data), (source, target)
        assert len(plan(shape, Layout(*source), Layout(*target)).steps) <= 2


def test_inner_partials_fold_first_and_outer_ones_stay() -> None:
    """BOX-FOLD-ORDER, NUM-FOLD"""
    x = dense((7,), GRID, (P, P))
    part = x.local_arrays()
    rows = [fold_parts([part[0], part[1]], "sum"), fold_parts([part[2], part[3]], "sum")]
    inner = x.to_global(sbp=(P, B)).local_arrays()
    assert flow.same_bits(inner[1], rows[0]) and flow.same_bits(inner[2], rows[1])
    whole = fold_parts(rows, "sum")
    assert all(flow.same_bits(x.to_global(sbp=sbp).numpy(), whole) for sbp in ((B, B), (B, P), (S(0), B), (P, S(0))))


def test_broadcast_to_partial_and_back_keeps_every_bit() -> None:
    """BOX-B2P, NUM-IDENTITY"""
    data = np.float32([-0.0, 0.0, np.nan, -np.inf, 2.0**-149])
    for kind in (P, PMAX, PMIN):
        x = flow.tensor(data, placement=ROW, sbp=B).to_global(sbp=kind)
        assert flow.same_bits(x.to_global(sbp=B).numpy(), data)


def test_split_to_partial_moves_nothing() -> None:
    """BOX-S2P"""
    with flow.comm_log() as log:
        x = flow.tensor(normal(5, 2), placement=GRID, sbp=(S(0), S(1))).to_global(sbp=(P, S(1)))
    assert log.bytes == 0 and flow.same_bits(x.numpy(), normal(5, 2))


@pytest.mark.parametrize(
    ("source", "target", "times"),
    [(B, S(0), 0), (B, P, 0), (S(0), P, 0), (S(0), S(1), 0.75), (S(0), B, 3), (P, S(0), 3), (P, B, 6), (B, B, 0)],
    ids=str,
)
def test_bytes_of_even_boxing(source: Any, target: Any, times: float) -> None:
    """BOX-COST: in units of the bytes T of the tensor, p = 4."""
    found = plan((8, 8), Layout(ROW, (source,)), Layout(ROW, (target,)))
    assert found.elements == times * 64 == sum(step.elements for step in found.steps)


def test_the_log_names_each_collective() -> None:
    """BOX-LOG"""
    x = dense((8,), ROW, P)
    with flow.comm_log() as log:
        x.to_global(sbp=B).to_global(sbp=S(0))
        x.numpy()
    assert [(move.kind, move.bytes) for move in log] == [("reduce_scatter", 96), ("all_gather", 96), ("slice", 0)]
    assert log.bytes == 192 and str(log).count("\n") == 2


def test_to_global_is_recorded_and_takes_grad_sbp() -> None:
    """BOX-PRIMITIVE"""
    x = flow.ones(4, placement=ROW, sbp=B, requires_grad=True)
    y = x.to_global(sbp=S(0), grad_sbp=B)
    assert y.grad_fn.primitive.name == "to_global" and y.grad_fn.attrs["grad_sbp"] == (B,)
    (y * 2).sum().backward()
    assert x.grad is not None and x.grad.sbp == (B,) and x.grad.tolist() == [2.0] * 4


# --- signatures -----------------------------------------------------------------------------------------------------


def test_index_spaces() -> None:
    """SIG-SPACE"""
    space = bind_space("f", parse("(a b) [c] 1, ... v@ -> ... a v@", 2), [(6, 4, 1), (5, 3)], {"b": 2})
    assert [space.sizes[x] for x in "abcv"] == [3, 2, 4, 3] and space.origins == ("v",)
    assert space.splittable() == ("_0", "a", "v") and space.shape(space.outputs[0]) == (5, 3, 3)
    with pytest.raises(flow.errors.ShapeError, match="k=3"):
        bind_space("matmul", parse("m k, k n -> m n", 2), [(2, 3), (4, 5)], {})


def test_signatures_follow_from_the_space() -> None:
    """SIG-DERIVE, SIG-CARRY"""
    rule, space = space_of("matmul", Meta((2, 32), F32), Meta((32, 2), F32))
    found = [(str(s), s.exact) for s in derive(rule, space, False)]
    assert found == [
        ("B, B -> B", True), ("S(0), B -> S(0)", True), ("B, S(1) -> S(1)", True), ("S(1), S(0) -> P(sum)", None),
        ("P(sum), B -> P(sum)", False), ("B, P(sum) -> P(sum)", False),
    ]  # fmt: skip
    assert all(s.exact for s in derive(rule, space, True))


FLOATS_ONLY = {*CORRECTLY_ROUNDED, "sqrt", "div", "cast"}


def integer_cases() -> Iterator[tuple[str, Any]]:
    """Primitives that carry P exactly on integers, with a sample."""
    for name, primitive in REGISTRY.items():
        for sample in primitive.samples if name not in FLOATS_ONLY else ():
            metas = tuple(Meta(shape, flow.int64) for shape in sample.shapes)
            if metas and not sample.dtypes and primitive.rule(*metas, **sample.attrs).carries:
                yield name, sample


@pytest.mark.parametrize(("name", "sample"), list(integer_cases()), ids=lambda v: v if isinstance(v, str) else "")
def test_exact_carries_of_integers_keep_the_value(name: str, sample: Any) -> None:
    """SIG-CARRY, SIG-EXACT: P operands made by boxing (identities and all) give the bits of whole ones."""
    rule, space = space_of(name, *[Meta(shape, flow.int64) for shape in sample.shapes], **sample.attrs)
    data = [flow.tensor(np.arange(-4, int(np.prod(shape)) - 4).reshape(shape), placement=PAIR, sbp=B) for shape in sample.shapes]
    whole = flow.Tensor(REGISTRY[name](*[x.value for x in data], **sample.attrs))
    for signature in derive(rule, space, True):
        if signature.exact and any(one in (P, PMAX, PMIN) for one in signature.inputs):
            inputs = [x.to_global(sbp=one).value for x, one in zip(data, signature.inputs, strict=True)]
            found = flow.Tensor(REGISTRY[name](*inputs, **sample.attrs))
            assert same(found, whole), signature


def test_marks_of_exactness() -> None:
    """SIG-EXACT"""

    def marks(name: str, *shapes: tuple[int, ...], dtype: Any = F32, **attrs: Any) -> dict[str, bool]:
        rule, space = space_of(name, *[Meta(shape, dtype) for shape in shapes], **attrs)
        return {str(s): s.exact for s in candidates(rule, space, dtype != F32, ROW)}

    assert marks("sum", (8, 3), dims=(0,))["S(0) -> P(sum)"] and not marks("sum", (6, 3), dims=(0,))["S(0) -> P(sum)"]
    assert not marks("sum", (4, 4), dims=(1, 0))["S(0) -> P(sum)"] and marks("sum", (4, 4), dims=(1, 0))["S(1) -> P(sum)"]
    assert marks("amax", (3, 4), dims=(0,))["S(0) -> P(max)"]
    assert marks("matmul", (2, 3), (3, 2), dtype=flow.int64)["S(1), S(0) -> P(sum)"]


@pytest.mark.parametrize(("n", "mesh"), list(itertools.product([1, 2, 3, 4, 5, 6, 7, 8, 12], ["row", "grid"])))
def test_nested_cuts_along_the_tree(n: int, mesh: str) -> None:
    """SIG-ALIGNED: P is left exactly where folding the shards is folding the whole."""
    where, sbp = (ROW, (S(0),)) if mesh == "row" else (GRID, (S(0), S(0)))
    x = flow.tensor(normal(n, 2), placement=where, sbp=sbp)
    with flow.signatures("cheap"):
        cheap = flow.sum(x, 0)
    exact = flow.sum(x, 0)
    assert flow.same_bits(exact.numpy(), flow.numerics.tree_sum(normal(n, 2), 0))
    if all(isinstance(one, type(P)) for one in exact.sbp):
        assert same(cheap, exact)


def test_a_mesh_takes_the_product() -> None:
    """SIG-PRODUCT"""
    rule, space = space_of("relu", Meta((4, 4), F32))
    axis = [str(s) for s in derive(rule, space, False)]
    assert len(list(candidates(rule, space, False, GRID))) == len(axis) ** 2
    rule, space = space_of("reshape", Meta((6, 2), F32), shape=(12,))
    kept = {str(s) for s in candidates(rule, space, False, GRID)}
    assert "(S(0), B) -> (S(0), B)" in kept and "(S(0), S(0)) -> (S(0), S(0))" not in kept


def test_least_bytes_then_least_partial_then_order() -> None:
    """SIG-CHOICE"""
    x, w = flow.ones(4, 64, placement=PAIR, sbp=S(1)), flow.ones(64, 4, placement=PAIR, sbp=S(0))
    assert flow.matmul(x, w).sbp == (P,)  # nothing moves
    assert flow.matmul(x.to_global(sbp=B), w.to_global(sbp=B)).sbp == (B,)  # nothing partial, declared first
    assert (flow.ones(4, placement=PAIR, sbp=S(0)) + flow.ones(4, placement=PAIR, sbp=B)).sbp == (S(0),)
    steps = flow.explain(flow.matmul, x, w).steps[0].options
    assert [(o.bytes, o.partial) for o in steps] == sorted((o.bytes, o.partial) for o in steps)


def test_policies() -> None:
    """SIG-POLICY"""
    x, w = dense((3, 5), PAIR, P), flow.tensor(normal(5, 2), placement=PAIR, sbp=B)
    exact = flow.matmul(x, w)
    with flow.signatures("cheap"):
        cheap = flow.matmul(x, w)
    assert exact.sbp != (P,) and cheap.sbp == (P,) and np.allclose(exact.numpy(), cheap.numpy(), 1e-4, 1e-5)
    assert same(exact, flow.matmul(x.to_global(sbp=B), w))
    with pytest.raises(flow.errors.AttributeValueError):
        flow.signatures("fast")


def test_explicit_boxing_refuses_to_move() -> None:
    """SIG-EXPLICIT"""
    x = flow.ones(4, placement=PAIR, sbp=P)
    with flow.boxing("explicit"):
        assert x.reshape(2, 2).sbp == (P,)
        with pytest.raises(flow.errors.BoxingError, match="operand 0"):
            flow.exp(x * 1.5)
    assert flow.exp(x).tolist() == flow.exp(flow.ones(4)).tolist()


def test_lowering_tells_ranks_their_ranges() -> None:
    """SIG-LOWER, KER-ORIGIN"""
    metas = (Meta((5, 2), F32, PAIR, (S(0),)), Meta((3,), flow.int64, PAIR, (B,)))
    lowered = lower(REGISTRY["index_select"], metas, {"dim": 0}, "exact", False)
    assert [lowered.calls[r]["at"]["v"] for r in PAIR] == [(0, 3, 5), (3, 5, 5)]
    assert lowered.outputs[0].sbp == (P,) and not any(lowered.targets)
    assert lowered is lower(REGISTRY["index_select"], metas, {"dim": 0}, "exact", False)


def test_explain_lists_every_candidate() -> None:
    """SIG-EXPLAIN"""
    x = flow.ones(4, 4, placement=PAIR, sbp=S(0), requires_grad=True)
    found = flow.explain(lambda a: flow.relu(a @ a), x)
    assert [step.name for step in found.steps] == ["matmul", "relu"]
    text = str(found)
    assert "->" in text and "refused" in text and text.count("\n") > 6


RESHAPES = [((6, 4), (24,)), ((24,), (6, 4)), ((8, 6), (4, 2, 6)), ((4, 1, 3), (4, 3)), ((4, 6), (6, 4)), ((), (1, 1)), ((0, 3), (3, 0))]


@pytest.mark.parametrize(("old", "new"), RESHAPES, ids=str)
def test_reshape_under_every_split(old: tuple[int, ...], new: tuple[int, ...]) -> None:
    """SIG-RESHAPE"""
    data = normal(*old)
    for sbp in [(B,), (P,), *((S(d),) for d in range(len(old)))]:
        assert flow.same_bits(flow.tensor(data, placement=ROW, sbp=sbp).reshape(new).numpy(), data.reshape(new))
    if old == (8, 6):
        assert flow.tensor(data, placement=ROW, sbp=S(0)).reshape(new).sbp == (S(0),)


@pytest.mark.parametrize("value", [0.0, 3.0, -np.inf, np.nan])
@pytest.mark.parametrize("sbp", [P, PMAX, PMIN], ids=str)
def test_padding_a_partial(value: float, sbp: Any) -> None:
    """SIG-PAD"""
    x = dense((3,), ROW, sbp)
    assert same(flow.pad(x, (1, 2), value=value), flow.pad(x.to_global(sbp=B), (1, 2), value=value))
    assert (flow.pad(x, (1, 2), value=value).sbp == (sbp,)) == (sbp != P or value != 3.0)


# --- primitives and functions ---------------------------------------------------------------------------------------


def test_every_primitive_is_declared_whole() -> None:
    """OPS-DECLARATION, KER-PROTOCOL"""
    backend = flow.state.settings().backend("cpu")
    for name, primitive in REGISTRY.items():
        assert primitive.name == name and primitive.doc and primitive.samples, name
        assert callable(backend.kernel(name))
    with pytest.raises(flow.errors.DtypeError):
        REGISTRY["add"](flow.ones(1).value, flow.ones(1, dtype=flow.int64).value)


def test_elementwise_gradients_at_ties_and_zeros() -> None:
    """OPS-ELEMENTWISE"""
    x = flow.tensor([0.0, 1.0, -1.0], requires_grad=True)
    for f, wanted in ((flow.relu, [0, 1, 0]), (flow.floor, [0, 0, 0]), (flow.sign, [0, 0, 0]), (flow.abs, [0, 1, -1])):
        (g,) = grad(f(x).sum(), x)
        assert g is not None and g.tolist() == wanted
    y = flow.tensor([0.0, 2.0, -2.0], requires_grad=True)
    both = grad(flow.maximum(x, y).sum(), [x, y])
    assert [g.tolist() for g in both if g is not None] == [[0.5, 0.0, 1.0], [0.5, 1.0, 0.0]]


def test_a_broadcast_operand_contracts_one_flat_range() -> None:
    """OPS-CONTRACTION"""
    x, w, g = normal(3, 5, 4), normal(4, 2, stream=1), normal(3, 5, 2, stream=2)
    weight = flow.tensor(w, requires_grad=True)
    flow.matmul(flow.tensor(x), weight).backward(flow.tensor(g))
    flat = flow.numerics.contract(x.reshape(15, 4).T.copy(), g.reshape(15, 2))
    assert weight.grad is not None and flow.same_bits(weight.grad.numpy(), flat)


def test_dims_fold_in_the_order_named() -> None:
    """OPS-REDUCTION, NUM-TREE"""
    x = normal(3, 4, 5)
    for dims in itertools.permutations(range(3), 2):
        rest = next(d for d in range(3) if d not in dims)
        flat = x.transpose(*dims, rest).reshape(-1, x.shape[rest])
        assert flow.same_bits(flow.sum(flow.tensor(x), dims).numpy(), flow.numerics.tree_sum(flat, 0))


def test_gradients_of_prod_are_right_at_zeros() -> None:
    """OPS-REDUCTION"""
    x = flow.tensor([2.0, 0.0, 3.0], requires_grad=True)
    flow.prod(x).backward()
    assert x.grad is not None and x.grad.tolist() == [0.0, 6.0, 0.0]


def test_orders_on_a_split_dimension_use_logical_indices() -> None:
    """OPS-ORDER"""
    x = flow.tensor([10.0, 5.0, 3.0, 10.0], placement=PAIR, sbp=S(0))
    assert x.argmax().item() == 0 and flow.argsort(x).tolist() == [2, 1, 0, 3]
    assert flow.cumsum(x, -1).tolist() == [10.0, 15.0, 18.0, 28.0] and flow.topk(x, 2).indices.tolist() == [0, 3]


def test_movement_keeps_bits_under_any_sbp() -> None:
    """OPS-MOVEMENT"""
    data = normal(4, 6)
    moves: list[Callable[[flow.Tensor], flow.Tensor]] = [
        lambda x: x.t(), lambda x: x[1:3], lambda x: x.flip(0, 1), lambda x: flow.cat([x, x], 1), lambda x: flow.tril(x),
        lambda x: x.expand(2, 4, 6), lambda x: flow.roll(x, 5), lambda x: flow.pad(x, (1, 0, 2, 1)), lambda x: x.reshape(3, 8),
    ]  # fmt: skip
    for move, sbp in itertools.product(moves, (S(0), S(1), P, PMIN)):
        assert same(move(flow.tensor(data, placement=ROW, sbp=sbp)), move(flow.tensor(data)))


def test_indexing_a_split_dimension_leaves_one_real_term() -> None:
    """OPS-INDEXING"""
    data, index = np.float32([[-0.0, 1], [2, np.nan], [3, -0.0]]), np.array([[2, 0], [1, 2]])
    for sbp in (S(0), S(1), B, P):
        table = flow.tensor(data, placement=ROW, sbp=sbp)
        out = table[flow.tensor(index, placement=ROW, sbp=B)]
        assert flow.same_bits(out.numpy(), data[index])
    assert flow.tensor(data, placement=ROW, sbp=S(0))[flow.tensor(index, placement=ROW, sbp=B)].sbp == (P,)


def test_a_bad_index_names_itself_and_its_rank() -> None:
    """IDX-RANGE, ERR-AGREED"""
    index = flow.tensor([0, 1, 7, 9], placement=PAIR, sbp=S(0))
    with pytest.raises(flow.errors.IndexOutOfRange, match=r"index 7 at position \(0,\) is outside \[0, 3\).*rank 1"):
        flow.index_select(flow.zeros(3, placement=PAIR, sbp=B), 0, index)
    with pytest.raises(flow.errors.IndexOutOfRange):
        flow.gather(flow.zeros(3), 0, flow.tensor([-1]))


@pytest.mark.parametrize("make", [
    lambda **at: flow.arange(1, 12, 2, **at), lambda **at: flow.eye(3, 5, **at), lambda **at: flow.full((3, 3), 2.5, **at),
    lambda **at: flow.linspace(0, 1, 7, **at), lambda **at: flow.empty(4, **at),
])  # fmt: skip
def test_creation_is_by_logical_index(make: Callable[..., flow.Tensor]) -> None:
    """OPS-CREATION"""
    whole = make()
    for where, sbp in ((ROW, S(0)), (GRID, (B, S(0))), (GRID, (S(0), S(0))), (PAIR, P)):
        assert same(make(placement=where, sbp=sbp), whole)


def test_functions_are_the_sequences_they_state() -> None:
    """OPS-COMPOSITE, OPS-MEAN, OPS-VAR, OPS-NORM"""
    x = flow.tensor(normal(3, 5))
    mean = flow.div(flow.sum(x, 1), 5)
    assert same(flow.mean(x, 1), mean)
    centred = flow.sub(x, flow.mean(x, 1, keepdim=True))
    assert same(flow.var(x, 1), flow.div(flow.sum(flow.mul(centred, centred), 1), 4.0))
    assert same(flow.std(x, 1), flow.sqrt(flow.var(x, 1)))
    assert same(flow.norm(x, dim=0), flow.sqrt(flow.sum(flow.mul(x, x), 0)))
    assert same(flow.norm(x, np.inf), flow.amax(flow.abs(x)))


@pytest.mark.parametrize("f", [flow.mean, flow.var, flow.norm])
def test_composites_of_uneven_splits_are_logical(f: Callable[[flow.Tensor], flow.Tensor]) -> None:
    """OPS-MEAN, OPS-VAR, OPS-NORM"""
    x = normal(5)
    for sbp in (S(0), P):
        assert same(f(flow.tensor(x, placement=ROW, sbp=sbp)), f(flow.tensor(x)))


VECTORS = [((3,), (3,), ()), ((3,), (3, 2), (2,)), ((2, 3), (3,), (2,)), ((4, 2, 3), (3,), (4, 2))]


@pytest.mark.parametrize(("x", "y", "out"), VECTORS, ids=str)
def test_matmul_of_vectors(x: tuple[int, ...], y: tuple[int, ...], out: tuple[int, ...]) -> None:
    """OPS-MATMUL"""
    assert flow.matmul(flow.ones(x), flow.ones(y)).shape == out
    with pytest.raises(flow.errors.ShapeError):
        flow.matmul(flow.tensor(1.0), flow.ones(1))


# --- tensors --------------------------------------------------------------------------------------------------------


def test_a_cell_counts_its_writes() -> None:
    """TENSOR-CELL"""
    x = flow.zeros(2)
    kept, before = x.value, x.version
    x += 1
    assert x.version == before + 1 and x.value is not kept and flow.Tensor(kept).tolist() == [0.0, 0.0]


def test_in_place_keeps_the_left_side() -> None:
    """TENSOR-INPLACE"""
    for sbp in (B, S(0), P):
        x = flow.ones(4, placement=PAIR, sbp=sbp)
        x.add_(flow.tensor([1, 2, 3, 4], placement=PAIR, sbp=S(0)))
        assert x.sbp == (sbp,) and x.dtype == F32 and x.tolist() == [2.0, 3.0, 4.0, 5.0]
    with pytest.raises(flow.errors.ShapeError):
        flow.ones(1).add_(flow.ones(2))
    with pytest.raises(flow.errors.AutogradError):
        flow.ones(1, requires_grad=True).add_(1)


@pytest.mark.parametrize("sbp", [B, S(0), S(1), P], ids=str)
def test_views_write_through(sbp: Any) -> None:
    """TENSOR-VIEW"""
    x = flow.zeros(4, 2, placement=ROW, sbp=sbp)
    x.t()[1, 2:] = 7.0
    x.reshape(8)[0] = 1.0
    assert x.tolist() == [[1.0, 0.0], [0.0, 0.0], [0.0, 7.0], [0.0, 7.0]] and x.sbp == (sbp,)
    view = x[0]
    x.fill_(3.0)
    assert view.tolist() == [3.0, 3.0]
    with pytest.raises(flow.errors.AutogradError, match="expanded"):
        flow.zeros(1).expand(3).fill_(1.0)


def test_detached_tensors_write_through() -> None:
    """TENSOR-DETACH"""
    p = flow.ones(4, placement=ROW, sbp=S(0), requires_grad=True)
    p.data.mul_(0.5)
    p.detach()[0] = 7.0
    assert p.tolist() == [7.0, 0.5, 0.5, 0.5] and p.requires_grad and p.is_leaf
    own = p.detach().clone()
    own.fill_(0.0)
    assert p.tolist() == [7.0, 0.5, 0.5, 0.5]
    with pytest.raises(flow.errors.AutogradError, match="detach"):
        (p * 2).detach().fill_(0.0)


def test_a_view_keeps_its_gradient_whoever_reads_it() -> None:
    """TENSOR-VIEW, AUTO-RECORD: reading in no_grad does not cut a view off from what made its base."""
    x = flow.ones(2, requires_grad=True)
    y = x * 1
    view = y[0:1]
    y.mul_(3)
    with flow.no_grad():
        view.tolist()
    view.sum().backward()
    assert x.grad is not None and x.grad.tolist() == [3.0, 0.0]


def test_reading_is_logical_everywhere() -> None:
    """TENSOR-LOGICAL"""
    x = flow.arange(3, placement=flow.placement("cpu", [2, 1]), sbp=S(0))
    assert x.numpy().tolist() == x.tolist() == [0, 1, 2] and int(x[2]) == 2
    with pytest.raises(flow.errors.LocalGlobalError):
        flow.per_rank(lambda r: r).numpy()


def test_methods_are_functions() -> None:
    """TENSOR-METHODS"""
    from refflow.tensor.methods import METHODS, OPERATORS

    assert all(getattr(flow.Tensor, name) is function for name, function in METHODS.items())
    assert same(flow.ones(2) @ flow.ones(2), flow.matmul(flow.ones(2), flow.ones(2))) and "__matmul__" in OPERATORS


# --- autograd -------------------------------------------------------------------------------------------------------


def leaf(*shape: int, sbp: Any = B) -> flow.Tensor:
    """A leaf on four ranks."""
    return flow.tensor(normal(*shape), placement=ROW, sbp=sbp, requires_grad=True)


def test_values_and_nodes() -> None:
    """IR-VALUE, IR-NODE"""
    x = leaf(4, sbp=S(0))
    y = flow.exp(x) * 2
    assert sorted(y.value.shards) == [0, 1, 2, 3] and y.value.meta.sbp == (S(0),)
    node = y.grad_fn
    assert node.primitive is REGISTRY["mul"] and node.outputs[0] is y.value and node.inputs[0].node.order < node.order


def test_interpreters_stack() -> None:
    """IR-BIND"""

    class Log:
        def __init__(self, name: str) -> None:
            self.name = name

        def bind(self, primitive: Any, inputs: tuple[Value, ...], attrs: Mapping[str, Any]) -> tuple[Value, ...]:
            seen.append((self.name, primitive.name))
            return flow.ir.bind(primitive, inputs, attrs)

    seen: list[tuple[str, str]] = []
    x = flow.ones(2)
    with flow.state.Override(interpreters=(Log("outer"), Log("inner"))):
        flow.neg(x)
    assert seen == [("inner", "neg"), ("outer", "neg")]


def test_only_what_needs_it_is_recorded() -> None:
    """AUTO-RECORD"""
    x = leaf(2)
    assert (x * 2).requires_grad and not (x > 0).requires_grad and not (x.detach() * 2).requires_grad
    with flow.no_grad():
        assert not (x * 2).requires_grad
        with flow.enable_grad():
            assert (x * 2).requires_grad
    assert not flow.argsort(x).requires_grad


def test_gradients_of_gradients() -> None:
    """AUTO-VJP"""
    x = flow.tensor([2.0], requires_grad=True)
    (first,) = grad((x * x * x).sum(), x, create_graph=True)
    assert first is not None
    (second,) = grad(first.sum(), x)
    assert second is not None and (first.item(), second.item(), x.grad) == (12.0, 12.0, None)


@pytest.mark.parametrize("sbp", [B, S(0), S(1), P], ids=str)
def test_gradients_have_the_layout_of_their_value(sbp: Any) -> None:
    """AUTO-LAYOUT, AUTO-LEAF"""
    w = flow.tensor(normal(4, 3), placement=ROW, sbp=sbp, requires_grad=True)
    flow.matmul(flow.tensor(normal(64, 4, stream=1), placement=ROW, sbp=S(0)), w).sum().backward()
    assert w.grad is not None and w.grad.sbp == ((B,) if sbp == P else (sbp,))
    alone = flow.tensor(normal(4, 3), requires_grad=True)
    flow.matmul(flow.tensor(normal(64, 4, stream=1)), alone).sum().backward()
    assert alone.grad is not None and same(w.grad, alone.grad)


def test_uses_are_added_in_reverse_program_order() -> None:
    """AUTO-ORDER"""
    gs = [2.0**24, 1.0, 1.0, 2.0**-3]
    x = flow.tensor(1.0, requires_grad=True)
    total = None
    for g in gs:
        use = x * g
        total = use if total is None else total + use
    assert total is not None
    total.backward()
    wanted = np.float32(gs[-1])
    for g in reversed(gs[:-1]):
        wanted = np.float32(wanted + np.float32(g))
    assert x.grad is not None and x.grad.item() == wanted


def test_hooks_and_retained_gradients() -> None:
    """AUTO-LEAF"""
    x = leaf(2)
    y = x * 3
    y.retain_grad()
    seen: list[Any] = []
    remove = y.register_hook(lambda g: seen.append(g.tolist()))
    (y + y).sum().backward()
    remove()
    assert seen == [[2.0, 2.0]] and y.grad is not None and y.grad.tolist() == [2.0, 2.0]


def test_a_graph_is_used_once() -> None:
    """AUTO-FREE"""
    x = leaf(2)
    y = (x * x).sum()
    y.backward(retain_graph=True)
    y.backward()
    assert x.grad is not None and np.allclose(x.grad.numpy(), 4 * normal(2))
    with pytest.raises(flow.errors.AutogradError, match="retain_graph"):
        y.backward()


def test_saved_values_outlive_writes() -> None:
    """AUTO-SAVED"""
    x, w = flow.tensor([3.0], requires_grad=True), flow.tensor([2.0])
    y = x * w
    w[0] = 100.0
    y.backward()
    assert x.grad is not None and x.grad.tolist() == [2.0]


def test_seeds() -> None:
    """AUTO-SEED"""
    x = leaf(2)
    with pytest.raises(flow.errors.AutogradError, match="gradient"):
        (x * 2).backward()
    with pytest.raises(flow.errors.ShapeError):
        (x * 2).backward(flow.ones(3, placement=ROW, sbp=B))
    with pytest.raises(flow.errors.AutogradError, match="requires no gradient"):
        flow.ones(1).backward()
    (x.sum() * 2).backward()
    assert x.grad is not None and x.grad.tolist() == [2.0, 2.0]


def test_backward_and_grad() -> None:
    """AUTO-BACKWARD"""
    x, unused = leaf(2), leaf(2)
    (g,) = grad((x * 2).sum(), x)
    assert g is not None and g.tolist() == [2.0, 2.0] and x.grad is None
    with pytest.raises(flow.errors.AutogradError, match="allow_unused"):
        grad((x * 2).sum(), [x, unused])
    assert grad((x * 2).sum(), [x, unused], allow_unused=True)[1] is None


def test_gradients_accumulate() -> None:
    """AUTO-ACCUMULATE"""
    x = flow.tensor(1.0, requires_grad=True)
    for g in (1.0, 2.0**-24, 2.0**-24):
        (x * g).backward()
    assert x.grad is not None and x.grad.item() == np.float32(1.0)  # (1 + 2^-24) + 2^-24, each rounded


def test_broadcasting_is_summed_back_as_one_range() -> None:
    """AUTO-UNBROADCAST"""
    g = normal(3, 5, 4)
    b = flow.zeros(5, 1, requires_grad=True)
    (flow.zeros(3, 5, 4) + b).backward(flow.tensor(g))
    flat = g.transpose(0, 2, 1).reshape(12, 5)
    assert b.grad is not None and flow.same_bits(b.grad.numpy(), flow.numerics.tree_sum(flat, 0)[:, None])


# --- border ---------------------------------------------------------------------------------------------------------


def test_local_tensors_are_families() -> None:
    """LOCAL-FAMILY"""
    x = flow.per_rank(lambda r: [r])
    assert held(x * 2 + 1) == {r: [2 * r + 1] for r in range(4)} and x.is_local
    with pytest.raises(flow.errors.LocalGlobalError):
        _ = x.placement
    with pytest.raises(flow.errors.DtypeError):
        flow.per_rank(lambda r: r if r else 1.0)


def test_ragged_local_tensors() -> None:
    """LOCAL-RAGGED"""
    x = flow.per_rank(lambda r: np.arange(r))
    assert x.shapes == {r: (r,) for r in range(4)} and held(x.sum())[3] == 3
    with pytest.raises(flow.errors.ShapeError, match="shapes"):
        _ = x.shape


def test_parts_become_a_whole() -> None:
    """BORDER-LOCAL-TO-GLOBAL"""
    assert flow.per_rank(lambda r: np.arange(2 if r == 0 else 1) + r).to_global(ROW, S(0)).tolist() == [0, 1, 1, 2, 3]
    with pytest.raises(flow.errors.ShapeError, match="balanced"):
        flow.per_rank(lambda r: np.arange(1 if r < 3 else 2)).to_global(ROW, S(0))
    with pytest.raises(flow.errors.ReplicaError):
        flow.per_rank(lambda r: r).to_global(PAIR, B)
    assert flow.per_rank(lambda r: r).to_global(GRID, (P, PMAX)).item() == 4


def test_a_whole_becomes_parts() -> None:
    """BORDER-TO-LOCAL"""
    x = flow.arange(3, placement=PAIR, sbp=S(0)).to_local()
    assert held(x) == {0: [0, 1], 1: [2], 2: [], 3: []}


@pytest.mark.parametrize(
    ("sbp", "wanted"),
    [(B, {0: [1, 2], 1: [0, 0]}), (S(0), {0: [1, 2], 1: [3, 4]}), (P, {0: [1, 2], 1: [1, 2]})],
    ids=str,
)
def test_gradients_enter_in_the_dual_layout(sbp: Any, wanted: Any) -> None:
    """BORDER-DUAL: local to global."""
    with flow.virtual_world(2):
        x = flow.per_rank(lambda r: [1.0, 1.0]).requires_grad_()
        y = x.to_global(PAIR, sbp)
        y.backward(flow.tensor(np.arange(1.0, 1 + y.numel(), dtype=F32), placement=PAIR, sbp=B))
        assert x.grad is not None and held(x.grad) == wanted


@pytest.mark.parametrize(("sbp", "wanted"), [(B, [3.0, 3.0]), (S(0), [1.0, 2.0]), (P, None)], ids=str)
def test_gradients_leave_in_the_dual_layout(sbp: Any, wanted: Any) -> None:
    """BORDER-DUAL: global to local, with the gradient 1 + rank on each rank."""
    with flow.virtual_world(2):
        w = flow.ones(2, placement=PAIR, sbp=sbp, requires_grad=True)
        part = w.to_local()
        weights = flow.per_rank(lambda r: np.full(part.shapes[r], r + 1.0, F32))
        if wanted is None:
            with pytest.raises(flow.errors.ReplicaError):
                part.backward(weights)
        else:
            part.backward(weights)
            assert w.grad is not None and w.grad.tolist() == wanted


# --- random, worlds, kernels, errors --------------------------------------------------------------------------------


@pytest.mark.parametrize("draw", [
    lambda **at: flow.rand(3, 5, **at), lambda **at: flow.randn(3, 5, **at), lambda **at: flow.randint(-3, 9, (3, 5), **at),
    lambda **at: flow.randperm(15, **at),
])  # fmt: skip
def test_random_numbers_by_logical_index(draw: Callable[..., flow.Tensor]) -> None:
    """RNG-INDEX"""
    found = []
    for where, sbp in ((ROW, S(0)), (ROW, B), (GRID, (S(0), S(0))), (flow.placement("cpu", [3, 1]), S(0))):
        flow.manual_seed(5)
        found.append(draw(placement=where, sbp=sbp))
    assert all(same(x, found[0]) for x in found)


def test_streams_count_calls() -> None:
    """RNG-STREAM"""
    generator = flow.manual_seed(3)
    for k in range(3):
        assert flow.rand(1, placement=PAIR, sbp=B).item() == (random_bits(np.array([0]), 3, 2 * k)[0] >> 8) * 2.0**-24
        assert flow.rand(1).item() == (random_bits(np.array([0]), 3, 2 * k + 1)[0] >> 8) * 2.0**-24
    state = generator.state
    again = [flow.rand(2).tolist()]
    generator.state = state
    assert state == (3, 3, 3) and again == [flow.rand(2).tolist()]


def test_the_virtual_world() -> None:
    """WORLD-OWNED, WORLD-CALL, WORLD-VIRTUAL"""
    world = flow.world.current_world()
    assert world.owned == tuple(range(world.size)) == (0, 1, 2, 3)
    assert world.agree("x", {2: "c", 3: "d"}) == {2: "c", 3: "d"}
    with pytest.raises(flow.errors.WorldError):
        flow.virtual_world(0)
    with pytest.raises(flow.errors.PlacementError, match="ranks"):
        flow.ones(1, placement=flow.placement("cpu", [7]), sbp=B)


def test_settings_belong_to_the_context() -> None:
    """STATE-CONTEXT"""
    seen = []
    with flow.signatures("cheap"), flow.no_grad():
        thread = threading.Thread(target=lambda: seen.append(flow.is_grad_enabled()))
        thread.start()
        thread.join()
        copy_context().run(lambda: flow.signatures("exact"))
        assert flow.state.settings().signatures == "cheap" and not flow.is_grad_enabled()
    assert seen == [True] and flow.state.settings().signatures == "exact"


def test_back_ends_are_asked_by_name() -> None:
    """KER-PROTOCOL, KER-ARRAYS, KER-BITS"""
    backend = flow.state.settings().backend("cpu")
    x = normal(3, 4)
    assert flow.same_bits(backend.to_host(backend.from_host(x)), x) and backend.shape(backend.from_host(x)) == (3, 4)
    cut = backend.kernel("slice_box")(x, slices=(slice(1, 3), slice(0, 2)))
    whole = backend.kernel("assemble")(cut, shape=(3, 2), slices=[(slice(0, 2), slice(0, 2))], fill=F32.type(-0.0), dtype=F32)
    assert flow.same_bits(whole, np.concatenate([x[1:3, :2], np.full((1, 2), -0.0, F32)]))
    assert flow.same_bits(backend.kernel("fold")(x[0], x[1], x[2], kind="sum"), fold_parts(list(x), "sum"))
    for missing in (lambda: backend.kernel("no such kernel"), lambda: flow.ones(1, placement=flow.placement("tpu", [0]), sbp=B)):
        with pytest.raises(flow.errors.BackendError):
            missing()


def test_kernels_are_told_their_origin() -> None:
    """KER-ORIGIN"""
    kernel = flow.state.settings().backend("cpu").kernel("eye")
    part = kernel(dims=(4, 4), dtype=F32, at={"d0": (2, 4, 4)})
    assert flow.same_bits(part, np.eye(4, dtype=F32)[2:])


def test_errors_are_typed_and_catchable() -> None:
    """ERR-TYPES"""
    kinds = [e for e in vars(flow.errors).values() if isinstance(e, type) and issubclass(e, Exception)]
    assert all(issubclass(kind, flow.RefflowError) for kind in kinds) and len(kinds) > 15
    for kind, builtin in (("ShapeError", ValueError), ("DtypeError", TypeError), ("IndexOutOfRange", IndexError)):
        assert issubclass(getattr(flow.errors, kind), builtin)


def test_data_errors_are_agreed_on() -> None:
    """ERR-AGREED"""
    x, y = (flow.tensor(data, placement=PAIR, sbp=S(0)) for data in ([1, 2], [1, 0]))
    for f in (flow.remainder, flow.floor_divide):
        with pytest.raises(flow.errors.DataError, match="rank 1"):
            f(x, y)


def test_local_and_global_do_not_mix() -> None:
    """ERR-MIXED"""
    with pytest.raises(flow.errors.LocalGlobalError, match="local, global"):
        flow.ones(2) + flow.ones(2, placement=PAIR, sbp=B)
    assert (flow.ones(2, placement=PAIR, sbp=B) + 1).tolist() == [2.0, 2.0]


def test_placements_do_not_mix() -> None:
    """ERR-PLACEMENT"""
    with pytest.raises(flow.errors.PlacementError, match=r"\[0, 1\].*\[1, 0\]"):
        flow.ones(2, placement=PAIR, sbp=B) * flow.ones(2, placement=flow.placement("cpu", [1, 0]), sbp=B)


def test_shapes_that_do_not_fit() -> None:
    """ERR-SHAPE"""
    for f, x, y in ((flow.add, (2, 3), (2,)), (flow.matmul, (2, 3), (2, 3)), (flow.matmul, (2, 2, 2), (3, 2, 2))):
        with pytest.raises(flow.errors.ShapeError, match=r"\(2, "):
            f(flow.ones(x, placement=PAIR, sbp=S(0)), flow.ones(y, placement=PAIR, sbp=B))


def test_what_no_memory_holds() -> None:
    """ERR-SHAPE: too large for any machine, and for this one."""
    with pytest.raises(flow.errors.ShapeError, match="2\\^63"):
        flow.ones(2**31, 2**31)
    with pytest.raises(flow.errors.OutOfMemory, match="full: .* \\(on rank 0\\)") as found:
        flow.ones(2**24, 2**24)
    assert isinstance(found.value, MemoryError)


def test_explain_draws_nothing() -> None:
    """SIG-EXPLAIN: the generator stays where it is, and what is drawn is what it would draw."""
    before, seen = flow.default_generator().state, []

    def drawing() -> flow.Tensor:
        seen.append(flow.rand(4, placement=PAIR, sbp=B) * 2)
        return seen[-1]

    assert [step.name for step in flow.explain(drawing).steps] == ["mul"]
    assert flow.default_generator().state == before and same(seen[0], drawing())


def test_a_rendezvous_compares_calls() -> None:
    """WORLD-RENDEZVOUS, WORLD-SPMD"""
    seen: list[tuple[int, str]] = []

    def meet(rank: int) -> int:
        seen.append((rank, "before"))
        flow.barrier()
        seen.append((rank, "after"))
        return 10 * rank

    assert flow.spmd(3, lambda: meet(flow.get_rank())) == [0, 10, 20]
    assert [what for _, what in seen] == ["before"] * 3 + ["after"] * 3
    with pytest.raises(flow.errors.DivergenceError, match="different calls"):
        flow.spmd(2, lambda: flow.barrier() if flow.get_rank() else flow.ones(2, placement=PAIR, sbp=S(0)).numpy())
