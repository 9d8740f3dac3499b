"""The boxing plan: which rank takes which piece from whom, to bring a tensor from one (placement, sbp) to another.

Implements BOX-PLAN, BOX-FOLD-ORDER, BOX-B2P, BOX-S2P and BOX-COST of spec/text/boxing.md.  A pure function of metadata,
the same on every rank; `run` (boxing/run.py) moves the bytes.  A plan has at most two steps: fold what is partial, then
copy boxes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from ..layout import (
    Box,
    Coords,
    FoldKind,
    NdSbp,
    Partial,
    Placement,
    Split,
    box_shape,
    boxes,
    cut,
    intersect,
    partial_axes,
    volume,
    within,
)

Key = Coords  # the coordinates of a rank on the P axes: which addend it holds
Holding = dict[int, tuple[Key, Box]]  # rank -> (which addend, which box of it)


@dataclass(frozen=True)
class Layout:
    """A (placement, sbp) pair: where a tensor is."""

    placement: Placement
    sbp: NdSbp

    def __str__(self) -> str:
        return f"{format_sbp(self.sbp)} on {self.placement}"


@dataclass(frozen=True)
class Piece:
    """Copy `source_slices` of what rank `source` holds to `slices` of the new local array."""

    source: int
    source_slices: tuple[slice, ...]
    slices: tuple[slice, ...]
    elements: int


@dataclass(frozen=True)
class Assembly:
    """How one rank's new local array comes about: the pieces of each addend, which the step's `folds` then fold.

    A copy has one addend and no fold.  The pieces fill `region`; the rest of the local array, of shape `shape`, is the
    identity of `fill`.
    """

    shape: tuple[int, ...]
    region: tuple[slice, ...]
    addends: tuple[tuple[Piece, ...], ...]
    fill: FoldKind = "sum"


@dataclass(frozen=True)
class Step:
    """One move of a plan: `kind` names the collective, `folds` the (size, fold kind) of each folded mesh axis."""

    kind: str
    assemblies: Mapping[int, Assembly]
    folds: tuple[tuple[int, FoldKind], ...]

    @property
    def elements(self) -> int:
        """The number of elements that travel between different ranks."""
        return sum(piece.elements for rank, piece in self.pieces() if piece.source != rank)

    def pieces(self) -> Iterator[tuple[int, Piece]]:
        """Every piece with the rank that takes it, in the order in which they travel."""
        for rank, assembly in self.assemblies.items():
            for piece in itertools.chain.from_iterable(assembly.addends):
                yield rank, piece


@dataclass(frozen=True)
class Plan:
    """The steps from `source` to `target` for a tensor of logical `shape`; printable, with bytes."""

    shape: tuple[int, ...]
    source: Layout
    target: Layout
    steps: tuple[Step, ...]

    @property
    def elements(self) -> int:
        """The number of elements that travel between different ranks, over all steps (BOX-COST)."""
        return sum(step.elements for step in self.steps)

    def describe(self, itemsize: int) -> str:
        """The plan as text, bytes per step, for elements of `itemsize` bytes."""
        head = f"{self.source} -> {self.target}, shape {self.shape}: {self.elements * itemsize} bytes"
        lines = [f"  {step.kind}: {step.elements * itemsize} bytes" for step in self.steps]
        return "\n".join([head, *(lines or ["  nothing moves"])])


def format_sbp(sbp: NdSbp) -> str:
    """`sbp` in short: ``S(0)``, ``(S(0), B)``."""
    return str(sbp[0]) if len(sbp) == 1 else f"({', '.join(map(str, sbp))})"


@lru_cache(maxsize=65536)
def plan(shape: tuple[int, ...], source: Layout, target: Layout) -> Plan:
    """The plan that brings a tensor of logical `shape` from `source` to `target` (BOX-PLAN)."""
    if source == target:
        return Plan(shape, source, target, ())
    held = _holding(shape, source)
    steps: list[Step] = []
    kept = _kept_partials(source, target)
    folded = [axis for axis in partial_axes(source.sbp) if axis not in kept]
    if folded:
        direct = _direct_regions(shape, source, target, folded)
        if direct is not None:
            return Plan(shape, source, target, (_fold_step(source, held, folded, direct),))
        regions = _shared_regions(source, held, folded)
        steps.append(_fold_step(source, held, folded, regions))
        held = {rank: (_without(source, held[rank][0], folded), region) for rank, region in regions.items()}
    steps.append(_copy_step(shape, source, target, held, kept))
    return Plan(shape, source, target, tuple(steps))


@lru_cache(maxsize=65536)
def elements_moved(shape: tuple[int, ...], source: Layout, target: Layout) -> int:
    """`plan(shape, source, target).elements`, counted without the plan: for choosing among many (BOX-COST).

    The boxes of an addend tile it, so what a rank takes from others is its region less what it holds of it itself.
    """
    if source == target:
        return 0
    held = _holding(shape, source)
    kept = _kept_partials(source, target)
    folded = [axis for axis in partial_axes(source.sbp) if axis not in kept]
    if not folded:
        return _copied(shape, source, target, held, kept)
    direct = _direct_regions(shape, source, target, folded)
    regions = direct if direct is not None else _shared_regions(source, held, folded)
    addends = math.prod(source.placement.mesh[axis] for axis in folded)
    count = sum(addends * volume(region) - _common(region, held[rank][1]) for rank, region in regions.items())
    if direct is not None:
        return count
    left = {rank: (_without(source, held[rank][0], folded), region) for rank, region in regions.items()}
    return count + _copied(shape, source, target, left, kept)


def _copied(shape: tuple[int, ...], source: Layout, target: Layout, held: Holding, kept: Sequence[int]) -> int:
    """The elements that a copy step moves between ranks."""
    local = boxes(shape, *_pair(target))
    new = [axis for axis in partial_axes(target.sbp) if axis not in kept]
    if _own_slices(held, source, target, local, new) is not None:
        return 0
    count = 0
    for rank, box in local.items():
        if not new or not any(target.placement.coords(rank)[axis] for axis in new):
            count += volume(box) - (_common(box, held[rank][1]) if rank in held else 0)
    return count


def _common(a: Box, b: Box) -> int:
    """The number of elements that two boxes share."""
    if len(a) != len(b):
        return 0  # the empty share of a 0-d tensor
    count = 1
    for (p, q), (r, s) in zip(a, b, strict=True):
        count *= max(0, min(q, s) - max(p, r))
    return count


def _pair(layout: Layout) -> tuple[Placement, NdSbp]:
    return layout.placement, layout.sbp


def _holding(shape: tuple[int, ...], layout: Layout) -> Holding:
    axes = partial_axes(layout.sbp)
    where = boxes(shape, *_pair(layout))
    return {rank: (tuple(layout.placement.coords(rank)[a] for a in axes), box) for rank, box in where.items()}


def _without(source: Layout, key: Key, folded: Sequence[int]) -> Key:
    """What is left of an addend's coordinates once the `folded` axes are gone."""
    return tuple(coord for axis, coord in zip(partial_axes(source.sbp), key, strict=True) if axis not in folded)


def _kept_partials(source: Layout, target: Layout) -> tuple[int, ...]:
    """The P axes that stay as they are: the outermost ones that source and target share.

    Folding an axis needs everything inside it folded first (BOX-FOLD-ORDER), so nothing to the right of the first P
    that has to go may stay.
    """
    if source.placement != target.placement:
        return ()
    axes = partial_axes(source.sbp)
    return tuple(itertools.takewhile(lambda axis: source.sbp[axis] == target.sbp[axis], axes))


def _direct_regions(
    shape: tuple[int, ...], source: Layout, target: Layout, folded: Sequence[int]
) -> dict[int, Box] | None:
    """Where every folded axis becomes S, each rank folds just what it will hold: no second step."""
    if source.placement != target.placement or not all(isinstance(target.sbp[axis], Split) for axis in folded):
        return None
    if partial_axes(target.sbp) != tuple(a for a in partial_axes(source.sbp) if a not in folded):
        return None
    return dict(boxes(shape, *_pair(target)))


def _shared_regions(source: Layout, held: Holding, folded: Sequence[int]) -> dict[int, Box]:
    """The ranks that hold addends of one box share the folding of it: balanced parts along its longest dimension."""
    sizes = [source.placement.mesh[axis] for axis in folded]
    regions = {}
    for rank, (_, box) in held.items():
        position = 0
        for axis, size in zip(folded, sizes, strict=True):
            position = position * size + source.placement.coords(rank)[axis]
        regions[rank] = _part(box, math.prod(sizes), position)
    return regions


def _part(box: Box, parts: int, position: int) -> Box:
    """Part `position` of a box cut along its longest dimension; a 0-d box goes to position 0, the others get none."""
    if not box:
        return box if position == 0 else ((0, 0),)
    axis = max(range(len(box)), key=lambda d: (box[d][1] - box[d][0], -d))
    return (*box[:axis], cut(box[axis], parts, position), *box[axis + 1 :])


def _fold_step(source: Layout, held: Holding, folded: Sequence[int], regions: Mapping[int, Box]) -> Step:
    """Each rank gathers, for every coordinate of the folded axes, its region of that addend, and folds them."""
    axes = partial_axes(source.sbp)
    mesh = source.placement.mesh
    cells = _cells(held)
    assemblies = {}
    for rank, region in regions.items():
        own = dict(zip(axes, held[rank][0], strict=True))
        addends = []
        for at in itertools.product(*(range(mesh[axis]) for axis in folded)):
            key = tuple({**own, **dict(zip(folded, at, strict=True))}[axis] for axis in axes)
            addends.append(tuple(_pieces(rank, region, cells.get(key, {}), region)))
        assemblies[rank] = Assembly(box_shape(region), within(region, region), tuple(addends))
    kinds = tuple((mesh[axis], _kind(source.sbp[axis])) for axis in folded)
    return Step("reduce_scatter", assemblies, kinds)


def _kind(one: object) -> FoldKind:
    assert isinstance(one, Partial)
    return one.kind


def _copy_step(shape: tuple[int, ...], source: Layout, target: Layout, held: Holding, kept: Sequence[int]) -> Step:
    """Each rank copies its box from whoever holds it; on a new P axis one position takes it, the others an identity."""
    cells = _cells(held)
    local = boxes(shape, *_pair(target))
    new = [axis for axis in partial_axes(target.sbp) if axis not in kept]
    own = _own_slices(held, source, target, local, new)
    assemblies = {}
    for rank, box in local.items():
        coords = target.placement.coords(rank)
        key = tuple(coords[axis] for axis in kept)
        region: Box | None = box
        if own is not None:
            region = own[rank]
        elif any(coords[axis] for axis in new):
            region = None
        pieces = () if region is None else tuple(_pieces(rank, region, cells.get(key, {}), box))
        slices = within(region, box) if region is not None else tuple(slice(0, 0) for _ in box)
        fill = _filler(target, coords) if own is None else _kind(target.sbp[new[0]])
        assemblies[rank] = Assembly(box_shape(box), slices, (pieces,), fill)
    step = Step("copy", assemblies, ())
    return Step(_copy_name(source, target, step.elements), assemblies, ())


def _filler(target: Layout, coords: Coords) -> FoldKind:
    """Whose identity a rank holds where it holds no addend: that of the innermost P axis it is not first on.

    There it stands beside the value that goes one axis further out, which may itself be an identity, of another kind.
    """
    off = [axis for axis in partial_axes(target.sbp) if coords[axis]]
    return _kind(target.sbp[off[-1]]) if off else "sum"


def _own_slices(
    held: Holding, source: Layout, target: Layout, local: Mapping[int, Box], new: Sequence[int]
) -> dict[int, Box] | None:
    """S -> P on one placement: each rank keeps its slice, if the slices tile what the addends add up to (BOX-S2P)."""
    if not new or source.placement != target.placement:
        return None
    if not all(isinstance(source.sbp[axis], Split) for axis in new):
        return None
    if any(source.sbp[a] != target.sbp[a] for a in range(len(source.sbp)) if a not in new):
        return None
    if len({target.sbp[axis] for axis in partial_axes(target.sbp) if axis >= new[0]}) > 1:
        return None  # no one filler is neutral to every fold
    covered: dict[tuple[Key, Box], int] = {}
    for rank, box in local.items():
        mine = held[rank][1]
        if volume(mine) and intersect(mine, box) != mine:
            return None
        group = tuple(c for axis, c in enumerate(source.placement.coords(rank)) if axis not in new)
        covered[group, box] = covered.get((group, box), 0) + volume(mine)
    if any(volume(box) != total for (_, box), total in covered.items()):
        return None
    return {rank: held[rank][1] for rank in local}


def _copy_name(source: Layout, target: Layout, elements: int) -> str:
    """The collective's usual name: what moved where."""
    if source.placement.ranks != target.placement.ranks:
        return "send"
    if elements == 0:
        return "slice"
    if source.placement.mesh != target.placement.mesh:
        return "all_gather"
    # What becomes of what lies in parts: of S, and of P, which was folded first, each rank a share of it.
    pairs = zip(source.sbp, target.sbp, strict=True)
    ends = [b for a, b in pairs if isinstance(a, Split) or (isinstance(a, Partial) and a != b)]
    return "all_to_all" if ends and all(isinstance(one, Split) for one in ends) else "all_gather"


def _cells(held: Holding) -> dict[Key, dict[Box, list[int]]]:
    """For each addend its distinct boxes and the ranks that hold them; the boxes of one addend do not overlap."""
    cells: dict[Key, dict[Box, list[int]]] = {}
    for rank, (key, box) in held.items():
        cells.setdefault(key, {}).setdefault(box, []).append(rank)
    return cells


def _pieces(rank: int, region: Box, cells: Mapping[Box, Sequence[int]], local: Box) -> Iterator[Piece]:
    """The pieces that make up `region`, each from this rank itself where it holds it, else from holders in turn."""
    for cell, holders in cells.items():
        if len(cell) != len(region):
            continue  # the empty share of a 0-d tensor
        common = intersect(cell, region)
        if common is not None:
            source = rank if rank in holders else holders[rank % len(holders)]
            yield Piece(source, within(common, cell), within(common, local), volume(common))
