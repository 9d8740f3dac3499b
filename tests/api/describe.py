"""The public API as text: one line per name, with its signature; the same on every machine and Python version."""

from __future__ import annotations

import importlib
import inspect
import re
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

SNAPSHOT = Path(__file__).with_name("snapshot.txt")
COMMAND = "python -m tests.api.regenerate"

MODULES = (
    "refflow",
    "refflow.autograd",
    "refflow.data",
    "refflow.errors",
    "refflow.layout.sbp",
    "refflow.models",
    "refflow.nn",
    "refflow.nn.functional",
    "refflow.nn.init",
    "refflow.nn.utils",
    "refflow.numerics",
    "refflow.optim",
    "refflow.optim.lr_scheduler",
)
"""What a user may import; a module's names are those of its `__all__`, else the public ones it holds of refflow."""

OPERATORS = {
    "__init__", "__call__", "__enter__", "__exit__", "__len__", "__iter__", "__getitem__", "__setitem__", "__contains__",
    "__bool__", "__float__", "__int__", "__index__", "__neg__", "__abs__", "__invert__", "__and__", "__or__", "__xor__",
    *(f"__{side}{name}__" for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul") for side in ("", "r", "i")),
    *(f"__{name}__" for name in ("eq", "ne", "lt", "le", "gt", "ge")),
}  # fmt: skip


def describe() -> str:
    """The whole snapshot, sorted."""
    lines: list[str] = []
    for name in MODULES:
        module = importlib.import_module(name)
        for public in sorted(names_of(module)):
            lines += entry(f"{name}.{public}", getattr(module, public))
    return "\n".join(lines) + "\n"


def names_of(module: types.ModuleType) -> Iterator[str]:
    """The public names of a module."""
    listed = getattr(module, "__all__", None)
    for name, value in vars(module).items():
        if name.startswith("_") or isinstance(value, types.ModuleType) or name == "annotations":
            continue
        if name in listed if listed is not None else is_ours(value, module):
            yield name


def is_ours(value: Any, module: types.ModuleType) -> bool:
    """Whether a module without `__all__` offers `value`: a package what refflow defines, a file what it defines."""
    if isinstance(value, np.dtype):
        return True
    home = getattr(value, "__module__", None) or type(value).__module__
    if home == "builtins" or isinstance(value, (types.UnionType, types.GenericAlias)):
        return not inspect.isbuiltin(value)
    return home.split(".")[0] == "refflow" if hasattr(module, "__path__") else home == module.__name__


def entry(path: str, value: Any) -> list[str]:
    """The lines of one name; a class is followed by its public members."""
    if isinstance(value, (types.UnionType, types.GenericAlias)):
        return [f"{path}: a type alias"]
    if inspect.isclass(value):
        bases = ", ".join(base.__name__ for base in value.__bases__ if base is not object)
        return [f"class {path}({bases})", *sorted(members(path, value))]
    if callable(value):
        return [f"{path}{signature(value)}"]
    return [f"{path} = {constant(value)}"]


def members(path: str, owner: type) -> Iterator[str]:
    """Public attributes of a class and of its private bases; a public base has lines of its own."""
    seen: set[str] = set()
    for base in owner.__mro__:
        if base is not owner and not base.__name__.startswith("_"):
            continue
        for name, value in vars(base).items():
            if name in seen or (name.startswith("_") and name not in OPERATORS):
                continue
            seen.add(name)
            if isinstance(value, property) or type(value).__name__ == "_tuplegetter":
                yield f"    {path}.{name}: property"
            elif isinstance(value, (staticmethod, classmethod)):
                yield f"    {path}.{name}{signature(value.__func__)}  [{type(value).__name__}]"
            elif callable(value):
                yield f"    {path}.{name}{signature(value)}"
            elif isinstance(value, types.MemberDescriptorType):
                yield f"    {path}.{name}: attribute"
            elif not isinstance(value, types.GetSetDescriptorType):
                yield f"    {path}.{name} = {constant(value)}"


def signature(function: Any) -> str:
    """The parameters as written, whatever the Python version quotes."""
    try:
        found = inspect.signature(function)
    except (TypeError, ValueError):
        return "(...)"
    parts: list[str] = []
    kinds = [p.kind for p in found.parameters.values()]
    for i, p in enumerate(found.parameters.values()):
        if p.kind is p.KEYWORD_ONLY and p.KEYWORD_ONLY not in kinds[:i] and p.VAR_POSITIONAL not in kinds[:i]:
            parts.append("*")
        star = {p.VAR_POSITIONAL: "*", p.VAR_KEYWORD: "**"}.get(p.kind, "")
        parts.append(f"{star}{p.name}{annotation(p.annotation, ': ')}{default(p.default)}")
    return f"({', '.join(parts)}){annotation(found.return_annotation, ' -> ')}"


def annotation(value: Any, lead: str) -> str:
    """A type as its source spells it."""
    if value is inspect.Signature.empty:
        return ""
    return lead + (value if isinstance(value, str) else getattr(value, "__name__", str(value)))


def default(value: Any) -> str:
    return "" if value is inspect.Parameter.empty else f" = {constant(value)}"


def constant(value: Any) -> str:
    """A value without what differs from run to run."""
    if isinstance(value, np.dtype):
        return f"dtype {value.name}"
    if isinstance(value, type) or inspect.isfunction(value):
        return str(value.__name__)
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value)) if not isinstance(value, dict) else f"a dict of {len(value)}"
