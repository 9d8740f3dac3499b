"""SBP: what the ranks along one mesh axis hold of a logical tensor.

Implements LAY-SBP of spec/text/layout.md.  ``split(i)`` S(i): consecutive parts of dimension i; ``broadcast`` B:
everybody holds all of it, bit for bit; ``partial_sum``/``partial_max``/``partial_min`` P: everybody holds an addend of
the canonical fold (PART-VALUE).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ..absent import nearest
from ..errors import SbpError

FoldKind = Literal["sum", "max", "min"]


@dataclass(frozen=True, init=False)
class Split:
    """S(axis): the rank at position r of p holds the r-th part of the balanced split of dimension `axis` (or `dim`)."""

    axis: int

    def __init__(self, axis: int | None = None, *, dim: int | None = None) -> None:
        chosen = axis if dim is None else dim
        if not isinstance(chosen, int) or isinstance(chosen, bool) or (axis is not None and dim is not None):
            raise SbpError(f"sbp.split: the axis must be an int, found {axis!r}{f' and dim={dim!r}' if dim is not None else ''}")
        object.__setattr__(self, "axis", chosen)

    def __repr__(self) -> str:
        return f"S({self.axis})"


@dataclass(frozen=True)
class Broadcast:
    """B: every rank holds the whole, with equal bits."""

    def __call__(self) -> Broadcast:
        """Itself: OneFlow writes ``sbp.broadcast()`` as well as ``sbp.broadcast``."""
        return self

    def __repr__(self) -> str:
        return "B"


@dataclass(frozen=True)
class Partial:
    """P(kind): the logical value is the canonical fold of what the ranks hold."""

    kind: FoldKind = "sum"

    def __post_init__(self) -> None:
        if self.kind not in ("sum", "max", "min"):
            raise SbpError(f"sbp.partial: the kind must be 'sum', 'max' or 'min', found {self.kind!r}")

    def __call__(self) -> Partial:
        """Itself: OneFlow writes ``sbp.partial_sum()`` as well as ``sbp.partial_sum``."""
        return self

    def __repr__(self) -> str:
        return f"P({self.kind})"


Sbp = Split | Broadcast | Partial
NdSbp = tuple[Sbp, ...]

split = S = Split
broadcast = B = Broadcast()
partial_sum = P = Partial("sum")
partial_max = Partial("max")
partial_min = Partial("min")


def chosen_by(sbp: Any) -> bool:
    """Whether `sbp` is a function that chooses one for each tensor."""
    return callable(sbp) and not isinstance(sbp, (type, Broadcast, Partial))


def normalize(sbp: Any, mesh: Sequence[int], shape: Sequence[int], what: str) -> NdSbp:
    """`sbp` (one, or one per mesh axis) checked against a mesh and a shape, negative axes counted from the end.

    Errors: `SbpError` naming `what`.  Source: LAY-SBP.
    """
    given = tuple(sbp) if isinstance(sbp, (list, tuple)) else (sbp,)
    if len(given) != len(mesh):
        raise SbpError(
            f"{what}: needs one sbp per mesh axis, the mesh {tuple(mesh)} has {len(mesh)}, found {len(given)}: {given}"
        )
    return tuple(_normalize_one(one, len(shape), shape, what) for one in given)


def _normalize_one(one: Any, ndim: int, shape: Sequence[int], what: str) -> Sbp:
    if isinstance(one, (Broadcast, Partial)):
        return one
    if isinstance(one, Split):
        if not -ndim <= one.axis < ndim:
            room = f"must be in [{-ndim}, {ndim})" if ndim else "needs at least one dimension"
            raise SbpError(
                f"{what}: {one} of a tensor of {ndim} dimensions (shape {tuple(shape)}); the split axis {room}"
            )
        return one if one.axis >= 0 else Split(one.axis + ndim)
    raise SbpError(f"{what}: expected sbp.split(i), sbp.broadcast or sbp.partial_sum/max/min, found {one!r}{_written(one)}")


_NAMES = {
    "b": "broadcast", "broadcast": "broadcast", "p": "partial_sum", "partial": "partial_sum",
    **{text.format(kind): f"partial_{kind}" for kind in ("sum", "max", "min") for text in ("p({})", "partial_{}", "partial({})")},
}  # fmt: skip


def _written(one: Any) -> str:
    """How an sbp is written that was given as text or as a class, as the end of a message; "" where it is neither."""
    if one is Split:
        return ", which needs a dimension: flow.sbp.split(0)"
    if not isinstance(one, str):
        return ""
    text = one.lower().replace(" ", "").removesuffix("()")
    split = re.fullmatch(r"(?:s|split)\(?(?:dim=|axis=)?(-?\d+)?\)?", text)
    if split:
        return f"; an sbp is no text: write flow.sbp.split({split[1] or 0})"
    name = _NAMES.get(text) or nearest(text, ["split", *_NAMES.values()])
    return f"; an sbp is no text: write flow.sbp.{'split(0)' if name == 'split' else name}" if name else ""


def __getattr__(name: str) -> Any:
    meant = nearest(name, ["split", *_NAMES.values()])
    hint = f"; did you mean flow.sbp.{meant}?" if meant else ""
    raise AttributeError(f"module 'refflow.layout.sbp' has no attribute {name!r}{hint}")


def reduced(sbp: NdSbp) -> NdSbp:
    """`sbp` with every P replaced by B: the layout in which gradients are added (AUTO-LAYOUT)."""
    return tuple(broadcast if isinstance(one, Partial) else one for one in sbp)


def dual(sbp: NdSbp) -> NdSbp:
    """The layout of a gradient across the local/global border: S for S, P for B, B for P (BORDER-DUAL)."""
    return tuple(
        one if isinstance(one, Split) else broadcast if isinstance(one, Partial) else partial_sum for one in sbp
    )
