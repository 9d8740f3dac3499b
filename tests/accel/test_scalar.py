"""The scalar functions, their block forms and random numbers against the definition, to the bit (ACC-SCALAR, ACC-BLOCK)."""

from __future__ import annotations

import ast
import importlib
import inspect
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from refflow.kernels.reference import KERNELS
from refflow.numerics import dtypes, elementary, order, philox
from refflow.numerics.bits import same_bits

numba = pytest.importorskip("numba")

from refflow_accel import exhaust  # noqa: E402
from refflow_accel.scalar import blocks, dialect, draws, exponentials  # noqa: E402
from refflow_accel.scalar.instantiate import FLOAT32, SOURCES, python  # noqa: E402
from refflow_accel.scalar.target_cpu import OPTIONS, cpu  # noqa: E402

Array = np.ndarray[Any, Any]
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
ROUNDED = (*blocks.FAST, "sqrt")

ODD = np.float32(
    [0.0, 1.0, 2.0, 0.5, 1.5, 2.5, 3.0, 4.0, 9.0, 15.0, 16.0, 0.25, 0.125, 1 / 3, 10.0, 88.72284, 103.97208, 104.0, 1e30]
    + [2.0**-149, 2.0**-126, 2.0**-127, 2.0**-60, 2.0**-25, 2.0**-24, 2.0**22 + 0.5, 2.0**23, 2.0**24, 1.0 + 2.0**-23, 1.0 - 2.0**-24]
    + [np.inf, np.nan, 3.4028235e38, 3.925, 13.1, 14.9, np.pi / 2, np.pi, 1e6, 3e6, 65504.0, 65519.996, 65520.0]
)
SPECIAL = np.concatenate([ODD, -ODD])

# Inputs on which a good binary64 library, rounded to float32, errs or cannot tell (found by refflow_accel.exhaust).
HARD: dict[str, list[int]] = {
    "exp": [0x33800000, 0x36FDFFC1, 0x377EFF81, 0x383A3EF1, 0x38E69CC1, 0x39C6BE5B, 0x39E5BB1D, 0x3D1A274E, 0x3FE67199]
    + [0x4001B249, 0x40315B33, 0x41CBF87B, 0x4288942B, 0xB3000000, 0xBAE0E25C, 0xBBB70EE8, 0xBBF0EDF1, 0xBC2A461A]
    + [0xC13D6631, 0xC16912CD],
    "expm1": [0x33B504F3, 0x34CA62C1, 0x350F1BBC, 0x3566C158, 0x35C542DE, 0x36322B1B, 0x37B61385, 0x3A254E7A, 0x3AE8F114]
    + [0x3B234E53, 0x3B643F1B, 0x3CBC3C2A, 0x3DC252DD, 0x4001B249, 0x40315B33, 0x4288942B, 0xB3800000, 0xB675CBFC]
    + [0xBB7B3B6C, 0xBCDE0D30],
    "sigmoid": [0xB7808000, 0x34000000, 0x34C00000, 0x35200000, 0x35600000, 0x35900000, 0x35B00000, 0x35D00000, 0x35F00000]
    + [0x36080000, 0x36180000, 0x36280000, 0x36380000, 0x36480000, 0x36580000, 0x36680000, 0x36780000, 0x36840000]
    + [0x368C0000, 0x36940000],
    "tanh": [0x3AC37DE2, 0x3EEE0566, 0x40ACB4D0, 0xBAC37DE2, 0xBEEE0566, 0xC0ACB4D0],
    "log": [0x022AE487, 0x03D2F29F, 0x064CB44B, 0x07C060FA, 0x0B265D7B, 0x0DC8BBA4, 0x0F61FF63, 0x111C87F8, 0x11B257E3]
    + [0x13FCD84A, 0x145CB6D4, 0x14907055, 0x155D60FC, 0x158772EB, 0x16C5EE7A, 0x18B06F2A, 0x1A21DB87, 0x1A3DE5E8]
    + [0x1A8446CB, 0x1AAC80DC],
    "log1p": [0x33800000, 0x35400003, 0x36DEDACE, 0x3710001B, 0x3770004B, 0x37C6E0E0, 0x37F589DE, 0x3B60C8EE, 0x3B9315C8]
    + [0x3CF58230, 0x3DDBFEC3, 0x3EBE9143, 0x3EFD81AD, 0x3F0AA6F2, 0x3F26C9AE, 0x4016EE45, 0x41078FEB, 0x41DBB2AF]
    + [0x44BC2360, 0x464D572B],
    "softplus": [0x33882E30, 0x33882E31, 0x34441718, 0x367C4162, 0x36EA209E, 0x38D420AC, 0x3926CF53, 0x3976AD4F, 0x398B9622]
    + [0x39C4C3C9, 0x39EA41D0, 0x3A294D42, 0x3AD68BA7, 0x3AEF7621, 0x3B28F131, 0x3C450A9B, 0x3DD59410, 0x3E502107]
    + [0x3E6CE8AB, 0x3EBCA722],
    "erf": [0x00AA320C, 0x012A320C, 0x01AA320C, 0x022A320C, 0x02AA320C, 0x032A320C, 0x03AA320C, 0x042A320C, 0x04AA320C]
    + [0x052A320C, 0x05AA320C, 0x062A320C, 0x06AA320C, 0x072A320C, 0x07AA320C, 0x082A320C, 0x08AA320C, 0x092A320C]
    + [0x09AA320C, 0x0A2A320C],
    "gelu": [0x334AA73D, 0x334AA73E, 0x334AA73F, 0x334AA740, 0x334AA741, 0x334AA742, 0x334AA743, 0x334AA744, 0x334AA745]
    + [0x334AA746, 0x334AA747, 0x334AA748, 0x334AA749, 0x334AA74A, 0x334AA74B, 0x334AA74C, 0x334AA74D, 0x334AA74E]
    + [0x334AA74F, 0x334AA750],
    "rsqrt": [0x013A18E3, 0x023A18E3, 0x033A18E3, 0x043A18E3, 0x053A18E3, 0x063A18E3, 0x073A18E3, 0x083A18E3, 0x093A18E3]
    + [0x0A3A18E3, 0x0B3A18E3, 0x0C3A18E3, 0x0D3A18E3, 0x0E3A18E3, 0x0F3A18E3, 0x103A18E3, 0x113A18E3, 0x123A18E3]
    + [0x133A18E3, 0x143A18E3],
}


def inputs(name: str, count: int, seed: int = 0) -> Array:
    """Float32 numbers: specials and neighbours, hard ones, any bits, and a bell around zero."""
    rng = np.random.default_rng(seed)
    patterns = rng.integers(0, 2**32, count, dtype=np.uint64).astype(np.uint32).view(np.float32)
    bell = (rng.standard_normal(count) * rng.choice([0.01, 1.0, 30.0], count)).astype(np.float32)
    with np.errstate(all="ignore"):
        near = [np.nextafter(SPECIAL, np.float32(to)) for to in (-np.inf, np.inf)]
    hard = np.array(HARD.get(name, []), np.uint32).view(np.float32)
    return np.concatenate([SPECIAL, *near, hard, patterns, bell])


def defined(name: str, *arguments: Array) -> Array:
    with np.errstate(all="ignore"):
        return np.sqrt(*arguments) if name == "sqrt" else elementary.apply(name, *arguments)


# --- correctly rounded functions --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ROUNDED)
def test_both_forms_round_correctly(name: str) -> None:  # ACC-SCALAR, ACC-BLOCK
    x = inputs(name, 6000)
    want = defined(name, x)
    for form, got in exhaust.forms_of(name, [x]).items():
        assert same_bits(got, want), form
    some = x[:: 1 + x.size // 400]
    assert same_bits(np.array([python()[name](v) for v in some], np.float32), want[:: 1 + x.size // 400])


def test_pow_rounds_correctly() -> None:  # ACC-SCALAR, ACC-BLOCK
    rng = np.random.default_rng(1)
    x, y = (np.ascontiguousarray(a.ravel()) for a in np.meshgrid(SPECIAL, SPECIAL))
    base = np.exp(rng.uniform(-80, 80, 6000)).astype(np.float32)
    with np.errstate(all="ignore"):
        power = (rng.uniform(-103, 89, base.size) / np.log(base.astype(np.float64))).astype(np.float32)
    ties = rng.integers(1, 4096, 3000).astype(np.float32)  # squares and cubes of these can be midpoints
    exponents = rng.choice([2.0, 3.0, 0.5, 1.5, -2.0, 0.25], ties.size).astype(np.float32)
    x, y = np.concatenate([x, base, -ties, ties]), np.concatenate([y, power, exponents, exponents])
    want = elementary.apply("pow", x, y)
    for form, got in exhaust.forms_of("pow", [x, y]).items():
        assert same_bits(got, want), form
    assert same_bits(np.array([python()["pow"](a, b) for a, b in zip(x[::40], y[::40])], np.float32), want[::40])


@pytest.mark.parametrize("n", [0, 1, 511, 512, 513, 1030])
def test_a_block_writes_its_length_and_no_more(n: int) -> None:  # ACC-BLOCK
    x = np.linspace(-20, 90, 1040, dtype=np.float32)
    y = np.full(x.size, 7, np.float32)
    blocks.exp_block(x, y, n)
    assert same_bits(y[:n], elementary.apply("exp", x[:n])) and (y[n:] == 7).all()


@pytest.mark.parametrize("near", [True, False])
def test_gelu_and_its_gradient_together(near: bool) -> None:  # ACC-JOINT
    x = inputs("gelu", 6000)
    with np.errstate(all="ignore"):
        y, z = x * np.float32(0.5**0.5), np.float32(-0.5) * (x * x)
    if not near:  # any operands; some by a few roundings, about where the joint form begins to ask the functions
        rng = np.random.default_rng(3)
        patterns = rng.integers(0, 2**32, (2, x.size), dtype=np.uint64).astype(np.uint32).view(np.float32)
        shift = (1 + rng.integers(-16, 17, x.size) * 2.0**-23).astype(np.float32)
        with np.errstate(all="ignore"):
            y, z = (np.where(rng.random(x.size) < 0.9, v * shift, w) for v, w in zip((-y, z), patterns))
    made = np.full((3, x.size + 1), 7, np.float32)
    blocks.gelu_terms_block(x, y, z, *made, x.size)
    for name, given_, got in zip(("gelu", "erf", "exp"), (x, y, z), made):
        assert same_bits(got[:-1], defined(name, given_)) and got[-1] == 7, name


def test_blocks_are_called_from_compiled_code() -> None:  # ACC-BLOCK
    exp_block = blocks.exp_block

    @numba.njit  # type: ignore[untyped-decorator]
    def sum_of_exp(x: Any, y: Any) -> Any:
        exp_block(x, y, x.size)
        return y[0] + y[1]

    x = np.float32([1, 2])
    assert sum_of_exp(x, np.empty(2, np.float32)) == elementary.apply("exp", x)[0] + elementary.apply("exp", x)[1]


def test_every_nth_input_is_checked_against_an_independent_library() -> None:  # ACC-EXHAUST
    seen = []
    outcome = exhaust.check("exp", stride=40_009, threads=2, advance=seen.append)
    assert outcome.differences == 0 and outcome.inputs == sum(seen) == -(-(1 << 32) // 40_009)


@pytest.mark.parametrize("name", exhaust.WIDE)
def test_the_quick_check_errs_no_more_than_it_is_trusted_to(name: str) -> None:  # ACC-EXHAUST
    """On any bits, and on numbers around 1, where results are neither 0 nor infinite."""
    mpmath = pytest.importorskip("mpmath")
    function, bound = exhaust.WIDE[name]
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.integers(0, 1 << 32, 200, np.uint32).view(np.float32), rng.normal(0, 4, 200).astype(np.float32)])
    y = rng.normal(0, 4, x.size).astype(np.float32)
    seen = 0
    for numbers in zip(x.tolist(), y.tolist()) if name == "pow" else zip(x.tolist()):
        try:
            found = function(*numbers)
        except (ValueError, OverflowError, ZeroDivisionError):  # compiled, it is NaN or infinite
            continue
        if not 2.0**-160 < abs(found) < 2.0**140 or (name == "gelu" and abs(numbers[0]) < 2.0**-60):
            continue
        with mpmath.workprec(250):
            exact = elementary.FUNCTIONS[name].exact(*map(mpmath.mpf, numbers))
            assert abs(found - exact) <= bound * abs(exact), numbers
        seen += 1
    assert seen > 100


def test_a_wrong_function_is_found(monkeypatch: pytest.MonkeyPatch) -> None:  # ACC-EXHAUST
    monkeypatch.setitem(exhaust.KERNELS, "round32", np.trunc)
    assert exhaust.check("round32", stride=1_000_003).differences > 0


@pytest.mark.parametrize("fixed", [{"exponent": 2.0}, {"exponent": -0.5}, {"base": 2.0}, {"base": 10.0}], ids=str)
def test_powers_of_a_fixed_exponent_or_base(fixed: dict[str, float], monkeypatch: pytest.MonkeyPatch) -> None:
    """ACC-EXHAUST: pow takes the given number on its side; what the quick check leaves open is the reference's."""
    subject = exhaust.Subject("pow", **fixed)
    arguments, number = subject.arguments
    x, y = numba.njit(arguments)(0xC0A00000, number)
    assert (x, y) == ((-5.0, number) if "exponent" in fixed else (number, -5.0))
    outcome = exhaust.check(subject, stride=40_009)
    assert (outcome.differences, outcome.inputs) == (0, -(-(1 << 32) // 40_009))
    if fixed == {"exponent": 2.0}:  # squares can be midpoints
        assert outcome.undecided > 0 and all(given.endswith(" 0x40000000") for given in outcome.hard)
        monkeypatch.setattr(elementary, "apply", lambda name, x, y: np.nextafter(x * x, np.float32(0)))
        assert exhaust.check(subject, stride=40_009).differences > 0


def test_main_prints_a_table_and_json(capsys: pytest.CaptureFixture[str]) -> None:  # ACC-EXHAUST
    assert exhaust.main(["sqrt", "--stride", "100003"]) == 0
    out, err = capsys.readouterr()
    assert '"differences": 0' in out and "sqrt" in err
    assert exhaust.main(["pow", "--exponent", "3", "-0.5", "--base", "10", "--stride", "1000003", "--block-only"]) == 0
    out, _ = capsys.readouterr()
    assert all(f'"pow, {fixed}"' in out for fixed in ("exponent 3", "exponent -0.5", "base 10"))
    with pytest.raises(SystemExit):
        exhaust.main(["exp", "--base", "10"])


# --- one text ---------------------------------------------------------------------------------------------------------


def test_one_text_for_all_targets() -> None:  # ACC-SCALAR
    assert cpu()["exp"].py_func.__code__ is exponentials.exp.__code__ is python()["exp"].__wrapped__.__code__
    assert set(cpu()) == set(python()) and set(FLOAT32.values()) <= set(cpu())
    assert OPTIONS["fastmath"] is False


@pytest.mark.parametrize("name", [*SOURCES, "fast"])
def test_sources_keep_to_the_dialect(name: str) -> None:  # ACC-SCALAR
    module = importlib.import_module(f"refflow_accel.scalar.{name}")
    tree = ast.parse(inspect.getsource(module))
    imported = {n.module for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
    assert imported <= {"__future__", "dialect", "tables", "polynomials", *SOURCES}
    assert not [n for n in ast.walk(tree) if isinstance(n, (ast.Import, ast.Attribute))]
    assert not [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.decorator_list]


def test_results_have_the_type_of_their_arguments() -> None:  # ACC-SCALAR
    one = np.float32(1)
    for name in FLOAT32.values():
        function = cpu()[name]
        count = len(inspect.signature(function.py_func).parameters)
        function(*[one] * count)
        signature = next(s for s in function.nopython_signatures if s.args == (numba.float32,) * count)
        assert signature.return_type == numba.float32, name


def test_tables_are_those_of_mpmath() -> None:  # ACC-SCALAR
    import mpmath
    from refflow_accel.scalar import make_tables, polynomials, tables

    with mpmath.workprec(400):
        for made in (make_tables.exponential(), make_tables.logarithm(), make_tables.circle()):
            assert all(np.array_equal(array, tables.STORED[name]) for name, array in made.items())
        function, low, high, degree = make_tables.POLYNOMIALS["LOG"]
        made_again = make_tables.chebyshev(function, mpmath.mpf(low), mpmath.mpf(high), degree)
    assert tuple(float(c) for c in made_again) == polynomials.LOG


# --- storage ----------------------------------------------------------------------------------------------------------

HALVES = {"f16": np.dtype(np.float16), "bf16": BFLOAT16}
PATTERNS = np.arange(1 << 16, dtype=np.uint32).astype(np.uint16)


@pytest.mark.parametrize("half", HALVES)
def test_every_half_is_decoded_and_encoded(half: str) -> None:  # ACC-SCALAR
    dtype = HALVES[half]
    wide = np.empty(PATTERNS.size, np.float32)
    getattr(blocks, f"{half}_decode_block")(PATTERNS, wide, wide.size)
    assert same_bits(wide, PATTERNS.view(dtype).astype(np.float32))
    assert same_bits(np.float32([python()[f"{half}_decode"](np.int64(h)) for h in PATTERNS[::77]]), wide[::77])

    order_ = np.sort(wide[np.isfinite(wide)])
    middle = ((order_[:-1].astype(np.float64) + order_[1:]) / 2).astype(np.float32)  # ties, where they are float32
    with np.errstate(over="ignore"):
        near = [np.nextafter(middle, np.float32(to)) for to in (-np.inf, np.inf)]
    x = np.concatenate([wide, middle, *near, inputs("", 20_000)])
    got = exhaust.forms_of(f"{half}_encode", [x])
    for form, patterns in got.items():
        assert same_bits(patterns.view(dtype), dtypes.cast(x, dtype)), form


def test_the_cpus_own_halves_are_those_of_the_text() -> None:  # NUM-HALF
    from refflow_accel.cpu import halves

    x = np.concatenate([PATTERNS.view(np.float16).astype(np.float32), inputs("", 20_000)])
    for half, dtype in HALVES.items():
        encode, decode = getattr(halves, f"{half}_encode"), getattr(halves, f"{half}_decode")

        @numba.njit(error_model="numpy")  # type: ignore[untyped-decorator]
        def run(patterns: Any, wide: Any, x: Any, made: Any) -> None:
            for i in range(patterns.size):
                wide[i] = decode(patterns[i])  # noqa: B023
            for i in range(x.size):
                made[i] = encode(x[i])  # noqa: B023

        wide, made = np.empty(PATTERNS.size, np.float32), np.empty(x.size, np.uint16)
        run(PATTERNS, wide, x, made)
        assert same_bits(wide, PATTERNS.view(dtype).astype(np.float32))
        assert same_bits(made.view(dtype), dtypes.cast(x, dtype))


@given(st.floats(width=64))
@example(65519.99999999999)
@example(65520.0)
@example(1 + 2.0**-8 + 2.0**-40)
@example(2.0**-25)
@example(np.nextafter(2.0**-25, 1))
@example(1e300)
@settings(max_examples=300, deadline=None)
def test_a_float64_is_rounded_once(x: float) -> None:  # ACC-SCALAR
    for half, dtype in HALVES.items():
        want = dtypes.cast(np.float64([x]), dtype)
        for functions in (cpu(), python()):
            got = np.array([functions[f"{half}_from64"](np.float64(x))]).astype(np.uint16).view(dtype)
            assert same_bits(got, want)


@given(st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(-70000, 70000) | st.integers(2**53, 2**53 + 9))
@example((1 << 54) + (1 << 30) + 1)
@settings(max_examples=300, deadline=None)
def test_an_integer_is_rounded_once(i: int) -> None:  # ACC-SCALAR
    whole = np.int64(i)
    for functions in (cpu(), python()):
        for half, dtype in HALVES.items():
            got = np.array([functions[f"{half}_from_int"](whole)]).astype(np.uint16).view(dtype)
            assert same_bits(got, dtypes.cast(np.array([whole]), dtype))
        assert same_bits(np.float32([functions["int_to32"](whole)]), dtypes.cast(np.array([whole]), np.float32))
        assert same_bits(np.float64([functions["int_to64"](whole)]), dtypes.cast(np.array([whole]), np.float64))


@given(st.floats(width=64) | st.floats(-300, 300) | st.sampled_from([2.0**31, -(2.0**31), 2.0**63, -(2.0**63), 255.9, -0.9]))
@settings(max_examples=300, deadline=None)
def test_a_float_truncates_and_saturates(x: float) -> None:  # ACC-SCALAR
    for kind in ("int64", "int32", "int8", "uint8"):
        want = int(dtypes.cast(np.float64([x]), np.dtype(kind))[0])
        assert int(cpu()[f"to_{kind}"](np.float64(x))) == int(python()[f"to_{kind}"](np.float64(x))) == want


# --- order, integral values, division ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["floor", "ceil", "trunc", "round", "sign", "relu"])
def test_integral_values(name: str) -> None:  # ACC-SCALAR
    x = np.concatenate([inputs(name, 4000), np.arange(-40, 40, dtype=np.float32) / 8])
    with np.errstate(all="ignore"):
        want = KERNELS[name](x)
    for form, got in exhaust.forms_of(f"{name}32", [x]).items():
        assert same_bits(got, want), form
    with np.errstate(all="ignore"):
        wide = [python()[f"{name}64"](v) for v in x[::9].astype(np.float64)]
        assert same_bits(np.float64(wide), want[::9].astype(np.float64))


@pytest.mark.parametrize("name", ["maximum", "minimum", "floor_divide", "remainder"])
def test_pairs(name: str) -> None:  # ACC-SCALAR
    rng = np.random.default_rng(2)
    x, y = (np.ascontiguousarray(a.ravel()) for a in np.meshgrid(SPECIAL, SPECIAL))
    bits = rng.integers(0, 2**32, (2, 5000), dtype=np.uint64).astype(np.uint32).view(np.float32)
    small = rng.integers(-50, 50, (2, 3000)).astype(np.float32) / 4
    x, y = np.concatenate([x, bits[0], small[0]]), np.concatenate([y, bits[1], small[1]])
    with np.errstate(all="ignore"):
        want = KERNELS[name](x, y)
    got = np.empty(x.size, np.float32)
    getattr(blocks, f"{name}32_block")(x, y, got, x.size)
    assert same_bits(got, want)
    plain = [python()[f"{name}32"](a, b) for a, b in zip(x[::31], y[::31])]
    assert same_bits(np.float32(plain), want[::31])
    if name in ("maximum", "minimum"):
        wide = [python()[f"{name}64"](np.float64(a), np.float64(b)) for a, b in zip(x[::31], y[::31])]
        assert same_bits(np.float64(wide), getattr(order, name)(x[::31].astype(np.float64), y[::31].astype(np.float64)))


@pytest.mark.parametrize("name", ["floor_divide", "remainder", "pow"])
def test_integers_divide_and_raise(name: str) -> None:  # ACC-SCALAR, NUM-DIVISION
    ends = [-(2**63), -(2**63) + 1, -7, -2, -1, 0, 1, 2, 3, 10, 2**62, 2**63 - 1]
    x, y = (np.ascontiguousarray(a.ravel()) for a in np.meshgrid(np.int64(ends), np.int64(ends)))
    good = y >= 0 if name == "pow" else y != 0
    x, y = x[good], y[good] % 70 if name == "pow" else y[good]
    whole = {"floor_divide": "whole_quotient", "remainder": "whole_remainder", "pow": "whole_power"}[name]
    for functions in (cpu(), python()):
        found = np.array([functions[whole](a, b) for a, b in zip(x, y)], np.int64)
        with np.errstate(all="ignore"):
            assert same_bits(found, KERNELS[name](x, y))


def test_fma_rounds_once() -> None:  # ACC-SCALAR
    fma32 = cpu()["exp"].py_func.__globals__["fma32"]
    compiled = numba.njit(lambda x, y, z: fma32(x, y, z))
    x, z = np.float32(1 + 2.0**-12), np.float32(-1 - 2.0**-11)
    assert x * x + z == 0 and compiled(x, x, z) == dialect.fma32(x, x, z) == 2.0**-24


# --- random numbers ---------------------------------------------------------------------------------------------------

KNOWN = [  # Random123's known answers for philox4x32-10
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@pytest.mark.parametrize("counter, key, words", KNOWN)
def test_philox_known_answers(counter: Any, key: Any, words: Any) -> None:  # ACC-SCALAR
    arguments = [np.int64(v) for v in (*counter, *key)]
    for functions in (cpu(), python()):
        assert tuple(int(w) for w in functions["philox4x32"](*arguments)) == words


@pytest.mark.parametrize("start, n", [(0, 2000), (1, 5), (3, 1), (511, 1026), (2**40 + 7, 300), (6, 0)])
def test_runs_of_random_numbers(start: int, n: int) -> None:  # ACC-BLOCK
    seed, stream = 2**63 + 12345, 2**40 + 9
    index = np.arange(start, start + n, dtype=np.uint64)
    key = (np.uint64(seed).astype(np.int64), np.int64(stream))
    whole, real = np.empty(n, np.int64), np.empty(n, np.float32)
    draws.bits_block(start, *key, 0, 0, whole, n)
    assert (whole == philox.random_bits(index, seed, stream)).all()
    draws.uniform_block(start, *key, 0, 0, real, n)
    assert same_bits(real, philox.uniform(index, seed, stream))
    draws.normal_block(start, *key, 0, 0, real, n)
    want = philox.normal(index, seed, stream) if n else real
    assert same_bits(real, want)
    for low, span in ((-5, 1 << 32), (3, 10), (0, 1)):
        draws.integers_block(start, *key, low, span, whole, n)
        assert (whole == philox.integers(index, low, low + span, seed, stream)).all()
    with np.errstate(all="ignore"):
        assert same_bits(np.float32([python()["normal"](np.int64(i), *key) for i in index[:9]]), want[:9])
