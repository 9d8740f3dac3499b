"""Signatures: every way a primitive can run on split, broadcast and partial operands, derived from its index space.

Implements SIG-DERIVE, SIG-EXACT, SIG-ALIGNED, SIG-PRODUCT and SIG-CHOICE of spec/text/signatures.md, and TIME-CHOICE.
Each is marked: whether it keeps the bits, and why.  What a signature costs is the boxing plan's.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from ..boxing import Layout, elements_moved, format_sbp, plan
from ..errors import SbpError
from ..layout import NdSbp, Partial, Placement, Range, Sbp, Split, balanced, boxes, broadcast, cut
from ..numerics import aligned, bool_, is_float, is_half
from .node import Meta, Shape
from .primitive import Rule
from .space import Space, axis_of


@dataclass(frozen=True)
class AxisSignature:
    """A signature on one mesh axis: what each operand and output is along it.

    `letter` is the loop that is split, if any; `exact` whether the logical bits survive (None: if the cut is aligned);
    `why` says it in words.
    """

    inputs: tuple[Sbp, ...]
    outputs: tuple[Sbp, ...]
    letter: str | None
    exact: bool | None
    why: str

    def __str__(self) -> str:
        return f"{', '.join(map(str, self.inputs))} -> {', '.join(map(str, self.outputs))}"


@dataclass(frozen=True)
class Signature:
    """A signature on a whole mesh: one `AxisSignature` per axis (SIG-PRODUCT)."""

    axes: tuple[AxisSignature, ...]
    exact: bool
    why: str

    @property
    def inputs(self) -> tuple[NdSbp, ...]:
        """The nd-sbp of each operand."""
        return tuple(zip(*[axis.inputs for axis in self.axes], strict=True)) if self.axes[0].inputs else ()

    @property
    def outputs(self) -> tuple[NdSbp, ...]:
        """The nd-sbp of each output."""
        return tuple(zip(*[axis.outputs for axis in self.axes], strict=True))

    def __str__(self) -> str:
        return f"{', '.join(map(format_sbp, self.inputs))} -> {', '.join(map(format_sbp, self.outputs))}"


def derive(rule: Rule, space: Space, integer: bool) -> list[AxisSignature]:
    """Every signature algebra allows on one mesh axis: B, then each letter, then each carried P (SIG-DERIVE)."""
    n, m = len(space.inputs), len(space.outputs)
    found = [AxisSignature((broadcast,) * n, (broadcast,) * m, None, True, "everything whole")]
    found += [s for letter in space.splittable() if (s := _split(rule, space, letter, integer)) is not None]
    for operands, carry in rule.carries:
        exact = integer if carry.exact == "integer" else carry.exact
        for kind, out in carry.kinds:
            inputs = tuple(Partial(kind) if i in operands else broadcast for i in range(n))
            word = "keeps the bits" if exact else "is right in real arithmetic only"
            found.append(AxisSignature(inputs, (Partial(out),) * m, None, exact, f"P carried, {carry.name}: {word}"))
    if bool_ in rule.dtypes:  # bools fold by max and min alone
        found = [s for s in found if Partial("sum") not in (*s.inputs, *s.outputs)]
    return found


def _split(rule: Rule, space: Space, letter: str, integer: bool) -> AxisSignature | None:
    """The signature that splits one letter; None where the letter is folded and the fold has no P."""
    outputs: list[Sbp] = []
    inputs = tuple(broadcast if (d := axis_of(operand, letter)) is None else Split(d) for operand in space.inputs)
    exact: bool | None = True
    why = f"{letter} split"
    for operand in space.outputs:
        axis = axis_of(operand, letter)
        if axis is not None:
            outputs.append(Split(axis))
        elif letter not in rule.over.split():
            outputs.append(broadcast)
        elif rule.fold is None:
            return None
        else:
            outputs.append(Partial("sum" if rule.fold == "one" else rule.fold))
            exact = True if rule.fold != "sum" or integer else None
            why = f"{letter} split and folded"
    return AxisSignature(inputs, tuple(outputs), letter, exact, why)


def candidates(rule: Rule, space: Space, integer: bool, placement: Placement) -> Iterator[Signature]:
    """The product of the axis signatures over the mesh, less those whose nested cuts fit no dimension (SIG-PRODUCT)."""
    for axes in itertools.product(derive(rule, space, integer), repeat=placement.ndim):
        if _coherent(space, axes, placement):
            exact, why = _exactness(rule, space, axes, placement.mesh)
            yield Signature(axes, exact, why)


def letter_ranges(space: Space, axes: Sequence[AxisSignature], placement: Placement, rank: int) -> dict[str, Range]:
    """What part of each letter a rank runs over: mesh axes left to right, each cuts what the last left."""
    ranges = {letter: (0, size) for letter, size in space.sizes.items()}
    for parts, axis, position in zip(placement.mesh, axes, placement.coords(rank), strict=True):
        if axis.letter is not None:
            ranges[axis.letter] = cut(ranges[axis.letter], parts, position)
    return ranges


def _coherent(space: Space, axes: Sequence[AxisSignature], placement: Placement) -> bool:
    """Whether cutting letters and cutting dimensions give equal boxes; where a dimension groups letters, not always."""
    letters = {axis.letter for axis in axes} - {None}
    operands = [*zip(space.inputs, range(len(space.inputs)), [True] * len(space.inputs), strict=True),
                *zip(space.outputs, range(len(space.outputs)), [False] * len(space.outputs), strict=True)]  # fmt: skip
    for dims, index, is_input in operands:
        for d, dim in enumerate(dims):
            if len(dim.letters) < 2 or dim.letters[0] not in letters:
                continue
            sbp = tuple((axis.inputs if is_input else axis.outputs)[index] for axis in axes)
            shape = space.shape(dims)
            inner = shape[d] // max(space.sizes[dim.letters[0]], 1)
            for rank, box in boxes(shape, placement, sbp).items():
                lo, hi = letter_ranges(space, axes, placement, rank)[dim.letters[0]]
                if box[d] != (lo * inner, hi * inner):
                    return False
    return True


def _exactness(rule: Rule, space: Space, axes: Sequence[AxisSignature], mesh: Sequence[int]) -> tuple[bool, str]:
    """Whether the whole signature keeps the logical bits, and why (SIG-EXACT)."""
    over = rule.over.split()
    for axis, parts in zip(axes, mesh, strict=True):
        if axis.exact is False and parts > 1:
            return False, axis.why
        if axis.exact is None and parts > 1 and axis.letter != over[0]:
            return False, f"{axis.letter} is not the outermost of the folded range ({rule.over})"
    cuts = [parts for axis, parts in zip(axes, mesh, strict=True) if axis.exact is None]
    if cuts and is_half(rule.dtypes[0]):
        return False, f"each partial would be rounded to {rule.dtypes[0].name}"
    if cuts:
        inner = math.prod(space.sizes[letter] for letter in over[1:])
        if not _aligned((0, space.sizes[over[0]]), cuts, inner, rule.leaf):
            return (
                False,
                f"cutting {over[0]}={space.sizes[over[0]]} into {cuts} is not aligned with the tree (leaf {rule.leaf})",
            )
    return True, "; ".join(dict.fromkeys(axis.why for axis in axes))


def _aligned(bounds: Range, cuts: Sequence[int], inner: int, leaf: int) -> bool:
    """Nested balanced cuts follow the canonical tree of a flat range of bounds x inner terms (SIG-ALIGNED)."""
    if not cuts:
        return True
    offsets = balanced(*bounds, cuts[0])
    if not aligned([b * inner for b in offsets], leaf):
        return False
    return all(_aligned(part, cuts[1:], inner, leaf) for part in itertools.pairwise(offsets))


@dataclass(frozen=True)
class Option:
    """A signature and its price: bytes to bring the operands there, and how much is left partial.

    `late` counts the elements that would have to come from another micro-step (TIME-CHOICE).
    """

    signature: Signature
    bytes: int
    partial: int
    late: int = 0


def price(signature: Signature, metas: Sequence[Meta]) -> Option:
    """What it costs to bring operands that are laid out as `metas` to `signature`."""
    return Option(signature, _bytes(signature, metas), _left(signature), _late(signature, metas))


def _bytes(signature: Signature, metas: Sequence[Meta]) -> int:
    """The bytes that travel to bring the operands there."""
    return sum(elements_moved(m.shape, *move) * m.dtype.itemsize for m, move in _moves(signature, metas))


def _left(signature: Signature) -> int:
    """How many P its outputs have."""
    return sum(isinstance(one, Partial) for output in signature.outputs for one in output)


def _late(signature: Signature, metas: Sequence[Meta]) -> int:
    """The elements that come from another micro-step; what stays on its rank comes from its own."""
    return sum(
        _from_other_steps(meta.shape, here, there)
        for meta, (here, there) in _moves(signature, metas)
        if here.placement.steps > 1 and _waits(here.sbp[-1], there.sbp[-1])
    )


def _moves(signature: Signature, metas: Sequence[Meta]) -> Iterator[tuple[Meta, tuple[Layout, Layout]]]:
    """The operands that have to move, from where to where."""
    for meta, sbp in zip(metas, signature.inputs, strict=True):
        assert meta.placement is not None and meta.sbp is not None
        if meta.sbp != sbp:
            yield meta, (Layout(meta.placement, meta.sbp), Layout(meta.placement, sbp))


@lru_cache(maxsize=65536)
def _from_other_steps(shape: Shape, here: Layout, there: Layout) -> int:
    """The elements that a move takes from another micro-step."""
    steps = here.placement.steps
    pieces = itertools.chain.from_iterable(step.pieces() for step in plan(shape, here, there).steps)
    return sum(piece.elements for rank, piece in pieces if piece.source % steps != rank % steps)


def _waits(before: Sbp, after: Sbp) -> bool:
    """Whether such a move along micro-steps needs a later one; P -> B is done once a call, B takes what is there."""
    return isinstance(before, Split) or (before != broadcast and after not in (before, broadcast))


def admitted(rule: Rule, space: Space, metas: Sequence[Meta], placement: Placement, policy: str) -> Iterator[Signature]:
    """The candidates a policy allows: "exact" those that keep the bits, "cheap" all (SIG-POLICY)."""
    integer = not any(is_float(meta.dtype) for meta in metas)
    return (s for s in candidates(rule, space, integer, placement) if s.exact or policy == "cheap")


def options(rule: Rule, space: Space, metas: Sequence[Meta], placement: Placement, policy: str) -> list[Option]:
    """The signatures the policy admits, best first.

    Least bytes, then least left partial, then declaration order (SIG-CHOICE); among micro-steps, what waits for none of
    them comes before all (TIME-CHOICE).
    """
    priced = [price(s, metas) for s in admitted(rule, space, metas, placement, policy)]
    return sorted(priced, key=lambda option: (option.late, option.bytes, option.partial))


def best(rule: Rule, space: Space, metas: Sequence[Meta], placement: Placement, policy: str) -> Option:
    """The first of `options`, found without pricing all that they cost."""
    allowed = list(admitted(rule, space, metas, placement, policy))
    if not any(0 in meta.shape for meta in metas):
        free = [s for s in allowed if all(map(_may_be_free, metas, s.inputs)) and not _bytes(s, metas)]
        if free:  # and none is late
            return Option(taken := min(free, key=_left), 0, _left(taken))
    ranked = sorted([(_bytes(s, metas), _left(s), at) for at, s in enumerate(allowed)])
    found: list[Option] = []
    for moved, left, at in ranked:
        found.append(Option(allowed[at], moved, left, _late(allowed[at], metas)))
        if not found[-1].late:
            return found[-1]
    return min(found, key=lambda option: option.late)


def _may_be_free(meta: Meta, sbp: NdSbp) -> bool:
    """Whether a move of something not empty may cost no bytes: no P is folded, and no S becomes B."""
    assert meta.placement is not None and meta.sbp is not None
    axes = zip(meta.placement.mesh, meta.sbp, sbp, strict=True)
    return all(
        parts == 1 or old == new or (not isinstance(old, Partial) and not (isinstance(old, Split) and new == broadcast))
        for parts, old, new in axes
    )


def requested(name: str, rule: Rule, space: Space, placement: Placement, sbp: NdSbp) -> Signature:
    """For a primitive without operands: the signature whose outputs are `sbp`; `SbpError` if there is none."""
    for signature in candidates(rule, space, True, placement):
        if all(output == sbp for output in signature.outputs):
            return signature
    raise SbpError(f"{name}: cannot be created as {format_sbp(sbp)}; S of one of its dimensions, or B, would work")
