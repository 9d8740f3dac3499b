"""A primitive run on shards under one given signature, whatever the rule of choice would say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from refflow.ir import Meta, Primitive, Rule, Sample, Signature, Space, Value, candidates
from refflow.ir.lower import _calls
from refflow.layout import Placement, box_shape, boxes
from refflow.numerics import first_difference, same_bits
from refflow.state import settings
from tests.laws.cases import data_for, metas_of, space_of
from tests.strategies import Array, gather, global_from, run_whole


@dataclass(frozen=True)
class Case:
    """A primitive on given operands on a placement, and the signatures derived for it."""

    primitive: Primitive
    sample: Sample
    metas: tuple[Meta, ...]
    placement: Placement
    rule: Rule
    space: Space
    signatures: tuple[Signature, ...]


def case(primitive: Primitive, sample: Sample, dtype: str, placement: Placement) -> Case:
    """The case of a sample whose open operands have `dtype`."""
    metas = metas_of(sample, dtype)
    rule, space = space_of(primitive, metas, sample.attrs)
    integer = not metas or all(meta.dtype.kind in "iub" for meta in metas)
    return Case(primitive, sample, metas, placement, rule, space, tuple(candidates(rule, space, integer, placement)))


def operands(made: Case, signature: Signature, rng: np.random.Generator, kind: str) -> tuple[list[Value], list[Array]]:
    """Operands in the layouts the signature asks for, every P dense, and the logical arrays they stand for."""
    values, arrays = [], []
    for i, (meta, sbp) in enumerate(zip(made.metas, signature.inputs)):
        draw = data_for(made.primitive.name, made.sample, i, meta, rng, kind)
        value, array = global_from(draw, meta.shape, made.placement, sbp)
        values.append(value)
        arrays.append(array)
    return values, arrays


def run_on_shards(made: Case, signature: Signature, values: Sequence[Value]) -> Array:
    """The kernel on every rank, its results gathered by the signature's output layout."""
    calls = _calls(made.primitive, made.space, signature, made.placement, made.sample.attrs)
    kernel = settings().backend("cpu").kernel(made.primitive.name)
    results = {rank: kernel(*[v.shards[rank] for v in values], **call) for rank, call in calls.items()}
    shape, sbp = made.space.shape(made.space.outputs[0]), signature.outputs[0]
    for rank, box in boxes(shape, made.placement, sbp).items():
        found = results[rank].shape, results[rank].dtype
        assert found == (box_shape(box), made.rule.dtypes[0]), f"rank {rank}: {found}, the layout says {box_shape(box)}"
    return gather(results, made.placement, sbp)


def whole(made: Case, arrays: Sequence[Array]) -> Array:
    """The same on one rank."""
    return run_whole(made.primitive, arrays, made.sample.attrs)


def difference(made: Case, signature: Signature, rng: np.random.Generator, kind: str, strict: bool = False) -> str:
    """In words, how the run on shards differs from the whole; "" if in no bit.

    Unless `strict`, a signature right in algebra only may give another sign to a zero result, even where every step is
    exact.
    """
    values, arrays = operands(made, signature, rng, kind)
    found, expected = run_on_shards(made, signature, values), whole(made, arrays)
    if not (signature.exact or strict) and expected.dtype.kind != "b":
        with np.errstate(all="ignore"):
            zero = expected.dtype.type(0)
            found, expected = found + zero, expected + zero
    if same_bits(found, expected):
        return ""
    if found.shape != expected.shape or found.dtype != expected.dtype:
        return f"{signature}: {found.dtype}{found.shape} instead of {expected.dtype}{expected.shape}"
    at = first_difference(found, expected)
    where = f"{made.primitive.name} {[str(m) for m in made.metas]} {dict(made.sample.attrs)} on {made.placement}"
    return f"{where}: {signature} ({signature.why}) at {at}: {found[at]!r}, whole {expected[at]!r}, of {arrays}"
