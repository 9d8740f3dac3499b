"""The virtual world: every rank in this process, the script run once.

Implements WORLD-VIRTUAL of spec/text/worlds.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from ..errors import WorldError
from .base import Transfer

T = TypeVar("T")


class VirtualWorld:
    """`size` ranks in one process; deterministic, needs nothing installed.

    `fixed`: whoever started the script said how many, so that the script cannot say otherwise.
    """

    def __init__(self, size: int, fixed: bool = False) -> None:
        if not isinstance(size, int) or isinstance(size, bool) or size < 1:
            raise WorldError(f"virtual_world: the number of ranks must be an int >= 1, found {size!r}")
        self.size, self.fixed = size, fixed
        self.owned = tuple(range(size))

    def transfer(self, call: str, transfers: Sequence[Transfer], outgoing: Mapping[int, Any]) -> Mapping[int, Any]:
        return outgoing

    def agree(self, call: str, mine: Mapping[int, T]) -> Mapping[int, T]:
        return mine

    def saw(self, name: str, mark: int) -> None:
        """Nothing can diverge in one process."""

    def describe(self) -> str:
        return f"virtual world of {self.size} rank{'s' if self.size > 1 else ''} in one process"
