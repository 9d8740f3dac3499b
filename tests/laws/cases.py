"""Test cases of every primitive: dtypes it takes, the data its operands may hold, and shapes beyond its own samples.

A primitive without an entry here is tested on its declared samples, with the sizes of its letters changed where no
attribute depends on them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
from hypothesis import assume
from hypothesis import strategies as st

from refflow.errors import RefflowError
from refflow.ir import REGISTRY, Meta, Primitive, Sample, Space, bind_space, parse
from tests.strategies import Array, Draw, Shape, arbitrary, exact

FLOATS = ("float32", "float64", "float16", "bfloat16")
NUMBERS = ("float32", "int64", "float16", "uint8", "bfloat16", "float64", "int32")
ANY = (*NUMBERS, "bool")
ELEMENTARY = ("float32", "bfloat16", "float16")

# The dtypes of the operands whose sample leaves them open; the first is the main one.
DTYPES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(
        ["rsqrt", "exp", "log", "log1p", "expm1", "tanh", "sigmoid", "softplus", "erf", "sin", "cos", "gelu"],
        ELEMENTARY,
    ),
    **dict.fromkeys(["sqrt", "div", "isnan", "isinf", "isfinite"], FLOATS),
    **dict.fromkeys(
        ["neg", "abs", "sign", "floor", "ceil", "trunc", "round", "relu", "sub", "floor_divide", "remainder"], NUMBERS
    ),
    **dict.fromkeys(["add", "mul", "maximum", "minimum", "eq", "ne", "lt", "le", "gt", "ge", "where"], ANY),
    **dict.fromkeys(
        ["sum", "cumsum", "cumprod", "prod", "amax", "amin", "argmax", "argmin", "argsort", "index_add", "scatter_add"],
        NUMBERS,
    ),
    **dict.fromkeys(
        ["reshape", "transpose", "expand", "slice", "slice_update", "pad", "cat", "flip", "tril", "triu", "unfold2d"],
        ANY,
    ),
    **dict.fromkeys(["index_select", "gather"], ANY),
    "cast": ANY,
    "pow": ("float32", "int64"),
    "fold2d": NUMBERS,
    **dict.fromkeys(["matmul", "conv2d", "conv2d_input", "conv2d_filter"], ("float32", "int64", "float64")),
}


def dtypes_of(name: str, sample: Sample) -> tuple[str, ...]:
    """The dtypes its open operands may have; ("",) if the sample leaves none open."""
    open_ = not sample.dtypes or "" in sample.dtypes
    return DTYPES.get(name, ("float32",)) if open_ and sample.shapes else ("",)


def metas_of(sample: Sample, dtype: str) -> tuple[Meta, ...]:
    """The operands' metas, without a layout."""
    named = sample.dtypes or ("",) * len(sample.shapes)
    return tuple(Meta(shape, dtype_named(own or dtype)) for shape, own in zip(sample.shapes, named))


def dtype_named(name: str) -> np.dtype[Any]:
    return np.dtype(ml_dtypes.bfloat16) if name == "bfloat16" else np.dtype(name)


def space_of(primitive: Primitive, metas: Sequence[Meta], attrs: Mapping[str, Any]) -> tuple[Any, Space]:
    """The rule and the bound index space."""
    rule = primitive.rule(*metas, **attrs)
    return rule, bind_space(primitive.name, parse(rule.space, len(metas)), [m.shape for m in metas], rule.sizes)


# --- data -----------------------------------------------------------------------------------------------------------


def data_for(name: str, sample: Sample, i: int, meta: Meta, rng: np.random.Generator, kind: str) -> Draw:
    """Draws operand `i` of a primitive: "exact" or "arbitrary", inside its domain."""

    def draw(shape: Shape) -> Array:
        if i in sample.below:
            return rng.integers(0, sample.below[i], shape).astype(meta.dtype)
        x = (exact if kind == "exact" else arbitrary)(rng, shape, meta.dtype)
        if i == 1 and meta.dtype.kind in "iu":
            if name == "pow":
                return np.asarray(abs(x) % 5).astype(meta.dtype)
            if name in ("floor_divide", "remainder"):
                return np.where(x == 0, meta.dtype.type(1), x)
        if i == 1 and name == "div" and kind == "exact":
            return (2.0 ** rng.integers(-2, 3, shape)).astype(meta.dtype)
        return x

    return draw


# --- shapes ---------------------------------------------------------------------------------------------------------

_SIZE = st.integers(0, 9)
_FEW = st.integers(0, 5)
_Made = Callable[..., Sample]


def _with(sample: Sample, shapes: Sequence[Shape], below: Mapping[int, int] | None = None, **attrs: Any) -> Sample:
    return Sample(tuple(shapes), {**sample.attrs, **attrs}, sample.dtypes, sample.below if below is None else below)


def _resized(draw: Any, name: str, sample: Sample) -> Sample:
    """Other sizes for the letters of the operands."""
    metas = metas_of(sample, dtypes_of(name, sample)[0])
    _, space = space_of(REGISTRY[name], metas, sample.attrs)
    letters = {a for dims in space.inputs for dim in dims for a in dim.letters}
    sizes = {**space.sizes, **{a: draw(_SIZE) for a in sorted(letters)}}
    resized = Space(space.inputs, space.outputs, sizes, space.origins)
    below = dict.fromkeys(sample.below, sizes["v"]) if "v" in letters else sample.below
    assume(all(n > 0 for n in below.values()))
    return _with(sample, [resized.shape(dims) for dims in space.inputs], below)


def _grouped(draw: Any, factors: Sequence[int]) -> Shape:
    """Neighbouring factors multiplied together at random, with a few ones strewn in."""
    shape = [1]
    for n in factors:
        if draw(st.booleans()):
            shape.append(n)
        else:
            shape[-1] *= n
    return tuple(shape[1:] if shape[0] == 1 and draw(st.booleans()) else shape)


def _reshape(draw: Any, sample: Sample) -> Sample:
    factors = draw(st.lists(st.sampled_from([1, 2, 3, 4, 5, 0]), max_size=4))
    return _with(sample, [_grouped(draw, factors)], shape=_grouped(draw, factors))


def _expand(draw: Any, sample: Sample) -> Sample:
    shape = tuple(draw(st.lists(_FEW, max_size=3)))
    kept = tuple(1 if draw(st.booleans()) else n for n in shape)
    return _with(sample, [kept[draw(st.integers(0, len(kept))) :]], shape=shape)


def _cuts(draw: Any, shape: Shape) -> dict[str, Any]:
    starts, stops, steps = [], [], []
    for n in shape:
        whole = draw(st.booleans())
        start = 0 if whole else draw(st.integers(0, n))
        starts.append(start)
        stops.append(None if whole else draw(st.integers(start, n)))
        steps.append(1 if whole else draw(st.integers(1, 3)))
    return {"starts": tuple(starts), "stops": tuple(stops), "steps": tuple(steps)}


def _slice(draw: Any, sample: Sample) -> Sample:
    shape = tuple(draw(st.lists(_SIZE, max_size=3)))
    cuts = _cuts(draw, shape)
    if len(sample.shapes) == 1:
        return _with(sample, [shape], **cuts)
    spans = zip(shape, cuts["starts"], cuts["stops"], cuts["steps"])
    part = tuple(len(range(n)[start:stop:step]) for n, start, stop, step in spans)
    return _with(sample, [shape, part], **cuts)


def _index_add(draw: Any, sample: Sample) -> Sample:
    at = tuple(draw(st.lists(_FEW, max_size=2)))
    rest = draw(st.lists(_FEW, max_size=2))
    dim, size = draw(st.integers(0, len(rest))), draw(st.integers(1, 6))
    return _with(sample, [at, (*rest[:dim], *at, *rest[dim:])], {0: size}, dim=dim, size=size)


def _scatter_add(draw: Any, sample: Sample) -> Sample:
    shape = tuple(draw(st.lists(_SIZE, min_size=1, max_size=2)))
    dim, size = draw(st.integers(0, len(shape) - 1)), draw(st.integers(1, 6))
    return _with(sample, [shape, shape], {0: size}, dim=dim, size=size)


def _one_hot(draw: Any, sample: Sample) -> Sample:
    n = draw(st.integers(1, 9))
    return _with(sample, [tuple(draw(st.lists(_FEW, max_size=2)))], {0: n}, num_classes=n)


def _pair(draw: Any, low: int, high: int) -> tuple[int, int]:
    return draw(st.integers(low, high)), draw(st.integers(low, high))


def _windows(draw: Any) -> tuple[dict[str, Any], tuple[int, int], tuple[int, int]]:
    """kernel, stride, padding, dilation, then the image's size and the number of windows."""
    kernel, stride, padding, dilation = _pair(draw, 1, 3), _pair(draw, 1, 2), _pair(draw, 0, 2), _pair(draw, 1, 2)
    spans = [max(d * (k - 1) + 1 - 2 * p, 0) for k, p, d in zip(kernel, padding, dilation)]
    size = (spans[0] + draw(st.integers(0, 3)), spans[1] + draw(st.integers(0, 3)))
    counts = [(n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in zip(size, kernel, stride, padding, dilation)]
    attrs = {"kernel": kernel, "stride": stride, "padding": padding, "dilation": dilation}
    return attrs, size, (counts[0], counts[1])


def _unfold(draw: Any, sample: Sample) -> Sample:
    attrs, size, _ = _windows(draw)
    value = draw(st.sampled_from([0.0, -math.inf, 1.5]))
    return _with(sample, [(draw(_FEW), draw(_FEW), *size)], **attrs, value=value)


def _fold(draw: Any, sample: Sample) -> Sample:
    attrs, size, counts = _windows(draw)
    return _with(sample, [(draw(_FEW), draw(_FEW), *counts, *attrs["kernel"])], **attrs, size=size)


def _conv(draw: Any, sample: Sample, contracts: str) -> Sample:
    attrs, size, counts = _windows(draw)
    kernel = attrs.pop("kernel")
    groups, n = draw(st.integers(1, 3)), draw(_FEW)
    o, c = draw(st.integers(0, 3)), draw(st.sampled_from([1, 2, 3, 8, 16, 0][: 6 if groups == 1 else 5]))
    image, weight, out = (n, groups * c, *size), (groups * o, c, *kernel), (n, groups * o, *counts)
    if contracts == "c":
        return _with(sample, [image, weight], **attrs, groups=groups)
    if contracts == "o":
        return _with(sample, [out, weight], **attrs, groups=groups, size=size)
    return _with(sample, [image, out], **attrs, groups=groups, size=kernel)


def _pad(draw: Any, sample: Sample) -> Sample:
    shape = tuple(draw(st.lists(_FEW, max_size=3)))
    low, high = (tuple(draw(st.integers(0, 2)) for _ in shape) for _ in range(2))
    return _with(sample, [shape], low=low, high=high, value=draw(st.sampled_from([0.0, -0.0, 3.0, math.inf, math.nan])))


def _created(draw: Any, sample: Sample) -> Sample:
    if "length" in sample.attrs:
        return _with(sample, [], length=draw(_SIZE))
    key = "shape" if "shape" in sample.attrs else "dims"
    fixed = len(sample.attrs["dims"]) if key == "dims" and "seed" not in sample.attrs else None
    dims = st.lists(_SIZE, min_size=fixed or 0, max_size=3 if fixed is None else fixed)
    return _with(sample, [], **{key: tuple(draw(dims))})


SHAPES: dict[str, _Made] = {
    "reshape": _reshape,
    "expand": _expand,
    "slice": _slice,
    "slice_update": _slice,
    "pad": _pad,
    "index_add": _index_add,
    "scatter_add": _scatter_add,
    "one_hot": _one_hot,
    "unfold2d": _unfold,
    "fold2d": _fold,
    "conv2d": partial(_conv, contracts="c"),
    "conv2d_input": partial(_conv, contracts="o"),
    "conv2d_filter": partial(_conv, contracts="n"),
}


@st.composite
def samples(draw: Any, name: str) -> Sample:
    """A sample of the primitive with other sizes, and attributes to match."""
    sample = draw(st.sampled_from(REGISTRY[name].samples))
    if not sample.shapes:
        made = _created(draw, sample)
    elif name in SHAPES:
        made = SHAPES[name](draw, sample)
    else:
        made = _resized(draw, name, sample)
    try:
        space_of(REGISTRY[name], metas_of(made, dtypes_of(name, made)[0]), made.attrs)
    except RefflowError:
        assume(False)  # a logically empty maximum and its like: refused, as their own tests say
    return made
