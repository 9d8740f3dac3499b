"""Movement: reshape, transpose, expand, indexing by numbers and slices, pad, cat, split and their relatives.

Implements OPS-MOVEMENT for users, PyTorch's names; reshape, transpose, expand, slices and their relatives are views
(TENSOR-VIEW).
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ..errors import AttributeValueError, DtypeError, IndexOutOfRange, ShapeError
from ..ops import slicing as ops
from ..ops.shape import reshape as same_elements
from ..tensor.tensor import Tensor
from ..tensor.view import Lens, expand_lens, reshape_lens, slice_lens, transpose_lens
from .arithmetic import cast, cast_value, number_for, require_tensor, result_type, takes_tensors

Shape = tuple[int, ...]


def dim_of(name: str, dim: int, ndim: int) -> int:
    """`dim` in [0, ndim), negative ones counted from the end; `AttributeValueError` otherwise."""
    if not isinstance(dim, (int, np.integer)) or isinstance(dim, bool) or not -ndim <= dim < ndim:
        raise AttributeValueError(f"{name}: dim must be in [{-ndim}, {ndim}), found {dim}")
    return int(dim) % ndim


def whole_number(name: str, what: str, value: Any) -> int:
    """`value` as an int; `AttributeValueError` if it is none."""
    try:
        return operator.index(value)
    except TypeError:
        raise AttributeValueError(f"{name}: {what} must be an int, found {value!r}") from None


def sizes_of(sizes: tuple[Any, ...]) -> Shape:
    """``f(2, 3)`` and ``f((2, 3))`` alike."""
    return tuple(sizes[0]) if len(sizes) == 1 and isinstance(sizes[0], Iterable) else sizes


def reshape(x: Tensor, *shape: Any) -> Tensor:
    """The elements in row-major order under another shape; one entry may be -1.  A view."""
    old = require_tensor("reshape", x).shape
    new = [whole_number("reshape", "a size", n) for n in sizes_of(shape)]
    if new.count(-1) > 1:
        raise ShapeError(f"reshape: at most one -1, found {tuple(new)}")
    if -1 in new:
        rest = math.prod(n for n in new if n != -1)
        if rest == 0 or x.numel() % rest:
            raise ShapeError(f"reshape: {old} does not divide into {tuple(new)}")
        new[new.index(-1)] = x.numel() // rest
    if math.prod(new) != x.numel() or any(n < 0 for n in new):
        raise ShapeError(f"reshape: {old} has {x.numel()} elements, {tuple(new)} has {math.prod(new)}")
    return x if tuple(new) == old else x.view_through(reshape_lens(old, tuple(new)))


view = reshape


def flatten(x: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    """Dimensions start_dim..end_dim merged into one."""
    if x.ndim == 0:
        return reshape(x, (1,))
    a, b = dim_of("flatten", start_dim, x.ndim), dim_of("flatten", end_dim, x.ndim)
    if a > b:
        raise AttributeValueError(f"flatten: start_dim {start_dim} lies after end_dim {end_dim}")
    return reshape(x, (*x.shape[:a], math.prod(x.shape[a : b + 1]), *x.shape[b + 1 :]))


def ravel(x: Tensor) -> Tensor:
    """All dimensions merged into one."""
    return reshape(x, (-1,))


def unflatten(x: Tensor, dim: int, sizes: Sequence[int]) -> Tensor:
    """Dimension `dim` cut into `sizes`, one of which may be -1.  A view."""
    d = dim_of("unflatten", dim, x.ndim)
    known = math.prod(n for n in sizes if n != -1)
    cut = [x.shape[d] // known if n == -1 and known else n for n in sizes]
    if list(sizes).count(-1) > 1 or math.prod(cut) != x.shape[d] or min(cut, default=0) < 0:
        raise ShapeError(f"unflatten: dim {dim} of {x.shape} does not divide into {tuple(sizes)}")
    return reshape(x, (*x.shape[:d], *cut, *x.shape[d + 1 :]))


def view_as(x: Tensor, other: Tensor) -> Tensor:
    """`x` in the shape of `other`.  A view."""
    return reshape(x, require_tensor("view_as", other).shape)


reshape_as = view_as


def squeeze(x: Tensor, dim: int | None = None) -> Tensor:
    """Without dimension `dim` if its size is 1; without every size-1 dimension if None."""
    if dim is None:
        return reshape(x, tuple(n for n in x.shape if n != 1))
    d = dim_of("squeeze", dim, x.ndim)
    return reshape(x, (*x.shape[:d], *x.shape[d + 1 :])) if x.shape[d] == 1 else x


def unsqueeze(x: Tensor, dim: int) -> Tensor:
    """With a new dimension of size 1 at `dim`."""
    d = dim_of("unsqueeze", dim, x.ndim + 1)
    return reshape(x, (*x.shape[:d], 1, *x.shape[d:]))


def permute(x: Tensor, *dims: Any) -> Tensor:
    """Dimensions in the order `dims`.  A view."""
    perm = tuple(dim_of("permute", d, x.ndim) for d in sizes_of(dims))
    if sorted(perm) != list(range(x.ndim)):
        raise AttributeValueError(f"permute: needs each of the {x.ndim} dimensions once, found {dims}")
    return x.view_through(transpose_lens(perm))


def transpose(x: Tensor, dim0: int, dim1: int) -> Tensor:
    """Two dimensions exchanged.  A view."""
    a, b = dim_of("transpose", dim0, x.ndim), dim_of("transpose", dim1, x.ndim)
    perm = list(range(x.ndim))
    perm[a], perm[b] = b, a
    return permute(x, perm)


swapaxes = transpose


def t(x: Tensor) -> Tensor:
    """The transpose of a tensor of at most two dimensions."""
    if x.ndim > 2:
        raise ShapeError(f"t: needs at most 2 dimensions, found shape {x.shape}")
    return x if x.ndim < 2 else transpose(x, 0, 1)


def movedim(x: Tensor, source: int, destination: int) -> Tensor:
    """Dimension `source` moved to `destination`."""
    a, b = dim_of("movedim", source, x.ndim), dim_of("movedim", destination, x.ndim)
    order = [d for d in range(x.ndim) if d != a]
    order.insert(b, a)
    return permute(x, order)


def expand(x: Tensor, *sizes: Any) -> Tensor:
    """Size-1 and new leading dimensions repeated to `sizes` (-1: as it is).  A view that cannot be written to."""
    new = [whole_number("expand", "a size", n) for n in sizes_of(sizes)]
    extra = len(new) - x.ndim
    if extra < 0:
        raise ShapeError(f"expand: {x.shape} has more dimensions than {tuple(new)}")
    new = [x.shape[d - extra] if n == -1 and d >= extra else n for d, n in enumerate(new)]
    if any(n < 0 for n in new):
        raise ShapeError(f"expand: sizes must be >= 0, or -1 for a dimension {x.shape} has, found {tuple(new)}")
    return x.view_through(expand_lens(tuple(new)))


broadcast_to = expand


def expand_as(x: Tensor, other: Tensor) -> Tensor:
    """`x` expanded to the shape of `other`."""
    return expand(x, other.shape)


def repeat(x: Tensor, *times: Any) -> Tensor:
    """`x` repeated along each dimension."""
    counts = tuple(whole_number("repeat", "a count", n) for n in sizes_of(times))
    if len(counts) < x.ndim:
        raise ShapeError(f"repeat: needs at least {x.ndim} counts, found {counts}")
    old = (1,) * (len(counts) - x.ndim) + x.shape
    spread = reshape(x, tuple(n for size in old for n in (1, size)))
    full = expand(spread, tuple(n for c, size in zip(counts, old, strict=True) for n in (c, size)))
    return Tensor(reshape(full, tuple(c * size for c, size in zip(counts, old, strict=True))).value)


# --- indexing by numbers and slices ---------------------------------------------------------------------------------


def basic_index(x: Tensor, key: tuple[Any, ...]) -> tuple[Lens, Shape]:
    """The slice lens and the final shape of x[key] for ints, slices, None and "..."."""
    taken = sum(1 for k in key if k is not None and k is not Ellipsis)
    if taken > x.ndim:
        raise IndexOutOfRange(f"index: {taken} indices for a tensor of {x.ndim} dimensions")
    dots = [i for i, k in enumerate(key) if k is Ellipsis]
    if len(dots) > 1:
        raise AttributeValueError(f"index: at most one '...', found {len(dots)}")
    if dots:
        at = dots[0]
        key = (*key[:at], *[slice(None)] * (x.ndim - taken), *key[at + 1 :])
    else:
        key = (*key, *[slice(None)] * (x.ndim - taken))
    starts, stops, steps, shape = [], [], [], []
    d = 0
    for k in key:
        if k is None:
            shape.append(1)
            continue
        start, stop, step, kept = _cut(k, x.shape[d], d)
        starts.append(start)
        stops.append(stop)
        steps.append(step)
        if kept:
            shape.append(x.shape[d] if stop is None else ops.cut_length(start, stop, step))
        d += 1
    return slice_lens(tuple(starts), tuple(stops), tuple(steps)), tuple(shape)


def _cut(key: Any, size: int, d: int) -> tuple[int, int | None, int, bool]:
    """start, stop (None: all of it), step of one index, and whether the dimension stays."""
    if isinstance(key, slice):
        try:
            start, stop, step = key.indices(size)
        except (TypeError, ValueError) as error:
            raise AttributeValueError(f"index: {key} is not a slice of ints with a step that is not 0: {error}") from None
        if step < 0:
            raise AttributeValueError(f"index: a negative step ({step}) needs flip(), as in PyTorch")
        if (start, step) == (0, 1) and stop == size:
            return 0, None, 1, True
        return start, max(stop, start), step, True
    try:
        if isinstance(key, (Tensor, bool, np.bool_)):
            raise TypeError
        i = operator.index(key)
    except TypeError:
        raise AttributeValueError(
            f"index: expected int, slice, None, '...' or one integer or bool tensor, found {type(key).__name__}"
        ) from None
    if not -size <= i < size:
        raise IndexOutOfRange(f"index: {i} is out of range for dimension {d} of size {size}")
    return i % size, i % size + 1, 1, False


def index_at(x: Tensor, key: tuple[Any, ...]) -> Tensor:
    """x[key] for ints, slices, None and "...".  A view."""
    lens, shape = basic_index(x, key)
    return reshape(x.view_through(lens), shape)


def narrow(x: Tensor, dim: int, start: int, length: int) -> Tensor:
    """x[start : start + length] along `dim`.  A view."""
    d = dim_of("narrow", dim, x.ndim)
    n = x.shape[d]
    start, length = whole_number("narrow", "start", start), whole_number("narrow", "length", length)
    first = start + n if start < 0 else start
    if not 0 <= first <= first + length <= n:
        raise AttributeValueError(f"narrow: start {start}, length {length} do not fit into dim {dim} of size {n}")
    return index_at(x, (*[slice(None)] * d, slice(first, first + length)))


def select(x: Tensor, dim: int, index: int) -> Tensor:
    """x[index] along `dim`.  A view."""
    d = dim_of("select", dim, x.ndim)
    return index_at(x, (*[slice(None)] * d, index))


def split(x: Tensor, split_size: int | Sequence[int], dim: int = 0) -> tuple[Tensor, ...]:
    """Views of `split_size` along `dim` (the last may be smaller), or of the given sizes."""
    d = dim_of("split", dim, x.ndim)
    n = x.shape[d]
    if not isinstance(split_size, Sequence):
        if whole_number("split", "the size", split_size) < 1:
            raise AttributeValueError(f"split: the size must be >= 1, found {split_size}")
        sizes = [min(split_size, n - at) for at in range(0, n, split_size)] or [0]
    else:
        sizes = list(split_size)
        if sum(sizes) != n or min(sizes, default=0) < 0:
            raise ShapeError(f"split: sizes {tuple(sizes)} do not add up to {n} (dim {dim} of {x.shape})")
    offsets = [sum(sizes[:i]) for i in range(len(sizes))]
    return tuple(narrow(x, d, at, size) for at, size in zip(offsets, sizes, strict=True))


def chunk(x: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """At most `chunks` views of equal size along `dim`, the last may be smaller."""
    if whole_number("chunk", "chunks", chunks) < 1:
        raise AttributeValueError(f"chunk: needs chunks >= 1, found {chunks}")
    d = dim_of("chunk", dim, x.ndim)
    return split(x, max(1, -(-x.shape[d] // chunks)), d)


def unbind(x: Tensor, dim: int = 0) -> tuple[Tensor, ...]:
    """Every x[i] along `dim`."""
    d = dim_of("unbind", dim, x.ndim)
    return tuple(select(x, d, i) for i in range(x.shape[d]))


# --- joining and the rest -------------------------------------------------------------------------------------------


def _several(name: str, tensors: Iterable[Tensor]) -> list[Tensor]:
    """The tensors of a list, a tuple or any other iterable, at least one."""
    if isinstance(tensors, Tensor) or not isinstance(tensors, Iterable):
        raise DtypeError(f"{name}: needs a list of tensors, found {type(tensors).__name__}")
    found = [require_tensor(name, one) for one in tensors]
    if not found:
        raise ShapeError(f"{name}: needs at least one tensor")
    return found


def cat(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """Tensors joined along `dim`; they must agree elsewhere."""
    tensors = _several("cat", tensors)
    d = dim_of("cat", dim, tensors[0].ndim)
    dtype = tensors[0].dtype
    for one in tensors[1:]:
        dtype = result_type(cast(tensors[0], dtype), one)
    return Tensor(ops.cat(*[cast_value(one.value, dtype) for one in tensors], dim=d))


concat = cat


def stack(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """Tensors of one shape side by side along a new dimension `dim`."""
    tensors = _several("stack", tensors)
    d = dim_of("stack", dim, tensors[0].ndim + 1)
    if len({one.shape for one in tensors}) > 1:
        raise ShapeError(f"stack: tensors must have one shape, found {', '.join(str(one.shape) for one in tensors)}")
    return cat([unsqueeze(one, d) for one in tensors], d)


def pad(x: Tensor, pad: Sequence[int], mode: str = "constant", value: float = 0.0) -> Tensor:
    """`value` around `x`; `pad` lists (before, after) from the last dimension on; the only mode is "constant"."""
    if mode != "constant":
        raise AttributeValueError(f"pad: only mode 'constant' is defined, found {mode!r}")
    if len(pad) % 2 or len(pad) > 2 * x.ndim:
        raise AttributeValueError(f"pad: needs an even number of sizes, at most {2 * x.ndim}, found {tuple(pad)}")
    low, high = [0] * x.ndim, [0] * x.ndim
    for i in range(len(pad) // 2):
        low[-1 - i], high[-1 - i] = (whole_number("pad", "a size", n) for n in pad[2 * i : 2 * i + 2])
    return Tensor(ops.pad(x.value, low=tuple(low), high=tuple(high), value=number_for("pad", value, x.dtype)))


def flip(x: Tensor, *dims: Any) -> Tensor:
    """`dims` in reverse order."""
    return Tensor(ops.flip(x.value, dims=tuple(dim_of("flip", d, x.ndim) for d in sizes_of(dims))))


def roll(x: Tensor, shifts: int | Sequence[int], dims: int | Sequence[int] | None = None) -> Tensor:
    """Elements moved by `shifts` along `dims` (None: the flat tensor); what leaves comes in at the other end."""
    if dims is None:
        return reshape(roll(reshape(x, (-1,)), shifts, 0), x.shape)
    moves, along = (list(n) if isinstance(n, Sequence) else [whole_number("roll", "a shift", n)] for n in (shifts, dims))
    if len(moves) != len(along):
        raise AttributeValueError(f"roll: needs a shift for each dim, found {shifts} and {dims}")
    for shift, dim in zip(moves, along):
        d = dim_of("roll", dim, x.ndim)
        n = x.shape[d]
        k = shift % n if n else 0
        if k:
            x = cat([narrow(x, d, n - k, k), narrow(x, d, 0, n - k)], d)
    return x


def tril(x: Tensor, diagonal: int = 0) -> Tensor:
    """`x` with 0 above the given diagonal."""
    return Tensor(ops.tril(x.value, diagonal=whole_number("tril", "diagonal", diagonal)))


def triu(x: Tensor, diagonal: int = 0) -> Tensor:
    """`x` with 0 below the given diagonal."""
    return Tensor(ops.triu(x.value, diagonal=whole_number("triu", "diagonal", diagonal)))


def clone(x: Tensor) -> Tensor:
    """The same value in a new cell (values never change, so nothing is copied); gradients pass through."""
    return Tensor(same_elements(x.value, shape=x.value.meta.shape))


def contiguous(x: Tensor) -> Tensor:
    """`x`: memory layout is not part of the semantics."""
    return x


__all__ = [  # what `from refflow import *` and `flow.` offer; the rest is for refflow itself
    "reshape", "view", "flatten", "squeeze", "unsqueeze", "permute", "transpose", "swapaxes", "t", "movedim",
    "expand", "broadcast_to", "expand_as", "ravel", "unflatten", "view_as", "reshape_as", "repeat", "narrow", "select",
    "split", "chunk", "unbind", "cat", "concat", "stack", "pad", "flip", "roll", "tril", "triu", "clone", "contiguous",
]  # fmt: skip
takes_tensors(globals(), __all__)
