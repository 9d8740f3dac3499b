"""Factories: tensors from data, numbers and the generator; global with `placement` and `sbp`, else local.

Implements OPS-CREATION, RNG-*, PART-MADE and LOCAL-FAMILY for users, PyTorch's and OneFlow's names.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import AttributeValueError, DtypeError, RefflowError, ReplicaError, SbpError, ShapeError
from ..ir import Meta, Primitive, Value, to_global
from ..layout import NdSbp, Placement, boxes, normalize, reduced
from ..numerics import bool_, digest, float32, float64, int64, is_float
from ..numerics import cast as cast_array
from ..ops import constant
from ..ops import creation as ops
from ..ops.border import is_partial
from ..random import Generator
from ..state import default_generator, settings
from ..tensor.logical import check_ranks
from ..tensor.tensor import Tensor
from .arithmetic import add, cast, dtype_named, ge, lt, mul, number_for, takes_tensors, where
from .movement import sizes_of, whole_number
from .reduction import argsort

Dtype = np.dtype[Any]


def _layout(
    name: str, shape: Sequence[int], placement: Placement | None, sbp: Any
) -> tuple[dict[str, Any], NdSbp | None]:
    """The primitive's layout attributes, and the sbp asked for if it has P (then B is made first: PART-MADE)."""
    if (placement is None) != (sbp is None):
        raise SbpError(f"{name}: a global tensor needs both placement and sbp, a local one neither")
    if placement is None:
        return {}, None
    check_ranks(name, placement)
    wanted = normalize(sbp, placement.mesh, shape, name)
    return {"placement": placement, "sbp": reduced(wanted)}, wanted if is_partial(wanted) else None


def _finish(value: Value, wanted: NdSbp | None, requires_grad: bool) -> Tensor:
    """`value` as a tensor, under P if that was asked for."""
    if wanted is not None:
        assert value.meta.placement is not None
        value = to_global(value, placement=value.meta.placement.base, sbp=wanted)
    return Tensor(value).requires_grad_() if requires_grad else Tensor(value)


def _shape(name: str, size: tuple[Any, ...]) -> tuple[int, ...]:
    shape = sizes_of(size)
    for n in shape:
        if not isinstance(n, (int, np.integer)) or isinstance(n, bool) or n < 0:
            raise AttributeValueError(f"{name}: sizes must be ints >= 0, found {shape}")
    return tuple(int(n) for n in shape)


def tensor(
    data: Any, *, dtype: Any = None, placement: Placement | None = None, sbp: Any = None, requires_grad: bool = False
) -> Tensor:
    """A tensor of the given data (numbers, nested lists, a NumPy array, a tensor).

    Global with `placement` and `sbp`: every rank must give the same logical data (checked), each keeps its part; P: the
    first rank keeps it.  Without dtype: float32 for Python floats, int64 for ints, bool for bools, an array's own.
    Errors: `ShapeError`, `DtypeError`, `SbpError`, `PlacementError`, `ReplicaError`.  Source: OPS-CREATION, PART-MADE.
    """
    array = _host_array(data, dtype)
    layout, partial = _layout("tensor", array.shape, placement, sbp)
    return _finish(place_array(array, **layout), partial, requires_grad)


def _host_array(data: Any, dtype: Any) -> np.ndarray[Any, Any]:
    """`data` as an array of its own, in `dtype` or the one `tensor` gives such data; Python ints must fit."""
    if isinstance(data, Tensor):
        data = data.detach().numpy()
    plain = not isinstance(data, (np.ndarray, np.generic))
    try:
        array = np.asarray(data)
    except ValueError as error:
        raise ShapeError(f"tensor: nested lists must be rectangular: {error}") from None
    if dtype is None and plain:
        dtype = float32 if array.dtype.kind == "f" else int64 if array.dtype.kind in "iu" else array.dtype
    wanted = dtype_named("tensor", array.dtype if dtype is None else dtype)
    if array.dtype == object:  # ints beyond int64
        array = np.array([number_for("tensor", one, wanted) for one in array.flat], float64).reshape(array.shape)
    if plain and array.size and array.dtype.kind in "iu" and wanted.kind in "iu":
        room = np.iinfo(wanted)
        if int(array.min()) < room.min or int(array.max()) > room.max:
            raise DtypeError(
                f"tensor: {int(array.min())} to {int(array.max())} does not fit {wanted.name} ({room.min} to {room.max})"
            )
    with np.errstate(all="ignore"):
        return np.array(cast_array(array, wanted), copy=True)


def place_array(array: np.ndarray[Any, Any], placement: Placement | None = None, sbp: NdSbp | None = None) -> Value:
    """A logical NumPy array as a value: each owned rank keeps its box; without placement every rank keeps all of it."""
    state = settings()
    if placement is None or sbp is None:
        held = state.backend("cpu").from_host(array)
        return Value(Meta(array.shape, array.dtype), dict.fromkeys(state.world.owned, held))
    if len(state.world.owned) != state.world.size:
        marks = state.world.agree(
            "tensor: the same data on every rank", dict.fromkeys(state.world.owned, digest(array))
        )
        if len(set(marks.values())) > 1:
            raise ReplicaError(
                f"tensor: every rank must give the same logical data; digests are {dict(marks)}; per_rank() makes local parts"
            )
    backend = state.backend(placement.type)
    shards = {}
    whole: Any = None
    for rank, box in boxes(array.shape, placement, sbp).items():
        if rank in state.world.owned:
            if all(lo == 0 and hi == n for (lo, hi), n in zip(box, array.shape, strict=True)):
                whole = backend.from_host(array) if whole is None else whole
                shards[rank] = whole
            else:
                shards[rank] = backend.from_host(array[tuple(slice(lo, hi) for lo, hi in box)])
    return Value(Meta(array.shape, array.dtype, placement, sbp), shards)


def as_tensor(data: Any, *, dtype: Any = None) -> Tensor:
    """`data` itself if it is a tensor (of `dtype`), else a local tensor of it (copied)."""
    if isinstance(data, Tensor):
        return data if dtype is None else cast(data, dtype_named("as_tensor", dtype))
    return tensor(data, dtype=dtype)


def from_numpy(array: np.ndarray[Any, Any]) -> Tensor:
    """A local tensor with the values of `array` (copied)."""
    return tensor(array)


def per_rank(function: Any) -> Tensor:
    """A local tensor from ``function(rank) -> data``, one array per rank (LOCAL-FAMILY)."""
    state = settings()
    arrays = {}
    for rank in state.world.owned:
        data = function(rank)
        made = data if isinstance(data, Tensor) else tensor(data)
        arrays[rank] = made.local_arrays()[state.world.owned[0]]
    dtypes = {array.dtype for array in arrays.values()}
    if len(dtypes) > 1:
        raise DtypeError(f"per_rank: ranks must give one dtype, found {', '.join(sorted(d.name for d in dtypes))}")
    backend = state.backend("cpu")
    shapes = {array.shape for array in arrays.values()}
    first = next(iter(arrays.values()))
    held = {rank: backend.from_host(array) for rank, array in arrays.items()}
    return Tensor(Value(Meta(first.shape, first.dtype), held, ragged=len(shapes) > 1))


def full(
    size: Sequence[int],
    fill_value: float,
    *,
    dtype: Any = None,
    placement: Placement | None = None,
    sbp: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """`fill_value` everywhere; dtype defaults to float32, int64 or bool after the value."""
    if dtype is None:
        dtype = bool_ if isinstance(fill_value, bool) else int64 if isinstance(fill_value, int) else float32
    return _filled("full", (size,), fill_value, dtype, placement, sbp, requires_grad)


def _filled(
    name: str,
    size: tuple[Any, ...],
    number: float,
    dtype: Any,
    placement: Placement | None,
    sbp: Any,
    requires_grad: bool,
) -> Tensor:
    """`full`, speaking of itself as `name`."""
    shape, wanted = _shape(name, size), dtype_named(name, dtype)
    number = number_for(name, number, wanted)
    layout, partial = _layout(name, shape, placement, sbp)
    value = constant.full(shape=shape, value=number, dtype=wanted, **layout)
    return _finish(value, partial, requires_grad)


def zeros(
    *size: Any, dtype: Any = float32, placement: Placement | None = None, sbp: Any = None, requires_grad: bool = False
) -> Tensor:
    """+0 everywhere."""
    return _filled("zeros", size, 0, dtype, placement, sbp, requires_grad)


def ones(
    *size: Any, dtype: Any = float32, placement: Placement | None = None, sbp: Any = None, requires_grad: bool = False
) -> Tensor:
    """1 everywhere (under P: logically 1)."""
    return _filled("ones", size, 1, dtype, placement, sbp, requires_grad)


def empty(
    *size: Any, dtype: Any = float32, placement: Placement | None = None, sbp: Any = None, requires_grad: bool = False
) -> Tensor:
    """+0 everywhere: an uninitialised value would not be the same bits twice."""
    return _filled("empty", size, 0, dtype, placement, sbp, requires_grad)


def _like(x: Tensor, dtype: Any, *, drawn: bool = False) -> dict[str, Any]:
    """Options that make a tensor in the dtype (unless `dtype` is given) and the layout of `x`; one `drawn` has no P."""
    layout = {"placement": x.placement, "sbp": reduced(x.sbp) if drawn else x.sbp} if x.is_global else {}
    return {"dtype": x.dtype if dtype is None else dtype, **layout}


def full_like(x: Tensor, fill_value: float, *, dtype: Any = None, requires_grad: bool = False) -> Tensor:
    """`fill_value` in the shape, dtype and layout of `x`."""
    return full(x.shape, fill_value, requires_grad=requires_grad, **_like(x, dtype))


def zeros_like(x: Tensor, *, dtype: Any = None, requires_grad: bool = False) -> Tensor:
    """+0 in the shape, dtype and layout of `x`."""
    return full_like(x, 0, dtype=dtype, requires_grad=requires_grad)


def ones_like(x: Tensor, *, dtype: Any = None, requires_grad: bool = False) -> Tensor:
    """1 in the shape, dtype and layout of `x`."""
    return full_like(x, 1, dtype=dtype, requires_grad=requires_grad)


empty_like = zeros_like


def arange(
    start: float,
    end: float | None = None,
    step: float = 1,
    *,
    dtype: Any = None,
    placement: Placement | None = None,
    sbp: Any = None,
) -> Tensor:
    """start, start + step, … below end; element i is start + i step, one product and one sum."""
    first, last = (0, start) if end is None else (start, end)
    if step == 0 or not all(math.isfinite(number) for number in (first, last, step)):
        raise AttributeValueError(
            f"arange: start, end and step must be finite, step not 0; found {first}, {last}, {step}"
        )
    length = max(0, math.ceil((last - first) / step))
    if dtype is None:
        dtype = int64 if all(isinstance(n, int) for n in (first, last, step)) else float32
    wanted = dtype_named("arange", dtype)
    first, step = (number_for("arange", number, wanted) for number in (first, step))
    layout, partial = _layout("arange", (length,), placement, sbp)
    return _finish(ops.arange(start=first, step=step, length=length, dtype=wanted, **layout), partial, False)


def linspace(start: float, end: float, steps: int, *, placement: Placement | None = None, sbp: Any = None) -> Tensor:
    """`steps` float32 numbers from start to end: start + i step in the first half, end - (steps - 1 - i) step after."""
    if whole_number("linspace", "steps", steps) < 0:
        raise AttributeValueError(f"linspace: steps must be >= 0, found {steps}")
    step = (end - start) / (steps - 1) if steps > 1 else 0.0
    layout, partial = _layout("linspace", (steps,), placement, sbp)
    up = ops.arange(start=float(start), step=step, length=steps, dtype=float32, **layout)
    down = ops.arange(start=float(1 - steps), step=1.0, length=steps, dtype=float32, **layout)
    late = add(mul(Tensor(down), step), float(end))
    return _finish(where(ge(Tensor(down), float(-(steps // 2))), late, Tensor(up)).value, partial, False)


def eye(
    n: int, m: int | None = None, *, dtype: Any = float32, placement: Placement | None = None, sbp: Any = None
) -> Tensor:
    """1 on the diagonal, 0 elsewhere."""
    rows, columns = _shape("eye", (n, n if m is None else m))
    dims = (rows, columns)
    layout, partial = _layout("eye", dims, placement, sbp)
    return _finish(ops.eye(dims=dims, dtype=dtype_named("eye", dtype), **layout), partial, False)


def draw(
    primitive: Primitive,
    size: tuple[int, ...],
    generator: Generator | None,
    placement: Placement | None,
    sbp: Any,
    **attrs: Any,
) -> Tensor:
    """One call of a random primitive: the next ordinal of the generator, values by logical index (RNG-INDEX); no P."""
    layout, partial = _layout(primitive.name, size, placement, sbp)
    if partial is not None:
        raise SbpError(f"{primitive.name}: random tensors can be S or B, found {sbp}; to_global brings one to P")
    source = generator or default_generator()
    before = source.state
    try:
        return Tensor(primitive(dims=size, **attrs, **source.draw(placement is not None), **layout))
    except RefflowError:
        source.state = before  # a call that fails draws nothing
        raise


def rand(
    *size: Any,
    generator: Generator | None = None,
    dtype: Any = float32,
    placement: Placement | None = None,
    sbp: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """Uniform on [0, 1) with 24 random bits; the same logical values under any sbp."""
    wanted = _floating("rand", dtype)
    made = cast(draw(ops.rand, _shape("rand", size), generator, placement, sbp), wanted)
    return made.requires_grad_() if requires_grad else made


def randn(
    *size: Any,
    generator: Generator | None = None,
    dtype: Any = float32,
    placement: Placement | None = None,
    sbp: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """Standard normal; the same logical values under any sbp."""
    wanted = _floating("randn", dtype)
    made = cast(draw(ops.randn, _shape("randn", size), generator, placement, sbp), wanted)
    return made.requires_grad_() if requires_grad else made


def _floating(name: str, dtype: Any) -> Dtype:
    wanted = dtype_named(name, dtype)
    if not is_float(wanted):
        raise DtypeError(f"{name}: needs a floating point dtype, found {wanted.name}")
    return wanted


def rand_like(
    x: Tensor, *, dtype: Any = None, generator: Generator | None = None, requires_grad: bool = False
) -> Tensor:
    """`rand` in the shape, dtype and layout of `x` (P reduced)."""
    return rand(*x.shape, generator=generator, requires_grad=requires_grad, **_like(x, dtype, drawn=True))


def randn_like(
    x: Tensor, *, dtype: Any = None, generator: Generator | None = None, requires_grad: bool = False
) -> Tensor:
    """`randn` in the shape, dtype and layout of `x` (P reduced)."""
    return randn(*x.shape, generator=generator, requires_grad=requires_grad, **_like(x, dtype, drawn=True))


def randint(
    low: int,
    high: int | Sequence[int],
    size: Sequence[int] | None = None,
    *,
    generator: Generator | None = None,
    placement: Placement | None = None,
    sbp: Any = None,
) -> Tensor:
    """int64, uniform on [low, high); as in PyTorch ``randint(high, size)`` starts at 0."""
    if size is None:
        if not isinstance(high, Sequence):
            raise AttributeValueError(
                f"randint: needs randint(high, size) or randint(low, high, size), found {low}, {high}"
            )
        size, high, low = high, low, 0
    bounds = {"low": whole_number("randint", "low", low), "high": whole_number("randint", "high", high)}
    return draw(ops.randint, _shape("randint", (size,)), generator, placement, sbp, **bounds)


def randperm(
    n: int, *, generator: Generator | None = None, placement: Placement | None = None, sbp: Any = None
) -> Tensor:
    """A random permutation of 0..n-1: the stable order of n random words."""
    return argsort(draw(ops.random_bits, _shape("randperm", (n,)), generator, placement, sbp), 0)


def normal(mean: float, std: float, size: Sequence[int], **options: Any) -> Tensor:
    """mean + std * randn, two roundings."""
    return add(mul(randn(size, **options), std), mean)


def bernoulli(p: Tensor, *, generator: Generator | None = None) -> Tensor:
    """1 with probability p, else 0, in the dtype and layout of `p`."""
    if not is_float(p.dtype):
        raise DtypeError(f"bernoulli: the probabilities must be floats, found {p.dtype.name}")
    return cast(lt(rand(*p.shape, generator=generator, **_like(p, float32, drawn=True)), p), p.dtype)


__all__ = [  # what `from refflow import *` and `flow.` offer; the rest is for refflow itself
    "tensor", "as_tensor", "from_numpy", "per_rank", "full", "zeros", "ones", "empty", "full_like", "zeros_like",
    "ones_like", "empty_like", "arange", "linspace", "eye", "rand", "randn", "rand_like", "randn_like", "randint",
    "randperm", "normal", "bernoulli",
]  # fmt: skip
takes_tensors(globals(), __all__)
