"""Names that users of PyTorch type daily: the same value in every layout, or an error in words.

Checks TENSOR-METHODS, OPS-COMPOSITE, OPS-INDEXING, OPS-CREATION, NN-SOFTMAX, NN-ACTIVATION and ERR-ABSENT.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np
import pytest

import refflow as flow
from refflow.absent import _TABLES
from refflow.errors import AttributeValueError, DtypeError, LocalGlobalError, SbpError, ShapeError
from refflow.layout import reduced
from tests.tensor.layouts import LINE4, MATRIX_LAYOUTS, MESH, B, P, S, in_layout, laid, layout_id, numbers

F = flow.nn.functional
WHOLE = (numbers(4, 6) * 7) % 11 - 5
Function = Callable[[Any], Any]


def beside(x: flow.Tensor, array: Any) -> flow.Tensor:
    """A tensor of `array` under B on the ranks of x."""
    return laid(np.array(array), x.placement, *([B] * x.placement.ndim))


EXACT: dict[str, tuple[Function, Function]] = {
    "clip": (lambda x: x.clip(-2, 3), lambda a: np.clip(a, -2, 3)),
    "ravel": (lambda x: x.ravel(), lambda a: a.ravel()),
    "unflatten": (lambda x: x.unflatten(1, (2, -1)), lambda a: a.reshape(4, 2, 3)),
    "view_as": (lambda x: x.view_as(flow.ones(6, 4)), lambda a: a.reshape(6, 4)),
    "reshape_as": (lambda x: x.reshape_as(flow.ones(24)), lambda a: a.ravel()),
    "mT": (lambda x: x.unflatten(1, (2, 3)).mT, lambda a: a.reshape(4, 2, 3).transpose(0, 2, 1)),
    "mv": (lambda x: x.mv(x[0]), lambda a: a @ a[0]),
    "outer": (lambda x: x[0].outer(x[:, 1]), lambda a: np.outer(a[0], a[:, 1])),
    "isclose": (lambda x: x.isclose(x + 1e-9), lambda a: np.full(a.shape, True)),
    "var unbiased": (lambda x: x.sign().var(unbiased=True), lambda a: np.sign(a).var(ddof=1)),
    "new_zeros": (lambda x: x.new_zeros(2, 3) + x[:2, :3], lambda a: a[:2, :3]),
    "new_full": (lambda x: x.new_full((2, 2), 7), lambda a: np.full((2, 2), 7, np.float32)),
    "relu6": (lambda x: F.relu6(x * 2), lambda a: np.clip(a * 2, 0, 6)),
    "index second": (lambda x: x[:, beside(x, [5, 0, 0])], lambda a: a[:, [5, 0, 0]]),
    "index second by matrix": (lambda x: x[:, beside(x, [[5, 0], [1, 1]])], lambda a: a[:, [[5, 0], [1, 1]]]),
    "index after slice": (lambda x: x[1:3, beside(x, [2])], lambda a: a[1:3, [2]]),
    "index after int": (lambda x: x[-1, beside(x, [2, 4])], lambda a: a[-1, [2, 4]]),
    "index before int": (lambda x: x[beside(x, [3, 0]), 1], lambda a: a[[3, 0], 1]),
    "index and None": (lambda x: x[:, None, beside(x, [2, 4])], lambda a: a[:, None, [2, 4]]),
    "index after dots": (lambda x: x[..., beside(x, [2, 4])], lambda a: a[..., [2, 4]]),
    "index before dots": (lambda x: x[beside(x, [2]), ...], lambda a: a[[2], ...]),
    "scatter_add_": (
        lambda x: x.clone().scatter_add_(1, beside(x, [[0, 0]] * 4), beside(x, np.float32([[1, 2]] * 4))),
        lambda a: a + np.float32([[3] + [0] * 5] * 4),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", EXACT)
@pytest.mark.parametrize("layout", MATRIX_LAYOUTS, ids=layout_id)
def test_same_value_in_every_layout(name: str, layout: Any) -> None:
    """TENSOR-METHODS, OPS-INDEXING, OPS-COMPOSITE: exact functions against NumPy."""
    ours, theirs = EXACT[name]
    found = ours(in_layout(WHOLE, *layout)).numpy()
    expected = np.asarray(theirs(WHOLE))
    assert found.shape == expected.shape
    assert np.array_equal(found, expected.astype(found.dtype))


ROUNDED: dict[str, Function] = {
    "softmax": lambda x: x.softmax(-1),
    "log_softmax": lambda x: x.log_softmax(dim=0),
    "logsumexp": lambda x: x.logsumexp(1),
    "logsumexp of all": lambda x: flow.logsumexp(x, (0, 1), keepdim=True),
    "logsigmoid": F.logsigmoid,
    "std unbiased": lambda x: x.std(0, unbiased=False),
}


@pytest.mark.parametrize("name", ROUNDED)
@pytest.mark.parametrize("layout", MATRIX_LAYOUTS, ids=layout_id)
def test_same_bits_in_every_layout(name: str, layout: Any) -> None:
    """NN-SOFTMAX, NN-ACTIVATION, OPS-VAR: the bits of the local tensor."""
    ours = ROUNDED[name]
    assert flow.same_bits(ours(in_layout(WHOLE, *layout)).numpy(), ours(flow.tensor(WHOLE)).numpy())


def test_softmax_is_one_function() -> None:
    """NN-SOFTMAX: the method, the function of flow and that of nn.functional."""
    x = flow.randn(3, 4)
    for name in ("softmax", "log_softmax"):
        whole = getattr(F, name)(x, 1).numpy()
        assert flow.same_bits(getattr(x, name)(1).numpy(), whole)
        assert flow.same_bits(getattr(flow, name)(x, dim=1).numpy(), whole)
    with pytest.raises(AttributeValueError, match="softmax: dim must be in"):
        x.softmax(2)


def test_logsumexp_at_infinity() -> None:
    """OPS-COMPOSITE: -inf everywhere gives -inf, an inf gives inf, and never NaN."""
    x = flow.tensor([[-math.inf, -math.inf], [math.inf, 0.0], [1000.0, 1000.0]])
    assert x.logsumexp(1).tolist() == [-math.inf, math.inf, np.float32(1000 + math.log(2))]


def test_gradients_pass_an_index_tensor() -> None:
    """OPS-INDEXING: the gradient of x[:, i] adds where i repeats."""
    x = laid(WHOLE, LINE4, S(1), grad=True)
    x[:, beside(x, [0, 0, 3])].sum().backward()
    assert x.grad.abs().tolist() == [[2.0, 0.0, 0.0, 1.0, 0.0, 0.0]] * 4


def test_factories_beside_a_tensor() -> None:
    """OPS-CREATION, RNG-INDEX: new_* under B with the dtype, *_like in the layout."""
    x = laid(WHOLE, MESH, S(0), P).half()
    assert x.new_zeros(3).sbp == (B, B) and x.new_ones((3, 2)).dtype == flow.float16
    assert x.new_empty(2, dtype=flow.int64).tolist() == [0, 0]
    assert flow.rand_like(x).sbp == flow.randn_like(x).sbp == reduced(x.sbp)
    assert flow.randn_like(x, dtype=flow.float32, requires_grad=True).requires_grad
    assert flow.zeros_like(x, requires_grad=True).requires_grad and flow.ones_like(x).sbp == x.sbp


def test_random_fill_is_by_logical_index() -> None:
    """RNG-INDEX: normal_ and uniform_ write the same numbers in every layout."""
    found = []
    for layout in ((S(0),), (S(1),), (B,)):
        x = laid(WHOLE, LINE4, *layout)
        flow.manual_seed(3)
        x.normal_(1.0, 2.0)
        y = x.clone().uniform_(-1, 1)
        assert x.sbp == y.sbp == layout and y.abs().max().item() <= 1
        found.append(flow.numerics.digest_many({"x": x.numpy(), "y": y.numpy()}))
    assert len(set(found)) == 1


def test_short_forms() -> None:
    """OPS-CREATION: randint(high, size), as_tensor, dtype names, limits, numbers."""
    assert flow.randint(3, (50,)).amax().item() == 2
    with pytest.raises(AttributeValueError, match="randint"):
        flow.randint(0, 3)
    x = flow.ones(3)
    assert flow.as_tensor(x) is x and flow.as_tensor([1, 2], dtype=flow.long).dtype == flow.int64
    assert (flow.float, flow.double, flow.half, flow.int) == (flow.float32, flow.float64, flow.float16, flow.int32)
    assert float(flow.finfo(flow.bfloat16).eps) == 2**-7 and flow.iinfo(flow.int8).max == 127
    assert flow.inf == math.inf and flow.pi == math.pi and math.isnan(flow.nan)
    assert flow.is_tensor(x) and not flow.is_tensor(3) and flow.numel(x) == 3 and x.is_floating_point()
    with pytest.raises(DtypeError, match="iinfo"):
        flow.finfo(flow.int8)
    mask = flow.zeros(2).masked_fill(flow.tensor([True, False]), flow.finfo(flow.float32).min)
    assert mask.softmax(0).tolist() == [0.0, 1.0]


def test_sbp_as_oneflow_writes_it() -> None:
    """LAY-SBP: split(dim=i), broadcast() and partial_sum(); a module takes them for what they are."""
    assert flow.sbp.split(dim=1) == S(1) == flow.sbp.split(axis=1)
    assert flow.sbp.broadcast() is B and flow.sbp.partial_sum() is P
    for wrong in (lambda: flow.sbp.split(), lambda: flow.sbp.split(0, dim=1), lambda: flow.sbp.split("0")):
        with pytest.raises(SbpError, match="split: the axis"):
            wrong()
    assert flow.nn.Linear(4, 4).to_global(LINE4, B).weight.sbp == (B,)


def test_one_element_formats_as_a_number() -> None:
    """TENSOR-LOGICAL: f-strings read the logical value, a partial one too."""
    loss = laid(WHOLE, LINE4, S(0)).sum()
    assert loss.sbp == (P,) and f"{loss:.3f}" == f"{WHOLE.sum():.3f}"
    assert f"{loss}" == str(loss)
    with pytest.raises(ShapeError, match="one element"):
        f"{flow.ones(2):.3f}"


def test_a_device_in_words() -> None:
    """ERR-MIXED: .cpu() is there for old code, .cuda() says what to do."""
    x = flow.ones(2)
    assert x.cpu() is x and flow.nn.Linear(2, 2).cpu().weight.device == "cpu"
    for thing in (x, flow.nn.Linear(2, 2)):
        with pytest.raises(LocalGlobalError, match="to_global"):
            thing.cuda()
    with flow.bind_device("cuda", "reference"):
        assert laid(WHOLE, LINE4, S(0)).cuda().device == "cuda"


def test_absent_names_say_what_to_write() -> None:
    """ERR-ABSENT: none of them exists, and each says something."""
    owners = {
        "flow": flow, "Tensor": flow.ones(2), "nn": flow.nn, "nn.functional": F, "Module": flow.nn.Linear(2, 2),
        "optim": flow.optim, "optim.lr_scheduler": flow.optim.lr_scheduler,
    }  # fmt: skip
    assert set(owners) | {"DataLoader"} == set(_TABLES)
    for owner in owners:
        table = _TABLES[owner]
        for name, hint in table.items():
            assert not hasattr(owners[owner], name), (owner, name)
            with pytest.raises(AttributeError, match=name) as caught:
                getattr(owners[owner], name)
            assert str(caught.value).endswith(hint)
    with pytest.raises(AttributeError, match="no attribute 'sofmax'$"):
        flow.ones(2).sofmax  # noqa: B018


def test_absent_arguments_of_the_loader_say_what_to_write() -> None:
    """ERR-ABSENT."""
    rows = flow.data.TensorDataset(np.arange(4))
    for name, hint in _TABLES["DataLoader"].items():
        with pytest.raises(AttributeValueError) as caught:
            flow.data.DataLoader(rows, 2, **{name: 2})
        assert str(caught.value) == f"DataLoader: there is no argument {name!r}: {hint}"
    with pytest.raises(AttributeValueError, match="no argument 'batchsize'$"):
        flow.data.DataLoader(rows, batchsize=2)


def test_what_is_to_be_written_instead_works() -> None:
    """ERR-ABSENT: some of the advice, carried out."""
    x = flow.tensor([1, 2, 3])
    assert (x.unsqueeze(-1) == flow.tensor([1, 3])).any(-1).tolist() == [True, False, True]
    layers = [flow.nn.TransformerEncoderLayer(8, 2) for _ in range(2)]
    assert flow.nn.Sequential(*layers)(flow.ones(3, 2, 8)).shape == (3, 2, 8)
    for hint in _TABLES["flow"].values():
        if hint.startswith("it is flow."):
            path = hint.removeprefix("it is flow.").removesuffix("()")
            assert callable(reduce(getattr, path.split("."), flow))
    optimizer = flow.optim.SGD([flow.ones(1, requires_grad=True)], lr=1.0)
    schedules = flow.optim.lr_scheduler
    up, down = schedules.LinearLR(optimizer, 0.25, 1.0, 3), schedules.CosineAnnealingLR(optimizer, 4)
    schedule, rates = schedules.SequentialLR(optimizer, [up, down], [3]), []
    for _ in range(7):
        rates.append(float(optimizer.param_groups[0]["lr"]))
        schedule.step()
    assert rates[0] == 0.25 and rates[:4] == sorted(rates[:4]) and rates[3] == 1.0 and rates[3:] == sorted(rates[3:], reverse=True)
    volume, kernel = flow.randn(2, 3, 5, 6, 7).round(), flow.randn(4, 3, 2, 3, 3).round()
    slices = [[F.conv2d(volume[:, :, z + k], kernel[:, :, k]) for k in range(2)] for z in range(4)]
    deep = flow.stack([a + b for a, b in slices], 2)
    patch = (volume[1, :, 2:4, 1:4, 3:6] * kernel[3]).sum()
    assert deep.shape == (2, 4, 4, 4, 5) and deep[1, 3, 2, 1, 3].item() == patch.item()


MISTAKES: dict[str, tuple[type[Exception], str, Callable[[], Any]]] = {
    "Tensor of a list": (DtypeError, r"flow\.tensor\(data\)", lambda: flow.Tensor([1, 2])),
    "T of three dims": (ShapeError, "mT transposes", lambda: flow.ones(2, 3, 4).T),
    "mT of a vector": (ShapeError, "mT: needs", lambda: flow.ones(2).mT),
    "two index tensors": (AttributeValueError, "gather", lambda: flow.ones(2, 2)[flow.arange(2), flow.arange(2)]),
    "a mask inside": (AttributeValueError, "depends on data", lambda: flow.ones(2, 2)[:, flow.ones(2).bool()]),
    "dims as arguments": (AttributeValueError, r"dim=\(0, 1\)", lambda: flow.ones(2, 2).sum(0, 1)),
    "a bool for a dim": (AttributeValueError, "dim must be in", lambda: flow.ones(2, 2).var(False)),
    "one_hot of what is there": (AttributeValueError, "num_classes", lambda: flow.one_hot(flow.arange(2))),
    "unflatten that does not fit": (ShapeError, "unflatten", lambda: flow.ones(4).unflatten(0, (3, -1))),
    "mv of matrices": (ShapeError, "mv", lambda: flow.ones(2, 2).mv(flow.ones(2, 2))),
    "scatter_add of a row": (
        ShapeError,
        "scatter_add: the index",
        lambda: flow.ones(2, 3).scatter_add(1, flow.zeros(1, 2).long(), flow.ones(1, 2)),
    ),
    "outer of matrices": (ShapeError, "outer", lambda: flow.outer(flow.ones(2, 2), flow.ones(2))),
    "linear": (ShapeError, "linear: .* 5 features", lambda: flow.nn.Linear(3, 4)(flow.ones(2, 5))),
    "embedding": (IndexError, "embedding: the weight", lambda: flow.nn.Embedding(3, 2)(flow.tensor([4]))),
    "embedding of floats": (
        DtypeError,
        "embedding: the index must be an integer .* float32; index.long",
        lambda: F.embedding(flow.ones(2), flow.ones(2, 2)),
    ),
    "index of floats": (DtypeError, "index: needs an integer tensor, found float32; index.long", lambda: flow.ones(2)[flow.ones(2)]),
    "a model that was not moved": (
        LocalGlobalError,
        r"operands are global, local; .* a whole model with model.to_global\(placement, sbp\)",
        lambda: flow.nn.Linear(2, 2)(flow.ones(2, 2, placement=LINE4, sbp=B)),
    ),
    "a class for none": (IndexError, "ignore_index=-100 leaves out", lambda: F.cross_entropy(flow.ones(2, 3), flow.tensor([0, -100]))),
    "a class too many": (IndexError, "cross_entropy", lambda: F.cross_entropy(flow.ones(2, 3), flow.tensor([0, 3]))),
    "explain of a result": (AttributeValueError, "explain", lambda: flow.explain(flow.ones(2))),
    "zeros of a shape of words": (AttributeValueError, "zeros: sizes", lambda: flow.zeros("2")),
    "empty without sbp": (ValueError, "empty: a global", lambda: flow.empty(2, placement=LINE4)),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_named(name: str) -> None:
    """ERR-TYPES: the message names the call the user wrote."""
    error, words, mistake = MISTAKES[name]
    with pytest.raises(error, match=words):
        mistake()
