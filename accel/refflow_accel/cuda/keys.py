"""The keys with which the gate on PTX compiles each family of kernels: every dtype and text that a launch can ask for.

Part of ACC-CUDA-PTX of spec/text/acceleration.md.  A key is what the family's function takes; KEYS has a row for each
family of the registry, chapter by chapter.  Nothing here is read by a launch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..chains import Chain, Step, single
from ..expressions import BOOL, FLOAT, FLOAT32, HALVES, INTEGER, OPERANDS, result, serves
from .elements import DTYPES
from .kernels.creation import DRAWN
from .kernels.movement import COPIED
from .kernels.tiles import LARGE, SMALL

Key = tuple[Any, ...]


# --- elementwise ------------------------------------------------------------------------------------------------------

GROUPS = (  # of the functions of halves: their tables must fit 64 KB of constants together, as those of any chain
    ("exp", "log", "log1p", "expm1", "tanh", "sigmoid", "softplus"),
    ("gelu", "erf", "rsqrt"),
    ("sin", "cos", "pow", "floor_divide", "remainder"),
)


def operands_of(op: str, dtype: str) -> tuple[str, ...]:
    """The dtypes of a primitive's operands, the main ones being of `dtype`."""
    return ("bool", dtype, dtype) if op == "where" else (dtype,) * OPERANDS[op]


def served(dtype: str) -> list[tuple[str, tuple[str, ...], str]]:
    """(op, operand dtypes, result dtype) of every primitive on `dtype` that there is an expression for, casts included."""
    ops = dict.fromkeys((*FLOAT, *FLOAT32, *INTEGER, *BOOL))
    found = [(op, operands_of(op, dtype), result(op, operands_of(op, dtype))) for op in ops]
    return [row for row in found if serves(*row)] + [("cast", (dtype,), to) for to in DTYPES if to != dtype]


def together(dtype: str, chosen: Callable[[str], bool] = lambda op: True) -> Chain:
    """One chain of the chosen primitives on `dtype`: inputs (bool, dtype, dtype), every step a result."""
    steps = [
        Step(op, (0, 1, 2) if op == "where" else (1, 2)[: len(dtypes)], to)
        for op, dtypes, to in served(dtype)
        if chosen(op)
    ]
    return Chain(("bool", dtype, dtype), tuple(steps), tuple(range(3, 3 + len(steps))))


def chains() -> list[Key]:
    """Each elementary function of float32 by itself; the other primitives of a dtype in one; a sum in 1 to 6 dimensions."""
    mixed = Chain(("float32", "bfloat16"), (Step("cast", (1,), "float32"), Step("add", (0, 2), "float32")), (3,))
    made = [
        *[single(*row) for row in served("float32") if row[0] in FLOAT32],
        *[together(dtype, lambda op: op not in FLOAT32) for dtype in ("float32", *HALVES)],
        *[together(dtype, group.__contains__) for dtype in HALVES for group in GROUPS],
        *[together(dtype) for dtype in DTYPES if dtype not in ("float32", *HALVES)],
    ]
    return [*[(chain, 1) for chain in made], *[(mixed, rank) for rank in (2, 3, 4, 6)]]


# --- folds ------------------------------------------------------------------------------------------------------------


def folds() -> list[Key]:
    """(element, fold, result): sums of all, halves left wide and rounded at the top, and each other combination once."""
    sums = [(dtype, "sum", dtype) for dtype in DTYPES if dtype != "bool"]
    halves = [(half, "sum", "float32") for half in HALVES] + [("float32", "sum", half) for half in HALVES]
    others = [("float32", kind, "float32") for kind in ("prod", "max", "min")]
    return [*sums, *halves, *others, ("float64", "max", "float64"), ("bool", "max", "bool"), ("int64", "min", "bool")]


# --- all --------------------------------------------------------------------------------------------------------------

KEYS: dict[str, list[Key]] = {
    "chain": chains(),
    # contraction: every type that is computed in; of float32 both tiles
    "product": [
        ("float32", "float32", SMALL), ("float32", "float32", LARGE), ("float64", "float64", SMALL),
        ("bfloat16", "float32", LARGE), ("float16", "float16", SMALL), ("int32", "int32", SMALL),
    ],
    "correlation": [
        ("float32", "float32", LARGE, True), ("float32", "float32", SMALL, False), ("float64", "float64", SMALL, True),
        ("bfloat16", "bfloat16", SMALL, True), ("int64", "int64", SMALL, True),
    ],
    # creation
    "ramp": [("float32",), ("float64",), ("float16",), ("bfloat16",), ("int64",), ("uint8",)],
    "diagonal": [()],
    "draw": [(name,) for name in DRAWN],
    # extremes
    "arg_threads": [
        *[(dtype, True) for dtype in ("float32", "float64", "bfloat16", "int32", "bool")], ("float32", False),
    ],
    "arg_blocks": [("float32", True), ("float32", False), ("float16", True)],
    # indexing
    "pick": [(dtype, aligned) for dtype in ("int32", "float16") for aligned in (True, False)],
    "hot": [()],
    "scatter": [("float32",), ("float64",), ("bfloat16",), ("int64",), ("uint8",)],
    "fold_windows": [("float32",), ("bfloat16",)],
    # movement, where elements are cells of 1, 2, 4 or 8 bytes
    "move": [("int32", 1), ("int32", 2), ("int32", 4), ("uint8", 3), ("float16", 1), ("int64", 6)],
    "fill": [(dtype,) for dtype in COPIED.values()],
    "reverse": [("int32",), ("float16",)],
    "triangle": [("int32", True), ("int32", False), ("int64", True), ("uint8", False), ("float16", True)],
    # reduction
    "fold_threads": folds(),
    "fold_blocks": folds(),
    # scan
    "scan": [("float32", False), ("float32", True), ("float16", False), ("int32", True)],
}  # fmt: skip
