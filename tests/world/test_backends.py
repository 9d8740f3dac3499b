"""Back ends: which one computes on a device type, and that everything goes through the protocol."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from contextvars import Context
from functools import partial
from typing import Any

import numpy as np
import pytest

import refflow as flow
from refflow.errors import BackendError
from refflow.ir import Value
from refflow.world import devices
from tests.loopback import LoopbackBackend, Opaque
from tests.world.programs import PROGRAMS, Texts

S, B, P = flow.sbp.split, flow.sbp.broadcast, flow.sbp.partial_sum


def convolution(device: str = "cpu") -> Texts:
    """A training step with layers, a loss and an optimizer, on a device type."""
    where = flow.placement(device, [0, 1])
    flow.manual_seed(1)
    x = flow.randn(4, 2, 6, 6, placement=where, sbp=S(0))
    w = flow.randn(3, 2, 3, 3, placement=where, sbp=B, requires_grad=True)
    v = (flow.randn(12, 5, placement=where, sbp=B) * 0.1).detach().requires_grad_()
    y = flow.nn.functional.conv2d(x, w, padding=1).relu()
    y = flow.nn.functional.max_pool2d(y, 3).flatten(1) @ v
    loss = flow.nn.functional.cross_entropy(y, flow.tensor([0, 1, 2, 3], placement=where, sbp=S(0)))
    loss.backward()
    assert w.grad is not None and v.grad is not None
    order = y.detach().argsort(1)
    rows = flow.nn.functional.softmax(y, 1)
    texts = {name: flow.digest(t.detach().numpy()) for name, t in {"w": w.grad, "v": v.grad, "order": order, "rows": rows}.items()}
    return {**texts, "repr": repr(y.detach()).replace(device, "device"), "loss": str(loss.item())}


@pytest.mark.parametrize("program", [*PROGRAMS.values(), convolution], ids=[*PROGRAMS, "convolution"])
def test_everything_goes_through_the_back_end(program: Callable[[], Texts]) -> None:
    """KER-PROTOCOL, KER-BITS: on opaque arrays a whole program gives the reference's bits."""
    with flow.virtual_world(3):
        expected = program()
        backend = LoopbackBackend()
        with flow.bind_device("cpu", backend):
            assert program() == expected
    assert sum(backend.called.values()) > 0


def test_a_device_type_of_another_back_end() -> None:
    """WORLD-DEVICE: global tensors on it are that back end's, local ones stay on "cpu"; values cross by the host."""
    with flow.virtual_world(3):
        expected = convolution()
        backend = LoopbackBackend()
        with flow.bind_device("fast", backend):
            assert convolution("fast") == expected
            fast, slow = flow.placement("fast", [0, 1, 2]), flow.placement("cpu", [[2, 1]])
            x = flow.arange(7, dtype=flow.bfloat16, placement=fast, sbp=S(0))
            assert holds(x.value) is Opaque
            y = x.to_global(placement=slow, sbp=(B, S(0)))
            assert holds(y.value) is np.ndarray
            assert holds(y.to_global(placement=fast, sbp=P).value) is Opaque
            assert y.to_global(placement=fast, sbp=P).tolist() == list(range(7))
            assert holds(x.to_local().value) is np.ndarray
            back = flow.per_rank(lambda rank: [float(rank)]).to_global(placement=fast, sbp=S(0))
            assert holds(back.value) is Opaque and back.tolist() == [0.0, 1.0, 2.0]


@pytest.mark.parametrize("runtime", ["actors", "sequential"])
def test_a_graph_over_two_back_ends(runtime: str) -> None:
    """WORLD-DEVICE, PLAN-BOXING: a move from one back end to another is cut by the one and assembled by the other."""

    class There(flow.nn.Graph):
        def build(self, x: flow.Tensor) -> Any:
            fast, slow = flow.placement("fast", [0, 1]), flow.placement("cpu", [1, 0])
            y = (x * 2).to_global(placement=fast, sbp=S(0))
            return y.to_global(placement=slow, sbp=S(1)) + 1, y.sum(0)

    with flow.virtual_world(2), flow.bind_device("fast", LoopbackBackend()):
        x = flow.arange(6, placement=flow.placement("cpu", [0, 1]), sbp=S(0)).reshape(3, 2)
        graph = There()
        graph.config.runtime = runtime
        back, total = graph(x)
        assert back.tolist() == [[1, 3], [5, 7], [9, 11]] and holds(back.value) is np.ndarray
        assert total.tolist() == [12, 18] and holds(total.value) is Opaque


def holds(value: Value) -> type:
    return type(next(iter(value.shards.values())))


def test_lockstep_ranks_on_another_back_end() -> None:
    """KER-PROTOCOL: where arrays travel between ranks, they travel as host arrays."""
    with flow.virtual_world(3):
        expected = PROGRAMS["training"]()
    with flow.bind_device("cpu", LoopbackBackend()):
        assert flow.spmd(3, PROGRAMS["training"]) == [expected] * 3


def test_a_binding_ends_with_its_block() -> None:
    """WORLD-DEVICE"""
    where = flow.placement("cuda", [0])
    with flow.bind_device("cuda", "reference"):
        assert flow.ones(3, placement=where, sbp=B).sum().item() == 3
    with pytest.raises(BackendError, match=r"no back end is bound to device type 'cuda'; bound are: cpu"):
        flow.ones(3, placement=where, sbp=B)
    with pytest.raises(BackendError, match=r"install the extra .*refflow\[cuda\].* flow.bind_device\('cuda', 'cuda'\); .*'reference'"):
        flow.ones(3, placement=flow.placement("cpu", [0]), sbp=B).cuda()
    with pytest.raises(BackendError, match=r"bound are: cpu. Bind one with flow.bind_device\('tpu', 'reference'\)$"):
        flow.ones(3, placement=flow.placement("tpu", [0]), sbp=B)
    backend = LoopbackBackend()
    with flow.backend(backend):
        assert flow.ones(3).sum().item() == 3
    assert backend.called["sum"] == 1
    with flow.backend("reference"):
        assert holds(flow.ones(3).value) is np.ndarray


class _Plugin:
    """What `importlib.metadata` gives for an entry point."""

    def __init__(self, name: str, loaded: Any) -> None:
        self.name, self._loaded = name, loaded

    def load(self) -> Any:
        if isinstance(self._loaded, Exception):
            raise self._loaded
        return self._loaded


def test_back_ends_by_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    """KER-PLUGIN: a class, a function or an instance; found by name, made once."""
    instance = LoopbackBackend("third")
    plugins = [_Plugin("first", LoopbackBackend), _Plugin("second", lambda: instance), _Plugin("broken", ImportError("no GPU")),
               _Plugin("half", object()), _Plugin("third", instance)]  # fmt: skip
    monkeypatch.setattr(devices, "_entry_points", lambda group: plugins if group == "refflow.backends" else [])
    monkeypatch.setattr(devices, "_made", {})
    assert isinstance(devices.find_backend("first"), LoopbackBackend)
    assert devices.find_backend("first") is devices.find_backend("first")
    assert devices.find_backend("second") is devices.find_backend("third") is instance
    with pytest.raises(BackendError, match=r"'nothing'; there are: broken, cuda, first, half, numba, reference, second, third"):
        flow.bind_device("cpu", "nothing")
    with pytest.raises(BackendError, match=r"'broken' cannot be loaded: no GPU"):
        flow.backend("broken")
    with pytest.raises(BackendError, match=r"'half' is no back end .* it has no name, kernel"):
        flow.backend("half")


@pytest.mark.parametrize("given", [LoopbackBackend, 3, None])
def test_what_is_no_back_end_is_refused(given: Any) -> None:
    """KER-PLUGIN"""
    with pytest.raises(BackendError, match="is no back end"):
        flow.bind_device("cpu", given)


@pytest.mark.parametrize("given", ["", 3, None])
def test_what_is_no_device_type_is_refused(given: Any) -> None:
    """WORLD-DEVICE"""
    with pytest.raises(BackendError, match="device type must be a non-empty string"):
        flow.bind_device(given, "reference")


def test_the_environment_names_a_back_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """WORLD-ENVIRONMENT: read when settings are first needed; a name that is none is said where it comes from."""
    monkeypatch.setattr(devices, "_entry_points", lambda group: [_Plugin("fast", LoopbackBackend)])
    monkeypatch.setattr(devices, "_made", {})
    in_force = lambda: Context().run(lambda: flow.state.settings().backend("cpu").name)  # noqa: E731
    for named, found in (("", "reference"), ("reference", "reference"), ("fast", "loopback")):
        monkeypatch.setenv("REFFLOW_BACKEND", named)
        assert in_force() == found
    monkeypatch.setenv("REFFLOW_BACKEND", "abacus")
    with pytest.raises(BackendError, match=r"variable REFFLOW_BACKEND: no back end is named 'abacus'; there are: cuda, fast, "):
        in_force()
    monkeypatch.delenv("REFFLOW_BACKEND")
    assert in_force() == "reference"


def test_a_wrong_environment_ends_a_program_at_its_first_tensor() -> None:
    """WORLD-ENVIRONMENT, CLI-BACKEND: the import is as it was; commands end with one line and exit code 2."""
    environment = {**os.environ, "REFFLOW_BACKEND": "abacus"}
    run = partial(subprocess.run, env=environment, capture_output=True, text=True, timeout=60)
    assert run([sys.executable, "-c", "import refflow"]).returncode == 0
    script = run([sys.executable, "-c", "import refflow; refflow.ones(2)"])
    assert script.returncode == 1 and "BackendError: the environment variable REFFLOW_BACKEND" in script.stderr
    for command in (["train", "digits"], ["check"]):
        done = run([sys.executable, "-m", "refflow", *command])
        assert done.returncode == 2 and done.stderr.startswith("refflow: error: the environment variable REFFLOW_BACKEND")
