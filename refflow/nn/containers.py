"""Containers: Sequential, ModuleList, ModuleDict, ParameterList, ParameterDict.

Implements NN-CONTAINER of spec/text/nn.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Self, TypeVar, overload

from ..errors import AttributeValueError
from .module import Module
from .parameter import Parameter

T = TypeVar("T")


def _position(name: str, index: int, length: int) -> int:
    if not -length <= index < length:
        raise IndexError(f"{name}: index {index} is out of range for {length} entries")
    return index % length


class _Listed(Module):
    """Submodules named by their position."""

    def __init__(self, modules: Iterable[Module]) -> None:
        super().__init__()
        self._fill(modules)

    def _fill(self, modules: Iterable[Module]) -> None:
        held = list(modules)
        self._modules.clear()
        for i, module in enumerate(held):
            self.add_module(str(i), module)

    def _names(self) -> list[str]:
        return list(self._modules)

    @overload
    def __getitem__(self, index: int) -> Module: ...
    @overload
    def __getitem__(self, index: slice) -> Self: ...
    def __getitem__(self, index: int | slice) -> Any:
        names = self._names()
        if isinstance(index, slice):
            return self._slice({name: self._modules[name] for name in names[index]})
        return self._modules[names[_position(type(self).__name__, index, len(names))]]

    def _slice(self, modules: Mapping[str, Module | None]) -> Any:
        return type(self)([m for m in modules.values() if m is not None])

    def __setitem__(self, index: int, module: Module) -> None:
        name = self._names()[_position(type(self).__name__, index, len(self))]
        setattr(self, name, module)

    def __delitem__(self, index: int | slice) -> None:
        held: list[Any] = list(self._modules.values())
        del held[index]
        self._fill(held)

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Module]:
        return iter([m for m in self._modules.values() if m is not None])

    def append(self, module: Module) -> Self:
        """Puts `module` last."""
        self.add_module(str(len(self)), module)
        return self

    def extend(self, modules: Iterable[Module]) -> Self:
        """Puts `modules` last, in order."""
        for module in list(modules):
            self.append(module)
        return self

    def insert(self, index: int, module: Module) -> Self:
        """Puts `module` before position `index`."""
        held = list(self)
        held.insert(index, module)
        self._fill(held)
        return self


class Sequential(_Listed):
    """Modules called one after the other, each on the result of the last; from modules or a mapping of names."""

    def __init__(self, *modules: Module | Mapping[str, Module]) -> None:
        if len(modules) == 1 and isinstance(modules[0], Mapping):
            super().__init__([])
            for name, module in modules[0].items():
                self.add_module(name, module)
        else:
            super().__init__(modules)  # type: ignore[arg-type]

    def _slice(self, modules: Mapping[str, Module | None]) -> Sequential:
        return Sequential({name: m for name, m in modules.items() if m is not None})

    def forward(self, x: Any) -> Any:
        for module in self:
            x = module(x)
        return x


class ModuleList(_Listed):
    """A list of modules; it has no forward."""

    def __init__(self, modules: Iterable[Module] = ()) -> None:
        super().__init__(modules)


class ModuleDict(Module):
    """A mapping of names to modules; it has no forward."""

    def __init__(self, modules: Mapping[str, Module] | None = None) -> None:
        super().__init__()
        self.update(modules or {})

    def update(self, modules: Mapping[str, Module]) -> None:
        """Adds or replaces modules."""
        for name, module in modules.items():
            self[name] = module

    def __getitem__(self, name: str) -> Module:
        found = self._modules[name]
        assert found is not None
        return found

    def __setitem__(self, name: str, module: Module) -> None:
        self.add_module(name, module)

    def __delitem__(self, name: str) -> None:
        del self._modules[name]

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[str]:
        return iter(tuple(self._modules))

    def __contains__(self, name: object) -> bool:
        return name in self._modules

    def keys(self) -> Iterator[str]:
        """The names."""
        return iter(self)

    def values(self) -> Iterator[Module]:
        """The modules."""
        return (self[name] for name in self)

    def items(self) -> Iterator[tuple[str, Module]]:
        """(name, module)."""
        return ((name, self[name]) for name in self)


def _listing(module: Module) -> str:
    return "\n".join(
        f"({name}): Parameter of shape {p.shape}, {p.dtype.name}"
        for name, p in module._parameters.items()
        if p is not None
    )


class ParameterList(Module):
    """A list of parameters, named by their position."""

    def __init__(self, parameters: Iterable[Parameter] = ()) -> None:
        super().__init__()
        for parameter in parameters:
            self.append(parameter)

    def append(self, parameter: Parameter) -> Self:
        """Puts `parameter` last."""
        self.register_parameter(str(len(self)), parameter)
        return self

    def __getitem__(self, index: int) -> Parameter:
        found = self._parameters[str(_position("ParameterList", index, len(self)))]
        assert found is not None
        return found

    def __setitem__(self, index: int, parameter: Parameter) -> None:
        self.register_parameter(str(_position("ParameterList", index, len(self))), parameter)

    def __len__(self) -> int:
        return len(self._parameters)

    def __iter__(self) -> Iterator[Parameter]:
        return (self[i] for i in range(len(self)))

    def extra_repr(self) -> str:
        return _listing(self)


class ParameterDict(Module):
    """A mapping of names to parameters."""

    def __init__(self, parameters: Mapping[str, Parameter] | None = None) -> None:
        super().__init__()
        for name, parameter in (parameters or {}).items():
            self[name] = parameter

    def __getitem__(self, name: str) -> Parameter:
        found = self._parameters[name]
        if found is None:
            raise AttributeValueError(f"ParameterDict: '{name}' is absent")
        return found

    def __setitem__(self, name: str, parameter: Parameter) -> None:
        self.register_parameter(name, parameter)

    def __len__(self) -> int:
        return len(self._parameters)

    def __iter__(self) -> Iterator[str]:
        return iter(tuple(self._parameters))

    def __contains__(self, name: object) -> bool:
        return name in self._parameters

    def extra_repr(self) -> str:
        return _listing(self)


__all__ = ["ModuleDict", "ModuleList", "ParameterDict", "ParameterList", "Sequential"]
