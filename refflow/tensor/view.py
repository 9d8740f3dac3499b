"""Views: a tensor that shows part of another, and writes through to it.

Implements TENSOR-VIEW of spec/text/tensors.md.  A view is a base and a lens; reading takes the lens' part of the base's
present value, writing puts a changed part back.  Values never change, so what the tape saved is safe (AUTO-SAVED).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..ir import Value
from ..ops.shape import expand, reshape, transpose
from ..ops.slicing import slice_, slice_update


@dataclass(frozen=True)
class Lens:
    """How a view reads its base, and how a new value of the view becomes a new value of the base (None: it cannot)."""

    name: str
    get: Callable[[Value], Value]
    put: Callable[[Value, Value], Value] | None


def _cut_off(value: Value) -> Value:
    """The same numbers with no past."""
    return Value(value.meta, value.shards, ragged=value.ragged)


DETACHED = Lens("detach", _cut_off, lambda base, part: _cut_off(part))


def slice_lens(starts: tuple[int, ...], stops: tuple[int | None, ...], steps: tuple[int, ...]) -> Lens:
    """A rectangular part."""
    attrs: dict[str, Any] = {"starts": starts, "stops": stops, "steps": steps}
    return Lens("slice", lambda base: slice_(base, **attrs), lambda base, part: slice_update(base, part, **attrs))


def reshape_lens(old: tuple[int, ...], new: tuple[int, ...]) -> Lens:
    """The same elements under another shape."""
    return Lens("reshape", lambda base: reshape(base, shape=new), lambda base, part: reshape(part, shape=old))


def transpose_lens(perm: tuple[int, ...]) -> Lens:
    """Dimensions in another order."""
    back = tuple(perm.index(d) for d in range(len(perm)))
    return Lens("transpose", lambda base: transpose(base, perm=perm), lambda base, part: transpose(part, perm=back))


def expand_lens(shape: tuple[int, ...]) -> Lens:
    """Repeated elements: several places of the view are one place of the base, so it cannot be written through."""
    return Lens("expand", lambda base: expand(base, shape=shape), None)
