"""Draws: a call advances the generator by what build draws, so programs that mix graphs and eager code are all eager.

GRAPH-RANDOM, RNG-STREAM, PASS-DEAD.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import refflow as flow
from refflow import Tensor
from refflow.layout import Placement
from tests.graph.nets import rows
from tests.graph.running import B, Of, S, bits, state_of
from tests.strategies import examples

PAIR = Placement("cpu", [0, 1])
F = flow.nn.functional


def drop(x: Tensor) -> Tensor:
    return F.dropout(F.dropout(x, 0.5) + 1, 0.25)


def noise(x: Tensor) -> Tensor:
    flow.randn(3, placement=PAIR, sbp=B)  # nobody looks
    return x + flow.rand(*x.shape, placement=PAIR, sbp=S(0)) + flow.randn(x.shape[1], placement=PAIR, sbp=B)


def shuffled(x: Tensor) -> Tensor:
    return flow.index_select(x, 1, flow.randperm(x.shape[1], placement=PAIR, sbp=B)) + flow.randint(0, 9, (4,), placement=PAIR, sbp=B)


def plain(x: Tensor) -> Tensor:
    return x * 2


FUNCTIONS = (drop, noise, shuffled, plain)


@examples(10)
@given(st.lists(st.tuples(st.sampled_from(FUNCTIONS), st.sampled_from([0, 1, 2, 4])), min_size=1, max_size=8), st.booleans())
def test_mixed_programs(calls: list[tuple[Any, int]], local: bool) -> None:
    """Each call eager (0) or in a graph of so many micro-batches, local draws strewn in: all as if eager."""
    graphs: dict[Any, Of] = {}
    found = []
    for mixed in (True, False):
        flow.manual_seed(3)
        x, seen = flow.tensor(rows(8, 4), placement=PAIR, sbp=S(0)), []
        for function, micro in calls:
            if mixed and micro:
                graph = graphs.setdefault((function, micro), Of(function, micro))
                graph.config.runtime = ("actors", "sequential")[len(seen) % 2]
                x = graph(x)
            else:
                x = function(x)
            if local:
                flow.rand(2)
            x = x.detach().to_global(PAIR, S(0))
            seen.append((bits(x), state_of()))
        found.append(seen)
    assert found[0] == found[1]


@pytest.mark.parametrize("micro", [1, 2])
def test_seed_and_state_rule_a_graph_as_they_rule_eager_code(micro: int) -> None:
    x, graph = flow.tensor(rows(8, 4), placement=PAIR, sbp=S(0)), Of(noise, micro)
    graph(x)
    for seed in (0, 5, 2**63):
        flow.manual_seed(seed)
        lazy = [bits(graph(x)) for _ in range(2)]
        flow.manual_seed(seed)
        assert lazy == [bits(noise(x)) for _ in range(2)]
    flow.default_generator().state = (9, 100, 7)
    lazy = bits(graph(x))
    assert state_of() == (9, 103, 7)
    flow.default_generator().state = (9, 100, 7)
    assert bits(noise(x)) == lazy


def test_the_generator_in_force_is_the_one_drawn_from() -> None:
    x, graph = flow.tensor(rows(8, 4), placement=PAIR, sbp=S(0)), Of(noise)
    graph(x)
    before = state_of()
    with flow.state.Override(generator=flow.Generator(4, 11)):
        lazy = bits(graph(x))
    with flow.state.Override(generator=flow.Generator(4, 11)):
        assert bits(noise(x)) == lazy
    assert state_of() == before
