"""What the tape, the lazy graph and the planner speak: Meta, Value, Node, Primitive, signatures, bind."""

from __future__ import annotations

from .bind import Eager, Interpreter, bind, record
from .lower import Lowered, declared, lower
from .move import SPECIAL, no_rule, refuse_sum_of_bools, to_global
from .node import Meta, Node, Value
from .primitive import (
    ANTITONE,
    EXACT,
    JOIN_MAX,
    JOIN_MIN,
    LINEAR,
    MONOTONE,
    REGISTRY,
    Carry,
    Primitive,
    Rule,
    Sample,
    primitive,
    same_dtype,
    vjp_of,
)
from .signature import AxisSignature, Option, Signature, candidates, derive, options
from .space import Space, bind_space, names, parse

__all__ = [
    "ANTITONE",
    "EXACT",
    "JOIN_MAX",
    "JOIN_MIN",
    "LINEAR",
    "MONOTONE",
    "REGISTRY",
    "SPECIAL",
    "AxisSignature",
    "Carry",
    "Eager",
    "Interpreter",
    "Lowered",
    "Meta",
    "Node",
    "Option",
    "Primitive",
    "Rule",
    "Sample",
    "Signature",
    "Space",
    "Value",
    "bind",
    "bind_space",
    "candidates",
    "declared",
    "derive",
    "lower",
    "names",
    "no_rule",
    "options",
    "parse",
    "primitive",
    "record",
    "refuse_sum_of_bools",
    "same_dtype",
    "to_global",
    "vjp_of",
]
