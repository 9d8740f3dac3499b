"""Every differentiable primitive against central differences, once and twice, on its own samples.

Checks AUTO-VJP and the gradients of OPS-ELEMENTWISE, OPS-MOVEMENT, OPS-REDUCTION, OPS-CONTRACTION, OPS-INDEXING,
OPS-ORDER.
"""

from __future__ import annotations

import math
from typing import Any
from zlib import crc32

import numpy as np
import pytest

import refflow as flow
from refflow.ir import REGISTRY, Sample
from refflow.numerics import is_float
from tests.autograd.differences import Array, check_gradient, check_second

DIFFERENTIABLE = [name for name, primitive in REGISTRY.items() if primitive.vjp is not None]
POSITIVE = {"log", "sqrt", "rsqrt", "pow", "log1p", "div"}  # where the function is smooth


def operands(name: str, sample: Sample) -> list[Array]:
    """float64 (or index, or bool) arrays for a sample; distinct numbers away from 0 and from halves."""
    rng = np.random.default_rng(crc32(str(sample.shapes).encode()))
    made = []
    for i, shape in enumerate(sample.shapes):
        kind = sample.dtypes[i] if i < len(sample.dtypes) else ""
        if kind == "bool":
            made.append(rng.integers(0, 2, shape).astype(bool))
        elif kind:
            made.append(rng.integers(0, sample.below[i], shape))
        else:
            n = int(np.prod(shape))
            numbers = 0.31 + 1.6 * (rng.permutation(n) + rng.uniform(0.2, 0.8, n)) / max(n, 1)
            signs = 1 if name in POSITIVE else rng.choice([-1, 1], n)
            made.append((numbers * signs).reshape(shape))
    return made


def attributes(sample: Sample) -> dict[str, Any]:
    """The sample's attributes, with a finite filler: differences of infinities tell nothing."""
    return {k: -9.0 if isinstance(v, float) and math.isinf(v) else v for k, v in sample.attrs.items()}


def samples() -> list[Any]:
    """Each sample of each differentiable primitive whose result is a float."""
    found = []
    for name in DIFFERENTIABLE:
        for i, sample in enumerate(REGISTRY[name].samples):
            dtype = sample.attrs.get("dtype")
            if dtype is None or is_float(dtype):
                found.append(pytest.param(name, sample, id=f"{name}-{i}"))
    return found


@pytest.mark.parametrize(("name", "sample"), samples())
def test_gradient(name: str, sample: Sample) -> None:
    """(AUTO-VJP)"""
    primitive = REGISTRY[name]
    arrays = operands(name, sample)
    attrs = attributes(sample)
    check_gradient(lambda *xs: flow.Tensor(primitive(*[x.value for x in xs], **attrs)), *arrays)


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_second_gradient(name: str) -> None:
    """The gradient is made of primitives, so it has a gradient itself (AUTO-VJP, create_graph)."""
    primitive = REGISTRY[name]
    sample = primitive.samples[0]
    arrays = operands(name, sample)
    attrs = attributes(sample)
    check_second(lambda *xs: flow.Tensor(primitive(*[x.value for x in xs], **attrs)) ** 2.0, *arrays)


def test_every_primitive_with_a_gradient_has_samples() -> None:
    """A new primitive is tested by declaring samples."""
    assert [name for name in DIFFERENTIABLE if not REGISTRY[name].samples] == []
