"""The back end "cuda" in Numba's simulator, against the reference: run by test_simulator.py in a process of its own."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator

os.environ["NUMBA_ENABLE_CUDASIM"] = "1"  # before Numba is imported, which it must not have been

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from refflow_accel import gpu_check
from refflow_accel.cuda import cases, memory, target
from refflow_accel.cuda.backend import CudaBackend, to_host
from refflow_accel.cuda.cases import Case
from refflow_accel.cuda.kernels import tiles
from refflow_accel.cuda.registry import FAMILIES, HOST, PRIMITIVES

import refflow as flow
from refflow.errors import DataError
from refflow.kernels import ReferenceBackend
from refflow.kernels.reference import KERNELS
from refflow.numerics import digest_many, same_bits
from refflow.numerics.rounding import fma32
from tests.accel.primitives_alike import NAMES, assert_alike
from tests.strategies import WORLD, examples

BACKEND = CudaBackend()
SCALES = [(0, 9), (1, 9), (2, 9), (3, 20), (4, 37)]


@pytest.mark.parametrize("seed, n", SCALES)
@pytest.mark.parametrize("chapter", cases.CHAPTERS, ids=lambda chapter: chapter.__name__)
def test_every_kernel_has_the_bits_of_the_reference(chapter, seed: int, n: int) -> None:  # ACC-CUDA-SIM
    layouts = itertools.cycle(cases.LAYOUTS[seed % 3 :] + cases.LAYOUTS[: seed % 3])
    wrong = [
        cases.difference(BACKEND, case, how) for case, how in zip(chapter(np.random.default_rng(seed), n), layouts)
    ]
    assert [found for found in wrong if found] == []


@pytest.mark.parametrize("name", NAMES)
@examples(4)
@given(st.data())
def test_every_primitive_forward_and_backward(name: str, data: st.DataObject) -> None:  # ACC-CUDA-SIM
    with flow.virtual_world(WORLD), flow.state.Override(generator=flow.Generator()):
        assert_alike(BACKEND, name, data, ("float32", "bfloat16", "int64", "bool"))


def test_there_is_a_case_of_every_kernel() -> None:  # ACC-CUDA-SIM
    assert {case.name for case, _ in cases.every_case(0, 9)} == set(KERNELS)


def test_every_primitive_is_native_or_listed() -> None:  # ACC-CUDA-BACKEND
    assert set(KERNELS) - set(PRIMITIVES) == {"argsort"} and "argsort" in HOST


def test_every_family_was_launched() -> None:  # ACC-CUDA-SIM (the cases above are what launches them)
    assert [name for name, family in FAMILIES.items() if not family._kernels] == []


@pytest.mark.parametrize("case", cases.bad_data(), ids=lambda case: case.name)
def test_bad_data_raise_the_error_of_the_reference(case: Case) -> None:  # ACC-CUDA-BACKEND
    with pytest.raises(DataError) as wanted:
        ReferenceBackend().kernel(case.name)(*case.arrays, **case.attrs)
    with pytest.raises(type(wanted.value)) as found:
        BACKEND.kernel(case.name)(*map(BACKEND.from_host, case.arrays), **case.attrs)
    assert str(found.value) == str(wanted.value)


@pytest.mark.parametrize("k", [1, 15, 16, 17, 32, 33, 48, 100, 513, tiles.LONGEST + 5])
def test_chains_and_trees_of_any_length(k: int) -> None:  # ACC-CUDA-SIM
    rng = np.random.default_rng(k)
    arrays = cases.ordinary(rng, (3, k), np.float32), cases.ordinary(rng, (k, 2), np.float32)
    assert cases.difference(BACKEND, Case("matmul", arrays), "plain") is None


@pytest.mark.parametrize("n", [*range(1, 36), 63, 64, 65, 127, 200])
def test_sums_of_any_length(n: int) -> None:  # ACC-CUDA-SIM
    rng = np.random.default_rng(n)
    for shape, dims in (((n, 2), (0,)), ((2, n), (1,)), ((n,), (0,))):
        assert (
            cases.difference(BACKEND, Case("sum", (cases.ordinary(rng, shape, np.float32),), {"dims": dims}), "plain")
            is None
        )


def test_the_simulated_fma_rounds_once() -> None:  # ACC-CUDA-SIM
    rng = np.random.default_rng(0)
    a, b, c = (cases.values(rng, 2000, np.float32) for _ in range(3))
    with np.errstate(all="ignore"):
        made = np.array([target.simulator.fma(*row) for row in zip(a, b, c)])
    assert same_bits(made, fma32(a, b, c))
    midpoint = np.float32(1 + 2**-12), np.float32(1 - 2**-23), np.float32(2**-60)
    assert same_bits(np.asarray(target.simulator.fma(*midpoint)), fma32(*midpoint))


# --- memory -----------------------------------------------------------------------------------------------------------


def test_blocks_are_given_out_again_on_their_stream_only() -> None:  # ACC-CUDA-MEMORY
    memory.POOL.trim()
    first = memory.empty((1000,), np.float32)
    raw = first.block.raw
    del first
    with memory.using(memory.named_stream("other")):
        assert memory.empty((1000,), np.float32).block.raw is not raw
    assert memory.empty((1000,), np.float32).block.raw is raw


def test_a_view_keeps_its_block() -> None:  # ACC-CUDA-MEMORY
    x = BACKEND.from_host(np.arange(12, dtype=np.float32).reshape(3, 4))
    view = BACKEND.kernel("transpose")(x, perm=(1, 0))
    assert view.block is x.block and view.shape == (4, 3)
    del x
    others = [memory.empty((3, 4), np.float32) for _ in range(4)]
    assert same_bits(to_host(view), np.arange(12, dtype=np.float32).reshape(3, 4).T) and len(others) == 4


def test_work_on_a_stream_waits_for_the_stream_that_made_its_operands(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the block's next life waits for that work (ACC-CUDA-MEMORY)."""
    order: list[tuple[str, str]] = []
    names = {id(memory.DEFAULT): "default", id(memory.named_stream("copy")): "copy"}
    monkeypatch.setattr(
        memory.Stream, "wait_for", lambda self, other: order.append((names[id(self)], names[id(other)]))
    )
    x = BACKEND.from_host(np.ones(3, np.float32))
    with memory.using(memory.named_stream("copy")):
        BACKEND.kernel("neg")(x)
    assert order == [("copy", "default")]
    del x
    assert order[-1] == ("default", "copy")


@pytest.mark.parametrize("nbytes", [0, 1, 512, 513, 1000, 4097, 10**6, 10**9 + 1])
def test_size_classes(nbytes: int) -> None:  # ACC-CUDA-MEMORY
    size = memory.size_class(nbytes)
    assert size >= nbytes and memory.size_class(size) == size and (size == 512 or size < 1.25 * nbytes)


def test_arrays_beyond_the_index_type_are_refused() -> None:  # ACC-CUDA-MEMORY
    with pytest.raises(flow.errors.BackendError, match="up to 2147483647 elements"):
        memory.empty((1 << 16, 1 << 15), np.int8)


# --- whole programs ---------------------------------------------------------------------------------------------------


@pytest.fixture
def device() -> Iterator[None]:
    with flow.virtual_world(2), flow.state.Override(generator=flow.Generator()), flow.bind_device("cuda", BACKEND):
        yield


@pytest.mark.parametrize("k", [6, 64])
def test_tensors_on_the_device_type(device: None, k: int) -> None:  # ACC-CUDA-BACKEND
    where = flow.placement("cuda", [0, 1])
    rng = np.random.default_rng(0)
    a, b = (cases.ordinary(rng, shape, np.float32) for shape in ((4, k), (k, 2)))
    x = flow.tensor(a, placement=where, sbp=flow.sbp.split(1))
    w = flow.tensor(b, placement=where, sbp=flow.sbp.split(0))
    made = (x @ w).to_global(sbp=flow.sbp.broadcast).numpy()
    assert same_bits(made, ReferenceBackend().kernel("matmul")(a, b))


def mlp_step() -> str:
    """The hash of the weights after one step of the job's MLP on two images."""
    from refflow.cli.digits import optimizer, smoothed_loss
    from refflow.models import mlp

    digits = flow.data.load_digits()
    model = mlp()
    optimize = optimizer(model, 3e-3)
    smoothed_loss(model(flow.tensor(digits.train_images[:2])), flow.tensor(digits.train_labels[:2])).backward()
    optimize.step()
    return digest_many({name: value.numpy() for name, value in model.state_dict().items()})


def cnn_step() -> str:
    """The same of its CNN, on one image."""
    from refflow.cli.digits import optimizer, smoothed_loss
    from refflow.models import cnn

    digits = flow.data.load_digits()
    model = cnn()
    optimize = optimizer(model, 3e-3)
    smoothed_loss(model(flow.tensor(digits.train_images[:1])), flow.tensor(digits.train_labels[:1])).backward()
    optimize.step()
    return digest_many({name: value.numpy() for name, value in model.state_dict().items()})


def gpt_step() -> str:
    """The same of a small language model."""
    from refflow.models import GPT
    from refflow.nn.functional import cross_entropy
    from refflow.optim import AdamW

    model = GPT(vocabulary=7, context=6, layers=1, width=8, heads=2)
    optimize = AdamW(model.parameters(), lr=1e-3)
    tokens = np.random.default_rng(0).integers(0, 7, (2, 7))
    scores = model(flow.tensor(tokens[:, :-1])).reshape(-1, 7)
    cross_entropy(scores, flow.tensor(tokens[:, 1:].reshape(-1))).backward()
    optimize.step()
    return digest_many({name: value.numpy() for name, value in model.state_dict().items()})


@pytest.mark.parametrize("step", [mlp_step, cnn_step, gpt_step], ids=lambda step: step.__name__)
def test_a_training_step_has_the_hash_of_the_reference(step) -> None:  # ACC-CUDA-SIM
    hashes = set()
    for one in (BACKEND, "reference"):
        with flow.state.Override(generator=flow.Generator()), flow.backend(one):
            flow.manual_seed(0)
            hashes.add(step())
    assert len(hashes) == 1


def test_the_timings_of_the_check_run() -> None:  # ACC-GPU-CHECK
    rows = list(gpu_check.speed(BACKEND, gpu_check.Clock(60), True))
    assert [row["unit"] for row in rows] == ["steps/s"] * 2 + ["GB/s"] * 4 + ["GFLOP/s"] and all(
        row["refflow"] >= 0 for row in rows
    )


def test_a_graph_of_actors_runs_on_the_streams_of_its_plan() -> None:  # KER-STREAM
    """Arrays cross from the stream that made them (the default one, at first) to the plan's."""
    where = flow.placement("cuda", [0])

    class Product(flow.nn.Graph):
        def build(self, x: flow.Tensor) -> flow.Tensor:
            return (x @ x).exp()

    with flow.bind_device("cuda", BACKEND):
        graph = Product()
        graph.config.runtime = "actors"
        x = flow.tensor(np.float32([[1, 2], [3, -4]]), placement=where, sbp=flow.sbp.broadcast)
        assert same_bits(graph(x).numpy(), (x @ x).exp().numpy())
        assert memory.named_stream("compute") is memory.named_stream("compute") is not memory.DEFAULT


def test_memory_for_mpi_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:  # KER-WIRE, ACC-CUDA-BACKEND
    """Behind what made the block, on whatever stream; bytes in row-major order, from the view's first element."""
    done: list[str] = []
    waited, synchronized = memory.Stream.wait_for, memory.Stream.synchronize
    monkeypatch.setattr(memory.Stream, "wait_for", lambda self, other: (done.append("wait"), waited(self, other))[1])
    monkeypatch.setattr(memory.Stream, "synchronize", lambda self: (done.append("synchronize"), synchronized(self))[1])
    whole = BACKEND.from_host(np.arange(12, dtype=np.int16).reshape(3, 4))
    part = BACKEND.kernel("slice_box")(whole, slices=(slice(1, 3), slice(0, 4)))
    done.clear()
    with BACKEND.stream("comm"):
        wire = BACKEND.wire(part)
    assert done == ["wait", "synchronize"] and wire.keeper.block is whole.block  # no copy of what lies in a row
    start = memory.address_of(whole.block.view)
    assert wire.__cuda_array_interface__["data"] == (start + 8, False) and wire.nbytes == 16
    assert BACKEND.wire(whole.view((4, 3), (1, 4))).keeper.block is not whole.block
    done.clear()
    made, landing = BACKEND.landing((2, 0), np.dtype(bool))
    assert done == ["synchronize"] and landing.keeper is made and landing.nbytes == 0
