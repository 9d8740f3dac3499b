"""How ranks share the work: in a row, in a mesh, or in stages.

Implements JOB-LAYOUT and JOB-PIPELINE of spec/text/jobs.md; which weights are cut is the model's to say (refflow.models).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from ..errors import AttributeValueError
from ..layout import NdSbp, Placement, Sbp, Split, broadcast, nested

PARALLELS = ("data", "tensor", "hybrid", "pipeline")
STAGES = (2, 4)

Cut = Callable[[str], Sbp]
"""The name of a parameter -> its sbp along the tensor axis."""


@dataclass(frozen=True)
class Arrangement:
    """How the ranks share the work: a placement, the sbp of a batch, and which axes cut weights."""

    placement: Placement
    parallel: str
    stages: int = 1

    @property
    def of_stages(self) -> tuple[Placement, ...]:
        """The placement of each pipeline stage: equally many ranks, in order (JOB-PIPELINE)."""
        ranks, each = self.placement.ranks, self.placement.size // self.stages
        if self.stages == 1:
            return (self.placement,)
        return tuple(Placement("cpu", list(ranks[s * each : (s + 1) * each])) for s in range(self.stages))

    @property
    def batch_sbp(self) -> NdSbp:
        """The samples are S(0) along the data axis, B along the tensor axis (JOB-LAYOUT)."""
        return tuple(Split(0) if self._is_data(axis) else broadcast for axis in range(self.placement.ndim))

    def weight_sbp(self, name: str, cut: Cut) -> NdSbp:
        """Weights are B along the data axis; along the tensor axis what `cut` says of their name."""
        return tuple(broadcast if self._is_data(axis) else cut(name) for axis in range(self.placement.ndim))

    def _is_data(self, axis: int) -> bool:
        return self.parallel in ("data", "pipeline") or (self.parallel == "hybrid" and axis == 0)

    def __str__(self) -> str:
        stages = "" if self.stages == 1 else f", {self.stages} stages of {self.placement.size // self.stages}"
        return f"{self.parallel} parallel on {self.placement}{stages}"


def arrange(
    parallel: str, ranks: int | None = None, mesh: tuple[int, ...] | None = None, stages: int | None = None
) -> Arrangement:
    """Ranks 0 … R-1 in a row, for hybrid in a mesh of data by tensor: the one asked for, or the squarest.

    `ranks` defaults to the mesh's or the number of pipeline stages (default 2), else to 1.  Errors:
    `AttributeValueError`.
    """
    if parallel not in PARALLELS:
        raise AttributeValueError(f"parallel must be one of {', '.join(PARALLELS)}, found {parallel!r}")
    if parallel == "pipeline":
        return _arrange_stages(ranks, mesh, STAGES[0] if stages is None else stages)
    if stages is not None:
        raise AttributeValueError(f"stages are for pipeline parallel, found {stages} stages for {parallel} parallel")
    if ranks is None:
        ranks = math.prod(mesh) if mesh else 1
    if mesh is None:
        tensor = max(d for d in range(1, math.isqrt(ranks) + 1) if ranks % d == 0) if ranks > 0 else 1
        mesh = (ranks // tensor, tensor) if parallel == "hybrid" else (ranks,)
    wanted = 2 if parallel == "hybrid" else 1
    if len(mesh) != wanted:
        room = "two axes, data x tensor, such as 2x2" if wanted == 2 else f"one axis; --parallel hybrid takes {mesh}"
        raise AttributeValueError(f"a mesh for {parallel} parallel must have {room}, found {_times(mesh)}")
    if math.prod(mesh) != ranks:
        raise AttributeValueError(f"a mesh of {_times(mesh)} has {math.prod(mesh)} ranks, asked for are {ranks}")
    return Arrangement(Placement("cpu", nested(range(ranks), mesh)), parallel)


def _arrange_stages(ranks: int | None, mesh: tuple[int, ...] | None, stages: int) -> Arrangement:
    if mesh is not None:
        raise AttributeValueError("pipeline parallel takes ranks and stages, not a mesh; ranks / stages share the data")
    if stages not in STAGES:
        raise AttributeValueError(f"stages must be one of {', '.join(map(str, STAGES))}, found {stages}")
    ranks = stages if ranks is None else ranks
    if ranks % stages:
        raise AttributeValueError(f"{ranks} ranks do not fall into {stages} stages of equally many")
    return Arrangement(Placement("cpu", list(range(ranks))), "pipeline", stages)


def _times(mesh: tuple[int, ...]) -> str:
    return "x".join(map(str, mesh))
