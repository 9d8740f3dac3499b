"""Bad input: the right class of error, a message that says what was asked, what was found and what would work; and a
failed call changes nothing.

Checks ERR-TYPES, ERR-MIXED, ERR-PLACEMENT, ERR-SHAPE, ERR-UNCHANGED, SIG-EXPLICIT and IDX-RANGE.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import refflow as flow
from refflow.autograd import grad
from refflow.errors import (
    AttributeValueError,
    AutogradError,
    BackendError,
    BoxingError,
    DataError,
    DtypeError,
    IndexOutOfRange,
    LocalGlobalError,
    PlacementError,
    ReplicaError,
    SbpError,
    ShapeError,
    WorldError,
)
from refflow.state import settings
from tests.tensor.layouts import LINE2, LINE4, MESH, B, P, S, laid, numbers


@dataclass(frozen=True)
class Operands:
    """What the calls are given; none of it may change."""

    x: flow.Tensor  # (5, 6) S(0)
    y: flow.Tensor  # (3, 4) B
    v: flow.Tensor  # (6,) P
    k: flow.Tensor  # int64 (3,) B
    q: flow.Tensor  # bool (5, 6) S(0)
    e: flow.Tensor  # (0, 3) S(0)
    w: flow.Tensor  # (6,) B, a leaf
    other: flow.Tensor  # (5, 6) on another placement
    local: flow.Tensor  # (5, 6) local


def operands() -> Operands:
    return Operands(
        laid(numbers(5, 6), LINE4, S(0)),
        laid(numbers(3, 4), LINE4, B),
        laid(numbers(6), LINE4, P),
        laid([0, 2, 4], LINE4, B),
        laid(numbers(5, 6) > 7, LINE4, S(0)),
        laid(np.zeros((0, 3), np.float32), LINE4, S(0)),
        laid(numbers(6), LINE4, B, grad=True),
        laid(numbers(5, 6), LINE2, S(0)),
        flow.tensor(numbers(5, 6)),
    )


def state_of(o: Operands) -> Any:
    """Everything a failed call could have changed."""
    tensors = [getattr(o, name) for name in o.__dataclass_fields__]
    held = [(t.detach().numpy().tobytes(), t.version, t.grad, t.requires_grad, t.dtype) for t in tensors]
    layouts = [(t.placement, t.sbp) for t in tensors if t.is_global]
    return held, layouts, settings(), flow.default_generator().state


Call = Callable[[Operands], Any]
Case = tuple[Call, type[Exception], str]
AT = {"placement": LINE4, "sbp": B}

AXES: dict[str, Case] = {
    "sum": (lambda o: o.x.sum(2), AttributeValueError, r"sum: dim must be in \[-2, 2\), found 2"),
    "sum below": (lambda o: o.x.sum((0, -3)), AttributeValueError, r"\[-2, 2\), found -3"),
    "sum twice": (lambda o: o.x.sum((0, -2)), AttributeValueError, r"sum: a dimension may appear once, found \(0, -2\)"),
    "mean float": (lambda o: o.x.mean(0.5), AttributeValueError, "mean: dim .* found 0.5"),
    "amax": (lambda o: o.x.amax(9), AttributeValueError, "amax: .* found 9"),
    "max": (lambda o: o.x.max(2), AttributeValueError, "max: .* found 2"),
    "argmax": (lambda o: o.x.argmax(-3), AttributeValueError, "argmax: .* found -3"),
    "cumsum": (lambda o: o.x.cumsum(2), AttributeValueError, "cumsum: .* found 2"),
    "cumsum 0-d": (lambda o: o.v.sum().cumsum(0), AttributeValueError, r"cumsum: .*\[0, 0\)"),
    "sort": (lambda o: o.x.sort(4), AttributeValueError, "sort: .* found 4"),
    "topk dim": (lambda o: o.x.topk(1, 4), AttributeValueError, "topk: .* found 4"),
    "transpose": (lambda o: o.x.transpose(0, 2), AttributeValueError, "transpose: .* found 2"),
    "permute": (lambda o: o.x.permute(0, 0), AttributeValueError, "permute: needs each of the 2 dimensions once"),
    "unsqueeze": (lambda o: o.x.unsqueeze(4), AttributeValueError, r"unsqueeze: .*\[-3, 3\), found 4"),
    "squeeze": (lambda o: o.x.squeeze(2), AttributeValueError, "squeeze: .* found 2"),
    "flatten": (lambda o: o.x.flatten(1, 0), AttributeValueError, "start_dim 1 lies after end_dim 0"),
    "cat": (lambda o: flow.cat([o.x, o.x], 2), AttributeValueError, "cat: .* found 2"),
    "stack": (lambda o: flow.stack([o.x, o.x], 4), AttributeValueError, "stack: .* found 4"),
    "flip": (lambda o: o.x.flip(2), AttributeValueError, "flip: .* found 2"),
    "flip twice": (lambda o: o.x.flip(0, 0), AttributeValueError, r"flip: dims must be distinct.*\(0, 0\)"),
    "gather": (lambda o: o.x.gather(2, o.k), AttributeValueError, "gather: .* found 2"),
    "size": (lambda o: o.x.size(2), AttributeValueError, r"size: .*\[-2, 2\), found 2"),
}

VALUES: dict[str, Case] = {
    "narrow": (lambda o: o.x.narrow(0, 3, 4), AttributeValueError, "narrow: start 3, length 4 .* dim 0 of size 5"),
    "narrow float": (lambda o: o.x.narrow(0, 0.5, 1), AttributeValueError, "start must be an int, found 0.5"),
    "split": (lambda o: o.x.split(0), AttributeValueError, "split: the size must be >= 1, found 0"),
    "split float": (lambda o: o.x.split(1.5), AttributeValueError, "found 1.5"),
    "chunk": (lambda o: o.x.chunk(0), AttributeValueError, "chunk: needs chunks >= 1, found 0"),
    "topk": (lambda o: o.x.topk(7), AttributeValueError, r"topk: k must be in \[0, 6\], found 7"),
    "topk float": (lambda o: o.x.topk(1.5), AttributeValueError, "k must be an int, found 1.5"),
    "pad odd": (lambda o: flow.pad(o.x, (1,)), AttributeValueError, r"pad: needs an even number.*at most 4.*\(1,\)"),
    "pad negative": (lambda o: flow.pad(o.x, (-1, 0)), AttributeValueError, "pad: needs .* >= 0"),
    "pad mode": (lambda o: flow.pad(o.x, (1, 0), "reflect"), AttributeValueError, "'constant'.*'reflect'"),
    "roll": (lambda o: o.x.roll((1, 2), (0,)), AttributeValueError, "roll: needs a shift for each dim"),
    "norm": (lambda o: o.x.norm(3), AttributeValueError, "norm: p must be 1, 2 or inf, found 3"),
    "one_hot": (lambda o: flow.one_hot(o.k, 0), AttributeValueError, "num_classes must be >= 1, found 0"),
    "arange step": (lambda o: flow.arange(0, 3, 0), AttributeValueError, "step not 0"),
    "arange inf": (lambda o: flow.arange(0, math.inf), AttributeValueError, "finite.*inf"),
    "zeros": (lambda o: flow.zeros(-1, 2), AttributeValueError, r"sizes must be ints >= 0, found \(-1, 2\)"),
    "full float": (lambda o: flow.full(2.5, 1.0), AttributeValueError, "2.5"),
    "eye": (lambda o: flow.eye(-1), AttributeValueError, "eye: .*-1"),
    "linspace": (lambda o: flow.linspace(0, 1, -1), AttributeValueError, "linspace: .*-1"),
    "randperm": (lambda o: flow.randperm(-1, **AT), AttributeValueError, "randperm: .*-1"),
    "randint empty": (lambda o: flow.randint(3, 3, (2,), **AT), AttributeValueError, r"low < high.*\[3, 3\)"),
    "randint wide": (lambda o: flow.randint(0, 2**33, (2,), **AT), AttributeValueError, r"2\*\*32"),
    "randint float": (lambda o: flow.randint(0.5, 3, (2,), **AT), AttributeValueError, "low must be an int, found 0.5"),
    "rand sizes": (lambda o: flow.rand(2.5, **AT), AttributeValueError, "rand: .*2.5"),
    "seed": (lambda o: flow.manual_seed(-1), AttributeValueError, r"\[0, 2\*\*64\), found -1"),
    "signatures": (lambda o: flow.signatures("fast"), AttributeValueError, "'exact' or 'cheap', found 'fast'"),
    "boxing": (lambda o: flow.boxing("none"), AttributeValueError, "'implicit' or 'explicit', found 'none'"),
    "world": (lambda o: flow.virtual_world(0), WorldError, "int >= 1, found 0"),
}

SHAPES: dict[str, Case] = {
    "add": (lambda o: o.x + o.y, ShapeError, r"add: shapes \(5, 6\), \(3, 4\) do not broadcast"),
    "matmul": (lambda o: o.x @ o.y, ShapeError, r"matmul: shapes \(5, 6\), \(3, 4\) .*size 3 where k=6"),
    "matmul 0-d": (lambda o: o.v.sum() @ o.v, ShapeError, "at least 1 dimension"),
    "dot": (lambda o: o.x.dot(o.v), ShapeError, r"two vectors.*\(5, 6\)"),
    "reshape": (lambda o: o.x.reshape(4, 8), ShapeError, r"\(5, 6\) has 30 elements, \(4, 8\) has 32"),
    "reshape -1": (lambda o: o.x.reshape(-1, 7), ShapeError, r"\(5, 6\) does not divide into \(-1, 7\)"),
    "reshape -1 -1": (lambda o: o.x.reshape(-1, -1), ShapeError, "at most one -1"),
    "expand": (lambda o: o.x.expand(4, 6), ShapeError, r"\(5, 6\) does not broadcast to \(4, 6\)"),
    "expand few": (lambda o: o.x.expand(6), ShapeError, "more dimensions"),
    "expand new -1": (lambda o: o.x.expand(-1, 5, 6), ShapeError, "-1 for a dimension"),
    "repeat": (lambda o: o.x.repeat(2), ShapeError, "at least 2 counts"),
    "cat": (lambda o: flow.cat([o.x, o.y]), ShapeError, r"agree outside dim 0.*\(5, 6\) and \(3, 4\).*tensor 1"),
    "cat none": (lambda o: flow.cat([]), ShapeError, "at least one tensor"),
    "stack": (lambda o: flow.stack([o.x, o.y]), ShapeError, r"one shape, found \(5, 6\), \(3, 4\)"),
    "split sizes": (lambda o: o.x.split([2, 2]), ShapeError, r"\(2, 2\) do not add up to 5"),
    "where": (lambda o: flow.where(o.q, o.y, 0.0), ShapeError, "broadcast"),
    "gather": (lambda o: o.x.gather(0, o.k.reshape(1, 3)), ShapeError, r"\(5, 6\) and index \(1, 3\) must agree outside"),
    "scatter_add": (lambda o: o.x.scatter_add(0, o.k.reshape(1, 3), o.y), ShapeError, "must have one shape"),
    "index_select": (lambda o: o.x.index_select(0, o.k.reshape(1, 3)), ShapeError, "at most 1 dimension"),
    "t": (lambda o: o.x.unsqueeze(0).t(), ShapeError, "at most 2"),
    "tril": (lambda o: o.v.tril(), ShapeError, "at least 2"),
    "in place": (lambda o: o.v.add_(o.x), ShapeError, r"in-place: .*\(5, 6\).*\(6,\)"),
    "copy_": (lambda o: o.x.copy_(o.y), ShapeError, r"\(3, 4\)"),
    "assign": (lambda o: o.x.__setitem__(0, o.y), ShapeError, r"\(3, 4\)"),
    "item": (lambda o: o.x.item(), ShapeError, r"one element, found shape \(5, 6\)"),
    "bool": (lambda o: bool(o.x), ShapeError, "truth value"),
    "nested lists": (lambda o: flow.tensor([[1], [2, 3]]), ShapeError, "rectangular"),
    "amax of nothing": (lambda o: o.e.amax(0), ShapeError, r"amax: a dimension of size 0 .*\(0, 3\)"),
    "amin of nothing": (lambda o: o.e.amin(), ShapeError, "amin"),
    "max of nothing": (lambda o: o.e.max(0), ShapeError, "argmax"),
    "argmax of nothing": (lambda o: o.e.argmax(), ShapeError, "argmax"),
    "backward": (lambda o: (o.w * 2).backward(o.x), ShapeError, r"gradient has shape \(5, 6\), the tensor \(6,\)"),
}

DTYPES: dict[str, Case] = {
    "mean": (lambda o: o.k.mean(), DtypeError, "mean: needs a floating .* found int64"),
    "where": (lambda o: flow.where(o.x, o.x, o.x), DtypeError, "condition must be bool, found float32"),
    "mask": (lambda o: o.x.masked_fill(o.x, 0.0), DtypeError, "bool, found float32"),
    "index": (lambda o: o.x.index_select(0, o.v), DtypeError, "index must be an integer tensor, found float32"),
    "one_hot": (lambda o: flow.one_hot(o.v, 3), DtypeError, "needs integers, found float32"),
    "neg bool": (lambda o: -o.q, DtypeError, "bool"),
    "sub bool": (lambda o: o.q - o.q, DtypeError, "bool"),
    "matmul bool": (lambda o: o.q @ o.q.T, DtypeError, "not for bool"),
    "bits": (lambda o: o.k & o.k, DtypeError, r"&: is for bool tensors, found int64"),
    "not": (lambda o: ~o.x, DtypeError, "~: is for bool tensors, found float32"),
    "array operand": (lambda o: o.x + np.ones(6), DtypeError, r"found ndarray; flow\.tensor"),
    "list operand": (lambda o: flow.maximum(o.x, [1]), DtypeError, "found list"),
    "not a tensor": (lambda o: flow.exp(1.0), DtypeError, r"exp: needs a tensor, found float; flow\.tensor"),
    "cat of lists": (lambda o: flow.cat([[1], [2]]), DtypeError, "cat: needs a tensor, found list"),
    "cast": (lambda o: o.x.cast(np.int16), DtypeError, "int16"),
    "cast to nonsense": (lambda o: o.x.cast("bogus"), DtypeError, "cast: dtype must be one of .*bogus"),
    "complex data": (lambda o: flow.tensor(1j), DtypeError, "complex128"),
    "dtype": (lambda o: flow.zeros(2, dtype="bogus"), DtypeError, "bogus"),
    "random ints": (lambda o: flow.rand(2, dtype=flow.int32, **AT), DtypeError, "floating point dtype, found int32"),
    "bernoulli": (lambda o: flow.bernoulli(o.k), DtypeError, "floats, found int64"),
    "assign": (lambda o: o.x.__setitem__(0, [1, 2]), DtypeError, "found list"),
    "fill": (lambda o: flow.full((2,), "a"), DtypeError, "found str"),
    "seed dtype": (lambda o: (o.w * 2).backward(o.w.detach().double()), DtypeError, "float64, the tensor float32"),
    "per_rank": (lambda o: flow.per_rank(lambda rank: rank if rank else 0.5), DtypeError, "float32, int64"),
}

LAYOUTS: dict[str, Case] = {
    "local and global": (lambda o: o.x + o.local, LocalGlobalError, r"add: operands are global, local; .*operand 1.*to_global"),
    "global and local": (lambda o: flow.where(o.q, o.x, o.local), LocalGlobalError, "operand 2"),
    "cat mixed": (lambda o: flow.cat([o.local, o.x]), LocalGlobalError, "cat: operands are local, global"),
    "copy_ mixed": (lambda o: o.x.copy_(o.local), LocalGlobalError, "in-place: a local result .* global tensor"),
    "assign mixed": (lambda o: o.x.__setitem__(0, o.local[0]), LocalGlobalError, "in-place"),
    "placements": (lambda o: o.x * o.other, PlacementError, r"\[0, 1, 2, 3\].*\[0, 1\].*to_global\(placement"),
    "matmul placements": (lambda o: o.x @ o.other.T, PlacementError, "operand 1"),
    "duplicate ranks": (lambda o: flow.placement("cpu", [0, 1, 0]), PlacementError, r"\[0\] more than once in \[0, 1, 0\]"),
    "negative rank": (lambda o: flow.placement("cpu", [-1]), PlacementError, ">= 0, found -1"),
    "no ranks": (lambda o: flow.placement("cpu", []), PlacementError, "at least one rank"),
    "uneven mesh": (lambda o: flow.placement("cpu", [[0, 1], [2]]), PlacementError, "rectangular"),
    "device type": (lambda o: flow.placement(3, [0]), PlacementError, "device type .*found 3"),  # type: ignore[arg-type]
    "absent rank": (lambda o: o.x.to_global(flow.placement("cpu", [3, 4]), S(0)), PlacementError, r"ranks \[4\].*0\.\.3"),
    "absent in factory": (lambda o: flow.rand(2, placement=flow.placement("cpu", [9]), sbp=B), PlacementError, r"rand: .*\[9\]"),
    "not a placement": (lambda o: flow.zeros(2, placement="cpu", sbp=B), PlacementError, "found 'cpu'"),
    "unbound device": (lambda o: o.x.to("cuda"), BackendError, "'cuda'; bound are: cpu"),
    "split axis": (lambda o: o.x.to_global(sbp=S(2)), SbpError, r"S\(2\) of a tensor of 2 dimensions \(shape \(5, 6\)\).*\[-2, 2\)"),
    "split of a scalar": (lambda o: flow.full((), 1.0, placement=LINE4, sbp=S(0)), SbpError, "needs at least one dimension"),
    "count": (lambda o: o.x.to_global(MESH, B), SbpError, r"\(2, 2\) has 2, found 1"),
    "no sbp": (lambda o: o.x.to_global(MESH), SbpError, "give an sbp"),
    "no sbp in factory": (lambda o: flow.zeros(2, placement=LINE4), SbpError, "both placement and sbp"),
    "not an sbp": (lambda o: o.x.to_global(sbp="B"), SbpError, "found 'B'"),
    "float axis": (lambda o: S(0.5), SbpError, "must be an int, found 0.5"),  # type: ignore[arg-type]
    "random partial": (lambda o: flow.randn(2, placement=LINE4, sbp=P), SbpError, "S or B"),
    "sum of bools": (lambda o: o.q.to_global(sbp=P), SbpError, "bool"),
    "local needs both": (lambda o: o.local.to_global(LINE4), LocalGlobalError, "both placement and sbp"),
    "local to_local": (lambda o: o.local.to_local(), LocalGlobalError, "local already"),
    "replicas": (lambda o: flow.per_rank(lambda r: [7, r // 2]).to_global(LINE4, B), ReplicaError, r"ranks 0 and 2.*\(1,\)"),
    "parts": (lambda o: flow.per_rank(lambda r: [0] * (r + 1)).to_global(LINE4, S(0)), ShapeError, r"\(10,\).*rank 0.*\(3,\)"),
    "parts differ": (lambda o: flow.per_rank(lambda r: [0] * (r + 1)).to_global(LINE4, P), ShapeError, r"rank 1.*\(2,\)"),
}  # fmt: skip

DATA: dict[str, Case] = {
    "index": (lambda o: o.x.index_select(0, o.k + 1), IndexOutOfRange, r"index 5 at position \(2,\) is outside \[0, 5\)"),
    "negative": (lambda o: o.x[o.k - 3], IndexOutOfRange, r"index -3 at position \(0,\)"),
    "gather": (lambda o: o.y.gather(0, laid([[0, 0, 3, 0]], LINE4, B)), IndexOutOfRange, r"index 3 at position \(0, 2\)"),
    "scatter_add": (lambda o: o.y.scatter_add(1, o.k.reshape(3, 1), o.y[:, :1]), IndexOutOfRange, "index 4"),
    "index_add": (lambda o: o.y.index_add(0, o.k, o.y), IndexOutOfRange, "index 4"),
    "one_hot": (lambda o: flow.one_hot(o.k, 4), IndexOutOfRange, r"index 4 .*\[0, 4\)"),
    "number": (lambda o: o.x[5], IndexOutOfRange, "5 is out of range for dimension 0 of size 5"),
    "too many": (lambda o: o.x[0, 0, 0], IndexOutOfRange, "3 indices .* 2 dimensions"),
    "integer division": (lambda o: o.k // 0, DataError, "divided by"),
    "integer power": (lambda o: o.k**-1, DataError, "negative power"),
    "big scalar": (lambda o: o.k + 2**70, DataError, "int64"),
}

GRADIENTS: dict[str, Case] = {
    "not a scalar": (lambda o: (o.w * 2).backward(), AutogradError, r"needs a gradient .*\(6,\)"),
    "nothing behind": (lambda o: o.x.sum().backward(), AutogradError, "requires_grad_"),
    "leaf in place": (lambda o: o.w.add_(1.0), AutogradError, "no_grad"),
    "leaf through a view": (lambda o: o.w[1:3].zero_(), AutogradError, "no_grad"),
    "expanded": (lambda o: o.y.unsqueeze(0).expand(2, 3, 4).zero_(), AutogradError, "expanded.*clone"),
    "integers": (lambda o: o.k.requires_grad_(), AutogradError, "int64"),
    "numpy": (lambda o: o.w.numpy(), AutogradError, r"detach\(\)\.numpy\(\)"),
    "unused": (lambda o: grad((o.w * 2).sum(), [o.w, o.w.detach().requires_grad_()]), AutogradError, "input 1 .*allow_unused"),
    "no gradient": (lambda o: grad((o.w * 2).sum(), [o.x]), AutogradError, "input 0 requires no gradient"),
    "seed kind": (lambda o: (o.w * 2).backward(1.0), AutogradError, "must be a tensor, found float"),
    "hook": (lambda o: o.w.register_hook(3), AutogradError, "found int"),
}  # fmt: skip

TABLES = {
    "axes": AXES, "values": VALUES, "shapes": SHAPES, "dtypes": DTYPES, "layouts": LAYOUTS, "data": DATA, "gradients": GRADIENTS,
}  # fmt: skip


@pytest.mark.parametrize(
    "case", [pytest.param(case, id=f"{table}-{name}") for table, cases in TABLES.items() for name, case in cases.items()]
)
def test_bad_input(case: Case) -> None:
    """The class, the words, and nothing changed (ERR-TYPES, ERR-UNCHANGED)."""
    call, error, words = case
    o = operands()
    before = state_of(o)
    with pytest.raises(error, match=words) as found:
        call(o)
    assert isinstance(found.value, flow.RefflowError)
    assert state_of(o) == before


def test_explicit_boxing() -> None:
    """With boxing("explicit") a move nobody asked for is an error that names it; asked for, it is fine (SIG-EXPLICIT)."""
    o = operands()
    before = state_of(o)
    with flow.boxing("explicit"):
        with pytest.raises(BoxingError, match=r"add: would move operand 1 from .*P.* to .*boxing is explicit.*to_global"):
            o.x + o.v
        with pytest.raises(BoxingError, match="operand 0"):
            o.x.sort(0)
        assert (o.x + o.x).sum(1).sbp == (S(0),)
        assert (o.x + o.v.to_global(sbp=B)).shape == (5, 6)
        (o.w.to_global(sbp=S(0)) * o.v.to_global(sbp=S(0))).to_global(sbp=B).sum().backward()
        assert o.w.grad is not None and o.w.grad.tolist() == [0, 1, 2, 3, 4, 5]
        o.w.grad = None
    after = state_of(o)
    assert after == before


def test_builtin_classes() -> None:
    """Each error is also the built-in a user of NumPy or PyTorch would catch (ERR-TYPES)."""
    o = operands()
    builtin: list[tuple[Call, type[Exception]]] = [
        (lambda o: o.x + o.y, ValueError), (lambda o: o.x.sum(9), ValueError), (lambda o: o.k.mean(), TypeError),
        (lambda o: o.x[9], IndexError), (lambda o: o.x[o.k + 9], IndexError), (lambda o: o.x + o.local, TypeError),
        (lambda o: (o.w * 2).backward(), RuntimeError), (lambda o: flow.placement("cpu", [0, 0]), ValueError),
    ]  # fmt: skip
    for call, error in builtin:
        with pytest.raises(error):
            call(o)


def test_a_failed_backward_leaves_gradients_alone() -> None:
    """An error half way through backward fills no .grad; a hook that raises is such an error (ERR-UNCHANGED)."""
    a, b = (laid([1.0, 2.0], LINE2, B, grad=True) for _ in range(2))
    (a + b).sum().backward()

    def refuse(g: flow.Tensor) -> None:
        raise ZeroDivisionError

    remove = a.register_hook(refuse)
    with pytest.raises(ZeroDivisionError):
        (a * b).sum().backward()
    assert a.grad is not None and b.grad is not None
    assert a.grad.tolist() == b.grad.tolist() == [1, 1]
    remove()
    (a * b).sum().backward()
    assert b.grad.tolist() == [2, 3]


def test_settings_return_after_an_error() -> None:
    """A `with` block restores what it changed, also when it is left by an error."""
    before = settings()
    blocks: list[Callable[[], Any]] = [
        lambda: flow.signatures("cheap"), lambda: flow.boxing("explicit"), flow.no_grad, flow.comm_log,
        lambda: flow.virtual_world(2), lambda: flow.set_grad_enabled(False),
    ]  # fmt: skip
    for block in blocks:
        with pytest.raises(ShapeError), block():
            flow.zeros(2) + flow.zeros(3)
        assert settings() == before
