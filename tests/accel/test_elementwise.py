"""Compiled elementwise primitives against the reference's kernels, to the bit (ACC-EXPRESSION, ACC-CHAIN)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refflow_accel.chains import Chain, Step
from refflow_accel.cpu import abi
from refflow_accel.cpu.backend import NumbaBackend
from refflow_accel.cpu.chain import DTYPES, apply_chain, chain_serves
from refflow_accel.expressions import ELEMENTARY, HALVES, OPERANDS, REFUSED, result, serves

from refflow.errors import DataError
from refflow.kernels.reference import KERNELS
from refflow.numerics.bits import first_difference, same_bits
from tests.strategies import arbitrary, special_values

Array = np.ndarray[Any, Any]
FLOATS = ("float32", "float64", "float16", "bfloat16")
BACKEND = NumbaBackend()


def interesting(dtype: str) -> Array:
    """Specials and their neighbours, halves between integers, integer extremes."""
    kind = DTYPES[dtype]
    cast = KERNELS["cast"]
    if dtype == "bool":
        return np.array([True, False])
    if dtype in FLOATS:
        some = [0.5, 1.5, 2.5, -0.5, -2.5, 3.0, -7.0, 1e-3, 88.9, -104.2, 11.5, 255.5, 65519.0, 65520.0, 1e30, -1e-40]
        wide = [127.5, -128.9, 128.0, 2.0**31, -(2.0**31), 2.0**63, -(2.0**63), 2.0**53 + 2, -0.99, 2.0**-24, 2.0**-25]
        wide += [1.0 + 2.0**-9]
        return np.concatenate([special_values(kind), cast(np.array(some + wide), dtype=kind)])
    ends = np.iinfo(kind)
    some = [0, 1, 2, 3, 7, 10, ends.min, ends.min + 1, ends.max, ends.max - 1, ends.max // 3]
    return np.array(some + [-1, -2, -5] * (ends.min < 0), kind)


def ordinary(dtype: str, n: int, seed: int) -> Array:
    return arbitrary(np.random.default_rng(seed), (n,), DTYPES[dtype], 0.1)


def data(dtype: str, n: int = 1300) -> tuple[Array, Array]:
    """Every pair of interesting values, then ordinary ones; n is more than two blocks, and odd."""
    some = interesting(dtype)
    x, y = np.repeat(some, some.size), np.tile(some, some.size)
    return np.concatenate([x, ordinary(dtype, n, 1)]), np.concatenate([y, ordinary(dtype, n, 2)])


def assert_same(found: Array, expected: Array, *about: Any) -> None:
    if not same_bits(found, expected):
        at = first_difference(found, expected)
        raise AssertionError(f"{about} at {at}: {found[at]!r}, reference {expected[at]!r}")


def reference(op: str, arrays: tuple[Array, ...], to: str) -> Array:
    with np.errstate(all="ignore"):
        return np.asarray(KERNELS[op](*arrays, **({"dtype": DTYPES[to]} if op == "cast" else {})))


def everything(dtype: str) -> Chain:
    """Every primitive on x and y of one dtype (and a bool c), each step a result; integers' y may not be refused.

    Of the heavy functions, which are the same for all, 16-bit floats take a few.
    """
    steps = []
    for op, count in OPERANDS.items():
        dtypes = ("bool", dtype, dtype) if op == "where" else (dtype,) * count
        targets = DTYPES if op == "cast" else [result(op, dtypes)]
        if dtype in HALVES and op in ELEMENTARY[1:-1]:
            continue
        for to in targets:
            if serves(op, dtypes, to) and not (op in REFUSED and dtype not in FLOATS):
                steps.append(Step(op, {1: (0,), 2: (0, 1), 3: (2, 0, 1)}[count], to))
    return Chain((dtype, dtype, "bool"), tuple(steps), tuple(range(3, 3 + len(steps))))


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_primitive_is_the_reference(dtype: str) -> None:  # ACC-EXPRESSION
    x, y = data(dtype)
    c = np.arange(x.size) % 3 == 0
    chain = everything(dtype)
    made = apply_chain(abi.CALL, chain, x, y, c)
    for step, found in zip(chain.steps, made, strict=True):
        operands = tuple((x, y, c)[o] for o in step.operands)
        assert_same(found, reference(step.op, operands, step.dtype), step.op, dtype, step.dtype)


@pytest.mark.parametrize("dtype", ["int8", "int64", "uint8"])
def test_integers_that_may_be_refused(dtype: str) -> None:  # ACC-EXPRESSION
    x, y = data(dtype)
    y = np.where(y == 0, y.dtype.type(3), y)
    power = abs(y.astype(np.int64) % 70).astype(y.dtype)
    steps = (Step("floor_divide", (0, 1), dtype), Step("remainder", (0, 1), dtype), Step("pow", (0, 2), dtype))
    made = apply_chain(abi.CALL, Chain((dtype,) * 3, steps, (3, 4, 5)), x, y, power)
    for step, found in zip(steps, made, strict=True):
        assert_same(found, reference(step.op, (x, power if step.op == "pow" else y), dtype), step.op)


def test_what_has_no_expression_is_left_to_the_reference() -> None:  # ACC-EXPRESSION
    """For every primitive and dtype: either the reference's result has the dtype the table says, or there is no row."""
    for dtype in DTYPES:
        x = interesting(dtype)[:1]
        for op, count in OPERANDS.items():
            dtypes = ("bool", dtype, dtype) if op == "where" else (dtype,) * count
            to = result(op, dtypes)
            if op != "cast" and serves(op, dtypes, to) and op not in REFUSED:
                operands = (np.array([True]), x, x) if op == "where" else (x,) * count
                assert reference(op, operands, to).dtype.name == to, (op, dtype)
    for op in ELEMENTARY:
        assert not serves(op, ("float64",), "float64")
    assert not serves("add", ("float32", "float64"), "float64")


@pytest.mark.parametrize("op", ["floor_divide", "remainder", "pow"])
def test_bad_data_raise_the_references_error(op: str) -> None:  # ACC-EXPRESSION
    x = np.arange(2000, dtype=np.int32)
    y = np.ones(2000, np.int32)
    assert_same(BACKEND.kernel(op)(x, y), reference(op, (x, y), "int32"))
    y[1777] = -1 if op == "pow" else 0
    with pytest.raises(DataError) as compiled:
        BACKEND.kernel(op)(x, y)
    with pytest.raises(DataError) as plain:
        KERNELS[op](x, y)
    assert str(compiled.value) == str(plain.value)


def test_a_refusal_nobody_reads_is_still_one() -> None:  # ACC-CHAIN
    chain = Chain(("int32", "int32"), (Step("floor_divide", (0, 1), "int32"), Step("add", (0, 1), "int32")), (3,))
    with pytest.raises(abi.Refused):
        apply_chain(abi.CALL, chain, np.ones(3, np.int32), np.zeros(3, np.int32))


QUIET = """
import numpy as np
from refflow_accel.cpu.backend import NumbaBackend
for op, dtype in (("pow", np.int32), ("remainder", np.float32), ("floor_divide", np.float32), ("add", np.int64)):
    NumbaBackend().kernel(op)(np.ones(9, dtype), np.ones(9, dtype))
"""


def test_compiling_says_nothing(tmp_path: Path) -> None:
    """ACC-LOOP: LLVM warns of loops that it is told to vectorise and cannot; none of them is."""
    environment = {**os.environ, "REFFLOW_CACHE": str(tmp_path), "PYTHONWARNINGS": "error"}
    done = subprocess.run([sys.executable, "-c", QUIET], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and done.stdout + done.stderr == ""


def test_the_back_end_falls_back() -> None:  # ACC-BACKEND, ACC-EXPRESSION
    x = np.array([0.5, 2.0])
    assert_same(BACKEND.kernel("exp")(x), reference("exp", (x,), "float64"))
    assert not chain_serves(Chain(("float64",), (Step("exp", (0,), "float64"),), (1,)))


def views(x: Array, shape: tuple[int, ...], way: str) -> Array:
    """An array of this shape that lies in some way, with elements of x."""
    n = int(np.prod(shape, dtype=int))
    if way == "flat":
        return x[:n].reshape(shape).copy()
    if way == "reversed":
        return x[:n].reshape(shape)[(..., *(slice(None, None, -1) for _ in shape))]
    if way == "transposed":
        return x[:n].reshape(shape[::-1]).T
    if way == "sliced":
        wide = x[: n * 2 ** len(shape)].reshape([2 * extent for extent in shape])
        return wide[(..., *(slice(None, None, 2) for _ in shape))]
    if way == "repeated":
        return np.broadcast_to(x[:1].reshape(()), shape)
    if way == "row":
        return x[: shape[-1] if shape else 1].reshape(shape[-1:])
    if way == "column":
        column = (*shape[:-1], 1) if shape else ()
        return x[: int(np.prod(column, dtype=int))].reshape(column)
    return x[: shape[0] if shape else 1].reshape(shape[:1] + (1,) * (len(shape) - 1))  # "outer"


WAYS = ("flat", "reversed", "transposed", "sliced", "repeated", "row", "column", "outer")
SHAPES: list[tuple[int, ...]] = [(), (0,), (1,), (3, 0), (7,), (513,), (1025,), (3, 5), (1, 1), (700, 3), (2, 600)]
SHAPES += [(4, 1, 6), (5, 130, 3), (2, 3, 4, 5), (40, 1, 40)]


@settings(deadline=None)
@given(st.sampled_from(SHAPES), st.sampled_from(WAYS), st.sampled_from(WAYS), st.sampled_from([1, 2]))
def test_shapes_and_layouts(shape: tuple[int, ...], first: str, second: str, threads: int) -> None:  # ACC-CHAIN
    pool = ordinary("float32", 40_000, 3)
    x, y = views(pool, shape, first), views(pool[7:], shape, second)
    before = abi.set_threads(threads)
    try:
        for op in ("sub", "exp"):
            operands = (x, y) if op == "sub" else (x,)
            assert_same(BACKEND.kernel(op)(*operands), reference(op, operands, "float32"), op)
    finally:
        abi.set_threads(before)


@pytest.mark.parametrize("dtype", ["bool", "int8", "float16", "float64"])
def test_layouts_of_other_sizes(dtype: str) -> None:  # ACC-CHAIN
    pool = ordinary(dtype, 5000, 4)
    for first, second in (("transposed", "row"), ("sliced", "column"), ("flat", "repeated")):
        x, y = views(pool, (9, 70), first), views(pool, (9, 70), second)
        assert_same(BACKEND.kernel("maximum")(x, y), reference("maximum", (x, y), dtype), first, second)
