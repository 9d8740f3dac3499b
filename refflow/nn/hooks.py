"""Hooks: functions called in the order they were registered, removable by a handle.

Implements NN-HOOK of spec/text/nn.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

Hook = Callable[..., Any]


@dataclass(eq=False)
class Hooks:
    """The hooks of one kind on one module."""

    held: dict[int, Hook] = field(default_factory=dict)
    number: int = 0

    def add(self, hook: Hook) -> HookHandle:
        """Puts `hook` last."""
        self.held[self.number] = hook
        self.number += 1
        return HookHandle(self, self.number - 1)

    def __iter__(self) -> Iterator[Hook]:
        return iter(tuple(self.held.values()))  # a hook may remove itself


@dataclass(frozen=True)
class HookHandle:
    """What registering a hook gives; usable as a context manager."""

    hooks: Hooks
    number: int

    def remove(self) -> None:
        """Takes the hook away; a second time does nothing."""
        self.hooks.held.pop(self.number, None)

    def __enter__(self) -> HookHandle:
        return self

    def __exit__(self, *trace: Any) -> None:
        self.remove()
