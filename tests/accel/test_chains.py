"""Chains of elementwise steps against the reference's kernels step by step (ACC-CHAIN, ACC-LOOP, ACC-GENERATED)."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from refflow_accel.chains import Chain, Step
from refflow_accel.cpu import abi
from refflow_accel.cpu.chain import DTYPES, apply_chain, keep, lie, prepare
from refflow_accel.cpu.chain_source import FLAT, ONE, SPREAD, parts, source
from refflow_accel.expressions import OPERANDS, REFUSED, result, serves

from refflow.kernels.reference import KERNELS
from refflow.numerics.bits import same_bits
from tests.strategies import arbitrary, seeds

Array = np.ndarray[Any, Any]
F = "float32"
MADE = 14  # kernels that the random chains may compile


def step_by_step(chain: Chain, arrays: tuple[Array, ...]) -> list[Array]:
    """What the reference's kernels give, at the broadcast shape."""
    shape = np.broadcast_shapes(*(array.shape for array in arrays))
    values = list(arrays)
    with np.errstate(all="ignore"):
        for step in chain.steps:
            attrs = {"dtype": DTYPES[step.dtype]} if step.op == "cast" else {}
            values.append(np.asarray(KERNELS[step.op](*(values[o] for o in step.operands), **attrs)))
    return [np.broadcast_to(values[o], shape) for o in chain.outputs]


def check(chain: Chain, *arrays: Array) -> None:
    made = apply_chain(abi.CALL, chain, *arrays)
    for value, found, expected in zip(chain.outputs, made, step_by_step(chain, arrays), strict=True):
        assert same_bits(found, expected), f"{chain}: {value}, {chain.dtype(value)}"


def draw(dtype: str, shape: tuple[int, ...], seed: int) -> Array:
    return arbitrary(np.random.default_rng(seed), shape, DTYPES[dtype])


# --- the chains that matter -------------------------------------------------------------------------------------------


def steps(inputs: int, text: str) -> tuple[Step, ...]:
    """float32 steps from lines such as "mul 0 5"."""
    made = [line.split() for line in text.strip().splitlines()]
    return tuple(Step(op, tuple(map(int, operands)), F) for op, *operands in made)


MOMENTUM = Chain((F,) * 6, steps(6, "mul 0 5\n add 1 6\n mul 2 3\n add 8 7\n mul 9 4\n sub 0 10"), (11, 9))
ADAMW = Chain(
    (F,) * 13,
    steps(13, """mul 2 5\n mul 1 6\n add 13 14\n mul 3 7\n mul 1 1\n mul 17 8\n add 16 18\n div 19 10\n sqrt 20\n add 21 11
                 mul 4 12\n mul 0 23\n sub 0 24\n div 15 9\n mul 26 4\n div 27 22\n sub 25 28"""),
    (29, 15, 19),
)  # fmt: skip
GELU_BACKWARD = Chain(
    (F,) * 5,
    steps(
        5,
        "mul 0 2\n erf 5\n add 6 3\n mul 7 3\n mul 0 0\n mul 9 3\n neg 10\n exp 11\n mul 0 12\n mul 13 4\n add 8 14\n mul 1 15",
    ),
    (16,),
)
GELU_BOTH = Chain(  # forward and backward, as a training step has them
    (F,) * 6,
    steps(6, "mul 0 2\n erf 6\n add 7 3\n mul 8 3\n mul 0 0\n mul 4 10\n exp 11\n mul 0 12\n add 9 13\n mul 1 14\n gelu 0"),
    (16, 15),
)
SOFTMAX = Chain((F, F), steps(2, "sub 0 1\n exp 2"), (3,))


@pytest.mark.parametrize("threads", [1, 2])
def test_optimizers_gelu_and_softmax(threads: int) -> None:  # ACC-CHAIN, ACC-THREADS
    before = abi.set_threads(threads)
    try:
        for shape in ((700, 73), (33, 5), ()):
            for chain in (MOMENTUM, ADAMW, GELU_BACKWARD):
                arrays = [draw(F, shape, i) for i in range(4)] + [draw(F, (), i) for i in range(4, 13)]
                tensors = {MOMENTUM: 3, ADAMW: 4, GELU_BACKWARD: 2}[chain]
                check(chain, *arrays[:tensors], *arrays[4 : 4 + len(chain.inputs) - tensors])
        x = draw(F, (700, 73), 1)
        check(SOFTMAX, x, x.max(1, keepdims=True))
    finally:
        abi.set_threads(before)


def test_gelu_and_its_gradient_in_one_chain() -> None:  # ACC-JOINT
    assert source(GELU_BOTH, (FLAT, FLAT, ONE, ONE, ONE, ONE)).heavy == ("gelu_terms",)
    x, g = draw(F, (33, 50), 1), draw(F, (33, 50), 2)
    x[:20] = np.random.default_rng(0).standard_normal((20, 50))
    for factor in (np.sqrt(0.5), 3.0):  # erf of what GELU asks for, and of another product
        check(GELU_BOTH, x, g, *(np.array(c, F) for c in (factor, 1.0, -0.5, 0.4)))


@pytest.mark.parametrize(
    "lines, heavy",
    [
        ("gelu 0\n mul 0 1\n erf 3", ("gelu", "erf")),  # no exp
        ("gelu 0\n mul 0 1\n erf 3\n exp 3", ("gelu", "erf", "exp")),  # of no square
        ("gelu 0\n mul 0 0\n mul 1 3\n exp 4\n mul 1 1\n erf 6", ("gelu", "exp", "erf")),  # erf of another number
        ("gelu 0\n mul 0 2\n erf 3\n mul 0 0\n mul 1 5\n exp 6", ("gelu", "exp", "erf")),  # erf only after gelu
        ("mul 0 0\n mul 2 1\n exp 3\n mul 1 0\n erf 5\n gelu 0\n exp 1", ("gelu_terms", "exp")),
    ],
)
def test_only_terms_of_gelu_are_joined(lines: str, heavy: tuple[str, ...]) -> None:  # ACC-JOINT
    made = steps(2, lines)
    results = tuple(i for i, step in enumerate(made, 2) if step.op in ("gelu", "erf", "exp"))
    chain = Chain((F, F), made, results)
    assert source(chain, (FLAT, FLAT)).heavy == heavy
    rounded = tuple(Step(step.op, step.operands, "bfloat16") for step in made)
    assert "gelu_terms" not in source(Chain(("bfloat16",) * 2, rounded, results), (FLAT, FLAT)).heavy


# --- random chains ----------------------------------------------------------------------------------------------------


HEAVY = ["pow", "exp", "erf"] * 5


@st.composite
def chains(
    draw_: Any, of: tuple[str, ...] = (F, F, *DTYPES), ops: tuple[str, ...] = (*sorted(OPERANDS), *HEAVY)
) -> Chain:
    """2 to 12 steps on 1 to 4 inputs of the dtypes `of`; casts bring together what has to be of one dtype."""
    dtypes = draw_(st.lists(st.sampled_from(of), min_size=1, max_size=4))
    first, made = len(dtypes), []
    dtypes = list(dtypes)
    for _ in range(draw_(st.integers(2, 12))):
        x = draw_(st.integers(0, len(dtypes) - 1))
        mates = [i for i, dtype in enumerate(dtypes) if dtype == dtypes[x]]
        masks = [i for i, dtype in enumerate(dtypes) if dtype == "bool"]
        op = draw_(st.sampled_from(ops))
        operands = [draw_(st.sampled_from(mates)) for _ in range(OPERANDS[op])]
        if op == "where" and masks:
            operands[0] = draw_(st.sampled_from(masks))
        given_ = tuple(dtypes[o] for o in operands)
        to = draw_(st.sampled_from(list(DTYPES))) if op == "cast" else result(op, given_)
        if serves(op, given_, to) and not (op in REFUSED and given_[0] not in ("float32", "float16", "bfloat16")):
            made.append(Step(op, tuple(operands), to))
            dtypes.append(to)
    last = len(dtypes) - 1
    outputs = draw_(st.lists(st.integers(0, last), min_size=1, max_size=3)) if not made else [last]
    outputs += draw_(st.lists(st.integers(0, last), max_size=2))
    return Chain(tuple(dtypes[:first]), tuple(made), tuple(outputs))


@settings(deadline=None, max_examples=MADE, phases=[Phase.explicit, Phase.reuse, Phase.generate])  # shrinking compiles
@given(
    chains(), st.integers(0, 2**16), st.sampled_from([(1,), (13, 41), (600,), (2, 0), (3, 5, 7), ()]), st.integers(0, 3)
)
def test_random_chains(chain: Chain, seed: int, shape: tuple[int, ...], narrow: int) -> None:  # ACC-CHAIN
    arrays = [draw(dtype, shape, seed + i) for i, dtype in enumerate(chain.inputs)]
    if narrow < len(arrays) and len(shape) > 1:
        arrays[narrow] = arrays[narrow][..., :1]
    check(chain, *arrays)


def heavy_chain(rng: np.random.Generator) -> Chain:
    """Up to 9 steps, half of them heavy, of which the last is a result (uniform draws reach more than small ones)."""
    dtype = str(rng.choice([F, "float16"]))
    made = []
    for k in range(2, rng.integers(4, 12)):
        op = str(rng.choice(["pow", "exp", "add", "neg"]))
        made.append(Step(op, tuple(map(int, rng.integers(0, k, OPERANDS[op]))), dtype))
    return Chain((dtype, dtype), tuple(made), (len(made) + 1, int(rng.integers(0, len(made) + 2))))


@settings(deadline=None)
@given(seeds)
def test_parts_read_only_what_is_there(seed: int) -> None:  # ACC-GENERATED
    """Without compiling: every step is carried out once, after what it needs; and what a part reads has been kept."""
    rng = np.random.default_rng(seed)
    for _ in range(20):  # few chains can go wrong at all
        chain = heavy_chain(rng)
        check_parts(chain, tuple(map(str, rng.choice([FLAT, ONE, SPREAD], len(chain.inputs)))))


def check_parts(chain: Chain, layouts: tuple[str, ...]) -> None:
    there, done, first = set(range(len(chain.inputs))), [], len(chain.inputs)
    for part in parts(chain, layouts):
        assert there.issuperset(part.reads)
        now = set(part.reads)
        for value in part.steps:
            assert now.issuperset(chain.steps[value - first].operands)
            now.add(value)
        assert now.issuperset(part.keeps)
        there.update(part.keeps)
        for value in part.heavy:
            assert there.issuperset(chain.steps[value - first].operands)
            there.add(value)
        done += [*part.steps, *part.heavy]
    assert now.issuperset(chain.outputs) and len(done) == len(set(done))
    assert source(chain, layouts) == source(chain, layouts)
    compile(source(chain, layouts).text, "chain", "exec")


def test_heavy_functions_of_heavy_functions() -> None:  # ACC-GENERATED
    """A plain step of the first part, read by nothing but a heavy function of the second."""
    check(Chain((F,), steps(1, "abs 0\n erf 0\n pow 1 2"), (3,)), draw(F, (1100,), 5))


def test_halves_are_rounded_at_every_step() -> None:  # ACC-EXPRESSION
    for dtype in ("float16", "bfloat16"):
        x, y, z = (draw(dtype, (999,), i) for i in range(3))
        lines = (
            Step("mul", (0, 1), dtype),
            Step("add", (3, 2), dtype),
            Step("exp", (4,), dtype),
            Step("mul", (5, 0), dtype),
        )
        check(Chain((dtype,) * 3, lines, (6, 5)), x, y, z)


def test_nothing_is_contracted() -> None:  # ACC-CHAIN
    chain = Chain((F,) * 3, steps(3, "mul 0 1\n add 3 2"), (4,))
    x, y = draw(F, (5000,), 1), draw(F, (5000,), 2)
    with np.errstate(all="ignore"):
        check(chain, x, y, -(x * y))


# --- how operands lie -------------------------------------------------------------------------------------------------


def test_layouts() -> None:  # ACC-CHAIN
    x = np.zeros((4, 5, 6), np.float32)
    assert lie(x, (4, 5, 6)) == (FLAT, ())
    assert lie(x[:1], (1, 5, 6)) == (FLAT, ())
    assert lie(x[0], (4, 5, 6)) == (SPREAD, (2, 4, 30, 0, 1))
    assert lie(x[:, :1, :1], (4, 5, 6)) == (SPREAD, (2, 4, 30, 30, 0))
    assert lie(x[:1, :1, :1], (4, 5, 6)) == (ONE, ())
    assert lie(np.broadcast_to(x[0, 0, 0], (4, 5, 6)), (4, 5, 6)) == (ONE, ())
    assert lie(x.transpose(2, 0, 1), (6, 4, 5)) == (SPREAD, (2, 6, 20, 1, 6))
    assert lie(x[::-1, ::-1, ::-1], (4, 5, 6)) == (SPREAD, (1, 120, -1))
    odd = np.zeros(10, np.dtype([("a", np.float32), ("b", np.int8)]))["a"]
    assert lie(odd, (10,)) is None
    assert apply_chain(abi.CALL, Chain((F,), steps(1, "neg 0"), (1,)), odd) is NotImplemented


@pytest.mark.parametrize("inner", [1, 2, 3, 10, 23, 24, 25, 511, 512, 513])
def test_rows_of_every_length(inner: int) -> None:  # ACC-LOOP
    chain = Chain((F, F), steps(2, "sub 0 1"), (2,))
    rows = 1500 // inner + 2
    x = draw(F, (2, rows, inner), 1)
    wide = draw(F, (2, rows, 2 * inner), 2)
    repeated = [x[0, 0], x[0], x[:, :1], x[..., :1], x[:, :1, :1]]
    strided = [wide[..., ::2], wide[..., inner:], wide[::-1, ::-1, 1::2], x[..., ::-1]]
    for other in repeated + strided:
        check(chain, x, other)
        check(chain, other, x)


class InPlace(abi.Call):
    """A program that puts the results where operands are."""

    def __init__(self, *where: Array) -> None:
        self.where = list(where)

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Array:
        return self.where.pop(0)


@pytest.mark.parametrize("chain", [MOMENTUM, GELU_BACKWARD, SOFTMAX])
def test_results_may_take_the_place_of_operands(chain: Chain) -> None:  # ACC-LOOP
    arrays = [draw(F, (5000,), i) for i in range(len(chain.inputs))]
    expected = step_by_step(chain, tuple(arrays))
    made = apply_chain(InPlace(*arrays[: len(chain.outputs)]), chain, *arrays)
    assert all(found is array for found, array in zip(made, arrays))
    assert all(same_bits(found, value) for found, value in zip(made, expected))


@pytest.mark.parametrize(
    "chain", [MOMENTUM, ADAMW, Chain((F, F), steps(2, "maximum 0 1"), (2,)), Chain((F,), steps(1, "relu 0"), (1,))]
)
def test_loops_are_vectorised(chain: Chain) -> None:  # ACC-LOOP
    """Whatever the number of arrays: packed arithmetic appears in the machine code (checked on x86 only)."""
    prepared = prepare(chain)
    assert prepared is not None
    code = prepared.kernel((FLAT,) * len(chain.inputs))[0].compiled._library.get_asm_str()
    if "x86" in code or "%rsp" in code:
        assert re.search(r"\bv?(add|mul|max|cmp\w*)ps\b", code)


# --- sources as files -------------------------------------------------------------------------------------------------


def test_a_source_is_named_by_its_content() -> None:  # ACC-GENERATED
    one, same = (source(Chain((F,), steps(1, "neg 0"), (1,)), (FLAT,)).text for _ in range(2))
    other = source(Chain((F,), steps(1, "abs 0"), (1,)), (FLAT,)).text
    assert keep(one) == keep(same) != keep(other)
    assert keep(one).read_text() == one and keep(one).stat().st_mtime == 0


PROGRAM = """
import numpy as np
from refflow_accel.chains import Chain, Step
from refflow_accel.cpu import abi
from refflow_accel.cpu.chain import apply_chain
x = np.arange(1000, dtype=np.float32)
made = []
for k in range(3):
    chain = Chain(("float32",), (Step("mul", (0, 0), "float32"), *[Step("neg", (i + 1,), "float32") for i in range(k)]), (k + 1,))
    made.append(float(apply_chain(abi.CALL, chain, x)[0].sum()))
print(made)
"""


def test_processes_that_fill_one_cache_at_once(tmp_path: Path) -> None:  # ACC-GENERATED, ACC-CACHE
    root = Path(__file__).parents[2]
    environment = {**os.environ, "REFFLOW_CACHE": str(tmp_path), "PYTHONPATH": f"{root}{os.pathsep}{root / 'accel'}"}
    start = [sys.executable, "-c", PROGRAM]
    several = [
        subprocess.Popen(start, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    told = [process.communicate(timeout=300) for process in several]
    assert all(process.returncode == 0 for process in several), told
    again = subprocess.run(start, env=environment, capture_output=True, text=True, timeout=300, check=True).stdout
    assert {out for out, _ in told} == {again}
    files = list(tmp_path.rglob("generated/*"))
    assert len([f for f in files if f.suffix == ".py"]) == 3 and not [f for f in files if f.suffix == ".tmp"]
