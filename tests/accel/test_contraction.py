"""Matrix products and convolutions of the back end "numba" have the reference's bits (ACC-MATMUL, ACC-CONV).

Sizes lie around the edges of leaves and tiles; operands lie as views do.  The reference is slow, so examples are small.
"""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from refflow_accel.cpu import abi
from refflow_accel.cpu.backend import NumbaBackend
from refflow_accel.cpu.kernels import contraction, convolution, correlation
from refflow_accel.cpu.kernels.tiles import program
from refflow_accel.cpu.registry import NATIVE

from refflow.errors import ShapeError
from refflow.kernels.reference import KERNELS
from refflow.kernels.reference.movement import windows
from refflow.numerics.bits import same_bits
from tests.strategies import arbitrary, examples, special_values

Array = np.ndarray[Any, Any]

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
DTYPES = [np.dtype(np.float32)] * 6 + [
    *map(np.dtype, ("float64", "float64", "float16", "int8", "uint8", "int32", "int64")), BFLOAT16,
]  # fmt: skip
EDGES = [1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 18, 31, 32, 33, 34, 48, 63, 64, 65]
seeds = st.integers(0, 2**32 - 1)


@pytest.fixture(params=[1, 2], ids=["one thread", "two threads"])
def threads(request: Any, monkeypatch: Any) -> Iterator[int]:
    """Kernels cut their tasks for that many threads, however small the work."""
    monkeypatch.setattr(abi, "WORTH", 1.0)
    before = abi.set_threads(request.param)
    yield request.param
    abi.set_threads(before)


def check(name: str, *arrays: Array, **attributes: Any) -> Array:
    """The native kernel's result, after it was found to be the reference's."""
    made = NATIVE[name](abi.CALL, *arrays, **attributes)
    assert made is not NotImplemented
    with np.errstate(all="ignore"):
        expected = KERNELS[name](*arrays, **attributes)
    assert made.shape == expected.shape and made.dtype == expected.dtype
    assert same_bits(made, expected), f"{name} of {[(a.dtype.name, a.shape, a.strides) for a in arrays]}, {attributes}"
    return made


def lying(rng: np.random.Generator, x: Array, how: str) -> Array:
    """The same values in memory as a transpose, a slice of something larger, reversed, or a broadcast has them."""
    if how == "turned":
        return np.ascontiguousarray(x.mT).mT
    if how == "sliced":
        wide = np.zeros((*x.shape[:-2], 2 * x.shape[-2] + 1, 3 * x.shape[-1] + 2), x.dtype)
        wide[..., 1::2, 1:-1:3] = x
        return wide[..., 1::2, 1:-1:3]
    if how == "reversed":
        return np.ascontiguousarray(x[..., ::-1, ::-1])[..., ::-1, ::-1]
    if how == "repeated":
        return np.broadcast_to(x[..., :1, :], x.shape)
    return x


WAYS = st.sampled_from(["plain", "plain", "turned", "turned", "sliced", "reversed", "repeated"])


# --- ACC-MATMUL -------------------------------------------------------------------------------------------------------


def test_the_tree_is_halved_as_numerics_says() -> None:
    """ACC-MATMUL: a postfix program of leaves of at most 16 terms, the first half the larger."""
    assert program(16).tolist() == [[16, 0]]
    assert program(17).tolist() == [[9, 0], [8, 1]]
    assert program(33).tolist() == [[9, 0], [8, 1], [16, 1]]
    for k in (1, 100, 784, 4096, 4097):
        tree = program(k)
        assert tree[:, 0].sum() == k and tree[:, 0].max() <= 16 and tree[:, 1].sum() == len(tree) - 1


@examples(60)
@given(data=st.data(), seed=seeds)
def test_products_have_the_references_bits(data: Any, seed: int) -> None:
    """ACC-MATMUL: any shape, strides, dtype and values; factors packed or read where they lie."""
    rng = np.random.default_rng(seed)
    dtype = data.draw(st.sampled_from(DTYPES))
    m, n = data.draw(st.sampled_from(EDGES)), data.draw(st.sampled_from(EDGES))
    k = data.draw(st.sampled_from([*EDGES, 130, 144, 257]))
    x = lying(rng, arbitrary(rng, (m, k), dtype), data.draw(WAYS))
    y = lying(rng, arbitrary(rng, (k, n), dtype), data.draw(WAYS))
    packed = data.draw(st.tuples(st.booleans(), st.booleans()))
    with pytest.MonkeyPatch.context() as patch:
        if packed[0]:
            patch.setattr(contraction, "_pack_left", lambda *sizes: True)
        if packed[1]:
            patch.setattr(contraction, "_pack_right", lambda *sizes: True)
        contraction.plan.cache_clear()
        check("matmul", x, y)
    contraction.plan.cache_clear()


BATCHES = [
    ((), (3,)),
    ((3,), ()),
    ((5,), (5,)),
    ((2, 1), (3,)),
    ((2, 3), (1, 3)),
    ((1,), (4,)),
    ((4, 1), (1, 1)),
    ((2, 3), ()),
]


@examples(40)
@given(batch=st.sampled_from(BATCHES), m=st.sampled_from(EDGES[:12]), k=st.sampled_from([1, 8, 17, 33]),
       n=st.sampled_from([1, 9, 16, 33]), ways=st.tuples(WAYS, WAYS), seed=seeds)  # fmt: skip
def test_batches_broadcast(batch: Any, m: int, k: int, n: int, ways: tuple[str, str], seed: int) -> None:
    """ACC-MATMUL: one factor for all, one each, and both ways at once."""
    rng = np.random.default_rng(seed)
    x = lying(rng, arbitrary(rng, (*batch[0], m, k), np.float32), ways[0])
    y = lying(rng, arbitrary(rng, (*batch[1], k, n), np.float32), ways[1])
    check("matmul", x, y)


@pytest.mark.parametrize(
    "shape", [(64, 64, 32), (64, 32, 10), (10, 64, 32), (300, 20, 70), (33, 1040, 256), (520, 600, 520)]
)
def test_products_of_training(shape: tuple[int, int, int], threads: int) -> None:
    """ACC-MATMUL: sizes that are cut into blocks, that are packed, for one thread and for two."""
    rng = np.random.default_rng(sum(shape))
    m, k, n = shape
    x, y = (rng.standard_normal(size).astype(np.float32) for size in ((m, k), (k, n)))
    if m * k * n < 1 << 24:
        check("matmul", x, y)
        check("matmul", np.ascontiguousarray(x.T).T, np.ascontiguousarray(y.T).T)
    else:  # too long for the reference: some rows and columns of it
        made = NATIVE["matmul"](abi.CALL, np.ascontiguousarray(x.T).T, y)
        rows, columns = slice(509, None), slice(0, None, 37)
        assert same_bits(made[rows, columns], KERNELS["matmul"](x[rows], y[:, columns]))


def test_attention(threads: int) -> None:
    """ACC-MATMUL: batches of small products, transposed by stride."""
    rng = np.random.default_rng(3)
    q, key = (rng.standard_normal((2, 4, 24, 32)).astype(np.float32) for _ in range(2))
    check("matmul", q, key.mT)
    heads = rng.standard_normal((2, 24, 4, 8)).astype(np.float32).transpose(0, 2, 1, 3)
    check("matmul", heads, heads.mT)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_zeros_keep_their_signs(dtype: Any) -> None:
    """ACC-MATMUL: -0.0 only if every product is -0.0; subnormal products and sums are kept."""
    values = special_values(dtype)
    for k, columns in itertools.product((1, 2, 16, 17, 40), (1, 17, 40)):
        rng = np.random.default_rng(k)
        check("matmul", -np.zeros((9, k), dtype), np.ones((k, columns), dtype))
        check("matmul", rng.choice(values[3:7], (9, k)), rng.choice(values[3:], (k, columns)))
        check("matmul", rng.choice(values, (9, k)), rng.choice(values, (k, columns)))


def test_nothing_to_contract_and_nothing_to_compute() -> None:
    """ACC-MATMUL: k = 0 gives -0.0, empty results are empty; what the reference refuses is refused."""
    kernel = NumbaBackend().kernel("matmul")
    made = kernel(np.zeros((3, 0), np.float32), np.zeros((0, 4), np.float32))
    assert same_bits(made, np.full((3, 4), -0.0, np.float32))
    assert kernel(np.zeros((0, 5), np.float32), np.zeros((5, 4), np.float32)).shape == (0, 4)
    assert kernel(np.zeros((2, 0, 3, 5), np.float32), np.zeros((5, 4), np.float32)).shape == (2, 0, 3, 4)
    with pytest.raises(ShapeError):
        kernel(np.zeros((3, 2), np.float32), np.zeros((3, 4), np.float32))


def test_nothing_is_read_or_written_past_the_edges() -> None:
    """ACC-MATMUL: NaNs around the operands do not show, and what lies around the result stays."""
    rng = np.random.default_rng(7)
    for m, k, n in itertools.product((1, 4, 6, 9, 13), (3, 17), (1, 7, 17, 33, 40)):
        x, y = np.full((m + 16, k + 16), np.nan, np.float32), np.full((k + 16, n + 40), np.nan, np.float32)
        inner = x[3 : 3 + m, 2 : 2 + k], y[4 : 4 + k, 5 : 5 + n]
        for part in inner:
            part[...] = rng.standard_normal(part.shape)
        out = np.full((m + 2) * n, 7, np.float32)

        class Inside(abi.Call):
            def empty(self, shape: Any, dtype: Any) -> Array:
                return out[n : n + m * n].reshape(shape)  # noqa: B023

        made = NATIVE["matmul"](Inside(), *inner)
        assert same_bits(made, KERNELS["matmul"](*inner))
        assert (out[:n] == 7).all() and (out[n + m * n :] == 7).all()


# --- ACC-CONV ---------------------------------------------------------------------------------------------------------


def gradients(x: Array, w: Array, g: Array, **geometry: Any) -> None:
    """conv2d and its two gradients."""
    check("conv2d", x, w, **geometry)
    check("conv2d_input", g, w, size=x.shape[2:], **geometry)
    check("conv2d_filter", x, g, size=w.shape[2:], **geometry)


pairs = st.tuples(st.integers(1, 3), st.integers(1, 3))


@examples(60)
@given(data=st.data(), kernel=pairs, stride=pairs, dilation=st.tuples(st.integers(1, 2), st.integers(1, 2)),
       padding=st.tuples(st.integers(0, 3), st.integers(0, 3)), seed=seeds)  # fmt: skip
def test_convolutions_have_the_references_bits(
    data: Any, kernel: Any, stride: Any, dilation: Any, padding: Any, seed: int
) -> None:
    """ACC-CONV: any geometry, groups, dtype and values, specials at absent taps among them."""
    rng = np.random.default_rng(seed)
    dtype = data.draw(st.sampled_from(DTYPES))
    groups, c, o = data.draw(st.tuples(st.integers(1, 3), st.sampled_from([1, 2, 5]), st.sampled_from([1, 2, 5, 8, 9])))
    n, size = data.draw(st.sampled_from([1, 2, 5])), data.draw(st.tuples(st.integers(3, 10), st.integers(3, 10)))
    out = tuple(map(windows, size, kernel, stride, padding, dilation))
    if 0 in out:
        return
    x = lying(rng, arbitrary(rng, (n, groups * c, *size), dtype), data.draw(WAYS))
    w = arbitrary(rng, (groups * o, c, *kernel), dtype)
    g = arbitrary(rng, (n, groups * o, *out), dtype)
    gradients(x, w, g, stride=stride, padding=padding, dilation=dilation, groups=groups)


@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf, 0.0, -0.0, 3e38])
def test_absent_taps_contribute_nothing(special: float) -> None:
    """ACC-CONV: a weight or gradient that meets padding only does not show, whatever it is; nor does it turn -0 into +0."""
    rng = np.random.default_rng(11)
    x = -np.zeros((3, 2, 4, 4), np.float32)
    w = np.full((9, 2, 3, 3), special, np.float32)
    geometry = {"stride": (1, 1), "padding": (4, 4), "dilation": (1, 1), "groups": 1}
    made = check("conv2d", x, w, **geometry)
    assert same_bits(made[:, :, 0], np.full_like(made[:, :, 0], -0.0))  # its window holds padding alone
    gradients(rng.standard_normal(x.shape).astype(np.float32), w, np.full(made.shape, special, np.float32), **geometry)
    w[...] = rng.standard_normal(w.shape)
    w[:, :, 0], w[:, :, :, 2] = special, special
    gradients(x, w, arbitrary(rng, (3, 9, 4, 4), np.float32, 0.3), **(geometry | {"padding": (1, 1)}))


@pytest.mark.parametrize("shape", [(64, 1, 8, 16), (20, 16, 8, 20), (2, 70, 5, 24), (3, 3, 17, 4)])
def test_convolutions_of_training(shape: tuple[int, int, int, int], threads: int) -> None:
    """ACC-CONV: sizes of more than one task, panel and chunk of k, for one thread and for two."""
    n, c, size, o = shape
    rng = np.random.default_rng(o)
    x = np.maximum(rng.standard_normal((n, c, size, size)), 0).astype(np.float32)
    w, g = (rng.standard_normal(s).astype(np.float32) for s in ((o, c, 3, 3), (n, o, size, size)))
    gradients(x, w, g, stride=(1, 1), padding=(1, 1), dilation=(1, 1), groups=1)


@pytest.mark.parametrize("stride", [(2, 2), (3, 2), (5, 4)])
@pytest.mark.parametrize("size", [(1, 1), (3, 3), (4, 5), (7, 6)])
@pytest.mark.parametrize("special", [0.0, np.nan])
def test_gradients_of_strides(stride: Any, size: Any, special: float) -> None:
    """ACC-CONV: pixels that few taps read, or none, so that leaves of the tree have one term or have lost them all."""
    rng = np.random.default_rng(sum(size))
    for c, o, dilation in ((1, 12, (1, 1)), (5, 3, (2, 1)), (3, 9, (1, 3))):
        x, w = arbitrary(rng, (2, o, 23, 21), np.float32, special), arbitrary(rng, (c, o, *size), np.float32, special)
        out = tuple(map(windows, x.shape[2:], size, stride, (2, 1), dilation))
        g = arbitrary(rng, (2, c, *out), np.float32, special)
        gradients(x, w, g, stride=stride, padding=(2, 1), dilation=dilation, groups=1)


def test_chunks_of_a_long_k(monkeypatch: Any) -> None:
    """ACC-CONV: a tree cut at any leaf goes on where it was."""
    rng = np.random.default_rng(5)
    x, w, g = (arbitrary(rng, shape, np.float32, 0.0) for shape in ((3, 6, 7, 7), (19, 6, 3, 3), (3, 19, 7, 7)))
    for chunk in (16, 33, 50):
        monkeypatch.setattr(convolution, "CHUNK", chunk)
        for function in (convolution.forward, convolution.to_input, convolution.to_filter):
            function.cache_clear()
        for dtype in (np.float32, np.float64):
            geometry = {"stride": (1, 1), "padding": (1, 1), "dilation": (1, 1), "groups": 1}
            gradients(x.astype(dtype), w.astype(dtype), g.astype(dtype), **geometry)
    for function in (convolution.forward, convolution.to_input, convolution.to_filter):
        function.cache_clear()


def test_some_of_the_groups() -> None:
    """ACC-CONV: where arrays hold some groups only, `shape` says how many."""
    rng = np.random.default_rng(2)
    x, w, g = (arbitrary(rng, shape, np.float32) for shape in ((2, 4, 5, 5), (6, 2, 3, 3), (2, 6, 5, 5)))
    geometry = {"stride": (1, 1), "padding": (1, 1), "dilation": (1, 1), "groups": 4}
    check("conv2d", x, w, **geometry)
    check("conv2d_input", g, w, size=(5, 5), shape=(2, 4, 5, 5), **geometry)
    check("conv2d_filter", x, g, size=(3, 3), shape=(6, 2, 3, 3), **geometry)


GUARDED = """
import ctypes, itertools, mmap
import numpy as np
import refflow_accel.cpu.backend
from refflow_accel.cpu import abi
from refflow_accel.cpu.registry import NATIVE

def at_the_end(shape):
    size = -(-int(np.prod(shape)) * 4 // mmap.PAGESIZE) * mmap.PAGESIZE
    area = mmap.mmap(-1, size + mmap.PAGESIZE)
    start = ctypes.addressof(ctypes.c_char.from_buffer(area))
    assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(start + size), mmap.PAGESIZE, 0) == 0
    return np.frombuffer(area, np.float32, int(np.prod(shape)), size - int(np.prod(shape)) * 4).reshape(shape)

for m, k, n in itertools.product((4, 8, 9, 14, 20), (3, 17), (1, 7, 17, 33, 40)):
    NATIVE["matmul"](abi.CALL, at_the_end((m, k)), at_the_end((k, n)))
geometry = dict(stride=(1, 1), padding=(1, 1), dilation=(1, 1), groups=1)
for c, o, size in ((1, 9, 5), (3, 12, 8)):
    x, w, g = (at_the_end(s) for s in ((2, c, size, size), (o, c, 3, 3), (2, o, size, size)))
    NATIVE["conv2d"](abi.CALL, x, w, **geometry)
    NATIVE["conv2d_input"](abi.CALL, g, w, size=(size, size), **geometry)
    NATIVE["conv2d_filter"](abi.CALL, x, g, size=(3, 3), **geometry)
    apart = geometry | {"stride": (2, 3)}
    g = at_the_end(NATIVE["conv2d"](abi.CALL, x, w, **apart).shape)
    NATIVE["conv2d_input"](abi.CALL, g, w, size=(size, size), **apart)
    NATIVE["conv2d_filter"](abi.CALL, x, g, size=(3, 3), **apart)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="mprotect")
def test_no_page_past_an_operand_is_touched() -> None:
    """ACC-MATMUL, ACC-CONV: operands that end where memory ends."""
    done = subprocess.run([sys.executable, "-c", GUARDED], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]


def test_the_numbers_of_a_correlations_table_are_named_once() -> None:  # ACC-CONV
    """Compiled code reads the table by the constants, `convolution` writes it by the names: both have one order."""
    other = {"columns": "COLUMNS_OF", "rows": "ROWS_OF", "scattered": "SCATTERED_OUT"}  # whose own names mean more
    found = [getattr(correlation, other.get(name, name.upper())) for name in correlation.FIELDS]
    assert found == list(range(len(correlation.FIELDS)))
