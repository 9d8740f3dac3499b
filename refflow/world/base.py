"""The protocol of a world: who is here, and how bytes travel.  A world moves bytes and folds nothing.

Implements WORLD-OWNED, WORLD-CALL and WORLD-HISTORY of spec/text/worlds.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from ..errors import PlacementError, WorldError

T = TypeVar("T")


@dataclass(frozen=True)
class Transfer:
    """One array to be moved from rank `source` to rank `target`; both ends know its shape and dtype."""

    source: int
    target: int
    shape: tuple[int, ...]
    dtype: Any


def refuse_foreign(name: str, top: int, held: Iterable[int], needed: Iterable[int], world: World) -> None:
    """Errors if a tensor was made in another world than the one it is used in (WORLD-OWNED).

    `PlacementError` if its highest rank `top` is not here, `WorldError` if this process, which has the parts of ranks
    `held`, has none of a `needed` rank.
    """
    if top >= world.size:
        raise PlacementError(
            f"{name}: the tensor has a part on rank {top}, the world has ranks 0..{world.size - 1} ({world.describe()});"
            " it was made in another world (a thread starts in the default one): use it there, or flow.save and flow.load it"
        )
    parts = set(held)
    lacking = [rank for rank in needed if rank not in parts]
    if lacking:
        raise WorldError(
            f"{name}: the tensor has no part for ranks {lacking} ({world.describe()}); it was made in another world:"
            " use it there, or flow.save and flow.load it"
        )


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
        """Notes an operation on global tensors; `mark` is a checksum of operands and attributes (WORLD-HISTORY)."""
        ...

    def describe(self) -> str:
        """The world in words."""
        ...
