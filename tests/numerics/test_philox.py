"""RNG-PHILOX, RNG-UNIFORM, RNG-NORMAL, RNG-INTEGER: a number depends on seed, stream and logical index only."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refflow.errors import NumericsError
from refflow.numerics import apply, integers, normal, random_bits, same_bits, uniform
from refflow.numerics.checks import PHILOX_ANSWERS

seeds = st.integers(0, 2**64 - 1)


def index(*shape: int) -> np.ndarray[tuple[int, ...], np.dtype[np.uint64]]:
    return np.arange(math.prod(shape), dtype=np.uint64).reshape(shape)


def test_random123_known_answers() -> None:
    for (low, high, s0, s1), (k0, k1), words in PHILOX_ANSWERS:
        block, stream, seed = low | high << 32, s0 | s1 << 32, k0 | k1 << 32
        if block >> 62 == 0:  # an element index has 64 bits, so a block number has 62
            at = np.uint64(4 * block) + np.arange(4, dtype=np.uint64)
            assert tuple(random_bits(at, seed, stream).tolist()) == words
    zero = random_bits(index(4), 0, 0)
    assert [hex(w) for w in zero.tolist()] == ["0x6627e8d5", "0xe169c58d", "0xbc57ac4c", "0x9b00dbd8"]


@given(seeds, seeds, st.integers(0, 2**64 - 1), st.integers(1, 40), st.integers(1, 9))
def test_any_part_in_any_order(seed: int, stream: int, start: int, n: int, step: int) -> None:
    at = (np.uint64(start) + np.arange(n, dtype=np.uint64) * np.uint64(step)).astype(np.uint64)
    for draw in (random_bits, uniform, normal):
        whole = draw(at, seed, stream)
        assert same_bits(draw(at[::-1], seed, stream), whole[::-1])
        assert same_bits(draw(at[n // 2 :].reshape(1, -1), seed, stream)[0], whole[n // 2 :])
        assert same_bits(draw(at[:1], seed, stream), whole[:1])


def test_streams_and_seeds_differ() -> None:
    draws = [random_bits(index(8), seed, stream) for seed in (0, 1, 1 << 32) for stream in (0, 1, 1 << 32)]
    assert len({d.tobytes() for d in draws}) == 9


def test_uniform() -> None:
    u = uniform(index(100, 200), 3, 4)
    assert u.dtype == np.float32 and u.shape == (100, 200) and u.min() >= 0 and u.max() < 1
    assert same_bits(u, ((random_bits(index(100, 200), 3, 4) >> 8) / 2**24).astype(np.float32))
    assert abs(float(u.astype(float).mean()) - 0.5) < 0.01


def test_normal_is_box_and_muller_in_a_block() -> None:
    n = 64
    z, bits = normal(index(n), 5, 6), random_bits(index(n), 5, 6)
    two_pi = np.float32(2 * math.pi)
    for i in range(0, n, 2):
        u1, u2 = np.float32(((int(bits[i]) >> 8) + 1) / 2**24), np.float32((int(bits[i + 1]) >> 8) / 2**24)
        radius, angle = np.sqrt(np.float32(-2) * apply("log", u1)), two_pi * u2
        assert z[i] == radius * apply("cos", angle) and z[i + 1] == radius * apply("sin", angle)
    assert float(two_pi) == 6.2831854820251465


def test_normal_looks_normal() -> None:
    z = normal(index(20000), 7, 8).astype(float)
    assert abs(z.mean()) < 0.03 and abs(z.std() - 1) < 0.02 and abs((np.abs(z) < 1).mean() - 0.6827) < 0.01


def test_integers() -> None:
    at = index(5000)
    x = integers(at, -3, 4, 1, 2)
    assert x.dtype == np.int64 and set(x.tolist()) == set(range(-3, 4))
    assert x.tolist() == [-3 + ((int(w) * 7) >> 32) for w in random_bits(at, 1, 2)]
    full = integers(at, 0, 2**32, 1, 2)
    assert full.tolist() == random_bits(at, 1, 2).tolist()
    assert integers(at[:0], 0, 5, 1, 2).shape == (0,)
    for low, high in ((3, 3), (4, 3), (0, 2**32 + 1)):
        with pytest.raises(NumericsError):
            integers(at, low, high, 1, 2)
