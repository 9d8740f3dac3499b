"""The law of every back end: each primitive and its gradients have the reference's one-rank bits, however they are laid out.

Values are arbitrary (NaN, infinities, signed zeros, subnormals, what cancels), partial operands dense, shards uneven or
empty; the numbers go to the back end and come back by the protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

import refflow as flow
from refflow.ir import REGISTRY, Value
from refflow.kernels import Backend
from refflow.numerics import is_float
from refflow.numerics.bits import same_bits
from tests.laws.cases import data_for, dtypes_of, metas_of, samples
from tests.laws.test_gradients import COMPUTING, DOMAIN, forward_and_gradients
from tests.strategies import (
    GRIDS,
    KINDS,
    LATTICE,
    ROWS,
    arbitrary,
    global_from,
    logical,
    placements,
    sbps,
    seeds,
    whole_value,
)

NAMES = COMPUTING


def with_arrays(value: Value, through: Callable[[Any], Any]) -> Value:
    """`value` with each local array put `through` a function; equal arrays stay one."""
    made: dict[int, Any] = {}
    return Value(value.meta, {r: made.setdefault(id(a), through(a)) for r, a in value.shards.items()})


def assert_alike(backend: Backend, name: str, data: st.DataObject, dtypes: Sequence[str]) -> None:
    """Draws a case of primitive `name` in one of these dtypes, and compares."""
    primitive = REGISTRY[name]
    sample = data.draw(samples(name))
    served = dtypes_of(name, sample)
    dtype = data.draw(st.sampled_from([d for d in served if d in dtypes] or served[:1]))
    rng = np.random.default_rng(data.draw(seeds))
    placement = data.draw(placements((*ROWS, *GRIDS)))
    values, arrays = [], []
    for i, meta in enumerate(metas_of(sample, dtype)):
        kinds = () if i in sample.below or name in DOMAIN else LATTICE if meta.dtype.kind == "b" else KINDS
        sbp = data.draw(sbps(placement, len(meta.shape), kinds))
        value, array = global_from(data_for(name, sample, i, meta, rng, "arbitrary"), meta.shape, placement, sbp)
        values.append(with_arrays(value, backend.from_host))
        arrays.append(array)
    whole = primitive(*map(whole_value, arrays), **sample.attrs)
    cotangent, cotangent_whole = None, None
    if primitive.vjp is not None and is_float(whole.meta.dtype):
        sbp = data.draw(sbps(placement, len(whole.meta.shape), ("sum",)))
        value, array = global_from(
            lambda shape: arbitrary(rng, shape, whole.meta.dtype), whole.meta.shape, placement, sbp
        )
        cotangent, cotangent_whole = with_arrays(value, backend.from_host), whole_value(array)
    wanted = forward_and_gradients(primitive, [*map(whole_value, arrays)], sample.attrs, cotangent_whole)
    with flow.backend(backend):
        found = forward_and_gradients(primitive, values, sample.attrs, cotangent)
    for got, want in zip((found[0], *found[1]), (wanted[0], *wanted[1]), strict=True):
        assert (got is None) == (want is None)
        if got is not None and want is not None:
            host = logical(with_arrays(got, backend.to_host))
            assert same_bits(host, logical(want)), f"{got.meta}: {host}, the reference {logical(want)}"
