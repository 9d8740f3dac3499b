"""Placement: a device mesh, and the order of its ranks.

Implements LAY-PLACEMENT and LAY-MESH-ORDER of spec/text/layout.md.  Which process owns a rank, and which back end
computes on a device type, is the world's business.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

from ..errors import PlacementError

Coords = tuple[int, ...]


class Placement:
    """A mesh of ranks on one device type, e.g. ``placement("cpu", [[0, 1], [2, 3]])``.

    Args: `type` a device label; `ranks` an int, a list, or a nested list of ints of any depth (the mesh).  Rank order
    is kept: ``[3, 0]`` differs from ``[0, 3]``.  Errors: `PlacementError` for an empty, ragged, negative or duplicate
    list.  Source: LAY-PLACEMENT.
    """

    __slots__ = ("_coords", "_hash", "mesh", "ranks", "top", "type")
    steps = 1  # more, where the last mesh axis are micro-steps that each rank walks in time (graph/time.py)

    def __init__(self, type: str, ranks: Any) -> None:
        mesh, flat = _mesh(ranks)
        if not isinstance(type, str) or not type:
            raise PlacementError(f"placement: the device type must be a non-empty string such as 'cpu', found {type!r}")
        if not flat:
            raise PlacementError(f"placement: needs at least one rank, found {ranks!r}")
        if min(flat) < 0:
            raise PlacementError(f"placement: ranks must be >= 0, found {min(flat)} in {ranks!r}")
        if len(set(flat)) != len(flat):
            twice = sorted({r for r in flat if flat.count(r) > 1})
            raise PlacementError(f"placement: every rank may appear once, found {twice} more than once in {ranks!r}")
        self.type, self.mesh, self.ranks, self.top = type, mesh, flat, max(flat)  # top: a world must be larger
        self._coords = dict(zip(flat, itertools.product(*map(range, mesh)), strict=True))
        self._hash = hash((type, mesh, flat))

    @property
    def size(self) -> int:
        """The number of ranks."""
        return len(self.ranks)

    @property
    def ndim(self) -> int:
        """The number of mesh axes."""
        return len(self.mesh)

    @property
    def base(self) -> Placement:
        """The mesh of ranks; a graph's placement has an axis of micro-steps beyond it (TIME-AXIS)."""
        return self

    def coords(self, rank: int) -> Coords:
        """The position of `rank` in the mesh, outermost axis first; `PlacementError` if it is not there."""
        try:
            return self._coords[rank]
        except KeyError:
            raise PlacementError(f"rank {rank} is not in {self}") from None

    def rank_at(self, coords: Sequence[int]) -> int:
        """The rank at a mesh position."""
        index = 0
        for size, coord in zip(self.mesh, coords, strict=True):
            index = index * size + coord
        return self.ranks[index]

    def __contains__(self, rank: object) -> bool:
        return rank in self._coords

    def __iter__(self) -> Iterator[int]:
        return iter(self.ranks)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Placement):
            return NotImplemented
        return (self.type, self.mesh, self.ranks) == (other.type, other.mesh, other.ranks)

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled by its arguments: hashes differ from process to process."""
        if self.base is not self:
            return type(self), (self.base, self.mesh[-1])
        return type(self), (self.type, nested(self.ranks, self.mesh))

    def __repr__(self) -> str:
        return f'placement("{self.type}", {nested(self.ranks, self.mesh)})'

    @staticmethod
    def all(type: str) -> Placement:
        """Every rank of the present world, in a row."""
        from ..world import current_world  # upward, so late: a convenience of the public name

        return Placement(type, list(range(current_world().size)))


def nested(flat: Sequence[Any], mesh: Sequence[int]) -> Any:
    """`flat` as nested lists of shape `mesh`."""
    if len(mesh) <= 1:
        return list(flat)
    step = math.prod(mesh[1:])
    return [nested(flat[i * step : (i + 1) * step], mesh[1:]) for i in range(mesh[0])]


def _mesh(ranks: Any) -> tuple[Coords, Coords]:
    """The mesh shape and the ranks in row-major order of an int or (nested) sequence."""
    if hasattr(ranks, "tolist"):
        ranks = ranks.tolist()
    if isinstance(ranks, (list, tuple)):
        ranks = [r.tolist() if hasattr(r, "tolist") else r for r in ranks]
    if isinstance(ranks, bool) or not isinstance(ranks, (int, Sequence, range)) or isinstance(ranks, str):
        raise PlacementError(f"placement: ranks must be an int or a (nested) list of ints, found {ranks!r}")
    if isinstance(ranks, int):
        return (1,), (ranks,)
    if all(isinstance(r, int) and not isinstance(r, bool) for r in ranks):
        return (len(ranks),), tuple(ranks)
    rows = [((), (row,)) if type(row) is int else _mesh(row) for row in ranks]
    if len({shape for shape, _ in rows}) != 1:
        raise PlacementError(f"placement: a mesh must be rectangular, found {ranks!r}")
    return (len(rows), *rows[0][0]), tuple(itertools.chain.from_iterable(flat for _, flat in rows))


placement = Placement
