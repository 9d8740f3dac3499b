"""Short compositions under PyTorch's names.

Implements OPS-COMPOSED of spec/text/primitives.md.  Each is a stated sequence of functions that are told elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import AttributeValueError, ShapeError
from ..tensor.tensor import Tensor
from .arithmetic import Operand, add, mul, require_tensor, sub, takes_tensors
from .movement import (
    cat,
    dim_of,
    expand,
    flatten,
    index_at,
    narrow,
    pad,
    repeat,
    reshape,
    sizes_of,
    unsqueeze,
    whole_number,
)
from .reduction import matmul


def lerp(start: Tensor, end: Tensor, weight: Operand) -> Tensor:
    """start + weight * (end - start), in this order (OPS-COMPOSED)."""
    return add(start, mul(sub(end, start), weight))


def addmm(input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """beta * input + alpha * (mat1 @ mat2); a factor 1 is no product, and with beta 0 the input is not read (OPS-COMPOSED)."""
    if mat1.ndim != 2 or mat2.ndim != 2:
        raise ShapeError(f"addmm: needs two matrices, found shapes {mat1.shape} and {mat2.shape}")
    product = matmul(mat1, mat2)
    product = product if alpha == 1 else mul(product, alpha)
    if beta == 0:
        return product
    return add(expand(input if beta == 1 else mul(input, beta), product.shape), product)


def diag(x: Tensor, diagonal: int = 0) -> Tensor:
    """The square matrix with the vector `x` on a diagonal and +0 elsewhere; or that diagonal of the matrix `x` (OPS-COMPOSED)."""
    k = whole_number("diag", "the diagonal", diagonal)
    row, column = max(0, -k), max(0, k)
    if x.ndim == 1:
        n, length = x.shape[0] + abs(k), x.shape[0]
        if not length:
            return reshape(pad(x, (0, n * n)), (n, n))
        spaced = narrow(flatten(pad(unsqueeze(x, 1), (0, n))), 0, 0, (length - 1) * (n + 1) + 1)
        before = row * n + column
        return reshape(pad(spaced, (before, n * n - before - spaced.shape[0])), (n, n))
    if x.ndim != 2:
        raise ShapeError(f"diag: needs a vector or a matrix, found shape {x.shape}")
    rows, columns = x.shape
    length = min(rows - row, columns - column)
    if length <= 0:
        return narrow(flatten(x), 0, 0, 0)
    before = row * columns + column
    return index_at(flatten(x), (slice(before, before + (length - 1) * (columns + 1) + 1, columns + 1),))


def meshgrid(*tensors: Any, indexing: str = "ij") -> tuple[Tensor, ...]:
    """Each vector expanded over the dimensions of the others; "xy" exchanges the first two dimensions (OPS-COMPOSED)."""
    if indexing not in ("ij", "xy"):
        raise AttributeValueError(f"meshgrid: indexing must be 'ij' or 'xy', found {indexing!r}")
    several = tensors[0] if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)) else tensors
    given = [require_tensor("meshgrid", x) for x in several]
    if any(x.ndim > 1 for x in given):
        raise ShapeError(f"meshgrid: needs vectors, found shapes {', '.join(str(x.shape) for x in given)}")
    places = list(range(len(given)))
    if indexing == "xy" and len(given) > 1:
        places[:2] = 1, 0
    sizes = [1] * len(given)
    for place, x in zip(places, given, strict=True):
        sizes[place] = x.numel()
    return tuple(
        expand(reshape(x, tuple(n if d == place else 1 for d, n in enumerate(sizes))), tuple(sizes))
        for place, x in zip(places, given, strict=True)
    )


def hstack(tensors: Sequence[Tensor]) -> Tensor:
    """Joined along dimension 1, vectors along their only one (OPS-COMPOSED)."""
    given = [x if x.ndim else reshape(x, (1,)) for x in _all("hstack", tensors)]
    return cat(given, 0 if given[0].ndim == 1 else 1)


def vstack(tensors: Sequence[Tensor]) -> Tensor:
    """Joined along dimension 0, vectors as rows (OPS-COMPOSED)."""
    return cat([x if x.ndim > 1 else reshape(x, (1, x.numel())) for x in _all("vstack", tensors)], 0)


def _all(name: str, tensors: Sequence[Tensor]) -> list[Tensor]:
    given = [require_tensor(name, x) for x in tensors]
    if not given:
        raise ShapeError(f"{name}: needs at least one tensor")
    return given


def tile(x: Tensor, *times: Any) -> Tensor:
    """`repeat`, with counts for the last dimensions only if they are fewer (OPS-COMPOSED)."""
    counts = tuple(sizes_of(times))
    return repeat(x, (1,) * (x.ndim - len(counts)) + counts)


def repeat_interleave(x: Tensor, repeats: int, dim: int | None = None) -> Tensor:
    """Each element so many times in a row along `dim`, or of the flattened tensor (OPS-COMPOSED)."""
    count = whole_number("repeat_interleave", "the number of repeats", repeats)
    if count < 0:
        raise AttributeValueError(f"repeat_interleave: needs repeats >= 0, found {count}")
    if dim is None:
        x, dim = flatten(x), 0
    d = dim_of("repeat_interleave", dim, x.ndim)
    shape = x.shape
    spread = expand(unsqueeze(x, d + 1), (*shape[: d + 1], count, *shape[d + 1 :]))
    return Tensor(reshape(spread, (*shape[:d], shape[d] * count, *shape[d + 1 :])).value)


__all__ = ["addmm", "diag", "hstack", "lerp", "meshgrid", "repeat_interleave", "tile", "vstack"]
takes_tensors(globals(), __all__)
