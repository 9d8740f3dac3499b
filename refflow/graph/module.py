"""GraphModule: what a graph is told about one module: its pipeline stage, and whether its activations are recomputed.

Implements GRAPH-STAGE and PASS-RECOMPUTE-SCOPE of spec/text/graph.md.  ``module.to(nn.graph.GraphModule)`` gives it;
outside a graph it does nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..errors import AttributeValueError
from ..layout import Placement, broadcast
from ..state import settings
from ..tensor.tensor import Tensor
from .trace import Tracer


class GraphModule:
    """The graph's settings of one module."""

    def __init__(self) -> None:
        self.stage: int | None = None
        self.placement: Placement | None = None
        self.activation_checkpointing = False

    @classmethod
    def of(cls, module: Any) -> GraphModule:
        """The settings of `module`, made at the first call."""
        held = module.__dict__.get("_graph_module")
        if held is None:
            held = cls()
            object.__setattr__(module, "_graph_module", held)
        assert isinstance(held, GraphModule)
        return held

    def set_stage(self, stage: int, placement: Placement | None = None) -> None:
        """Puts the module at pipeline stage `stage`, on `placement`: what enters it is brought there (GRAPH-STAGE)."""
        if not isinstance(stage, int) or isinstance(stage, bool) or stage < 0:
            raise AttributeValueError(f"set_stage: the stage must be an int >= 0, found {stage!r}")
        self.stage, self.placement = stage, placement

    def run(self, call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Calls the module's forward in its stage and scope, if a graph is being traced."""
        tracer = next((i for i in settings().interpreters if isinstance(i, Tracer)), None)
        if tracer is None:
            return call(*args, **kwargs)
        args = tuple(self._entering(a) for a in args)
        kwargs = {name: self._entering(a) for name, a in kwargs.items()}
        if not self.activation_checkpointing or tracer.scope is not None:
            return call(*args, **kwargs)
        tracer.scopes += 1
        tracer.scope = tracer.scopes
        try:
            return call(*args, **kwargs)
        finally:
            tracer.scope = None

    def _entering(self, argument: Any) -> Any:
        """A tensor brought to the stage's placement: same sbp if the meshes have one shape, else B."""
        if self.placement is None or not isinstance(argument, Tensor):
            return argument
        here = argument.placement
        if here == self.placement:
            return argument
        sbp = argument.sbp if here.mesh == self.placement.mesh else (broadcast,) * self.placement.ndim
        return argument.to_global(self.placement, sbp)
