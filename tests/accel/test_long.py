"""The long comparison: every elementwise primitive on random bit patterns, and large folds, products and gathers.

KER-BITS, ACC-EXPRESSION, ACC-MATMUL, ACC-REDUCE, ACC-SCATTER.  Only with HYPOTHESIS_PROFILE=long: some 10^8 elements, minutes
of the reference's time.  REFFLOW_COMPARED=FILE appends how many elements each test compared.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
from refflow_accel.cpu.backend import NumbaBackend
from refflow_accel.cpu.chain import DTYPES
from refflow_accel.expressions import OPERANDS, REFUSED, result, serves

from refflow.kernels import ReferenceBackend
from refflow.numerics.bits import first_difference, same_bits

LONG = os.environ.get("HYPOTHESIS_PROFILE") == "long"
pytestmark = pytest.mark.skipif(not LONG, reason="the long comparison: HYPOTHESIS_PROFILE=long")
FAST, REFERENCE = NumbaBackend(), ReferenceBackend()
SEED = int.from_bytes(os.urandom(4), "little") if LONG else 0
ELEMENTS = 1 << 20


def any_bits(rng: np.random.Generator, dtype: str, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Every bit pattern is as likely as every other."""
    kind = DTYPES[dtype]
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    n = int(np.prod(shape))
    return np.frombuffer(rng.bytes(n * kind.itemsize), np.uint8).view(kind).reshape(shape)


def compare(name: str, *arrays: np.ndarray[Any, Any], **attrs: Any) -> None:
    expected = REFERENCE.kernel(name)(*arrays, **attrs)
    found = FAST.kernel(name)(*arrays, **attrs)
    if not same_bits(found, expected):
        at = first_difference(found, expected)
        raise AssertionError(f"{name}, seed {SEED}, at {at}: {found[at]!r}, reference {expected[at]!r}")
    if "REFFLOW_COMPARED" in os.environ:
        with open(os.environ["REFFLOW_COMPARED"], "a") as record:
            record.write(f"{name} {arrays[-1].dtype.name} {expected.size}\n")


@pytest.mark.parametrize("dtype", sorted(DTYPES))
@pytest.mark.parametrize("op", sorted(OPERANDS.keys() - {"cast", "where"}))
def test_elementwise(op: str, dtype: str) -> None:
    dtypes = (dtype,) * OPERANDS[op]
    if not serves(op, dtypes, result(op, dtypes)) or (op in REFUSED and dtype not in ("float32", "float64")):
        pytest.skip("no expression, or one that refuses some data")
    rng = np.random.default_rng(SEED)
    slow = op in ("gelu", "pow", "rsqrt", "erf")
    compare(op, *[any_bits(rng, kind, (ELEMENTS >> (2 if slow else 0),)) for kind in dtypes])


@pytest.mark.parametrize("source", sorted(DTYPES))
@pytest.mark.parametrize("target", sorted(DTYPES))
def test_casts(source: str, target: str) -> None:
    compare("cast", any_bits(np.random.default_rng(SEED), source, (ELEMENTS >> 2,)), dtype=DTYPES[target])


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16", "int64", "int8"])
@pytest.mark.parametrize("dims", [(0,), (1,), (2,), (0, 2), (2, 1, 0)])
def test_sums(dtype: str, dims: tuple[int, ...]) -> None:
    rng = np.random.default_rng(SEED)
    x = rng.standard_normal((97, 64, 130)).astype(np.float32) * np.exp2(rng.integers(-20, 20, (97, 64, 130)))
    compare("sum", x.astype(DTYPES[dtype]), dims=dims)
    compare("amax", x.astype(DTYPES[dtype]), dims=dims)


@pytest.mark.parametrize("shape", [(300, 512, 301), (1024, 128, 384), (129, 1024, 80), (64, 784, 256), (7, 5000, 9)])
def test_products(shape: tuple[int, int, int]) -> None:
    rng = np.random.default_rng(SEED)
    m, k, n = shape
    x = (rng.standard_normal((m, k)) * np.exp2(rng.integers(-30, 30, (m, k)))).astype(np.float32)
    compare("matmul", x, rng.standard_normal((k, n)).astype(np.float32))


def test_scattered_sums() -> None:
    rng = np.random.default_rng(SEED)
    index = rng.integers(0, 300, 4096)
    compare("index_add", index, rng.standard_normal((4096, 64)).astype(np.float32), dim=0, size=300, at={"v": (0, 300, 300)})
