"""Random trees, tensors and layouts for the checkpoint tests."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

import refflow as flow
from refflow.layout import NdSbp
from refflow.numerics import DTYPES, is_float

MESHES = ([0], [0, 1], [1, 0], [0, 1, 2], [2], [0, 1, 2, 3], [3, 1], [[0, 1], [2, 3]], [[1], [0]], [[0, 2, 1]], [[[0, 1]], [[2, 3]]])
ODD_FLOATS = (0.0, -0.0, 1.5, -2.25, float("inf"), float("-inf"), float("nan"), 6.1e-5, 1e-45, 3.4e38, 65504.0)


@st.composite
def arrays(draw: st.DrawFn) -> np.ndarray[Any, Any]:
    """Up to 3 dimensions of 0 to 5, any dtype, with zeros of both signs, infinities, NaNs and subnormals."""
    dtype = draw(st.sampled_from(DTYPES))
    shape = tuple(draw(st.lists(st.integers(0, 5), max_size=3)))
    count = int(np.prod(shape, dtype=int))
    if is_float(dtype):
        items: Any = st.sampled_from(ODD_FLOATS) | st.floats(-100, 100, width=16)
    elif dtype == flow.bool:
        items = st.booleans()
    else:
        info = np.iinfo(dtype)
        items = st.integers(int(info.min), int(info.max))
    with np.errstate(all="ignore"):
        return np.array(draw(st.lists(items, min_size=count, max_size=count)), dtype).reshape(shape)


@st.composite
def layouts(draw: st.DrawFn, shape: tuple[int, ...], ranks: int, partial: bool = True) -> tuple[flow.Placement, NdSbp]:
    """A placement within `ranks` ranks and an sbp that fits `shape`."""
    mesh = draw(st.sampled_from([m for m in MESHES if max(np.array(m).reshape(-1)) < ranks]))
    where = flow.placement("cpu", mesh)
    choices: list[Any] = [flow.sbp.broadcast, *(flow.sbp.split(d) for d in range(len(shape)))]
    if partial:
        choices.append(flow.sbp.partial_sum)
    return where, tuple(draw(st.sampled_from(choices)) for _ in range(where.ndim))


@st.composite
def tensors(draw: st.DrawFn, ranks: int) -> flow.Tensor:
    """A local or global tensor in a world of `ranks` ranks, which must be in force where it is drawn."""
    array = draw(arrays())
    if draw(st.booleans()):
        return flow.tensor(array)
    where, sbp = draw(layouts(array.shape, ranks, partial=array.dtype != flow.bool))
    return flow.tensor(array, placement=where, sbp=sbp)


def trees(leaves: Any) -> Any:
    """Nested dicts, lists and tuples over `leaves` and plain values."""
    plain = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
    keys = st.text(max_size=3) | st.integers(-3, 3) | st.sampled_from(["a", "a.b", "b", "__metadata__"])
    return st.recursive(
        leaves | plain,
        lambda inner: st.lists(inner, max_size=3) | st.lists(inner, max_size=3).map(tuple) | st.dictionaries(keys, inner, max_size=3),
        max_leaves=8,
    )  # fmt: skip


def same_tree(a: Any, b: Any) -> bool:
    """Equal trees, tensors by the bits of their logical values."""
    if isinstance(a, flow.Tensor):
        return isinstance(b, flow.Tensor) and flow.same_bits(a.numpy(), b.numpy())
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return list(a) == list(b) and all(type(k) is type(j) and same_tree(a[k], b[j]) for k, j in zip(a, b))
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same_tree, a, b))
    if isinstance(a, float):
        return a.hex() == b.hex()
    return bool(a == b)
