"""Memory for the next values of variables: buffers that are used again once nobody holds them.

Part of ACC-PROGRAM of spec/text/acceleration.md: values stay immutable, so the next value of a variable never goes where
the one before lies, nor where a value lies that somebody kept.  A training loop goes to and fro between two buffers.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..cpu.abi import address

Array = np.ndarray[Any, Any]
MOST = 4  # buffers remembered for each variable


class Buffers:
    """The buffers of some variables, by number; `examples` say shape and dtype of each."""

    def __init__(self, examples: Mapping[int, Array]) -> None:
        self._examples = examples
        self._of: dict[int, list[Array]] = {number: [] for number in examples}
        self._addresses: dict[int, int] = {}  # by id: to ask NumPy takes longer

    def free(self, number: int) -> Array:
        """A buffer for the next value of a variable that nobody holds; a new one if there is none."""
        buffers = self._of[number]
        free = _unheld(buffers)
        if free is None:
            free = np.empty(self._examples[number].shape, self._examples[number].dtype)
            if len(buffers) >= MOST:  # whoever kept the oldest has it to himself
                del self._addresses[id(buffers.pop(0))]
            buffers.append(free)
            self._addresses[id(free)] = address(free)
        return free

    def addresses(self, arrays: Sequence[Array]) -> tuple[int, ...]:
        """Where arrays lie, be they buffers or not."""
        known = self._addresses
        return tuple([known[id(array)] if id(array) in known else address(array) for array in arrays])

    def at(self, addresses: Mapping[int, int]) -> dict[int, Array]:
        """Of the addresses by some key, the buffers that lie there, by that key."""
        lying = {address(array): array for buffers in self._of.values() for array in buffers}
        return {key: lying[where] for key, where in addresses.items() if where in lying}


def _unheld(buffers: list[Array]) -> Array | None:
    """The first array that nothing but this list refers to."""
    for buffer in buffers:
        if sys.getrefcount(buffer) <= _ALONE:
            return buffer
    return None


_ALONE = next(sys.getrefcount(buffer) for buffer in [np.empty(0)])  # as `_unheld` counts an array in one list
