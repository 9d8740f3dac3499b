"""Which runtime carries out a graph's call, and the graph programs that a back end may offer.

Implements GRAPH-RUNTIME of spec/text/graph.md.  All give the same bits; they differ in what can be seen of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable
from weakref import WeakKeyDictionary

from ..errors import AttributeValueError, BackendError
from ..ir import Value
from ..kernels import Backend
from ..state import settings
from ..world.mpi import MpiWorld
from .logical import LogicalGraph

RUNTIMES = (None, "actors", "sequential", "compiled")


class Program(Protocol):
    """A traced graph made ready by a back end: outputs and next values of the variables, as `execute` gives them."""

    def __call__(self, inputs: Sequence[Value], scalars: Sequence[float]) -> tuple[list[Value], dict[int, Value]]: ...


@runtime_checkable
class Compiler(Protocol):
    """A back end that makes programs of graphs.

    It may have `exchanges`; if that is true, its programs serve ranks in several MPI processes, else in one process only.
    """

    def program(self, graph: LogicalGraph) -> Program:
        """The program of a graph, to be called in the world and with the back ends in force now."""
        ...


Programs = dict[int, tuple[Any, Program]]  # by the back end's id; it stands beside, so that no other gets that id


def program_of(graph: LogicalGraph, made: Programs, config: Any) -> Program | None:
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
    backends = list({id(b): b for b in map(settings().backend, device_types(graph))}.values())
    backend = backends[0] if len(backends) == 1 else None
    if backend is not None and _reaches_all_ranks(backend):
        if id(backend) in made:  # asked first: a protocol takes long to look
            return made[id(backend)][1]
        if isinstance(backend, Compiler):
            made[id(backend)] = backend, backend.program(graph)
            return made[id(backend)][1]
    if wanted:
        raise BackendError(_cannot_be_had(backends))
    return None


def _all_ranks_here() -> bool:
    world = settings().world
    return len(world.owned) == world.size


def _reaches_all_ranks(backend: Backend) -> bool:
    """Whether programs of a back end can serve the ranks where they are."""
    return _all_ranks_here() or (isinstance(settings().world, MpiWorld) and getattr(backend, "exchanges", False))


def _cannot_be_had(backends: Sequence[Backend]) -> str:
    found = ", ".join(b.name for b in backends)
    where = "all ranks in this process" if _all_ranks_here() else "ranks elsewhere"
    return (
        "config.runtime: 'compiled' needs one back end that compiles graphs, and all ranks in this process or, if"
        f" its programs exchange, in MPI's; found {found or 'no operation'}, {where}"
    )


def device_types(graph: LogicalGraph) -> list[str]:
    """The device types whose back ends carry the graph out, each once."""
    if graph not in _device_types:
        metas = [meta for node in graph.nodes for meta in node.metas] + [value.meta for value in graph.results()]
        _device_types[graph] = list(dict.fromkeys(meta.placement.type for meta in metas if meta.placement is not None))
    return _device_types[graph]


_device_types: WeakKeyDictionary[LogicalGraph, list[str]] = WeakKeyDictionary()  # asked in each call
