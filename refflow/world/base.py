"""The protocol of a world: who is here, and how bytes travel.  A world moves bytes and folds nothing.

Implements WORLD-OWNED, WORLD-CALL and WORLD-HISTORY of spec/text/worlds.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Transfer:
    """One array to be moved from rank `source` to rank `target`; both ends know its shape and dtype."""

    source: int
    target: int
    shape: tuple[int, ...]
    dtype: Any


class World(Protocol):
    """The ranks of a program.  `owned` are those this process computes for."""

    size: int
    owned: tuple[int, ...]

    def transfer(self, call: str, transfers: Sequence[Transfer], outgoing: Mapping[int, Any]) -> Mapping[int, Any]:
        """Moves arrays: `outgoing` maps the index of a transfer from an owned rank to a host array; returns those for
        owned ranks.

        A collective: every process of the world makes the same call, else `DivergenceError` on all.
        """
        ...

    def agree(self, call: str, mine: Mapping[int, T]) -> Mapping[int, T]:
        """Everybody's entries (rank -> small picklable object), in rank order.  A collective like `transfer`."""
        ...

    def saw(self, name: str, mark: int) -> None:
        """An operation on global tensors that every process must carry out; `mark` is a checksum of its operands and
        attributes (WORLD-HISTORY).
        """
        ...

    def describe(self) -> str:
        """The world in words."""
        ...
