"""What a graph refuses, in which words, and that a refusal leaves nothing behind.

GRAPH-LAZY, GRAPH-SHAPE, GRAPH-OPTIMIZER, GRAPH-STATE, GRAPH-RANDOM, TIME-INPUT, TIME-REFUSED, TIME-ADVICE.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import refflow as flow
from refflow import Tensor, nn
from refflow.errors import AttributeValueError, GraphError, PlacementError, RefflowError
from refflow.graph.api import Graph
from refflow.graph.refusal import advised
from refflow.graph.time import TooManySteps
from refflow.layout import Placement
from tests.graph.nets import Told, mlp, normed, rows, run
from tests.graph.running import B, Of, P, S, bits, proved, state_of

PAIR = Placement("cpu", [0, 1])


def x(*shape: int, sbp: Any = None) -> Tensor:
    return flow.tensor(rows(*(shape or (8, 2))), placement=PAIR, sbp=S(0) if sbp is None else sbp)


READS: dict[str, Callable[[Tensor], Any]] = {
    "numpy": lambda x: x.numpy(), "asarray": np.asarray, "item": lambda x: x.sum().item(), "tolist": lambda x: x.tolist(),
    "bool": lambda x: x if x.sum() > 0 else -x, "float": lambda x: float(x.sum()), "int": lambda x: int(x.sum()),
    "print": str, "format": lambda x: f"{x}", "local arrays": lambda x: x.local_arrays(), "shapes": lambda x: x.shapes,
    "same_bits": lambda x: flow.same_bits(x, x), "digest": flow.numerics.digest,
}  # fmt: skip


@pytest.mark.parametrize("micro", [1, 2])
@pytest.mark.parametrize("name", READS)
def test_a_lazy_tensor_has_no_numbers(name: str, micro: int) -> None:
    """GRAPH-LAZY: and the graph, the generator and the tensors outside are as before."""
    before, given = state_of(), x()

    def build(x: Tensor) -> Tensor:
        flow.rand(2, placement=PAIR, sbp=B)
        READS[name](x)
        return x

    with pytest.raises(GraphError, match="no numbers inside build"):
        Of(build, micro)(given)
    assert state_of() == before and bits(given) == bits(x()) and (given + 1).tolist()


LEFT: dict[str, Callable[[Tensor], Any]] = {
    "added": lambda y: y + 1, "summed": lambda y: y.sum().item(), "item": lambda y: y.item(), "printed": repr,
    "backward": lambda y: y.backward(), "moved": lambda y: y.to_global(sbp=B), "an input": lambda y: Of(outside)(y),
    "added in build": lambda y: Of(lambda x: x + y)(x()), "returned": lambda y: Of(lambda x: (x, y))(x()),
    "a number in build": lambda y: Of(lambda x: x * y.item())(x()),
}  # fmt: skip


@pytest.mark.parametrize("micro", [1, 2])
@pytest.mark.parametrize("name", LEFT)
def test_a_lazy_tensor_that_was_kept_is_refused_by_name(name: str, micro: int) -> None:
    """GRAPH-LAZY: the graph is named, outside and in another build; in another it was a KeyError."""
    kept: list[Tensor] = []

    class Keeps(Graph):
        def build(self, x: Tensor) -> Tensor:
            kept.append((x * 2).sum())
            return kept[0]

    graph = Keeps()
    graph.config.set_gradient_accumulation_steps(micro)
    graph(x().requires_grad_())
    with pytest.raises(GraphError, match=r"left over from build\(\) of graph Keeps; return it from build"):
        LEFT[name](kept[0])


def test_a_buffer_that_holds_a_lazy_tensor_is_refused_by_name() -> None:
    """GRAPH-LAZY: what build left in a list is put into a module afterwards."""
    kept: list[Tensor] = []
    Of(lambda x: kept.append(x * 2) or x)(x())
    module = nn.Module()
    module.register_buffer("cell", kept[0])
    graph = Of(lambda x: x + module.cell)
    graph.module = module
    with pytest.raises(GraphError, match="left over from build"):
        graph(x())


def outside(x: Tensor) -> Tensor:
    return x


MISUSE: dict[str, tuple[Callable[..., Any], str]] = {
    "a number returned": (lambda x: 3, "must return tensors"),
    "an array returned": (lambda x: {"a": [np.ones(2)]}, "must return tensors"),
    "a local tensor returned": (lambda x: flow.tensor([1.0]), "only global tensors"),
    "a local tensor made": (lambda x: flow.rand(3), "only global tensors"),
    "a local tensor added": (lambda x: x + flow.tensor([1.0, 2.0]), "to_global"),
    "to_local": (lambda x: x.to_local(), "only global tensors"),
    "another generator": (lambda x: x + flow.rand(2, generator=flow.Generator(1), placement=PAIR, sbp=B), "default generator"),
    "a parameter from outside": (lambda x: x * PARAMETER.value, "its gradient would be lost"),
    "a write outside": (lambda x: CELL.value.add_(x.sum()), "no parameter or buffer"),
    "a write through a view": (lambda x: CELL.value[0].copy_(x.sum()), "no parameter or buffer"),
}  # fmt: skip


class _Made:
    """A tensor made in the test's world at first use."""

    def __init__(self, grad: bool) -> None:
        self.grad = grad
        self.held: list[Tensor] = []

    @property
    def value(self) -> Tensor:
        if not self.held:
            self.held.append(flow.tensor([1.0, 2.0], placement=PAIR, sbp=B))
            if self.grad:
                self.held[0].requires_grad_()
        return self.held[0]


PARAMETER, CELL = _Made(True), _Made(False)


@pytest.mark.parametrize("name", MISUSE)
def test_what_belongs_outside(name: str) -> None:
    function, words = MISUSE[name]
    held = [PARAMETER.value, CELL.value]  # made outside
    before = [*bits(held), state_of()]
    with pytest.raises(RefflowError, match=words):
        Of(function)(x())
    assert [*bits(held), state_of()] == before


def test_a_parameter_from_outside_may_be_looked_at() -> None:
    w = PARAMETER.value

    def build(x: Tensor) -> Tensor:
        with flow.no_grad():
            return x * w

    assert bits(Of(build, 2)(x())) == bits((x() * w).detach())


def test_captured_constants() -> None:
    """They are returned, used and moved like any value, in every number of micro-batches."""
    k = flow.tensor([[1.0, 2.0]], placement=PAIR, sbp=S(1))
    for micro in (1, 4):
        graph = Of(lambda x: (k, x * k, k.to_global(sbp=B), k.sum()), micro)
        assert bits(graph(x())) == bits((k, x() * k, k.to_global(sbp=B), k.sum()))
        proved(graph)


def test_inputs() -> None:
    """GRAPH-SHAPE"""
    with pytest.raises(GraphError, match="takes global tensors"):
        Of(outside)(flow.tensor([1.0]))
    with pytest.raises(GraphError, match="a graph takes tensors .*, found float"):
        Of(outside)([1.0])
    graph = Of(outside)
    graph(x())
    for other in (x(10, 2), x(sbp=B), x(sbp=P), x().to(flow.float64), x().to_global(Placement("cpu", [1, 0]), S(0))):
        with pytest.raises(GraphError, match="traced for .* called with"):
            graph(other)
    assert bits(graph(x())) == bits(x())


def test_a_call_that_fails_fixes_no_shape() -> None:
    """GRAPH-SHAPE: a graph is traced for its first call that succeeds."""
    graph = Of(lambda x: flow.matmul(x, flow.ones(2, 2, placement=PAIR, sbp=B)))
    with pytest.raises(RefflowError, match="matmul"):
        graph(x(8, 3))
    assert bits(graph(x())) == bits(flow.matmul(x(), flow.ones(2, 2, placement=PAIR, sbp=B)))


def test_arguments_are_nested_as_in_the_first_call() -> None:
    """GRAPH-SHAPE: the same tensors under other names, or in another order, are another call."""
    one, two = x(), x() * 2
    graph = Of(lambda named: named["a"] - named["b"])
    assert bits(graph({"a": one, "b": two})) == bits(one - two)
    assert bits(graph({"a": two, "b": one})) == bits(two - one)
    for other in ({"b": two, "a": one}, {"a": one, "c": two}, [one, two]):
        with pytest.raises(GraphError, match="traced for"):
            graph(other)


def test_a_graph_is_no_module_of_another() -> None:
    """GRAPH-CALL: called inside build it says so, and is as before."""
    inner = Of(lambda x: x * 2)
    with pytest.raises(GraphError, match="called outside build"):
        Of(inner)(x())
    assert bits(inner(x())) == bits(x() * 2)


@pytest.mark.parametrize("added", [False, True])
@pytest.mark.parametrize("make", [
    lambda ps: flow.optim.SGD(ps, lr=0.5), lambda ps: flow.optim.SGD(ps, lr=0.5, momentum=0.9), lambda ps: flow.optim.Adam(ps, lr=0.5),
])  # fmt: skip
def test_build_steps_no_optimizer(make: Callable[..., Any], added: bool) -> None:
    """GRAPH-SCALARS: added to the graph or not; nothing lazy is left in it, and it goes on outside."""
    models = [nn.Linear(2, 1).to_global(PAIR, B) for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    optimizers = [make(model.parameters()) for model in models]

    class Steps(Graph):
        def __init__(self) -> None:
            super().__init__()
            self.model = models[0]
            if added:
                self.add_optimizer(optimizers[0])

        def build(self, x: Tensor) -> Tensor:
            optimizers[0].zero_grad()
            loss = self.model(x).sum()
            loss.backward()
            optimizers[0].step()
            return loss

    with pytest.raises(GraphError, match=r"Steps: build\(\) steps an optimizer; leave step\(\) out .* add_optimizer\(optimizer\)"):
        Steps()(x())
    assert optimizers[0].state_dict()["state"] == {} and all(p.grad is None for p in models[0].parameters())
    for model, optimizer in zip(models, optimizers, strict=True):
        model(x()).sum().backward()
        optimizer.step()
    assert bits(list(models[0].parameters())) == bits(list(models[1].parameters()))


def test_a_step_outside_of_what_build_went_back_through() -> None:
    """GRAPH-OPTIMIZER: the gradients would be lost, and the step would do nothing."""
    model = nn.Linear(2, 1).to_global(PAIR, B)

    class Back(Graph):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def build(self, x: Tensor) -> Tensor:
            loss = self.model(x).sum()
            loss.backward()
            return loss

    with pytest.raises(GraphError, match=r"leaves a gradient for model\.weight.* add_optimizer\(\)"):
        Back()(x())
    assert all(p.grad is None for p in model.parameters())


def test_optimizers() -> None:
    """GRAPH-OPTIMIZER: an optimizer needs a gradient, and no half step is left when there is none."""
    p = flow.ones(2, placement=PAIR, sbp=B, requires_grad=True)
    optimizer = flow.optim.Adam([p])

    class Idle(Graph):
        def build(self, x: Tensor) -> Tensor:
            return (x * p).sum()

    graph = Idle()
    graph.add_optimizer(optimizer)
    with pytest.raises(GraphError, match="called no backward"):
        graph(x())
    assert optimizer.state_dict()["state"] == {} and p.tolist() == [1, 1]


def test_what_is_added_is_an_optimizer_and_a_schedule() -> None:
    """GRAPH-OPTIMIZER: a name led to an AttributeError about strings."""
    with pytest.raises(AttributeValueError, match=r"add_optimizer: needs an optimizer such as flow.optim.SGD.*, found str"):
        Of(outside).add_optimizer("sgd")
    optimizer = flow.optim.SGD([flow.ones(2, placement=PAIR, sbp=B, requires_grad=True)])
    with pytest.raises(AttributeValueError, match="add_optimizer: lr_sch must be a schedule .*, found float"):
        Of(outside).add_optimizer(optimizer, 0.5)


@pytest.mark.parametrize("use", [
    lambda graph: graph(x()), lambda graph: graph.add_optimizer(flow.optim.SGD([PARAMETER.value])), lambda graph: graph.config, str,
])  # fmt: skip
def test_a_graph_that_was_not_initialised_says_so(use: Callable[[Graph], Any]) -> None:
    """GRAPH-CALL: as a module does; what it lacked was named, "_inputs"."""

    class Bare(Graph):
        def __init__(self) -> None:
            self.model = nn.Linear(2, 2)

        def build(self, x: Tensor) -> Tensor:
            return x

    with pytest.raises(AttributeError, match=r"^Bare: call super\(\).__init__\(\) first"):
        use(Bare())
    with pytest.raises(AttributeError, match="^'Of' object has no attribute 'colour'$"):
        Of(outside).colour  # noqa: B018


@pytest.mark.parametrize("steps", [0, -1, 2.0, True, None])
def test_micro_batches_are_a_count(steps: Any) -> None:
    with pytest.raises(AttributeValueError, match="int >= 1"):
        Of(outside).config.set_gradient_accumulation_steps(steps)


@pytest.mark.parametrize("stage", [0, 4, "2"])
def test_zero_has_three_stages(stage: Any) -> None:
    with pytest.raises(AttributeValueError, match="1, 2 or 3"):
        Of(outside).config.enable_zero(stage=stage)


@pytest.mark.parametrize(("batch", "micro", "works"), [(8, 3, 2), (6, 4, 3), (7, 2, 1), (9, 8, 3)])
def test_a_batch_falls_into_equal_micro_batches(batch: int, micro: int, works: int) -> None:
    """TIME-INPUT: else the largest number that works is named, and works."""
    given = flow.tensor(rows(batch, 2), placement=Placement("cpu", [0]), sbp=B)
    with pytest.raises(TooManySteps, match=f"below that works is {works}$"):
        Of(lambda x: x * 2, micro)(given)
    assert bits(Of(lambda x: x * 2, works)(given)) == bits(given * 2)


WHOLE: dict[str, Callable[[Tensor], Any]] = {
    "the mean taken away": lambda x: x - x.mean(0),
    "a sum used again": lambda x: (x * x.sum()).sum(),
    "sorted": lambda x: flow.sort(x, 0).values * 2,
    "cumulated": lambda x: flow.cumsum(x, 0),
    "turned": lambda x: flow.flip(x, 0),
    "flattened": lambda x: x.t().flatten() * 2,
    "batch norm": lambda x: flow.nn.functional.batch_norm(x, None, None, training=True),
    "among themselves": lambda x: flow.matmul(x, x.t()),
}


@pytest.mark.parametrize("micro", [2, 4, 8])
@pytest.mark.parametrize("name", WHOLE)
def test_what_waits_for_the_whole_batch(name: str, micro: int) -> None:
    """TIME-REFUSED: whatever the register numbers, before anything runs: no deadlock is met."""
    with pytest.raises(TooManySteps, match="the largest number of micro-batches below that works is 1$"):
        Of(WHOLE[name], micro)(x())
    assert bits(Of(WHOLE[name])(x())) == bits(WHOLE[name](x()))


def test_a_fold_of_all_micro_batches_is_a_result() -> None:
    """TIME-RESULT: sums, maxima and whole outputs are given; what is made of them once a call may be used once a call."""

    def f(x: Tensor) -> Any:
        total = x.sum(0)
        return total, x.amax(0), x * 2, total / total.amax(), x.t(), x[:, 0]

    graph = Of(f, 4)
    assert [bit[2:] for bit in bits(graph(x()))] == [bit[2:] for bit in bits(f(x()))]
    proved(graph)


def test_a_refusal_says_where_and_by_which_numbers() -> None:
    """TIME-REFUSED: the layer, the rows of a micro-batch and the leaf; what is known too late; what is done on whole batches."""
    with pytest.raises(TooManySteps) as refused:
        run(mlp, Told((2,), micro=8), steps=1)
    said = str(refused.value)
    assert "(transpose), which matmul (for the gradient of model.3.weight) reads, is needed over all 8 micro-batches" in said
    assert "cutting k=128 into [2, 8] is not aligned with the tree (leaf 16): 8 rows a micro-batch, where the leaf takes 16" in said
    assert said.endswith("the largest number of micro-batches below that works is 4")
    with pytest.raises(TooManySteps, match=r"\(div\), which sub \(at model.0.bias\) reads, .* known only when all of them are over"):
        run(normed, Told((2,), micro=2), steps=1)
    for name in ("cumsum", "flip"):
        with pytest.raises(TooManySteps, match=f"input0, which {name} reads, .*{name} works on whole batches"):
            Of(lambda x, name=name: getattr(flow, name)(x, 0), 2)(x())
    with pytest.raises(TooManySteps, match=r"which sum reads.*cutting d0=12 into \[2, 4\] is not aligned with the tree \(leaf 1\);"):
        Of(lambda x: x.sum(), 4)(x(12, 2))


@pytest.mark.parametrize(("batch", "micro", "words", "works"), [
    (32, 10**6, "a batch of 32 does not fall into 1000000 ", 32), (32, 10**12, "a batch of 32 does not fall into", 32),
    (4096, 4096, "at most 1024 micro-batches, not 4096", 64),
])  # fmt: skip
def test_an_absurd_number_of_micro_batches_is_refused_quickly(batch: int, micro: int, words: str, works: int) -> None:
    """TIME-ADVICE: few numbers are tried."""
    with pytest.raises(TooManySteps, match=f"{words}.* works is {works}$"):
        Of(lambda x: x.sum(), micro)(x(batch, 2))


def test_many_micro_batches_are_refused_where_a_few_are() -> None:
    """TIME-ADVICE: of 128, a power of two that divides them is traced first."""
    given = flow.tensor(rows(128, 2), placement=Placement("cpu", [0]), sbp=B)
    with pytest.raises(TooManySteps, match="over all 64 micro-batches.* 2 rows a micro-batch, where the leaf takes 16; .*works is 8$"):
        Of(lambda x: flow.matmul(x.t(), x), 128)(given)


def test_which_numbers_of_micro_batches_are_tried() -> None:
    """TIME-ADVICE: common divisors, powers of two first; what a refused power of two divides is refused."""

    def tried(micro: int, refused: int, works: Any, *batches: int) -> tuple[list[int], str]:
        found: list[int] = []
        said = advised([x(n, 2).value.meta for n in batches], micro, refused, lambda n: found.append(n) or n in works)
        return found, said.removeprefix("the largest number of micro-batches below that ")

    assert tried(9, 9, {8}, 24, 16) == ([8], "works is 8")
    assert tried(16, 16, {2, 4}, 48) == ([8, 4, 12, 6], "works is 4")
    assert tried(16, 16, {1, 3}, 48) == ([8, 4, 2, 3], "works is 3")
    assert tried(8, 8, {2}, 16, 6) == ([2], "works is 2") and tried(7, 7, (), 0) == tried(7, 7, (), 7) == ([], "works is 1")
    assert tried(64, 64, {16, 60}, 240) == ([16, 60], "works is 60")
    found, said = tried(720, 16, {8}, 720)
    assert found == [8, 60, 45, 40, 36] and said == "a number that works is 8"


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_no_rows(zero: int) -> None:
    """TIME-INPUT: a batch of none is one micro-batch, not several; it may be trained on."""
    model = nn.Linear(2, 2).to_global(PAIR, B)

    class Train(Graph):
        def __init__(self, micro: int) -> None:
            super().__init__()
            self.model = model
            self.add_optimizer(flow.optim.SGD(model.parameters(), lr=1.0))
            self.config.set_gradient_accumulation_steps(micro)
            if zero:
                self.config.enable_zero(stage=zero)

        def build(self, x: Tensor) -> Tensor:
            loss = self.model(x).sum()
            loss.backward()
            return loss

    before = bits(list(model.parameters()))
    with pytest.raises(TooManySteps, match="a batch of 0 does not fall into 2 .* below that works is 1"):
        Train(2)(x(0, 2))
    assert bits(list(model.parameters())) == before
    assert Train(1)(x(0, 2)).item() == 0
    assert [one[2:] for one in bits(list(model.parameters()))] == [one[2:] for one in before]


def test_placements_do_not_mix_in_build_either() -> None:
    """ERR-PLACEMENT: the error of eager code, without an axis of micro-steps where there is one of them only."""
    w = flow.ones(2, placement=Placement("cpu", [0]), sbp=B)
    with pytest.raises(PlacementError) as eager:
        x() * w
    with pytest.raises(PlacementError) as lazy:
        Of(lambda x: x * w)(x())
    assert str(eager.value) == str(lazy.value)
    with pytest.raises(PlacementError, match=r"\[0, 1\]\) x 2 micro-steps, operand 1 on .*\[0\]\) x 2 micro-steps"):
        Of(lambda x: x * w, 2)(x())


@pytest.mark.parametrize("fault", ["build", "micro-batches", "run"])
def test_a_refused_first_call_leaves_parameters_whole(fault: str) -> None:
    """ZERO-PARAMETER, ERR-UNCHANGED: layout, bits, version and gradient; the next call that works holds them in parts."""
    model = nn.Linear(2, 2).to_global(PAIR, B)
    broken = [True]

    class Train(Graph):
        def __init__(self) -> None:
            super().__init__()
            self.model = model
            self.add_optimizer(flow.optim.Adam(model.parameters(), lr=1.0))
            self.config.enable_zero(stage=3)

        def build(self, x: Tensor, index: Tensor) -> Tensor:
            if broken[0] and fault == "build":
                raise RuntimeError("not yet")
            loss = flow.gather(self.model(x), 1, index).sum()
            loss.backward()
            return loss

    graph = Train()
    if fault == "micro-batches":
        graph.config.set_gradient_accumulation_steps(8)
    good = flow.zeros(8, 1, dtype=flow.int64, placement=PAIR, sbp=S(0))
    bad = good + 7 if fault == "run" else good
    before = [(*bits(p), p.version, p.is_leaf, p.requires_grad) for p in model.parameters()]
    with pytest.raises((RuntimeError, RefflowError, IndexError)):
        graph(x(), bad)
    assert [(*bits(p), p.version, p.is_leaf, p.requires_grad) for p in model.parameters()] == before
    broken[0] = False
    graph.config.set_gradient_accumulation_steps(1)
    graph(x(), good)
    assert [p.sbp for p in model.parameters()] == [(S(0),)] * 2
    (model(x()) * 0).sum().backward()
    assert all(p.grad is not None and p.grad.sbp == p.sbp for p in model.parameters())
