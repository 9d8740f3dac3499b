"""What a traced call depends on: its mark, a value to compare, and the nesting of what it is given.

Implements GRAPH-MODE and the comparison of GRAPH-SHAPE of spec/text/graph.md.  A call with a mark that is not known is
traced anew; `graph.api` keeps the traces.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ..nn.module import Module
from ..state import settings
from ..tensor.tensor import Tensor
from .module import GraphModule

PLAIN = frozenset({bool, int, float, str, tuple, type(None)})
"""Types of the hyper-parameters of refflow's modules: a probability, an epsilon, a stride."""

State = Iterable[tuple[str, Tensor, dict[str, Any]]]  # name, parameter, what an optimizer holds of it


def mark_of(
    inputs: Sequence[Any], walked: Sequence[Sequence[tuple[str, Module]]], state: State, settled: Any
) -> tuple[tuple[Any, ...], list[Tensor]]:
    """The mark of a call, and its cells: `inputs` are values, `walked` modules by name, `settled` what the configuration says.

    It holds the modules, and who holds it must hold the cells: so no id is used again.
    """
    modes: list[Any] = []
    held: list[Any] = []
    cells: list[Tensor] = []
    for found in walked:
        for path, m in found:
            modes += (path, m, m.training, told_of(m))
            if m._forward_pre_hooks.held or m._forward_hooks.held:
                modes.append((*m._forward_pre_hooks.held, None, *m._forward_hooks.held))
            if type(m).__module__.startswith("refflow."):  # a user's may count its calls, and is constant (GRAPH-TRACE)
                modes += [entry for entry in m.__dict__.items() if type(entry[1]) in PLAIN]
            for table in (m._parameters, m._buffers):
                for name, cell in table.items():
                    if cell is not None:
                        cells.append(cell)
                        value = cell.value
                        held += (name, id(cell), value.meta, value.requires_grad, *(value.hooks or ()))
    for name, p, entries in state:
        cells.append(p)
        value = p.value
        held += (name, id(p), value.meta, value.requires_grad, *(value.hooks or ()))
        for entry, kept in entries.items():
            if isinstance(kept, Tensor):
                cells.append(kept)
                held += (entry, id(kept), kept.value.meta)
    now = settings()
    wanted = tuple([value.requires_grad for value in inputs])
    policies = settled, now.signatures, now.boxing, now.grad, tuple(now.backends.items())
    return (tuple(held), tuple(modes), wanted, policies), cells


def told_of(module: Any) -> tuple[Any, ...] | None:
    """What a graph is told about a module, as a value to compare."""
    told = module.__dict__.get("_graph_module")
    return (told.stage, told.placement, told.activation_checkpointing) if isinstance(told, GraphModule) else None


def named_modules(name: str, module: Module) -> list[tuple[str, Module]]:
    """`module.named_modules()`, as a list and without a generator for each module: it is asked in each call."""
    found: dict[int, tuple[str, Module]] = {}
    waiting = [(name, module)]
    while waiting:
        path, held = waiting.pop()
        if id(held) not in found:
            found[id(held)] = path, held
            if held._modules:
                children = [(f"{path}.{n}", child) for n, child in held._modules.items() if child is not None]
                waiting += reversed(children)
    return list(found.values())


def nesting(arguments: Any) -> Any:
    """Tuples, lists and dicts (in their order) as they are, with metas for tensors: what a call is compared by."""
    if isinstance(arguments, (tuple, list)):
        found = map(nesting, arguments)
        kind = type(arguments)
        return kind(found) if kind in (tuple, list) else (kind, *found)
    if isinstance(arguments, dict):
        return dict, [(name, nesting(item)) for name, item in arguments.items()]
    return arguments.value.meta if isinstance(arguments, Tensor) else arguments
