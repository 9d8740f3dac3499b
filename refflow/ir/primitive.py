"""Primitive and Rule: the one declaration of an operation.

Implements OPS-DECLARATION of spec/text/primitives.md and SIG-CARRY: signatures, gradients, spec pages and test cases
come from it.  A primitive's value is the back end's kernel of the same name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from ..errors import DtypeError
from ..layout import FoldKind
from .node import Meta, Value

Vjp = Callable[..., Sequence[Value | None]]
Fold = Literal["sum", "max", "min", "one"]  # "one": a sum in which at most one term is not the identity


@dataclass(frozen=True)
class Carry:
    """What becomes of a P operand: fold kind in -> fold kind out; `exact` if the bits survive, perhaps only integers'.

    Source: SIG-CARRY.
    """

    name: str
    kinds: tuple[tuple[FoldKind, FoldKind], ...]
    exact: bool | Literal["integer"]


LINEAR = Carry("linear", (("sum", "sum"),), "integer")
EXACT = Carry("exact", (("sum", "sum"), ("max", "max"), ("min", "min")), True)
MONOTONE = Carry("monotone", (("max", "max"), ("min", "min")), True)
ANTITONE = Carry("antitone", (("max", "min"), ("min", "max")), True)
JOIN_MAX = Carry("join", (("max", "max"),), True)
JOIN_MIN = Carry("join", (("min", "min"),), True)

Carries = tuple[tuple[tuple[int, ...], Carry], ...]


@dataclass(frozen=True)
class Rule:
    """A primitive on given operands: its index space, what it folds, which P it carries, the dtypes of its outputs.

    `over` lists the folded letters in the order of the canonical tree; `leaf` is the tree's leaf; `sizes` tells
    extents no operand does.
    """

    space: str
    dtypes: tuple[np.dtype[Any], ...]
    over: str = ""
    fold: Fold | None = None
    leaf: int = 1
    carries: Carries = ()
    sizes: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Sample:
    """A test case of a primitive: operand shapes and dtypes, attributes, and bounds of index operands."""

    shapes: tuple[tuple[int, ...], ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    dtypes: tuple[str, ...] = ()
    below: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Primitive:
    """An operation that boxing, autograd and back ends know by name.

    `rule(*metas, **attrs)` gives its `Rule`; `vjp(node, *cotangents)` its gradient, made of primitives, one entry per
    input (None: no gradient); `local_shape`: the kernel is told the local output shape; `checked`: its kernel may
    refuse data, ranks must agree; `random`: it draws from a stream of the generator; `whole_because`: why a letter
    algebra would let us split is kept whole; `samples` are what every law is tested on.
    """

    name: str
    rule: Callable[..., Rule]
    vjp: Vjp | None = None
    local_shape: bool = False
    checked: bool = False
    random: bool = False
    samples: tuple[Sample, ...] = ()
    whole_because: str = ""
    doc: str = ""

    def __call__(self, *inputs: Value, **attrs: Any) -> Value:
        """Applies the primitive to values, in the present interpreter; every primitive declared here has one output."""
        from .bind import bind

        (output,) = bind(self, inputs, attrs)
        return output

    def __repr__(self) -> str:
        return f"primitive {self.name}"


REGISTRY: dict[str, Primitive] = {}


def primitive(
    name: str,
    space: str | Callable[..., Rule],
    *,
    dtype: Any = None,
    over: str = "",
    fold: Fold | None = None,
    leaf: int = 1,
    carries: Carries = (),
    vjp: Vjp | None = None,
    **more: Any,
) -> Primitive:
    """Declares and registers a primitive; `space` is text, or a function of metas and attributes that gives a `Rule`.

    `dtype`: None (that of the operands, which must agree), a NumPy dtype, or a function of the operands' metas.
    """

    rule = space if callable(space) else _fixed(name, space, dtype, over, fold, leaf, carries)
    made = Primitive(name, rule, vjp, **more)
    if name in REGISTRY:
        raise ValueError(f"primitive {name} is declared twice")
    REGISTRY[name] = made
    return made


def _fixed(
    name: str, space: str, dtype: Any, over: str, fold: Fold | None, leaf: int, carries: Carries
) -> Callable[..., Rule]:
    """The rule of a primitive whose space depends on nothing."""

    def rule(*metas: Meta, **attrs: Any) -> Rule:
        if isinstance(dtype, np.dtype):
            result = dtype
        else:
            result = same_dtype(name, *metas) if dtype is None else dtype(*metas, **attrs)
        return Rule(space, (result,), over, fold, leaf, carries)

    return rule


def same_dtype(name: str, *metas: Meta) -> np.dtype[Any]:
    """The one dtype of the operands; `DtypeError` if they differ (primitives do not promote: functions do)."""
    first = metas[0].dtype
    for meta in metas[1:]:
        if meta.dtype != first:
            raise DtypeError(f"{name}: operands must have one dtype, found {', '.join(m.dtype.name for m in metas)}")
    return first


def vjp_of(made: Primitive) -> Callable[[Vjp], Vjp]:
    """Decorator that gives a declared primitive its gradient, for gradients too long for a lambda."""

    def attach(vjp: Vjp) -> Vjp:
        object.__setattr__(made, "vjp", vjp)
        return vjp

    return attach


__all__ = ["ANTITONE", "EXACT", "JOIN_MAX", "JOIN_MIN", "LINEAR", "MONOTONE", "REGISTRY", "Carries", "Carry", "Primitive", "Rule",
           "Sample", "primitive", "same_dtype", "vjp_of"]  # fmt: skip
