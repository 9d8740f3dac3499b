"""Under any layout of operands and cotangent, each primitive and its gradient have the bits of the one-rank run.

AUTO-VJP, AUTO-LAYOUT, AUTO-UNBROADCAST, SIG-LOWER, SIG-CHOICE: here the rule chooses the signatures (policy "exact"),
values are arbitrary, P operands dense.  A gradient has its operand's layout with P reduced.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refflow.ir import REGISTRY, Primitive, Value
from refflow.layout import Partial, reduced
from refflow.numerics import is_float, same_bits
from refflow.tensor.autograd import vjp
from tests.laws.cases import data_for, dtypes_of, metas_of, samples
from tests.laws.checking import checked
from tests.strategies import (
    GRIDS,
    KINDS,
    LATTICE,
    ROWS,
    arbitrary,
    examples,
    global_from,
    logical,
    mesh_of,
    placements,
    sbps,
    seeds,
    whole_value,
)

DOMAIN = ("pow", "floor_divide", "remainder")  # a sum of their integer operands may leave the domain
COMPUTING = sorted(name for name, p in REGISTRY.items() if p.samples and p.samples[0].shapes)


def forward_and_gradients(
    primitive: Primitive, values: Sequence[Value], attrs: dict[str, Any], cotangent: Value | None
) -> tuple[Value, list[Value | None]]:
    """The output, and the gradient to every floating operand."""
    for value in values:
        value.requires_grad = is_float(value.meta.dtype) and primitive.vjp is not None
    output = primitive(*values, **attrs)
    if cotangent is None or not output.requires_grad:
        return output, []
    found = vjp([output], [cotangent], watch=values)
    return output, [found.get(id(value)) for value in values if value.requires_grad]


@pytest.mark.parametrize("name", COMPUTING)
@examples(12)
@given(st.data())
def test_layouts_never_change_a_bit(name: str, data: st.DataObject) -> None:
    primitive = REGISTRY[name]
    sample = data.draw(samples(name))
    dtype = data.draw(st.sampled_from(dtypes_of(name, sample)))
    rng = np.random.default_rng(data.draw(seeds))
    placement = data.draw(placements((*ROWS, *GRIDS)))
    values, arrays = [], []
    for i, meta in enumerate(metas_of(sample, dtype)):
        kinds = () if i in sample.below or name in DOMAIN else LATTICE if meta.dtype.kind == "b" else KINDS
        sbp = data.draw(sbps(placement, len(meta.shape), kinds))
        value, array = global_from(data_for(name, sample, i, meta, rng, "arbitrary"), meta.shape, placement, sbp)
        values.append(value)
        arrays.append(array)
    whole = primitive(*map(whole_value, arrays), **sample.attrs)
    cotangent, cotangent_whole = None, None
    if primitive.vjp is not None and is_float(whole.meta.dtype):
        sbp = data.draw(sbps(placement, len(whole.meta.shape), ("sum",)))
        draw = lambda shape: arbitrary(rng, shape, whole.meta.dtype)  # noqa: E731
        cotangent, array = global_from(draw, whole.meta.shape, placement, sbp)
        cotangent_whole = whole_value(array)
    expected, expected_grads = forward_and_gradients(
        primitive, [*map(whole_value, arrays)], sample.attrs, cotangent_whole
    )
    with checked():
        found, grads = forward_and_gradients(primitive, values, sample.attrs, cotangent)
    assert same_bits(logical(found), logical(expected)), f"{found.meta}: {logical(found)}, whole {logical(expected)}"
    for value, g, whole_g in zip([v for v in values if v.requires_grad], grads, expected_grads):
        assert (g is None) == (whole_g is None)
        if g is not None and whole_g is not None:
            assert (g.meta.placement, g.meta.sbp) == (placement, reduced(value.meta.sbp))
            assert (g.meta.shape, g.meta.dtype) == (value.meta.shape, value.meta.dtype)
            assert same_bits(logical(g), logical(whole_g)), f"{g.meta}: {logical(g)}, whole {logical(whole_g)}"


def test_the_watcher_sees_boxing_too() -> None:
    """exp of a P(sum) tensor is two steps: the reduction, then exp; the checking interpreter looks at both."""
    value, _ = global_from(lambda shape: np.ones(shape, np.float32), (4, 4), mesh_of((2,)), (Partial("sum"),))
    with checked() as watch:
        REGISTRY["exp"](value)
    assert watch.steps == 2
