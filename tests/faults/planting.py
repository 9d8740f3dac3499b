"""How a fault is planted: something of refflow replaced wherever it is known by name, caches emptied before and after."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from refflow.ir import REGISTRY, Rule
from refflow.ir.lower import _cache
from refflow.state import settings

Modules = list[Any]


def modules() -> Modules:
    """The modules of refflow loaded so far."""
    return [module for name, module in sorted(sys.modules.items()) if name.split(".")[0] == "refflow" and module]


def forget() -> None:
    """Empties every cache of refflow, and with them what a fault left there."""
    _cache.clear()
    for module in modules():
        for thing in list(vars(module).values()):
            if isinstance(thing, functools._lru_cache_wrapper) and not thing.__name__.endswith("backend"):
                thing.cache_clear()


@contextmanager
def everywhere(original: Any, faulty: Any) -> Iterator[None]:
    """`faulty` under every name that `original` has in a module of refflow."""
    names = [(m, name) for m in modules() for name, thing in list(vars(m).items()) if thing is original]
    assert names, f"{original!r} is not a name of refflow"
    forget()
    for module, name in names:
        setattr(module, name, faulty)
    try:
        yield
    finally:
        for module, name in names:
            setattr(module, name, original)
        forget()


@contextmanager
def instead(owner: Any, name: str, faulty: Any) -> Iterator[None]:
    """One attribute of a class, a module or a frozen dataclass replaced."""
    original = vars(owner)[name]
    put = type.__setattr__ if isinstance(owner, type) else object.__setattr__
    forget()
    put(owner, name, faulty)
    try:
        yield
    finally:
        put(owner, name, original)
        forget()


@contextmanager
def kernel(name: str, faulty: Callable[..., Any]) -> Iterator[None]:
    """Another kernel for one primitive."""
    kernels: dict[str, Any] = settings().backend("cpu")._kernels  # type: ignore[attr-defined]
    original = kernels[name]
    kernels[name] = faulty
    try:
        yield
    finally:
        kernels[name] = original


@contextmanager
def declared(name: str, change: Callable[[Rule], dict[str, Any]]) -> Iterator[None]:
    """A primitive declared otherwise: `change` gives the fields of its rule that differ."""
    primitive = REGISTRY[name]
    rule = primitive.rule

    def faulty(*metas: Any, **attrs: Any) -> Rule:
        right = rule(*metas, **attrs)
        return replace(right, **change(right))

    with instead(primitive, "rule", faulty):
        yield


def all_exact(rule: Rule) -> dict[str, Any]:
    """Every P carried is called exact."""
    return {"carries": tuple((operands, replace(carry, exact=True)) for operands, carry in rule.carries)}
