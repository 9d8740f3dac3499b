"""Meta, Value, Node: what the tape, the lazy graph and the planner all speak.

Implements IR-VALUE and IR-NODE of spec/text/autograd.md.  A value never changes; in-place operations give a tensor (a
cell) a new value.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ..layout import NdSbp, Placement

if TYPE_CHECKING:
    from .primitive import Primitive

Shape = tuple[int, ...]
_sequence = itertools.count()


class Meta:
    """Shape, dtype, placement and sbp of a value; placement and sbp are None for a local one."""

    __slots__ = ("_hash", "dtype", "placement", "sbp", "shape")

    def __init__(
        self, shape: Shape, dtype: np.dtype[Any], placement: Placement | None = None, sbp: NdSbp | None = None
    ) -> None:
        self.shape, self.dtype, self.placement, self.sbp = shape, dtype, placement, sbp
        self._hash = hash((shape, dtype, placement, sbp))

    def with_layout(self, placement: Placement, sbp: NdSbp) -> Meta:
        """The same logical tensor elsewhere."""
        return Meta(self.shape, self.dtype, placement, sbp)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Meta):
            return NotImplemented
        return (self.shape, self.dtype, self.sbp, self.placement) == (
            other.shape,
            other.dtype,
            other.sbp,
            other.placement,
        )

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled by its arguments: hashes differ from process to process."""
        return Meta, (self.shape, self.dtype, self.placement, self.sbp)

    def __repr__(self) -> str:
        where = "local" if self.placement is None else f"sbp={self.sbp}, {self.placement}"
        return f"{self.dtype.name}{list(self.shape)} {where}"


class Value:
    """One immutable tensor value: metadata, the shards of the owned ranks, and the node that made it.

    It is output number `index` of `node` (None: a leaf).  `meta.shape` of a ragged local value is that of its first
    owned rank; `ragged` says so.
    """

    __slots__ = ("__weakref__", "hooks", "index", "meta", "node", "owner", "ragged", "requires_grad", "shards")

    def __init__(self, meta: Meta, shards: Mapping[int, Any], *, ragged: bool = False) -> None:
        self.meta, self.shards, self.ragged = meta, shards, ragged
        self.node: Node | None = None
        self.index = 0
        self.requires_grad = False
        self.owner: Any = None  # a weak reference to the tensor whose .grad this leaf's gradient goes to
        self.hooks: list[Callable[[Any], Any]] | None = None


@dataclass(eq=False)
class Node:
    """One primitive applied: its inputs, attributes and outputs; `order` is its place in the program."""

    primitive: Primitive
    inputs: tuple[Value, ...]
    attrs: Mapping[str, Any]
    metas: tuple[Meta, ...]
    outputs: tuple[Value, ...] = ()
    order: int = field(default_factory=lambda: next(_sequence))
    freed: bool = False

    def __repr__(self) -> str:
        return f"<{self.primitive.name}, operation {self.order}>"
