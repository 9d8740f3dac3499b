"""Creation and random primitives: tensors from attributes alone, each element from its logical index.

Implements the creation chapter of spec/text/primitives.md (OPS-CREATION) and RNG-INDEX of spec/text/random.md: the
same values under any sbp.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import AttributeValueError, DtypeError
from ..ir import Primitive, Rule, Sample, Value, names, primitive
from ..numerics import bool_, float32, int64, is_bool
from .constant import whole_beside

Shape = tuple[int, ...]
Dtype = np.dtype[Any]


def _space(dims: Shape, origin: str) -> tuple[str, dict[str, int]]:
    letters = names("d", len(dims))
    return f" -> {' '.join(a + origin for a in letters)}", dict(zip(letters, dims, strict=True))


def _arange_rule(*, start: float, step: float, length: int, dtype: Dtype) -> Rule:
    if is_bool(dtype):
        raise DtypeError("arange: not for bool; give an integer or float dtype")
    return Rule(" -> d0@", (dtype,), sizes={"d0": length})


arange: Primitive = primitive(
    "arange",
    _arange_rule,
    doc="start + i step for i < length",
    samples=(Sample((), {"start": 1, "step": 2, "length": 5, "dtype": int64}),),
)


def _eye_rule(*, dims: tuple[int, int], dtype: Dtype) -> Rule:
    return Rule(" -> d0@ d1@", (dtype,), sizes={"d0": dims[0], "d1": dims[1]})


eye: Primitive = primitive(
    "eye", _eye_rule, doc="1 on the diagonal, 0 elsewhere", samples=(Sample((), {"dims": (4, 5), "dtype": float32}),)
)


def eye_like(n: int, like: Value) -> Value:
    """The n x n identity as a bool mask on the placement of `like`, whole on every rank."""
    return eye(dims=(n, n), dtype=bool_, **whole_beside(like))


def _draw(name: str, dtype: Dtype, doc: str, **sample: Any) -> Primitive:
    """A random primitive: element i of the logical tensor from word i of a stream of the generator (RNG-INDEX)."""

    def rule(*, dims: Shape, seed: int, stream: int, **attrs: Any) -> Rule:
        if "low" in attrs and not 0 < attrs["high"] - attrs["low"] < 2**32:
            raise AttributeValueError(
                f"{name}: needs low < high < low + 2**32, found [{attrs['low']}, {attrs['high']})"
            )
        space, sizes = _space(dims, "@")
        return Rule(space, (dtype,), sizes=sizes)

    attrs = {**sample, "dims": (3, 4), "seed": 7, "stream": 2}
    return primitive(name, rule, random=True, doc=doc, samples=(Sample((), attrs), Sample((), {**attrs, "dims": (5,)})))


rand: Primitive = _draw("rand", float32, "uniform on [0, 1): the upper 24 bits of a word")
randn: Primitive = _draw("randn", float32, "standard normal, Box-Muller on two words")
random_bits: Primitive = _draw("random_bits", int64, "the 32-bit words themselves")
randint: Primitive = _draw("randint", int64, "uniform integers on [low, high)", low=-3, high=9)
