"""Letters: what processes say before a collective goes on."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refflow.errors import DivergenceError
from refflow.numerics import DTYPES
from refflow.world import Transfer
from refflow.world.mpi import _message, _read
from refflow.world.rendezvous import History, Letter
from tests.strategies import arbitrary, seeds, shapes

letters = st.builds(
    Letter,
    st.sampled_from(["call", "left", "failed"]),
    st.integers(0, 2**64 - 1),
    st.text(st.characters(codec="utf-8")),
    st.integers(0, 2**32 - 1),
    st.text(st.characters(codec="utf-8")),
)


@given(letters, st.binary())
def test_a_letter_is_read_as_it_was_written(letter: Letter, more: bytes) -> None:
    """WORLD-WIRE"""
    assert Letter.unpack(letter.pack() + more) == letter


@given(letters, letters)
def test_letters_differ_as_their_bytes_do(one: Letter, other: Letter) -> None:
    """WORLD-WIRE: processes compare bytes first."""
    assert (one.pack() == other.pack()) == (one == other)


def test_other_bytes_are_no_letter() -> None:
    """WORLD-WIRE"""
    with pytest.raises(DivergenceError, match="no rendezvous letter"):
        Letter.unpack(b"something else altogether")


@given(letters, st.lists(st.tuples(st.sampled_from(DTYPES), shapes(), seeds), max_size=4))
def test_arrays_are_read_as_they_were_written(letter: Letter, wanted: list[tuple[np.dtype, tuple[int, ...], int]]) -> None:  # type: ignore[type-arg]
    """WORLD-WIRE: any dtype, 0-d, empty, strided."""
    arrays = [arbitrary(np.random.default_rng(seed), shape, dtype).T for dtype, shape, seed in wanted]
    head = letter.pack()
    message = _message(head, arrays)
    start = -(-len(head) // 16) * 16
    transfers = [(2 * i, Transfer(0, 1, a.shape, a.dtype)) for i, a in enumerate(arrays)]
    read = _read(message[start:], transfers)
    assert Letter.unpack(message.tobytes()) == letter
    for i, array in enumerate(arrays):
        found = read[2 * i]
        assert found.dtype == array.dtype and found.shape == array.shape and found.tobytes() == array.tobytes()
        assert found.ctypes.data % array.dtype.itemsize == 0 or not array.size


def test_the_order_of_operations_is_part_of_the_history() -> None:
    """WORLD-HISTORY"""
    one, other = History(), History()
    for name, mark in (("add", 1), ("mul", 2)):
        one.saw(name, mark)
    for name, mark in (("mul", 2), ("add", 1)):
        other.saw(name, mark)
    a, b = one.letter("call", 1, "barrier"), other.letter("call", 1, "barrier")
    one.compare({0: a, 1: a})
    with pytest.raises(DivergenceError, match=r"(?s)rank 0: barrier after … add mul.*rank 1: barrier after … mul add"):
        one.compare({0: a, 1: b})
    assert one.checksum == 0  # the program may go on from here
