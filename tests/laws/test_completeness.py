"""No signature that algebra allows is missing without a reason, none is called algebraic without a witness.

SIG-DERIVE from the other side: every combination of sbp is tried on two ranks (tests/laws/search.py), and what holds on
many exact data sets is derived or is listed here with the reason why not.  SIG-EXACT from the other side: each
signature marked algebraic really changes a bit of some values.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from refflow.ir import REGISTRY, Sample
from refflow.layout import Broadcast, Partial, broadcast
from tests.laws.cases import dtypes_of
from tests.laws.search import Combination, derived, holding
from tests.laws.sharded import case, difference
from tests.strategies import ROWS, mesh_of

# All that is missing has max or min partials only, beside operands that are B.  Why, by primitive:
MISSING: dict[str, str] = {
    **dict.fromkeys(
        ("lt", "le", "gt", "ge"), "NaN compares false, so order is lost: min(NaN, 1) < 2 is false though 1 < 2"
    ),
    **dict.fromkeys(("add", "sub"), "inf - inf is NaN: max(-inf, 1) + inf is inf, its addends give NaN"),
    "div": "holds for positive divisors only, which is what this data has",
    "cast": "NaN becomes 0: max(NaN, -1) is NaN, hence 0; the addends give max(0, -1) = 0, but min(0, -1) = -1",
    **dict.fromkeys(
        ("sqrt", "log", "log1p"), "P(min) alone would hold, P(max) not (NaN below the domain): half a carry"
    ),
    "rsqrt": "zeros part: rsqrt(min(-0, +0)) is -inf, the addends give max(-inf, inf)",
    "isnan": "a P of bools saves little: the operand is reduced",
    **dict.fromkeys(
        ("maximum", "minimum", "logical_and", "logical_or"), "one P beside a B: true (lattices distribute), unused"
    ),
    **dict.fromkeys(("where", "cat", "slice_update"), "one P beside a B: true (max(y, y) = y), unused"),
}


def ordered(found: Combination) -> bool:
    """Whether all P are max or min, and nothing is split."""
    sides = (*found[0], found[1])
    return all(isinstance(s, Broadcast) or (isinstance(s, Partial) and s.kind != "sum") for s in sides)


def named(made, found: Combination) -> bool:
    """An output that is B may be called P(max) or P(min) too: that is boxing's, at no cost."""
    return isinstance(found[1], Partial) and found[1].kind != "sum" and (found[0], broadcast) in derived(made)


def filled(sample: Sample) -> bool:
    """Whether no operand is empty (there everything holds)."""
    return all(0 not in shape for shape in sample.shapes)


@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_nothing_is_missing(name: str) -> None:
    missing: set[str] = set()
    for sample in filter(filled, REGISTRY[name].samples):
        made = case(REGISTRY[name], sample, dtypes_of(name, sample)[0], mesh_of((2,)))
        found = holding(made, seed=3)
        assert derived(made) <= found, f"derived, but wrong: {derived(made) - found}"
        absent = {one for one in found - derived(made) if not named(made, one)}
        unexplained = {one for one in absent if name not in MISSING or not ordered(one)}
        assert not unexplained, f"{name} {sample.shapes} {dict(sample.attrs)}: {made.rule.space} lacks {unexplained}"
        missing |= set(map(str, absent))
    assert bool(missing) == (name in MISSING), f"{name} is listed without need"


def test_whole_letters_have_a_reason() -> None:
    """A declaration that keeps a letter whole says why (`whole_because`)."""
    for name, primitive in REGISTRY.items():
        for sample in primitive.samples:
            made = case(primitive, sample, dtypes_of(name, sample)[0], mesh_of((2,)))
            letters = {a for dims in (*made.space.inputs, *made.space.outputs) for dim in dims for a in dim.letters}
            split = {axis.letter for s in made.signatures for axis in s.axes}
            whole = letters - split
            assert not whole or primitive.whole_because or all(made.space.sizes[a] == 0 for a in whole), (
                f"{name}: {whole}"
            )


def unwitnessed(name: str, made, why: str) -> str:
    """The reason why a signature called algebraic may in fact be exact here; "" if there is none."""
    dtype = made.metas[0].dtype
    if not filled(made.sample):
        return "nothing to round; the mark does not look at sizes"
    if name == "cast" and made.sample.attrs["dtype"] == dtype:
        return "functions leave out a cast to the same dtype"
    if name == "matmul" and dtype == np.float64 and "not aligned" in why:
        return "alignment is judged for fused chains; a cut of single terms keeps an unfused one"
    if "would be rounded" in why and max(made.sample.shapes[0]) <= 4:
        return "partials of one term each are not rounded"
    return ""


@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_every_algebraic_mark_has_a_witness(name: str) -> None:
    for sample in REGISTRY[name].samples:
        for dtype, mesh in itertools.product(dtypes_of(name, sample), ROWS):
            made = case(REGISTRY[name], sample, dtype, mesh_of(mesh))
            for signature in (s for s in made.signatures if not s.exact):
                if unwitnessed(name, made, signature.why):
                    continue
                rng = np.random.default_rng(5)
                kinds = itertools.islice(itertools.cycle(("arbitrary", "exact")), 400)
                assert any(difference(made, signature, rng, kind, strict=True) for kind in kinds), (
                    f"{name} {sample.shapes} {dtype} on {mesh}: {signature} seems exact, but is marked: {signature.why}"
                )
