"""Which runtime carries out a graph's call, and the graph programs that a back end may offer.

Implements GRAPH-RUNTIME of spec/text/graph.md.  All give the same bits; they differ in what can be seen of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable
from weakref import WeakKeyDictionary

from ..errors import AttributeValueError, BackendError
from ..ir import Value
from ..state import settings
from ..world.mpi import MpiWorld
from .logical import LogicalGraph

RUNTIMES = (None, "actors", "sequential", "compiled")


class Program(Protocol):
    """A traced graph made ready by a back end: outputs and next values of the variables, as `execute` gives them."""

    def __call__(self, inputs: Sequence[Value], scalars: Sequence[float]) -> tuple[list[Value], dict[int, Value]]: ...


@runtime_checkable
class Compiler(Protocol):
    """A back end that makes programs of graphs; those of one with a true `exchanges` serve ranks in several processes."""

    def program(self, graph: LogicalGraph) -> Program: ...


def program_of(graph: LogicalGraph, made: dict[int, tuple[Any, Program]], config: Any) -> Program | None:
    """The back end's program of `graph`, made once; None where actors or the interpreter carry the call out.

    Asked for nothing, a call is compiled where one back end that can has all of it, with the ranks where they are, and
    nobody asked for a schedule or events; else it is the actors' (GRAPH-RUNTIME).
    Errors: `AttributeValueError` for an unknown runtime, `BackendError` where "compiled" cannot be had.
    """
    if config.runtime not in RUNTIMES:
        names = ", ".join(map(repr, RUNTIMES))
        raise AttributeValueError(f"config.runtime: must be one of {names}, found {config.runtime!r}")
    wanted = config.runtime == "compiled"
    if not wanted and (config.runtime is not None or config.schedule is not None or config.log_events):
        return None
    state = settings()
    backends = {id(b): b for b in map(state.backend, device_types(graph))}
    backend = next(iter(backends.values()), None)
    here = len(state.world.owned) == state.world.size
    reached = here or (isinstance(state.world, MpiWorld) and getattr(backend, "exchanges", False))
    if len(backends) != 1 or not reached or not isinstance(backend, Compiler):
        if wanted:
            found = ", ".join(b.name for b in backends.values())
            where = "all ranks in this process" if here else "ranks elsewhere"
            raise BackendError(
                "config.runtime: 'compiled' needs one back end that compiles graphs, and all ranks in this process or, if"
                f" its programs exchange, in MPI's; found {found or 'no operation'}, {where}"
            )
        return None
    if id(backend) not in made:
        made[id(backend)] = backend, backend.program(graph)
    return made[id(backend)][1]


def device_types(graph: LogicalGraph) -> list[str]:
    """The device types whose back ends carry the graph out."""
    if graph not in _device_types:
        metas = [meta for node in graph.nodes for meta in node.metas] + [value.meta for value in graph.results()]
        _device_types[graph] = list(dict.fromkeys(meta.placement.type for meta in metas if meta.placement is not None))
    return _device_types[graph]


_device_types: WeakKeyDictionary[LogicalGraph, list[str]] = WeakKeyDictionary()  # asked in each call
