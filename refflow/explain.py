"""explain: which signature an operation chooses for given operands, what the others would cost, and why.

Implements SIG-EXPLAIN of spec/text/signatures.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from .errors import AttributeValueError, SbpError
from .ir import SPECIAL, Meta, Option, Primitive, Value, candidates, declared, options
from .ir.bind import EAGER
from .numerics import is_float
from .state import Override, settings


@dataclass(frozen=True)
class Explanation:
    """One primitive of an operation: the options, best first (it is taken), and the signatures the policy refuses."""

    name: str
    space: str
    policy: str
    options: tuple[Option, ...]
    refused: tuple[str, ...]
    barred: tuple[Option, ...] = ()  # the refused signatures with their prices, cheapest first

    def __str__(self) -> str:
        lines = [f"{self.name}: {self.space}   (signatures: {self.policy})"]
        for i, option in enumerate(self.options):
            mark = "->" if i == 0 else "  "
            lines.append(f" {mark} {option.signature!s:40s} {option.bytes:>10d} B   {option.signature.why}")
        lines += [f"  x {line}" for line in self.refused]
        return "\n".join(lines)


@dataclass
class Explanations:
    """Every primitive an operation ran, in order; printable."""

    steps: list[Explanation] = field(default_factory=list)

    def __str__(self) -> str:
        return "\n".join(map(str, self.steps)) or (
            "no operation chose a signature: none ran on global tensors, or they only moved (draw_boxing shows that)"
        )

    __repr__ = __str__


class _Recorder:
    """An interpreter that notes the options of every primitive it passes on."""

    def __init__(self) -> None:
        self.found = Explanations()

    def bind(self, primitive: Primitive, inputs: tuple[Value, ...], attrs: Mapping[str, Any]) -> tuple[Value, ...]:
        if primitive.name not in SPECIAL and inputs and inputs[0].meta.placement is not None:
            self.found.steps.append(describe(primitive, inputs, attrs))
        return EAGER.bind(primitive, inputs, attrs)


def describe(primitive: Primitive, inputs: tuple[Value, ...], attrs: Mapping[str, Any]) -> Explanation:
    """The options of one primitive on these operands, under the policy in force."""
    return described(primitive, tuple(value.meta for value in inputs), attrs, settings().signatures)


def described(primitive: Primitive, metas: tuple[Meta, ...], attrs: Mapping[str, Any], policy: str) -> Explanation:
    """The options of one primitive on operands like these, under a policy."""
    placement = metas[0].placement
    if placement is None:
        raise SbpError("explain: local tensors have no signatures; to_global first")
    rule, space = declared(primitive, metas, attrs)
    every = options(rule, space, metas, placement, "cheap")
    ranked = [o for o in every if policy == "cheap" or o.signature.exact]
    integer = not any(is_float(m.dtype) for m in metas)
    refused = [
        f"{s!s:40s} refused: {s.why}"
        for s in candidates(rule, space, integer, placement)
        if not s.exact and policy == "exact"
    ]
    barred = tuple(o for o in every if policy == "exact" and not o.signature.exact)
    return Explanation(primitive.name, rule.space, policy, tuple(ranked), tuple(refused), barred)


def explain(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Explanations:
    """Runs ``function(*args)`` and tells, for each primitive in it, the signatures, their bytes and why one was chosen.

    It draws from a copy of the default generator, which stays where it is.
    Errors: `AttributeValueError` if given a result instead of a function.  Source: SIG-EXPLAIN.
    """
    if not callable(function):
        raise AttributeValueError(
            f"explain: needs a function, then its arguments, as in explain(flow.matmul, x, w); found {type(function).__name__}"
        )
    recorder = _Recorder()
    state = settings()
    with Override(interpreters=(*state.interpreters, recorder), grad=False, generator=replace(state.generator)):
        function(*args, **kwargs)
    return recorder.found


__all__ = ["Explanation", "Explanations", "describe", "described", "explain"]
