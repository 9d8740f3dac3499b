"""Brute force: every combination of input and output sbp on two ranks, tried on exact data; what holds is algebra.

Nothing of refflow/ir/signature.py is used, so what it fails to derive shows.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import ml_dtypes
import numpy as np

from refflow.errors import DataError
from refflow.ir import Value
from refflow.layout import Sbp, box_shape, boxes, cut
from refflow.state import settings
from tests.laws.cases import data_for
from tests.laws.sharded import Case, whole
from tests.strategies import KINDS, LATTICE, Array, Draw, every_sbp, gather, global_from

Combination = tuple[tuple[Sbp, ...], Sbp]
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")


def combinations(made: Case) -> Iterator[Combination]:
    """Every sbp of every operand and of the output."""
    dtypes = [*[meta.dtype for meta in made.metas], made.rule.dtypes[0]]
    sides = [
        every_sbp(len(dims), LATTICE if dtype.kind == "b" else KINDS)
        for dims, dtype in zip((*made.space.inputs, made.space.outputs[0]), dtypes)
    ]
    for *inputs, output in itertools.product(*sides):
        yield tuple(inputs), output


def derived(made: Case) -> set[Combination]:
    """What refflow derives, on one mesh axis."""
    return {(tuple(sbp[0] for sbp in s.inputs), s.outputs[0][0]) for s in made.signatures}


def holding(made: Case, seed: int, tries: int = 40) -> set[Combination]:
    """The combinations that give the whole on all of so many data sets."""
    left = list(combinations(made))
    for attempt in range(tries):
        results: dict[tuple[Sbp, ...], tuple[list[Value], Array]] = {}
        still = []
        for inputs, output in left:
            if inputs not in results:
                rng = np.random.default_rng([seed, attempt])
                results[inputs] = _operands(made, inputs, rng)
            values, expected = results[inputs]
            if _same(_run(made, values, inputs, output), expected):
                still.append((inputs, output))
        left = still
    return set(left)


def _operands(made: Case, inputs: Sequence[Sbp], rng: np.random.Generator) -> tuple[list[Value], Array]:
    pairs = [
        global_from(_draw(made, i, rng), meta.shape, made.placement, (one,))
        for i, (meta, one) in enumerate(zip(made.metas, inputs))
    ]
    values, arrays = [value for value, _ in pairs], [array for _, array in pairs]
    try:
        return values, whole(made, arrays)
    except DataError:  # the sum of two indices may be out of bounds
        return values, np.empty(0, object)


def _draw(made: Case, i: int, rng: np.random.Generator) -> Draw:
    name, dtype = made.primitive.name, made.metas[i].dtype
    if name in ("isnan", "isinf", "isfinite"):
        huge = float(ml_dtypes.finfo(dtype).max)
        values = np.array([np.nan, np.inf, -np.inf, huge, huge, 1.0])
        return lambda shape: rng.choice(values, shape).astype(dtype)
    if name in COMPARISONS:
        return lambda shape: rng.integers(-1, 2, shape).astype(dtype)
    return data_for(name, made.sample, i, made.metas[i], rng, "exact")


def _run(made: Case, values: Sequence[Value], inputs: Sequence[Sbp], output: Sbp) -> Array | None:
    """The kernel on each rank, told the ranges that the split dimensions suggest; None where it cannot run."""
    kernel = settings().backend("cpu").kernel(made.primitive.name)
    shape = made.space.shape(made.space.outputs[0])
    local = {rank: box_shape(box) for rank, box in boxes(shape, made.placement, (output,)).items()}
    results = {}
    try:
        for rank in made.placement.ranks:
            call = dict(made.sample.attrs)
            if made.primitive.local_shape:
                call["shape"] = local[rank]
            if made.space.origins:
                ranges = _ranges(made, (*inputs, output), made.placement.coords(rank)[0])
                call["at"] = {
                    a: (*ranges.get(a, (0, made.space.sizes[a])), made.space.sizes[a]) for a in made.space.origins
                }
            results[rank] = kernel(*[v.shards[rank] for v in values], **call)
            if results[rank].shape != local[rank]:
                return None
        return gather(results, made.placement, (output,))
    except (ValueError, TypeError, IndexError, DataError, AssertionError):  # shapes or dtypes do not fit
        return None


def _ranges(made: Case, layout: Sequence[Sbp], position: int) -> dict[str, tuple[int, int]]:
    found = {}
    for dims, one in zip((*made.space.inputs, made.space.outputs[0]), layout):
        axis = getattr(one, "axis", None)
        if axis is not None and dims[axis].letters:
            letter = dims[axis].letters[0]
            found[letter] = cut((0, made.space.sizes[letter]), 2, position)
    return found


def _same(found: Array | None, expected: Array) -> bool:
    """Equal values; the sign of a zero is not algebra's."""
    if found is None or (found.shape, found.dtype) != (expected.shape, expected.dtype):
        return False
    if found.dtype == object:
        return False
    with np.errstate(all="ignore"):
        return bool(((found == expected) | ((found != found) & (expected != expected))).all())
