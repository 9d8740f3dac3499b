"""What the laws found in refflow itself, as the smallest case each: OPS-*, SIG-EXACT, BOX-B2P, BOX-S2P, AUTO-LEAF."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

import refflow as flow
from refflow.errors import DtypeError, ShapeError
from refflow.ir import REGISTRY
from refflow.layout import Partial, Split, broadcast
from tests.strategies import mesh_of, whole_value

S0, P, PMAX = Split(0), Partial("sum"), Partial("max")
TWO, GRID = mesh_of((2,)), mesh_of((2, 2))


@pytest.mark.parametrize("dtype", [flow.int64, flow.uint8])
def test_negation_of_integers_under_max(dtype: np.dtype) -> None:
    """Wrapping -x does not reverse the order of integers: the other ranks' least integer stayed the least."""
    x = flow.tensor([5, 3], dtype=dtype, placement=TWO, sbp=broadcast).to_global(sbp=PMAX)
    assert flow.same_bits(flow.neg(x).numpy(), np.negative(np.array([5, 3], dtype)))


@pytest.mark.parametrize("target", [(P, PMAX), (PMAX, P)])
@pytest.mark.parametrize("source", [(broadcast, broadcast), (S0, S0), (broadcast, P), (PMAX, S0)])
def test_two_kinds_of_partial_on_one_mesh(source: tuple, target: tuple) -> None:
    """Each fold needs its own neutral element where it finds no value."""
    for dtype in (flow.float32, flow.int64):
        x = flow.tensor([-5, 3, 1, 2], dtype=dtype, placement=GRID, sbp=source)
        assert x.to_global(sbp=target).tolist() == [-5, 3, 1, 2]


def test_padding_integers_with_infinity_under_sum() -> None:
    """The filler is the greatest integer, and twice that wraps."""
    x = flow.tensor([5, 3], placement=TWO, sbp=P)
    padded = REGISTRY["pad"](x.value, low=(1,), high=(0,), value=math.inf)
    assert flow.Tensor(padded).tolist() == [2**63 - 1, 5, 3]


def test_sixteen_bit_gradients_of_a_broadcast() -> None:
    """A sum of bfloat16 is made in float32 and rounded once: partials would each be rounded."""
    rng = np.random.default_rng(0)
    data, weight = rng.standard_normal((2, 64, 3)).astype(ml_dtypes.bfloat16)
    grads = []
    for placement, sbp in ((TWO, S0), (mesh_of((1,)), broadcast)):
        x = flow.tensor(data, placement=placement, sbp=sbp)
        b = flow.zeros(3, dtype=flow.bfloat16, placement=placement, sbp=broadcast).requires_grad_()
        (x + b).backward(flow.tensor(weight, placement=placement, sbp=sbp))
        grads.append(b.grad.numpy())
    assert flow.same_bits(*grads)


def test_the_product_of_one_number_has_a_gradient() -> None:
    x = flow.tensor(2.0, requires_grad=True)
    flow.prod(x).backward()
    assert x.grad.item() == 1.0


@pytest.mark.parametrize("number", [np.float64, np.float32, float])
def test_a_constant_keeps_the_sign_of_its_zero(number: type) -> None:
    """Cached lowerings tell 0.0 from -0.0, NumPy's scalars included."""
    signs = [np.signbit(flow.full((2,), number(zero), dtype=flow.float32).numpy()).all() for zero in (0.0, -0.0)]
    assert signs == [False, True]


def test_logic_is_for_bools() -> None:
    """max(-1, 0) is false though -1 is true: order and truth agree for bools only, so primitives take no others."""
    x = flow.tensor([-1.0, 0.0], placement=TWO, sbp=PMAX)
    assert flow.logical_not(x).tolist() == [False, True]
    with pytest.raises(DtypeError, match="needs bool"):
        REGISTRY["logical_not"](x.value)


def test_relu_of_bools_is_refused() -> None:
    with pytest.raises(DtypeError):
        flow.relu(flow.tensor([True, False]))


def test_slices_of_split_bools() -> None:
    """Bools have no P(sum): the split one goes through P(max)."""
    x = flow.tensor([True, False, True], placement=TWO, sbp=S0)
    assert x[1:].tolist() == [False, True]


@pytest.mark.parametrize("mesh", [(1,), (2,)])
@pytest.mark.parametrize("shape", [(0,), (3,)])
def test_a_leaf_used_twice_has_its_gradient_in_its_own_layout(mesh: tuple, shape: tuple) -> None:
    """Where nothing costs a byte, add may choose B."""
    x = flow.zeros(shape, placement=mesh_of(mesh), sbp=S0).requires_grad_()
    for _ in range(2):
        (x * x + x).sum().backward()
        assert x.grad.sbp == x.sbp


def test_narrowing_integers_carries_sums() -> None:
    """Wrapping is a homomorphism: P(sum) of int64 may stay partial through a cast to int32."""
    x = flow.tensor([2**33 + 5, -7], placement=TWO, sbp=broadcast).to_global(sbp=P)
    y = flow.cast(x, flow.int32)
    assert (y.sbp, y.tolist()) == ((P,), [5, -7])


def test_groups_without_channels_are_refused_by_the_gradients_too() -> None:
    """conv2d refuses a weight from which the groups cannot be told; its gradients took one, and failed in their own."""
    plain = {"stride": (1, 1), "padding": (0, 0), "dilation": (1, 1), "groups": 2}
    image, none, weight = (
        whole_value(np.zeros(shape, np.float32)) for shape in ((0, 2, 1, 1), (0, 0, 1, 1), (0, 1, 1, 1))
    )
    for name, x, y in (("conv2d_filter", image, none), ("conv2d_filter", none, image), ("conv2d_input", none, weight)):
        with pytest.raises(ShapeError, match=f"{name}: 2 groups need at least one channel each"):
            REGISTRY[name](x, y, size=(1, 1), **plain)
