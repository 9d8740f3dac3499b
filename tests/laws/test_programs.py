"""Programs of 3 to 12 operations under random layouts have the bits of one rank, forward and backward.

The promise itself (SIG-EXACT, AUTO-ORDER, AUTO-LAYOUT, BOX-PRIMITIVE): inputs anywhere in any layout, to_global strewn
in, every intermediate and every leaf's gradient compared bit for bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import refflow as flow
from refflow import Tensor
from refflow.errors import BoxingError
from refflow.layout import reduced
from refflow.numerics import same_bits
from tests.laws.checking import checked
from tests.laws.programs import BINARY, UNARY, programs
from tests.strategies import (
    ROWS,
    arbitrary,
    examples,
    global_from,
    logical,
    placements,
    sbps,
    seeds,
    shapes,
    whole_value,
)

GRID = ((2, 2), (2, 3))


def _leaf(value: Any) -> Tensor:
    return Tensor(value).requires_grad_()


@examples(200)
@given(st.data())
def test_one_program_one_result(data: st.DataObject) -> None:
    rng = np.random.default_rng(data.draw(seeds))
    dtype = data.draw(st.sampled_from([flow.float32, flow.float32, flow.bfloat16]))
    shape = data.draw(shapes(1, 3, 6))
    placement, other = data.draw(placements((*ROWS, *GRID))), data.draw(placements((*ROWS, *GRID)))
    leaves, wholes = [], []
    for _ in range(data.draw(st.integers(1, 3))):
        draw = lambda shape: arbitrary(rng, shape, dtype, 0.0)  # noqa: E731
        value, array = global_from(draw, shape, placement, data.draw(sbps(placement, len(shape))))
        leaves.append(_leaf(value))
        wholes.append(_leaf(whole_value(array)))
    steps, expected = data.draw(programs(wholes))
    pool = list(leaves)

    def excursion(x: Tensor) -> Tensor:
        """By way of another placement into another layout."""
        there = x.to_global(other, data.draw(sbps(other, x.ndim, ("sum",))))
        return there.to_global(placement, data.draw(sbps(placement, x.ndim, ("sum",))))

    with checked():
        for step, whole in zip(steps, expected[len(leaves) :]):
            result = step.run(pool, excursion)
            assert same_bits(logical(result.value), logical(whole.value)), f"{step.name} in {result.sbp}"
            pool.append(result)
        last = len(pool) - 1
        draw = lambda shape: arbitrary(rng, shape, dtype, 0.0)  # noqa: E731
        sbp = data.draw(sbps(placement, pool[last].ndim, ("sum",)))
        seed, array = global_from(draw, pool[last].shape, placement, sbp)
        grads = _gradients(pool[last], leaves, Tensor(seed))
    whole_grads = _gradients(expected[last], wholes, Tensor(whole_value(array)))
    for leaf, g, whole_g in zip(leaves, grads, whole_grads):
        assert (g is None) == (whole_g is None)
        if g is not None and whole_g is not None:
            assert g.sbp == reduced(leaf.sbp)
            assert same_bits(logical(g.value), logical(whole_g.value)), f"gradient of {leaf.sbp}"


def _gradients(output: Tensor, leaves: list[Tensor], seed: Tensor) -> tuple[Tensor | None, ...]:
    from refflow.tensor.backward import grad

    if not output.requires_grad:
        return (None,) * len(leaves)
    return grad(output, leaves, seed, allow_unused=True)


@examples(150)
@given(st.data())
def test_explicit_boxing_refuses_exactly_what_would_move(data: st.DataObject) -> None:
    """SIG-EXPLICIT: an operation raises BoxingError if and only if it would move bytes between ranks."""
    rng = np.random.default_rng(data.draw(seeds))
    shape = data.draw(shapes(1, 2, 5))
    placement = data.draw(placements((*ROWS, *GRID)))
    draw = lambda shape: arbitrary(rng, shape, np.float32, 0.0)  # noqa: E731
    x, y = (Tensor(global_from(draw, shape, placement, data.draw(sbps(placement, len(shape))))[0]) for _ in range(2))
    name = data.draw(st.sampled_from([*UNARY, *BINARY]))
    if name in BINARY:
        operation, operands = BINARY[name], (x, y)
    else:
        operation, operands = UNARY[name](data.draw, x) or flow.tanh, (x,)
    with flow.comm_log() as log:
        operation(*operands)
    refused = False
    with flow.boxing("explicit"):
        try:
            operation(*operands)
        except BoxingError:
            refused = True
    assert refused == (log.bytes > 0), f"{name}: {log}"
