"""What once ended in an error of Python's or NumPy's own, or in silence, is refused in words.

Checks ERR-TYPES, ERR-SHAPE, NUM-PROMOTE, WORLD-OWNED and TENSOR-CELL.
"""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable
from typing import Any

import pytest

import refflow as flow
from refflow import nn
from refflow.errors import (
    AttributeValueError,
    AutogradError,
    DataError,
    DtypeError,
    PlacementError,
    ShapeError,
    WorldError,
)
from refflow.layout import Placement, Split, broadcast

HUGE = 2**62


@pytest.fixture(autouse=True)
def world() -> Any:
    with flow.virtual_world(2):
        yield


def floats() -> flow.Tensor:
    return flow.zeros(4, 6, placement=flow.placement("cpu", [0, 1]), sbp=Split(0))


def ints() -> flow.Tensor:
    return flow.arange(4, placement=flow.placement("cpu", [0, 1]), sbp=Split(0))


REFUSED: list[tuple[type[Exception], Callable[[], Any]]] = [
    (ShapeError, lambda: floats().expand(HUGE, 4, 6)),
    (ShapeError, lambda: flow.zeros(HUGE, HUGE)),
    (ShapeError, lambda: flow.zeros(2**70)),
    (ShapeError, lambda: flow.arange(HUGE)),
    (ShapeError, lambda: flow.one_hot(ints(), HUGE)),
    (ShapeError, lambda: flow.pad(floats(), [0, HUGE])),
    (ShapeError, lambda: floats().repeat(HUGE, HUGE)),
    (DataError, lambda: ints() + 2**63),
    (DataError, lambda: flow.full((2,), 2**63)),
    (DataError, lambda: ints().fill_(10**5000)),
    (DataError, lambda: flow.arange(2**63, 2**63 + 2)),
    (DataError, lambda: flow.pad(ints(), [1, 1], value=-(2**63) - 1)),
    (DtypeError, lambda: flow.masked_fill(floats(), floats() == 0, "a")),
    (DtypeError, lambda: floats().sum(dtype="junk")),
    (DtypeError, lambda: flow.cat(floats())),
    (DtypeError, lambda: flow.stack(3)),
    (AttributeValueError, lambda: floats().expand(2.0, 4, 6)),
    (AttributeValueError, lambda: floats().expand("ab")),
    (AttributeValueError, lambda: floats().tril(0.5)),
    (AttributeValueError, lambda: floats()[::0]),
    (AttributeValueError, lambda: floats()["a":]),
    (AttributeValueError, lambda: flow.linspace(0, 1, 1.5)),
    (AutogradError, lambda: pickle.dumps(floats().requires_grad_() * 2)),
]


@pytest.mark.parametrize(("error", "call"), REFUSED)
def test_what_does_not_work_is_refused_in_words(error: type[Exception], call: Callable[[], Any]) -> None:
    """ERR-TYPES: each of these raised a raw TypeError, ValueError or OverflowError, or returned something else."""
    with pytest.raises(error):
        call()


@pytest.mark.parametrize("name", ["sum", "cumsum", "gather", "reshape", "tril", "split", "clone", "zeros_like", "masked_fill"])
def test_what_is_no_tensor_is_refused_in_words(name: str) -> None:
    """ERR-TYPES: a list led to an AttributeError about lists."""
    with pytest.raises(DtypeError, match=f"{name}: needs a tensor, found list"):
        getattr(flow, name)([1.0, 2.0], *{"gather": (0, ints()), "masked_fill": (ints() == 0, 0)}.get(name, (0,)))
    with pytest.raises(DtypeError, match="scaled_dot_product_attention: needs a tensor, found list"):
        flow.nn.functional.scaled_dot_product_attention(floats(), floats(), floats(), attn_mask=[1.0])


def test_ints_beyond_int64_round_once() -> None:
    """NUM-PROMOTE: not to float64 first, where the last bit that tells a tie is lost; too large is infinite."""
    assert (flow.zeros(()) + (2**70 + 2**46 + 1)).item() == 2.0**70 + 2.0**47
    assert flow.tensor([-(2**70) - 2**46 - 1], dtype=flow.float32).item() == -(2.0**70) - 2.0**47
    assert (flow.zeros(()) + 2**2000).item() == float("inf")


def test_padding_keeps_every_bit_of_an_int() -> None:
    """NUM-PROMOTE: the value went through a float."""
    assert flow.pad(ints(), [1, 0], value=2**60 + 1)[0].item() == 2**60 + 1


def test_cat_takes_any_iterable() -> None:
    """OPS-MOVEMENT"""
    assert flow.cat(ints() for _ in range(2)).tolist() == [0, 1, 2, 3, 0, 1, 2, 3]
    assert flow.stack(ints() for _ in range(2)).shape == (2, 4)


# --- tensors of another world ---------------------------------------------------------------------------------------


def in_a_thread(call: Callable[[], Any]) -> Any:
    """The result of `call` in a thread of its own, or its error."""
    found: list[Any] = []

    def run() -> None:
        try:
            found.append(call())
        except Exception as error:
            found.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(60)
    return found[0]


USES: list[Callable[[flow.Tensor], Any]] = [
    lambda x: x + 1,
    lambda x: x.sum().item(),
    lambda x: x.numpy(),
    lambda x: repr(x),
    lambda x: x.to_local(),
    lambda x: x.to_global(flow.placement("cpu", [0]), broadcast),
]


@pytest.mark.parametrize("use", USES)
def test_a_tensor_of_a_larger_world_is_refused(use: Callable[[flow.Tensor], Any]) -> None:
    """WORLD-OWNED: a part of the ranks was computed for, or a KeyError was raised."""
    x = floats()
    assert isinstance(in_a_thread(lambda: use(x)), PlacementError)
    with flow.virtual_world(1), pytest.raises(PlacementError, match="made in another world"):
        use(x)


@pytest.mark.parametrize("use", [USES[0], lambda x: x.to_global(flow.placement("cpu", [0, 2]), Split(0))])
def test_a_local_tensor_of_a_smaller_world_is_refused(use: Callable[[flow.Tensor], Any]) -> None:
    """WORLD-OWNED: the result lacked the other ranks."""
    x = flow.ones(2)
    with flow.virtual_world(3), pytest.raises(WorldError, match=r"no part for ranks \[2\]"):
        use(x)


def test_a_part_brought_out_of_spmd_is_refused() -> None:
    """WORLD-OWNED: one rank's shards are not the tensor."""
    (x, _) = flow.spmd(2, lambda: flow.ones(4, placement=Placement("cpu", [0, 1]), sbp=Split(0)))
    with pytest.raises(WorldError, match=r"no part for ranks \[1\]"):
        x.numpy()


# --- settings, views, pickles ---------------------------------------------------------------------------------------


def test_settings_objects_can_be_used_again() -> None:
    """STATE-CONTEXT: a second `with` block of one object did nothing, one log opened twice stayed open."""
    before = flow.state.settings()
    cheap = flow.signatures("cheap")
    with cheap:
        pass
    with cheap, cheap:
        assert flow.state.settings().signatures == "cheap"
    log = flow.comm_log()
    with log, log:
        floats().to_global(sbp=broadcast)
    assert len(log) == 1 and flow.state.settings() == before


def test_a_long_chain_of_views_reads_and_writes_through() -> None:
    """TENSOR-VIEW: three thousand views deep there was no stack left."""
    base = flow.zeros(2)
    view = base
    for _ in range(3000):
        view = view[:]
    view.add_(1)
    base.add_(1)
    assert base.tolist() == view.tolist() == [2.0, 2.0]


def test_leaves_modules_and_optimizers_can_be_pickled() -> None:
    """TENSOR-CELL: a parameter could not be; what comes back is as good as a copy."""
    model = nn.Linear(6, 2)
    model.to_global(flow.placement("cpu", [0, 1]), Split(0))
    optimizer = flow.optim.Adam(model.parameters(), lr=0.1)
    model(floats() + 1).sum().backward()
    optimizer.step()
    again, after = pickle.loads(pickle.dumps((model, optimizer)))
    assert again.weight.sbp == model.weight.sbp and isinstance(again.weight, nn.Parameter)
    for net, steps in ((model, optimizer), (again, after)):
        net(floats() + 1).sum().backward()
        steps.step()
    assert flow.same_bits(again.weight.detach().numpy(), model.weight.detach().numpy())
    view = pickle.loads(pickle.dumps(floats()[1:3].T))
    assert view.shape == (6, 2)


def test_a_placement_is_pickled_without_its_hash() -> None:
    """LAY-PLACEMENT: the hash of a string differs from process to process, so it must be made again."""
    mesh = flow.placement("cpu", [[1, 0]])
    assert pickle.loads(pickle.dumps(mesh)) == mesh
    assert b"_hash" not in pickle.dumps(mesh) + pickle.dumps(floats().value.meta)
