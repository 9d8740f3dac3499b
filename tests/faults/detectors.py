"""Small laws on fixed data: each passes, and fails when the fault it is paired with is planted (tests/faults)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import refflow as flow
from refflow import Tensor
from refflow.ir import REGISTRY
from refflow.layout import Split, broadcast, partial_sum, shards
from refflow.numerics import fma32, same_bits
from refflow.ops.border import to_global
from refflow.tensor.backward import grad
from tests.laws.sharded import case, difference
from tests.strategies import (
    ONE,
    Array,
    arbitrary,
    cut,
    exact,
    given_array,
    global_from,
    logical,
    mesh_of,
    special_values,
    whole_value,
)

Detector = Callable[[], None]
S0, B, P = Split(0), broadcast, partial_sum


def exact_marks(name: str, *meshes: tuple[int, ...], dtype: str = "float32") -> Detector:
    """Signatures of the primitive that are marked exact keep the bits of its samples (SIG-EXACT)."""

    def detect() -> None:
        rng = np.random.default_rng(17)
        for sample in REGISTRY[name].samples:
            for mesh in meshes:
                made = case(REGISTRY[name], sample, dtype, mesh_of(mesh))
                for signature in (s for s in made.signatures if s.exact):
                    for kind in ("exact", "arbitrary") * 15:
                        assert not (wrong := difference(made, signature, rng, kind)), wrong

    return detect


def gives(name: str, *arrays: Any, expected: Any, **attrs: Any) -> Detector:
    """A primitive on one rank gives these bits."""

    def detect() -> None:
        found = logical(REGISTRY[name](*map(whole_value, arrays), **attrs))
        assert same_bits(found, np.asarray(expected)), f"{name}: {found!r}, not {expected!r}"

    return detect


def boxes_are_the_plain_cut() -> None:
    """LAY-BALANCED, LAY-ND-SPLIT."""
    for shape, mesh, sbp in [((5,), (4,), (S0,)), ((7,), (2, 3), (S0, S0)), ((7, 5), (2, 2), (Split(1), S0))]:
        array = np.arange(np.prod(shape)).reshape(shape)
        placement = mesh_of(mesh)
        for rank, box in shards.boxes(shape, placement, sbp).items():
            part = array
            for size, position, one in zip(mesh, placement.coords(rank), sbp):
                part = cut(part, one.axis, size, position)
            held = array[tuple(slice(lo, hi) for lo, hi in box)]
            assert same_bits(held, part), f"{sbp} of {shape}: {held}, not {part}"


def rank_order_is_honoured() -> None:
    """LAY-MESH-ORDER."""
    x = flow.tensor(np.arange(4.0), placement=flow.placement("cpu", [3, 0]), sbp=S0)
    assert list(x.local_arrays()[3]) == [0.0, 1.0]


def by_way_of(sbp: tuple[Any, ...], mesh: tuple[int, ...]) -> Detector:
    """B -> `sbp` -> B keeps every bit (BOX-B2P)."""

    def detect() -> None:
        placement, whole = mesh_of(mesh), (B,) * len(mesh)
        for array in (special_values(np.float32), np.float32([-5, 3, -0.0]), np.array([-5, 3])):
            value, _ = global_from(given_array(array), array.shape, placement, whole)
            there = to_global(value, placement=placement, sbp=sbp)
            back = to_global(there, placement=placement, sbp=whole)
            assert same_bits(logical(back), array), f"{logical(back)}, not {array}"

    return detect


def folds(numbers: list[float], mesh: tuple[int, ...], expected: float) -> Detector:
    """One number per rank, P on every axis, folds to this (BOX-FOLD-ORDER)."""

    def detect() -> None:
        local = flow.per_rank(lambda rank: np.float32([numbers[rank] if rank < len(numbers) else 0.0]))
        found = local.to_global(mesh_of(mesh), (P,) * len(mesh)).numpy()[0]
        assert found == expected, f"{found}, not {expected}"

    return detect


def default_policy_keeps_bits() -> None:
    """P + P under signatures("exact") is reduced first (SIG-POLICY)."""
    rng = np.random.default_rng(3)
    pairs = [
        global_from(lambda shape: arbitrary(rng, shape, np.float32, 0.0), (40,), mesh_of((4,)), (P,)) for _ in "xy"
    ]
    (x, a), (y, b) = pairs
    assert same_bits(logical(REGISTRY["add"](x, y)), a + b)


def explicit_boxing_refuses() -> None:
    """SIG-EXPLICIT."""
    value, _ = global_from(lambda shape: np.ones(shape, np.float32), (4,), mesh_of((2,)), (P,))
    with flow.boxing("explicit"):
        try:
            REGISTRY["exp"](value)
        except flow.errors.BoxingError:
            return
    raise AssertionError("a P operand was reduced without a word")


def unequal_replicas_are_refused() -> None:
    """LAY-REPLICA."""
    local = flow.per_rank(lambda rank: np.float32([rank]))
    try:
        local.to_global(mesh_of((2,)), B)
    except flow.errors.ReplicaError:
        return
    raise AssertionError("ranks 0 and 1 differ, and nothing was said")


def write_through_a_slice() -> None:
    """TENSOR-VIEW: x[0] = 1 reaches x."""
    x = flow.zeros(8, placement=mesh_of((4,)), sbp=S0)
    x[0] = 1
    assert list(x.numpy()) == [1.0] + [0.0] * 7


def mean_is_logical() -> None:
    """OPS-MEAN: the divisor is the logical count."""
    x = flow.tensor(np.float32([1, 2, 3, 4, 5, 6]), placement=mesh_of((2,)), sbp=S0)
    assert flow.mean(x).item() == 3.5


def fma_chain_of(n: int) -> Detector:
    """A matmul over n <= 16 terms is one ascending chain of fused multiply-adds (NUM-CONTRACT)."""

    def detect() -> None:
        rng = np.random.default_rng(5)
        x, y = (rng.standard_normal(shape).astype(np.float32) for shape in ((8, n), (n, 8)))
        total = np.full((8, 8), np.float32(-0.0))
        for i in range(n):
            total = fma32(x[:, i : i + 1], y[i : i + 1], total)
        found = logical(REGISTRY["matmul"](whole_value(x), whole_value(y)))
        assert same_bits(found, total), f"{found}, not {total}"

    return detect


def gradients(function: Callable[..., Tensor], leaves: list[Array], sbps: list[Any], mesh: tuple[int, ...]) -> None:
    """The gradients of the sum of a function, under these layouts, have the bits of one rank, and the leaves' sbp."""
    found = _gradients(function, leaves, mesh_of(mesh), sbps)
    expected = _gradients(function, leaves, ONE, [(B,)] * len(leaves))
    for g, whole_g, sbp in zip(found, expected, sbps):
        assert g.sbp == tuple(sbp), f"a gradient in {g.sbp}, the leaf in {sbp}"
        assert same_bits(logical(g.value), logical(whole_g.value)), f"{logical(g.value)}, not {logical(whole_g.value)}"


def _gradients(function: Callable[..., Tensor], leaves: list[Array], placement: Any, sbps: list[Any]) -> list[Tensor]:
    made = [
        Tensor(global_from(given_array(leaf), leaf.shape, placement, tuple(sbp))[0]).requires_grad_()
        for leaf, sbp in zip(leaves, sbps)
    ]
    return [g for g in grad(function(*made).sum(), made) if g is not None]


def uses_are_reduced_before_they_are_added() -> None:
    """AUTO-ORDER: w is used twice, its gradient is P(sum) each time."""
    rng = np.random.default_rng(7)
    leaves = [arbitrary(rng, shape, np.float32, 0.0) for shape in ((256, 3), (256, 3), (3, 2))]
    gradients(lambda x, y, w: flow.matmul(x, w) + flow.matmul(y, w), leaves, [(S0,), (S0,), (B,)], (4,))


def later_uses_are_added_first() -> None:
    """AUTO-ORDER: reverse program order, (-1e8 + 1e8) + 1."""
    x = flow.tensor(np.float32([2.0]), requires_grad=True)
    (x * 1.0 + x * 1e8 + x * -1e8).sum().backward()
    assert x.grad is not None
    assert x.grad.item() == 1.0


def broadcasting_is_undone_by_one_flat_sum() -> None:
    """AUTO-UNBROADCAST: the gradient of a 0-d operand is the tree over the flat range of all that it met."""
    rng = np.random.default_rng(9)
    weight = arbitrary(rng, (7, 5), np.float32, 0.0)
    b = flow.tensor(np.float32(0.5), requires_grad=True)
    (b + flow.zeros(7, 5)).backward(flow.tensor(weight))
    assert b.grad is not None
    assert same_bits(b.grad.numpy(), flow.numerics.tree_sum(weight.reshape(-1), 0))


def a_shared_factor_has_one_tree() -> None:
    """OPS-CONTRACTION: the gradient of a matmul's operand without batch is contracted over (batch, m), one flat range."""
    rng = np.random.default_rng(13)
    x, g = arbitrary(rng, (5, 7, 3), np.float32, 0.0), arbitrary(rng, (5, 7, 2), np.float32, 0.0)
    w = flow.tensor(np.ones((3, 2), np.float32), requires_grad=True)
    flow.matmul(flow.tensor(x), w).backward(flow.tensor(g))
    flat = REGISTRY["matmul"](whole_value(x.reshape(35, 3).T), whole_value(g.reshape(35, 2)))
    assert w.grad is not None
    assert same_bits(w.grad.numpy(), logical(flat))


def zeros_keep_their_sign_in_a_split_table() -> None:
    """OPS-INDEXING: rows that another rank holds read -0.0, which is neutral."""
    table, _ = global_from(special_values_of, (11,), mesh_of((2,)), (S0,))
    index, places = global_from(lambda shape: np.arange(11)[::-1], (11,), mesh_of((2,)), (B,))
    assert same_bits(logical(REGISTRY["gather"](table, index, dim=0)), special_values_of((11,))[places])


def special_values_of(shape: tuple[int, ...]) -> Array:
    return special_values(np.float32)[: shape[0]]


def draws_differ() -> None:
    """RNG-STREAM: the second call of the generator draws other numbers."""
    flow.manual_seed(1)
    assert not same_bits(flow.rand(8).numpy(), flow.rand(8).numpy())


def leaf_gradients_have_the_leaf_layout() -> None:
    """AUTO-LEAF."""
    rng = np.random.default_rng(15)
    gradients(
        lambda x, w: flow.matmul(x, w), [exact(rng, s, np.float32) for s in ((8, 4), (4, 2))], [(S0,), (B,)], (2,)
    )


def scattered(numbers: list[float]) -> Detector:
    """index_add of these numbers to one place is a tree over their positions: 0, not 1 (NUM-SCATTER)."""
    index, source = np.zeros(len(numbers), np.int64), np.float32(numbers)
    return gives("index_add", index, source, expected=np.float32([0.0]), dim=0, size=1)
