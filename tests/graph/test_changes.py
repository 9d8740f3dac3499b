"""What changes between the calls of a graph, and what build must not do unseen: the bits of eager code, or a typed error.

GRAPH-MODE, GRAPH-CALL, GRAPH-SHAPE, GRAPH-STATE, GRAPH-RANDOM, GRAPH-OPTIMIZER, GRAPH-SCALARS, GRAPH-RUNTIME.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import refflow as flow
from refflow import Tensor, nn
from refflow.errors import AttributeValueError, BoxingError, GraphError
from refflow.graph.api import Graph
from refflow.layout import Placement
from tests.graph.nets import rows
from tests.graph.running import B, S, bits

PAIR = Placement("cpu", [0, 1])
Named = namedtuple("Named", ["left", "right"])


class Made(Graph):
    """The graph of a function, with the modules it uses."""

    def __init__(self, function: Callable[..., Any], *modules: nn.Module) -> None:
        super().__init__()
        self.held, self._function = nn.ModuleList(modules), function

    def build(self, *args: Any) -> Any:
        return self._function(*args)


def batch(*shape: int, sbp: Any = None) -> Tensor:
    return flow.tensor(rows(*(shape or (8, 4))), placement=PAIR, sbp=S(0) if sbp is None else sbp)


def net() -> nn.Module:
    flow.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.LayerNorm(8)).to_global(PAIR, B)


def lazily_and_eagerly(run: Callable[[Callable[..., Any], nn.Module], list[Any]]) -> None:
    """`run` sees the same through a graph of the model and through the model."""
    found = []
    for lazy in (True, False):
        model = net()
        found.append(run(Made(model, model) if lazy else model, model))
    assert found[0] == found[1]


# --- GRAPH-MODE -------------------------------------------------------------------------------------------------------


def set_probability(model: nn.Module) -> None:
    model[1].p = 0.125


def set_epsilon(model: nn.Module) -> None:
    model[2].eps = 0.5


def add_hook(model: nn.Module) -> None:
    model[0].register_forward_hook(lambda module, args, result: result * 2)


def add_pre_hook(model: nn.Module) -> None:
    model[0].register_forward_pre_hook(lambda module, args: (args[0] * 2,))


def replace_module(model: nn.Module) -> None:
    model[1] = nn.Tanh()


def freeze(model: nn.Module) -> None:
    model.requires_grad_(False)


@pytest.mark.parametrize("change", [set_probability, set_epsilon, add_hook, add_pre_hook, replace_module, freeze])
def test_a_changed_module_is_traced_anew(change: Callable[[nn.Module], None]) -> None:
    """GRAPH-MODE: hyper-parameters, hooks, modules put in the place of others."""

    def run(call: Callable[..., Any], model: nn.Module) -> list[Any]:
        before = [bits(call(batch())) for _ in range(2)]
        change(model)
        return before + [bits(call(batch())) for _ in range(2)]

    lazily_and_eagerly(run)


def test_a_hook_that_was_removed_is_not_traced() -> None:
    """GRAPH-MODE: the trace of before is used again."""
    model = net().eval()
    graph, plain = Made(model, model), bits(model(batch()))
    assert bits(graph(batch())) == plain
    with model[0].register_forward_hook(lambda module, args, result: result * 2):
        assert bits(graph(batch())) != plain
    assert bits(graph(batch())) == plain and len(graph._traced) == 2


def test_which_parameters_and_inputs_require_gradients() -> None:
    """GRAPH-MODE: without an optimizer too, and of the inputs."""
    model = nn.Linear(4, 2).to_global(PAIR, B)

    def wanted(x: Tensor) -> Any:
        loss = (model(x) ** 2).sum()
        leaves = [t for t in (x, model.weight) if t.requires_grad]
        return [loss, *(flow.autograd.grad(loss, leaves) if leaves else ())]

    graph = Made(wanted, model)
    for of_weight in (True, False, True):
        model.requires_grad_(of_weight)
        for of_input in (False, True):
            x = batch().requires_grad_(of_input)
            assert bits(graph(x)) == bits(wanted(x)), (of_weight, of_input)
    assert len(graph._traced) == 4


def test_moves_are_refused_while_boxing_is_explicit() -> None:
    """GRAPH-MODE, SIG-EXPLICIT: though the call was traced while they were allowed."""
    graph, x, y = Made(lambda x, y: x + y), batch(4, 4), batch(4, 4, sbp=S(1))
    graph(x, y)
    with flow.boxing("explicit"), pytest.raises(BoxingError, match="explicit"):
        graph(x, y)
    graph(x, y)


def test_actors_use_the_back_end_in_force() -> None:
    """GRAPH-MODE: one that was in force when the call was traced first is not asked again."""

    class Counting:
        name = "counting"

        def __init__(self) -> None:
            self.inner, self.asked = flow.state.reference_backend(), 0

        def __getattr__(self, name: str) -> Any:
            return getattr(self.inner, name)

        def kernel(self, name: str) -> Any:
            kernel = self.inner.kernel(name)

            def run(*args: Any, **attrs: Any) -> Any:
                self.asked += 1
                return kernel(*args, **attrs)

            return run

    graph, x, one, two = Made(lambda x: flow.exp(x) + 1), batch(), Counting(), Counting()
    graph.config.runtime = "actors"
    for backend, other in ((one, two), (two, one), (one, two)):
        asked = backend.asked, other.asked
        with flow.state.Override(backends={"cpu": backend}):
            graph(x)
        assert backend.asked > asked[0] and other.asked == asked[1]


# --- arguments and results --------------------------------------------------------------------------------------------


def test_named_tuples_go_in_and_out() -> None:
    """GRAPH-CALL: as what they are."""
    graph = Made(lambda pair: Named(pair.left + 1, [pair.right]))
    for _ in range(2):
        found = graph(Named(batch(), batch()))
        assert type(found) is Named and bits(found.left) == bits(batch() + 1) and bits(found.right) == bits(batch())


@pytest.mark.parametrize("other", [(batch, batch), {"left": batch, "right": batch}, [batch, batch]], ids=["tuple", "dict", "list"])
def test_another_kind_of_nesting_is_refused(other: Any) -> None:
    """GRAPH-SHAPE: a pair is not a named pair, a dict of the same tensors or a list."""
    graph = Made(lambda pair: next(iter(pair.values() if isinstance(pair, dict) else pair)) + 1)
    graph(Named(batch(), batch()))
    made = {k: f() for k, f in other.items()} if isinstance(other, dict) else type(other)([f() for f in other])
    with pytest.raises(GraphError, match="traced for"):
        graph(made)


def test_an_empty_list_is_no_empty_dict() -> None:
    """GRAPH-SHAPE: nor an empty tuple."""
    graph = Made(lambda x, rest: x + (1 if isinstance(rest, dict) else 2))
    graph(batch(), {})
    for other in ([], ()):
        with pytest.raises(GraphError, match="traced for"):
            graph(batch(), other)


# --- gradients --------------------------------------------------------------------------------------------------------


def test_an_input_that_requires_a_gradient_finds_it_in_build() -> None:
    """GRAPH-OPTIMIZER: `.grad` of what build is given is the gradient, as eagerly."""

    def both(x: Tensor) -> Any:
        loss = (x * x).sum()
        loss.backward()
        return loss, x.grad

    graph = Made(both)
    for _ in range(2):
        x = batch().requires_grad_()
        assert bits(graph(x)) == bits(both(batch().requires_grad_())) and x.grad is None


def test_a_gradient_is_not_lost_unseen() -> None:
    """GRAPH-OPTIMIZER: of an input, or of parameters that no optimizer of the graph steps, if build does not read it."""
    model = net()

    def loss(x: Tensor) -> Tensor:
        found = (model(x) ** 2).sum()
        found.backward()
        return found

    with pytest.raises(GraphError, match=r"gradient for held\.0\.0\.weight, which would be lost"):
        Made(loss, model)(batch())
    stepped = Made(loss, model)
    stepped.add_optimizer(flow.optim.SGD(model[0].parameters(), lr=0.1))
    stepped(batch())
    with pytest.raises(GraphError, match="gradient for input 0"):
        stepped(batch().requires_grad_())
    assert all(p.grad is None for p in model.parameters())
    reads = Made(lambda x: (loss(x), [p.grad * 2 for p in model.parameters()]), model)
    reads(batch())


def test_two_optimizers_may_step_one_parameter() -> None:
    """GRAPH-OPTIMIZER: each steps with the gradient, one after the other, in every call."""
    found = []
    for lazy in (True, False):
        model = nn.Linear(4, 2).to_global(PAIR, B)
        with flow.no_grad():
            model.weight.fill_(0.5), model.bias.fill_(0.25)
        optimizers = [flow.optim.SGD(model.parameters(), lr=0.1), flow.optim.Adam(model.parameters(), lr=0.2)]

        def loss(x: Tensor, model: nn.Module = model) -> Tensor:
            made = (model(x) ** 2).mean()
            made.backward()
            return made

        def eager(x: Tensor, optimizers: Any = optimizers, loss: Any = loss) -> Tensor:
            made = loss(x)
            for optimizer in optimizers:
                optimizer.step()
            for optimizer in optimizers:
                optimizer.zero_grad()
            return made

        graph = Made(loss, model)
        for optimizer in optimizers:
            graph.add_optimizer(optimizer)
        step = graph if lazy else eager
        found.append([[bits(step(batch())) for _ in range(3)], bits(list(model.parameters()))])
    assert found[0] == found[1]


# --- GRAPH-RANDOM -----------------------------------------------------------------------------------------------------


def seeds(x: Tensor) -> Tensor:
    flow.manual_seed(flow.default_generator().seed)
    return x + flow.rand(*x.shape, placement=PAIR, sbp=B)


def seeds_at_the_end(x: Tensor) -> Tensor:
    made = x + flow.rand(*x.shape, placement=PAIR, sbp=B)
    flow.manual_seed(5)
    return made


def goes_back(x: Tensor) -> Tensor:
    before = flow.default_generator().state
    made = x + flow.rand(*x.shape, placement=PAIR, sbp=B)
    flow.default_generator().state = before
    return made + flow.rand(*x.shape, placement=PAIR, sbp=B)


@pytest.mark.parametrize("build", [seeds, seeds_at_the_end, goes_back])
def test_build_does_not_set_the_generator(build: Callable[[Tensor], Tensor]) -> None:
    """GRAPH-RANDOM: each call would have to do it again; the generator is as it was."""
    flow.manual_seed(3)
    before = flow.default_generator().state
    with pytest.raises(GraphError, match="seeds the default generator"):
        Made(build)(batch())
    assert flow.default_generator().state == before
    assert np.isfinite(Made(lambda x: x + flow.rand(*x.shape, placement=PAIR, sbp=B))(batch()).numpy()).all()


# --- what build must leave alone --------------------------------------------------------------------------------------


class Counter(nn.Module):
    """Adds how often it was called, in a buffer that it makes anew, or makes at its first call."""

    def __init__(self, late: bool, fails: bool = False) -> None:
        super().__init__()
        self.fails = fails
        if not late:
            self.register_buffer("calls", flow.zeros(1, placement=PAIR, sbp=B))

    def forward(self, x: Tensor) -> Tensor:
        if "calls" not in self._buffers:
            self.register_buffer("calls", flow.zeros(1, placement=PAIR, sbp=B))
        self.calls = self.calls + 1
        if self.fails:
            raise KeyError("of the user")
        return x + self.calls


@pytest.mark.parametrize("late", [False, True])
def test_build_does_not_make_buffers_anew(late: bool) -> None:
    """GRAPH-STATE: they would be lazy values; the module has what it had, also where build itself fails."""
    model, fails = Counter(late), Counter(late, fails=True)
    held = dict(model._buffers)
    with pytest.raises(GraphError, match="'calls' of a module anew"):
        Made(model, model)(batch())
    with pytest.raises(KeyError):
        Made(fails, fails)(batch())
    assert model._buffers == held and list(fails._buffers) == list(held)
    assert bits(model(batch())) == bits(batch() + 1)


def test_build_does_not_write_to_its_inputs() -> None:
    """GRAPH-STATE: eagerly the caller sees it; a copy may be written to."""
    for writes in (lambda x: x.mul_(2.0), lambda x: x[0].fill_(1.0), lambda x: x.detach().add_(1.0)):

        def build(x: Tensor, writes: Any = writes) -> Tensor:
            writes(x)
            return x + 1

        x = batch()
        with pytest.raises(GraphError, match="writes to input 0"):
            Made(build)(x)
        assert bits(x) == bits(batch()) and bits(Made(lambda x, f=build: f(x.clone()))(x)) == bits(build(batch()))


@pytest.mark.parametrize("kind", [flow.optim.SGD, flow.optim.AdamW])
def test_build_does_not_step_an_optimizer(kind: Any) -> None:
    """GRAPH-SCALARS: its rate would be a constant, and state that it makes would be lost."""
    model = net()
    optimizer = kind(model.parameters(), lr=0.1)

    def build(x: Tensor) -> Tensor:
        loss = (model(x) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss

    before = bits(list(model.parameters()))
    with pytest.raises(GraphError, match="add_optimizer"):
        Made(build, model)(batch())
    assert bits(list(model.parameters())) == before and not optimizer.state


def test_build_does_not_change_a_rate() -> None:
    """GRAPH-SCALARS: only the call that is traced would."""
    model = net()
    optimizer = flow.optim.SGD(model.parameters(), lr=0.5)

    def build(x: Tensor) -> Tensor:
        optimizer.param_groups[0]["lr"] *= 0.5
        loss = (model(x) ** 2).mean()
        loss.backward()
        return loss

    graph = Made(build, model)
    graph.add_optimizer(optimizer)
    with pytest.raises(GraphError, match="hyper-parameter"):
        graph(batch())
    assert optimizer.param_groups[0]["lr"] == 0.5 and len(optimizer.param_groups[0]["params"]) == 4


def test_a_mode_that_build_sets_is_eager_codes() -> None:
    """GRAPH-MODE: a trace that changed the mode serves no other call; one in the mode it sets does."""

    def run(call: Callable[..., Any], model: nn.Module, toggles: bool) -> list[Any]:
        def build(x: Tensor) -> Tensor:
            model.train(toggles and not model.training)
            return model(x)

        graph = Made(build, model) if isinstance(call, Made) else build
        found = [bits(graph(batch())) for _ in range(4)]
        if isinstance(graph, Made):
            assert len(graph._traced) == (0 if toggles else 1)
        return found

    for toggles in (False, True):
        lazily_and_eagerly(lambda call, model, toggles=toggles: run(call, model, toggles))


# --- configuration ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("accumulation_steps", 0), ("accumulation_steps", 2.0), ("accumulation_steps", True), ("zero_stage", 4), ("zero_stage", True),
        ("amp_dtype", "float16"), ("amp_dtype", np.dtype("float32")), ("schedule", 3), ("log_events", 1), ("keep_parts", "no"),
        ("accumulation_step", 2),
    ],
)  # fmt: skip
def test_settings_are_checked_when_they_are_set(name: str, value: Any) -> None:
    """GRAPH-RUNTIME: by the attribute too, before and after a call; nothing has changed."""
    graph = Made(lambda x: x + 1)
    for _ in range(2):
        before = vars(graph.config).copy()
        with pytest.raises(AttributeValueError, match=name):
            setattr(graph.config, name, value)
        assert vars(graph.config) == before
        graph(batch())


@pytest.mark.parametrize("wrong", [1, 1.0, "x", np.ones(3)], ids=type)
def test_an_argument_that_is_no_tensor_is_named_as_one(wrong: Any) -> None:
    """GRAPH-TRACE: not as a result of build."""
    with pytest.raises(GraphError, match=f"Made: a graph takes tensors .* found {type(wrong).__name__}"):
        Made(lambda x, y: x)(batch(), wrong)


# --- gradient hooks and frozen parameters -----------------------------------------------------------------------------


def trained(lazy: bool, zero: int, prepare: Callable[[nn.Module], Any], then: Callable[[Any], Any]) -> list[Any]:
    """Three steps after `prepare`, three after `then`, which gets what `prepare` gave: losses and parameters."""
    flow.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 2)).to_global(PAIR, B)
    optimizer = flow.optim.AdamW(model.parameters(), lr=0.1)

    def loss(x: Tensor) -> Tensor:
        made = (model(x) ** 2).mean()
        made.backward()
        return made

    def eager(x: Tensor) -> Tensor:
        made = loss(x)
        optimizer.step()
        optimizer.zero_grad()
        return made

    graph = Made(loss, model)
    graph.add_optimizer(optimizer)
    if zero:
        graph.config.enable_zero(stage=zero)
    step, found, given = graph if lazy else eager, [], prepare(model)
    for change in (lambda given: None, then):
        change(given)
        found += [bits(step(batch())) for _ in range(3)]
    return [*found, [flow.numerics.digest(p.detach().numpy()) for p in model.parameters()]]


@pytest.mark.parametrize("zero", [0, 1, 3])
def test_gradient_hooks_are_called(zero: int) -> None:
    """AUTO-LEAF, GRAPH-MODE: as eagerly, in traced calls too, and not once they are taken away."""

    def hooked(model: nn.Module) -> Any:
        return model[0].weight.register_hook(lambda g: g * 0.25), model[1].bias.register_hook(lambda g: g + 1)

    def taken_away(removes: Any) -> None:
        removes[0]()

    assert trained(True, zero, hooked, taken_away) == trained(False, zero, hooked, taken_away)


@pytest.mark.parametrize("zero", [0, 1, 3])
def test_a_frozen_parameter_stays_frozen(zero: int) -> None:
    """ZERO-PARAMETER: bringing parameters to parts does not make them want gradients."""

    def freeze(model: nn.Module) -> nn.Module:
        model[0].weight.requires_grad_(False)
        return model

    def thaw(model: nn.Module) -> None:
        assert [p.requires_grad for p in model.parameters()] == [False, True, True, True]
        model.requires_grad_(True)

    assert trained(True, zero, freeze, thaw) == trained(False, zero, freeze, thaw)


def test_state_that_was_laid_out_otherwise() -> None:
    """GRAPH-SCALARS: made before ZeRO-3 it is moved in each step, loaded it is where its parameter is; both are traced."""

    found = []
    for lazy in (True, False):
        flow.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 2)).to_global(PAIR, B)
        optimizer = flow.optim.Adagrad(model.parameters(), lr=0.1)

        def loss(x: Tensor, model: nn.Module = model) -> Tensor:
            made = (model(x) ** 2).mean()
            made.backward()
            return made

        def eager(x: Tensor, optimizer: Any = optimizer, loss: Any = loss) -> Tensor:
            made = loss(x)
            optimizer.step()
            optimizer.zero_grad()
            return made

        graph = Made(loss, model)
        graph.add_optimizer(optimizer)
        step = graph if lazy else eager
        seen = [bits(step(batch())) for _ in range(2)]
        graph.config.enable_zero(stage=3)
        for _ in range(2):
            seen += [bits(step(batch())) for _ in range(3)]
            first = next(iter(optimizer.state))
            optimizer.load_state_dict(optimizer.state_dict())
            seen += [bits(step(batch())) for _ in range(3)]
            sums = {"sum": optimizer.state[first]["sum"].to_global(sbp=B)}
            optimizer.state[first].update(sums)
        found.append(seen)
    assert found[0] == found[1]
