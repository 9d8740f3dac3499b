"""Who is here and how bytes travel: virtual, MPI and lockstep worlds (spec/text/worlds.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .base import Transfer, World
from .virtual import VirtualWorld

if TYPE_CHECKING:
    from ..state import Override


def current_world() -> World:
    """The world in force."""
    from ..state import settings

    return settings().world


def virtual_world(size: int) -> Override:
    """Makes a world of `size` ranks in this process; a function (from now on) and a context manager (for a block)."""
    from ..state import Override

    return Override(world=VirtualWorld(size))


__all__ = ["Transfer", "VirtualWorld", "World", "current_world", "virtual_world"]
