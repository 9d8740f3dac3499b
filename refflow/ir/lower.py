"""Lowering: a primitive on laid-out operands becomes boxings, one kernel call per rank, and the layout of the results.

Implements SIG-LOWER of spec/text/signatures.md, PART-REDUCE of spec/text/partial.md, and ERR-MIXED, ERR-PLACEMENT and
ERR-SHAPE of spec/text/errors.md.  Pure functions of metadata, cached, the same on every rank.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import numpy as np

from ..boxing import format_sbp
from ..errors import BoxingError, LocalGlobalError, PlacementError, ShapeError
from ..layout import NdSbp, Placement
from .node import Meta, Shape
from .primitive import Primitive, Rule
from .signature import Signature, best, letter_ranges, requested
from .space import Space, bind_space, parse


@dataclass(frozen=True)
class Lowered:
    """What to do: operand layouts to reach (None: as it is), output metas, keyword arguments of each rank's kernel.

    Where all are local `calls` is empty and `local` has the arguments.  `mark`, a checksum of all that was asked, tells
    processes whether they do the same (WORLD-HISTORY).
    """

    targets: tuple[Meta | None, ...]
    outputs: tuple[Meta, ...]
    calls: Mapping[int, Mapping[str, Any]]
    signature: Signature | None
    local: Mapping[str, Any]
    mark: int = 0


_cache: dict[Any, Lowered] = {}
_CACHE_LIMIT = 100_000


def frozen(attrs: Mapping[str, Any]) -> tuple[Any, ...]:
    """A hashable key of attributes that tells 0.0 from -0.0 and 1 from True."""
    return tuple([(k, type(v), float(v).hex() if isinstance(v, (float, np.floating)) else v) for k, v in attrs.items()])


def lower(
    primitive: Primitive, metas: tuple[Meta, ...], attrs: Mapping[str, Any], policy: str, explicit: bool
) -> Lowered:
    """The lowering of `primitive` on operands like `metas` under a signature policy ("exact" | "cheap")."""
    key = (primitive, metas, frozen(attrs), policy, explicit)
    lowered = _cache.get(key)
    if lowered is None:
        if len(_cache) >= _CACHE_LIMIT:
            _cache.clear()
        lowered = _cache[key] = _lower(primitive, metas, attrs, policy, explicit)
    return lowered


def _lower(
    primitive: Primitive, metas: tuple[Meta, ...], attrs: Mapping[str, Any], policy: str, explicit: bool
) -> Lowered:
    mark = crc32(f"{primitive.name} {metas} {attrs} {policy}".encode())
    attrs = dict(attrs)
    where = common_placement(primitive.name, metas)
    sbp: NdSbp | None = None
    if not metas:
        where, sbp = attrs.pop("placement", None), attrs.pop("sbp", None)
    rule, space = declared(primitive, metas, attrs)
    shapes = [space.shape(dims) for dims in space.outputs]
    refuse_too_big(primitive.name, shapes, rule.dtypes)
    if where is None:
        whole = {letter: (0, size) for letter, size in space.sizes.items()}
        outputs = tuple(Meta(shape, dtype) for shape, dtype in zip(shapes, rule.dtypes, strict=True))
        return Lowered((None,) * len(metas), outputs, {}, None, _call(primitive, space, whole, attrs))
    if sbp is not None:
        signature = requested(primitive.name, rule, space, where, sbp)
    else:
        chosen = best(rule, space, metas, where, policy)
        signature = chosen.signature
        if explicit and chosen.bytes:
            _refuse(primitive.name, metas, signature)
    targets = tuple(
        None if m.sbp == s else m.with_layout(where, s) for m, s in zip(metas, signature.inputs, strict=True)
    )
    outputs = tuple(
        Meta(shape, dtype, where, s) for shape, dtype, s in zip(shapes, rule.dtypes, signature.outputs, strict=True)
    )
    return Lowered(targets, outputs, _calls(primitive, space, signature, where, attrs), signature, {}, mark)


def declared(primitive: Primitive, metas: Sequence[Meta], attrs: Mapping[str, Any]) -> tuple[Rule, Space]:
    """What a primitive declares for such operands, and its index space with their sizes (errors of ERR-SHAPE)."""
    rule = primitive.rule(*metas, **attrs)
    return rule, bind_space(primitive.name, parse(rule.space, len(metas)), [m.shape for m in metas], rule.sizes)


def refuse_too_big(name: str, shapes: Sequence[Shape], dtypes: Sequence[np.dtype[Any]]) -> None:
    """`ShapeError` for what no address space holds, the same on every rank, before any is allocated (ERR-SHAPE)."""
    for shape, dtype in zip(shapes, dtypes, strict=True):
        if math.prod([max(n, 1) for n in shape]) * dtype.itemsize >= 2**63:
            raise ShapeError(f"{name}: {dtype.name} of shape {shape} takes 2^63 bytes or more; no array is so large")


def _calls(
    primitive: Primitive, space: Space, signature: Signature, where: Placement, attrs: Mapping[str, Any]
) -> dict[int, dict[str, Any]]:
    """Each rank's keyword arguments: one object for all ranks with the same ranges, so that replicas are recognised."""
    shared: dict[tuple[tuple[int, int], ...], dict[str, Any]] = {}
    calls = {}
    for rank in where:
        ranges = letter_ranges(space, signature.axes, where, rank)
        key = tuple(ranges.values())
        if key not in shared:
            shared[key] = _call(primitive, space, ranges, attrs)
        calls[rank] = shared[key]
    return calls


def common_placement(name: str, metas: Sequence[Meta]) -> Placement | None:
    """The one placement of the operands, None if all are local; errors name both sides (ERR-MIXED, ERR-PLACEMENT)."""
    first = metas[0].placement if metas else None
    for i, meta in enumerate(metas):
        if (meta.placement is None) != (first is None):
            kinds = ["local" if m.placement is None else "global" for m in metas]
            raise LocalGlobalError(
                f"{name}: operands are {', '.join(kinds)}; bring operand {i} over with to_global(placement, sbp) or to_local(),"
                " a whole model with model.to_global(placement, sbp)"
            )
        if meta.placement != first:
            raise PlacementError(
                f"{name}: operand 0 is on {first}, operand {i} on {meta.placement}; move one with to_global(placement=...)"
            )
    return first


def _refuse(name: str, metas: Sequence[Meta], signature: Signature) -> None:
    """The error of a signature that costs bytes; slicing and holding identities cost none (SIG-EXPLICIT)."""
    moves = [
        f"operand {i} from {format_sbp(m.sbp)} to {format_sbp(s)}"
        for i, (m, s) in enumerate(zip(metas, signature.inputs, strict=True))
        if m.sbp is not None and m.sbp != s
    ]
    raise BoxingError(
        f"{name}: would move {', '.join(moves)} (signature {signature}), but boxing is explicit; call to_global yourself"
    )


def _call(
    primitive: Primitive, space: Space, ranges: Mapping[str, tuple[int, int]], attrs: Mapping[str, Any]
) -> dict[str, Any]:
    """The keyword arguments of one rank's kernel call."""
    call = dict(attrs)
    if primitive.local_shape:
        call["shape"] = local_shape(space, ranges)
    if space.origins:
        call["at"] = {a: (*ranges[a], space.sizes[a]) for a in space.origins}
    return call


def local_shape(space: Space, ranges: Mapping[str, tuple[int, int]]) -> Shape:
    """The shape of this rank's part of the first output."""
    length = {letter: hi - lo for letter, (lo, hi) in ranges.items()}
    return tuple(math.prod(length[letter] for letter in dim.letters) for dim in space.outputs[0])
