"""The settings in force: world, back ends, grad mode, choice of signatures, kind of boxing.

Implements STATE-CONTEXT and WORLD-ENVIRONMENT of spec/text/worlds.md, and SIG-POLICY and SIG-EXPLICIT for users.  One
context variable holds them all; each thread and each `with` block sees its own.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import lru_cache
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

from .errors import AttributeValueError, BackendError
from .kernels import Backend, ReferenceBackend
from .random import Generator

if TYPE_CHECKING:
    from .world import World


@lru_cache(maxsize=1)
def reference_backend() -> Backend:
    """The one reference back end."""
    return ReferenceBackend()


@dataclass(frozen=True)
class Settings:
    """What is in force.

    `logs` are open communication logs, `interpreters` carry out primitives (the last one first), `loss_scale` changes
    the gradient that backward() starts from (a graph's grad scaler).
    """

    world: World
    backends: Mapping[str, Backend]
    grad: bool = True
    signatures: Literal["exact", "cheap"] = "exact"
    boxing: Literal["implicit", "explicit"] = "implicit"
    logs: tuple[Any, ...] = ()
    interpreters: tuple[Any, ...] = ()
    loss_scale: Callable[[Any], Any] | None = None
    generator: Generator = field(default_factory=Generator, compare=False)

    def backend(self, type: str) -> Backend:
        """The back end bound to a device type."""
        try:
            return self.backends[type]
        except KeyError:
            bound = ", ".join(sorted(self.backends))
            raise BackendError(
                f"no back end is bound to device type '{type}'; bound are: {bound}. {_how_to_bind(type)}"
            ) from None


def _how_to_bind(type: str) -> str:
    by_reference = f"flow.bind_device('{type}', 'reference')"
    if type not in ("cuda", "gpu"):
        return f"Bind one with {by_reference}"
    return (
        f"For NVIDIA devices install the extra (pip install 'refflow[cuda]') and call flow.bind_device('{type}', 'cuda');"
        f" {by_reference} computes on the CPU"
    )


def _initial() -> Settings:
    from .world import default_world  # worlds are settings, so they come after this module

    return Settings(default_world(), {"cpu": _backend_of_environment()})


def _backend_of_environment() -> Backend:
    """The back end that REFFLOW_BACKEND names, without it the reference (WORLD-ENVIRONMENT)."""
    name = os.environ.get("REFFLOW_BACKEND") or "reference"
    if name == "reference":
        return reference_backend()
    from .world.devices import find_backend

    try:
        return find_backend(name)
    except BackendError as error:
        raise BackendError(f"the environment variable REFFLOW_BACKEND: {error}") from error


_settings: ContextVar[Settings] = ContextVar("refflow_settings")


def settings() -> Settings:
    """The settings in force here."""
    try:
        return _settings.get()
    except LookupError:
        _settings.set(_initial())
        return _settings.get()


def put_in_force(held: Settings) -> None:
    """Makes `held`, which `settings` gave, be in force here again: where a `with` block may not have ended as it should."""
    _settings.set(held)


def _changed(before: Settings, changes: Mapping[str, Any]) -> Settings:
    """dataclasses.replace without its checks: settings change several times in each call of a graph."""
    after = object.__new__(Settings)
    after.__dict__.update(before.__dict__)
    after.__dict__.update(changes)
    return after


class Override:
    """Settings changed from now on; as a context manager, until the block ends."""

    def __init__(self, **changes: Any) -> None:
        self._changes = changes
        self._entered = False
        self._stack: list[dict[str, Any]] = []  # what was in force before, for each time it was set
        self._set()

    def _set(self) -> None:
        before = settings()
        self._stack.append({name: getattr(before, name) for name in self._changes})
        _settings.set(_changed(before, self._changes))

    def __enter__(self) -> Self:
        if self._entered:
            self._set()  # a second `with` block of the same object
        self._entered = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _settings.set(_changed(settings(), self._stack.pop()))  # what else was set meanwhile stays

    def __repr__(self) -> str:
        now = settings()
        shown = (now.world.describe() if name == "world" else f"{name} changed" for name in self._changes)
        return f"<in force: {', '.join(shown)}; as a `with` block, until it ends>"


def signatures(policy: str) -> Override:
    """Which signatures may be chosen: "exact" (default: bits never change), "cheap" (also where only algebra agrees).

    A function and a context manager.  Errors: `AttributeValueError`.  Source: SIG-POLICY.
    """
    if policy not in ("exact", "cheap"):
        raise AttributeValueError(f"signatures: must be 'exact' or 'cheap', found {policy!r}")
    return Override(signatures=policy)


def boxing(policy: str) -> Override:
    """Whether operations may move tensors by themselves: "implicit" (default), "explicit" (then a `BoxingError`).

    A function and a context manager.  Errors: `AttributeValueError`.  Source: SIG-EXPLICIT.
    """
    if policy not in ("implicit", "explicit"):
        raise AttributeValueError(f"boxing: must be 'implicit' or 'explicit', found {policy!r}")
    return Override(boxing=policy)


def default_generator() -> Generator:
    """The generator functions draw from when given none."""
    return settings().generator


def manual_seed(seed: int) -> Generator:
    """Seeds the default generator and returns it."""
    return default_generator().manual_seed(seed)
