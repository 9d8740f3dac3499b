"""Random factories: the logical value is the seed's and the ordinal's, whatever the layout and the number of ranks.

Checks RNG-INDEX and RNG-STREAM.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import refflow as flow
from refflow.random import Generator
from tests.tensor.layouts import BACK4, LINE2, LINE4, MESH, B, S, fresh_world, laid, layout_id

DRAWS: dict[str, Callable[..., flow.Tensor]] = {
    "rand": lambda **where: flow.rand(5, 6, **where),
    "randn": lambda **where: flow.randn(5, 6, **where),
    "randint": lambda **where: flow.randint(-4, 9, (5, 6), **where),
    "normal": lambda **where: flow.normal(1.0, 2.0, (5, 6), **where),
    "half": lambda **where: flow.randn(5, 6, dtype=flow.float16, **where),
}
LAYOUTS = [(LINE4, (S(0),)), (LINE4, (S(1),)), (LINE2, (B,)), (BACK4, (S(1),)), (MESH, (S(0), S(0))), (MESH, (S(1), B))]


@pytest.mark.parametrize("name", DRAWS)
def test_the_same_values_in_every_layout(name: str) -> None:
    """(RNG-INDEX)"""
    expected = None
    for size in (1, 4, 5):
        with fresh_world(size):
            one = flow.placement("cpu", [size - 1])
            for placement, sbp in [(one, (B,)), *(LAYOUTS if size >= 4 else [])]:
                flow.manual_seed(3)
                found = DRAWS[name](placement=placement, sbp=sbp).numpy()
                expected = found if expected is None else expected
                assert flow.same_bits(found, expected)


@pytest.mark.parametrize("layout", [*LAYOUTS[2:4], (LINE4, (S(0),))], ids=layout_id)
def test_permutation(layout: Any) -> None:
    """randperm is a permutation, the same one everywhere."""
    flow.manual_seed(1)
    first = flow.randperm(11, placement=LINE4, sbp=B).tolist()
    flow.manual_seed(1)
    assert flow.randperm(11, placement=layout[0], sbp=B).tolist() == first
    assert sorted(first) == list(range(11)) and first != list(range(11))


def test_bernoulli_follows_its_probabilities() -> None:
    """1 with probability p, in dtype and layout of p; 0 and 1 are certain."""
    p = laid(np.float32([[0.0, 1.0, 0.5]] * 200), LINE4, S(0))
    drawn = flow.bernoulli(p)
    assert (drawn.sbp, drawn.dtype) == (p.sbp, p.dtype)
    array = drawn.numpy()
    assert set(np.unique(array)) == {0.0, 1.0} and array[:, 0].sum() == 0 and array[:, 1].sum() == 200
    assert 70 < array[:, 2].sum() < 130


def test_each_call_takes_the_next_ordinal() -> None:
    """The stream is the ordinal of the call; seeding starts again; global and local calls are counted apart."""
    where: dict[str, Any] = {"placement": LINE4, "sbp": S(0)}
    flow.manual_seed(9)
    first, second = flow.rand(4, **where), flow.rand(4, **where)
    assert not flow.same_bits(first.numpy(), second.numpy())
    assert flow.default_generator().state == (9, 2, 0)
    flow.manual_seed(9)
    flow.rand(4)  # a local draw does not disturb the global ones
    assert flow.default_generator().state == (9, 0, 1)
    assert flow.same_bits(flow.rand(4, **where).numpy(), first.numpy())
    assert flow.same_bits(flow.rand(4, **where).numpy(), second.numpy())
    flow.manual_seed(10)
    assert not flow.same_bits(flow.rand(4, **where).numpy(), first.numpy())
    saved = flow.default_generator().state
    third = flow.randn(3, **where)
    flow.default_generator().state = saved
    assert flow.same_bits(flow.randn(3, **where).numpy(), third.numpy())


def test_a_generator_of_ones_own() -> None:
    """`generator=` draws from that generator alone."""
    own = Generator().manual_seed(4)
    before = flow.default_generator().state
    a = flow.rand(3, generator=own)
    assert flow.default_generator().state == before and own.state == (4, 0, 1)
    assert flow.same_bits(flow.rand(3, generator=Generator(4)).numpy(), a.numpy())


def test_local_draws_are_equal_on_all_ranks() -> None:
    """A local draw has the same counter on every rank, and another stream than a global draw."""
    x = flow.randn(3, 2)
    assert x.is_local and x.numpy().shape == (3, 2)
    flow.manual_seed(0)
    local, whole = flow.rand(6), flow.rand(6, placement=LINE4, sbp=B)
    assert not flow.same_bits(local.numpy(), whole.numpy())


def test_moments_and_uniformity() -> None:
    """Mean, variance and histogram of 2^16 numbers, five standard errors wide."""
    n = 1 << 16
    u = flow.rand(n).numpy().astype(np.float64)
    assert u.min() >= 0 and u.max() < 1
    assert abs(u.mean() - 0.5) < 5 * np.sqrt(1 / 12 / n) and abs(u.var() - 1 / 12) < 5 * np.sqrt(1 / 180 / n)
    counts = np.histogram(u, 64, (0, 1))[0]
    assert ((counts - n / 64) ** 2 / (n / 64)).sum() < 63 + 5 * np.sqrt(2 * 63)
    z = flow.randn(n).numpy().astype(np.float64)
    assert abs(z.mean()) < 5 / np.sqrt(n) and abs(z.var() - 1) < 5 * np.sqrt(2 / n)
    assert abs((z**4).mean() - 3) < 5 * np.sqrt(96 / n)
    assert abs((z[:-1] * z[1:]).mean()) < 5 / np.sqrt(n)  # Box-Muller's pairs are not correlated
    k = flow.randint(-3, 4, (n,)).numpy()
    counts = np.bincount(k + 3, minlength=7)
    assert len(counts) == 7 and ((counts - n / 7) ** 2 / (n / 7)).sum() < 6 + 5 * np.sqrt(12)
