"""Cases for every kernel of the reference: arrays and attributes, with special values, at two scales.

What ACC-CUDA-SIM's tests and `refflow_accel.gpu_check` compare the back end with the reference on.  `lay` puts an operand
on the device in another layout (transposed, cut out with steps), so that strides are exercised too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from refflow.kernels import Backend, ReferenceBackend
from refflow.kernels.conformance import Case
from refflow.numerics import same_bits
from refflow.numerics.dtypes import (
    DTYPES,
    bfloat16,
    bool_,
    float16,
    float32,
    float64,
    int8,
    int32,
    int64,
    is_float,
    uint8,
)

Array = np.ndarray[Any, Any]
Random = np.random.Generator
HALVES = (float16, bfloat16)


# --- values -----------------------------------------------------------------------------------------------------------


def values(rng: Random, shape: Any, dtype: Any, special: float = 0.1) -> Array:
    """Numbers of a dtype; a share of the floats are zeros of both signs, infinities, NaN, subnormal or huge."""
    dtype = np.dtype(dtype)
    if dtype == bool_:
        return np.asarray(rng.random(shape) < 0.5)
    if not is_float(dtype):
        low = 0 if dtype == uint8 else -100
        made = rng.integers(low, 100, shape)
        info = np.iinfo(dtype)
        ends = rng.choice([info.min, info.max, 0], shape)
        return np.asarray(np.where(rng.random(shape) < special, ends, made).astype(dtype))
    made = rng.standard_normal(shape) * 2.0 ** rng.integers(-6, 6, shape)
    tiny = 2.0 ** {float16: -24, bfloat16: -133, float32: -149, float64: -1074}[dtype]
    odd = rng.choice([0.0, -0.0, np.inf, -np.inf, np.nan, tiny * 3, -tiny * 9, 2.0**14, 1.0, -1.0], shape)
    with np.errstate(all="ignore"):
        return np.asarray(np.where(rng.random(shape) < special, odd, made)).astype(dtype)


def ordinary(rng: Random, shape: Any, dtype: Any) -> Array:
    """Numbers without the special ones."""
    return values(rng, shape, dtype, special=0.0)


# --- cases by chapter -------------------------------------------------------------------------------------------------


def elementwise(rng: Random, n: int) -> Iterator[Case]:
    """Every primitive on every dtype that there is an expression for, and a few that the host computes."""
    from .keys import served

    shapes = [((n,), (n,)), ((3, n), (n,)), ((2, 1, n), (3, 1)), ((), (n,))]
    for dtype in DTYPES:
        for i, (op, dtypes, to) in enumerate(served(dtype.name)):
            a, b = shapes[i % len(shapes)]
            arrays = [values(rng, shape, _named(name)) for shape, name in zip((a, b, b), dtypes)]
            if dtype in (uint8, int8, int32, int64):
                if op == "pow":
                    arrays[1] = rng.integers(0, 9, b).astype(dtype)
                elif op in ("floor_divide", "remainder"):
                    arrays[1] = np.where(arrays[1] == 0, dtype.type(3), arrays[1])
            yield Case(op, tuple(arrays), {"dtype": _named(to)} if op == "cast" else {})
    yield Case("exp", (ordinary(rng, (3,), float64),))
    yield Case("remainder", (values(rng, (n,), float64), values(rng, (n,), float64)))


def _named(name: str) -> Any:
    return bfloat16 if name == "bfloat16" else np.dtype(name)


def contractions(rng: Random, n: int) -> Iterator[Case]:
    """matmul and conv2d with its gradients: ragged shapes, batches, padding, strides, groups."""
    n = min(n, 300)  # the reference takes its time
    if n >= 100:  # enough blocks for the large tile
        yield Case("matmul", (ordinary(rng, (40, 130, 40), float32), ordinary(rng, (40, 40, 140), float32)))
        attrs = {"stride": (1, 1), "padding": (0, 1), "dilation": (1, 1), "groups": 1}
        yield Case("conv2d", (ordinary(rng, (12, 4, 40, 40), float32), ordinary(rng, (80, 4, 3, 3), float32)), attrs)
    sizes = [(1, 1, 1), (5, 17, 6), (3, 35, 3), (n, 3 * n, n + 1), (2, 16 * n, 3), (3, 0, 2)]
    for m, k, p in sizes:
        yield Case("matmul", (ordinary(rng, (m, k), float32), ordinary(rng, (k, p), float32)))
    yield Case("matmul", (values(rng, (4, 40), float32, 0.02), values(rng, (40, 5), float32, 0.02)))
    for a, b in [((2, 3, 20), (20, 4)), ((2, 1, 3, 9), (3, 9, 2)), ((2, 3, 4), (2, 4, 5))]:
        yield Case("matmul", (ordinary(rng, a, float32), ordinary(rng, b, float32)))
    for dtype in (float64, *HALVES, int64, int32, int8, uint8):
        yield Case("matmul", (values(rng, (3, 37), dtype, 0.02), values(rng, (37, 4), dtype, 0.02)))
    plain = {"stride": (1, 1), "padding": (0, 0), "dilation": (1, 1), "groups": 1}
    for attrs, groups, dtype in [
        (plain, 1, float32),
        ({**plain, "padding": (1, 1), "stride": (1, 2)}, 1, float32),
        ({**plain, "padding": (0, 2), "stride": (2, 1), "dilation": (2, 1), "groups": 2}, 2, float32),
        ({**plain, "padding": (1, 1)}, 1, bfloat16),
        ({**plain, "padding": (1, 0)}, 1, float64),
        ({**plain, "padding": (1, 0)}, 1, int64),
    ]:
        side = 5 + n // 8
        x = values(rng, (2, 3 * groups, side, side + 1), dtype, 0.02)
        w = values(rng, (2 * groups, 3, 2, 3), dtype, 0.05)
        yield Case("conv2d", (x, w), attrs)
        out = ReferenceBackend().kernel("conv2d")(x, w, **attrs).shape
        g = values(rng, out, dtype, 0.02)
        yield Case("conv2d_input", (g, w), {**attrs, "size": x.shape[2:]})
        yield Case("conv2d_filter", (x, g), {**attrs, "size": w.shape[2:]})


def reductions(rng: Random, n: int) -> Iterator[Case]:
    """Rows, columns, several dimensions, all dtypes, and the fold over ranks."""
    for shape, dims in [
        ((n, 3), (0,)), ((3, n), (1,)), ((2, n, 3), (1,)), ((2, 3, 4, 5), (0, 2, 3)), ((3, 4, 5), (2, 0)),
        ((5 * n + 3,), (0,)), ((2, 3, 2, 3), (1, 3)), ((0, 3), (0,)), ((2, 0), (0,)), ((7 * n, 2), (0, 1)),
    ]:  # fmt: skip
        for name in ("sum", "prod", "amax", "amin"):
            yield Case(name, (values(rng, shape, float32, 0.02),), {"dims": dims})
    for dtype in DTYPES:
        if dtype != bool_:
            yield Case("sum", (ordinary(rng, (3, 21), dtype),), {"dims": (1,)})
            yield Case("prod", (ordinary(rng, (9, 2), dtype),), {"dims": (0,)})
        for name in ("amax", "amin", "any", "all"):
            yield Case(name, (values(rng, (4, 9), dtype),), {"dims": (1,)})
        for name in ("argmax", "argmin"):
            yield Case(name, (values(rng, (3, n + 1), dtype, 0.3),), {"dim": 1})
            yield Case(name, (values(rng, (5, 3), dtype, 0.3),), {"dim": 0})
        for kind in ("max", "min") if dtype == bool_ else ("sum", "prod", "max", "min"):
            parts = tuple(values(rng, (2, 3), dtype) for _ in range(3))
            yield Case("fold", parts, {"kind": kind})
    yield Case("fold", (ordinary(rng, (3,), float32),), {"kind": "sum"})


def movements(rng: Random, n: int) -> Iterator[Case]:
    """Views and copies on elements of each size."""
    for dtype in (float32, float64, bfloat16, bool_):
        x = values(rng, (3, 4, n), dtype)
        yield Case("reshape", (x,), {"shape": (4, 3 * n)})
        yield Case("transpose", (x,), {"perm": (2, 0, 1)})
        yield Case("expand", (x[:, :1],), {"shape": (2, 3, 5, n)})
        yield Case("slice", (x,), {"starts": (1, 0, 0), "stops": (3, 4, None), "steps": (1, 2, 1)})
        yield Case("slice_box", (x,), {"slices": (slice(0, 2), slice(1, 4), slice(None))})
        cut = {"starts": (1, 0, 0), "stops": (3, 4, None), "steps": (1, 2, 1)}
        yield Case("slice_update", (x, values(rng, (2, 2, n), dtype)), cut)
        yield Case("slice_update", (x, values(rng, (1, n), dtype)), cut)
        yield Case("pad", (x,), {"low": (1, 0, 2), "high": (0, 1, 0), "value": 1.0})
        yield Case("cat", (x, x[:, :2], x), {"dim": 1})
        yield Case("flip", (x,), {"dims": (0, 2)})
        for name in ("tril", "triu"):
            yield Case(name, (x,), {"diagonal": 1})
            yield Case(name, (x,), {"diagonal": -1, "at": {"m": (2, 6, 8), "n": (1, 1 + n, 2 * n)}})
        pieces = (slice(0, 2), slice(0, 4)), (slice(2, 3), slice(0, 4))
        whole = {"shape": (3, 4), "slices": pieces, "fill": dtype.type(0), "dtype": dtype}
        yield Case("assemble", (x[:2, :, 0], x[2:, :, 1]), whole)
        holes = {**whole, "shape": (4, 5), "fill": dtype.type(1)}
        yield Case("assemble", (x[:2, :, 0], x[2:, :, 1]), holes)
    window = {"kernel": (3, 2), "stride": (2, 1), "padding": (1, 1), "dilation": (1, 2)}
    for dtype in (float32, bfloat16):
        x = values(rng, (2, 2, 5, 6), dtype, 0.02)
        yield Case("unfold2d", (x,), {**window, "value": -1.0})
        shape = ReferenceBackend().kernel("unfold2d")(x, **window, value=0.0).shape
        yield Case("fold2d", (values(rng, shape, dtype, 0.02),), {**window, "size": (5, 6)})


def indexing(rng: Random, n: int) -> Iterator[Case]:
    """Reading and adding at indices, whole and in shards."""
    shard = {"v": (2, 5, 9)}
    for dtype in (float32, bfloat16, int64, uint8):
        x = values(rng, (5, 3), dtype)
        yield Case("index_select", (x, rng.integers(0, 5, (2, n))), {"dim": 0})
        yield Case("index_select", (x, rng.integers(0, 3, (4,), np.int32)), {"dim": 1})
        yield Case("index_select", (x[:3], rng.integers(0, 9, (n,))), {"dim": 0, "at": shard})
        yield Case("gather", (x, rng.integers(0, 3, (4, n))), {"dim": 1})
        yield Case("gather", (x[:3], rng.integers(0, 9, (n, 3))), {"dim": 0, "at": shard})
        for m in (1, 7, 3 * n):
            src = values(rng, (m, 3), dtype, 0.02)
            yield Case("index_add", (rng.integers(0, 4, (m,)), src), {"dim": 0, "size": 4})
        src = values(rng, (3, 2, 5, 2), dtype, 0.02)
        yield Case("index_add", (rng.integers(0, 9, (2, 5)), src), {"dim": 1, "size": 9, "at": shard})
        src = values(rng, (n + 1, 3), dtype, 0.02)
        yield Case("scatter_add", (rng.integers(0, 4, (n, 2)), src), {"dim": 0, "size": 4})
        yield Case("scatter_add", (rng.integers(0, 9, (3, n)), src.T.copy()), {"dim": 1, "size": 9, "at": shard})
    yield Case("one_hot", (rng.integers(0, 4, (3, 2)),), {"num_classes": 4})
    yield Case("one_hot", (rng.integers(0, 9, (n,)),), {"num_classes": 9, "at": shard})


def scans(rng: Random, n: int) -> Iterator[Case]:
    """Scans along each dimension, and argsort."""
    for dtype in (float32, float64, *HALVES, int64, int8):
        for name in ("cumsum", "cumprod"):
            yield Case(name, (values(rng, (3, n, 2), dtype, 0.02),), {"dim": 1})
            yield Case(name, (ordinary(rng, (2, n), dtype),), {"dim": -1})
    for descending in (False, True):
        yield Case("argsort", (values(rng, (3, n), float32),), {"dim": 1, "descending": descending})


def creations(rng: Random, n: int) -> Iterator[Case]:
    """Arrays from nothing, whole and in shards."""
    for dtype in DTYPES:
        yield Case("full", (), {"shape": (2, n), "value": 1.1, "dtype": dtype})
        yield Case("eye", (), {"dims": (3, 4), "dtype": dtype, "at": {"d0": (1, 3, 3), "d1": (0, 2, 4)}})
        if dtype != bool_:
            attrs = {"start": 1.3, "step": 0.7, "length": n + 3, "dtype": dtype}
            yield Case("arange", (), attrs)
            yield Case("arange", (), {**attrs, "at": {"d0": (2, n, n + 3)}})
    draws: dict[str, dict[str, Any]] = {"rand": {}, "randn": {}, "random_bits": {}, "randint": {"low": -5, "high": 11}}
    for name, attrs in draws.items():
        yield Case(name, (), {**attrs, "dims": (3, n), "seed": 7, "stream": 2**63 + 5})
        part = {"d0": (1, 3, 3), "d2": (1, 2, 2)}
        yield Case(name, (), {**attrs, "dims": (3, n, 2), "seed": 2**64 - 1, "stream": 3, "at": part})


CHAPTERS: tuple[Callable[[Random, int], Iterator[Case]], ...] = (
    elementwise, contractions, reductions, movements, indexing, scans, creations,
)  # fmt: skip
SMALL = 9  # the scale at which the simulator runs them


def bad_data() -> list[Case]:
    """Calls that the reference refuses."""
    x, far = np.zeros((5, 3), np.float32), np.array([1, 5])
    return [
        Case("index_select", (x, far), {"dim": 0}),
        Case("gather", (x, np.array([[0], [-1]])), {"dim": 1}),
        Case("index_add", (far, x[:2]), {"dim": 0, "size": 5}),
        Case("scatter_add", (np.array([[0], [7]]), x), {"dim": 1, "size": 5}),
        Case("one_hot", (far,), {"num_classes": 5}),
        Case("floor_divide", (far, np.array([1, 0]))),
        Case("remainder", (far, np.array([1, 0]))),
        Case("pow", (far, np.array([1, -1]))),
    ]


# --- comparing --------------------------------------------------------------------------------------------------------

LAYOUTS = ("plain", "transposed", "cut")


def lay(backend: Backend, x: Array, how: str) -> Any:
    """`x` on the device: as it is, as the transpose of its transpose, or cut out of a larger array with steps."""
    if how == "transposed" and x.ndim > 1:
        perm = tuple(reversed(range(x.ndim)))
        return backend.kernel("transpose")(backend.from_host(np.ascontiguousarray(x.transpose(perm))), perm=perm)
    if how == "cut" and x.ndim:
        larger = np.zeros((*x.shape[:-1], 2 * x.shape[-1] + 1), x.dtype)
        larger[..., 1::2] = x
        slices = (*[slice(None)] * (x.ndim - 1), slice(1, None, 2))
        return backend.kernel("slice_box")(backend.from_host(larger), slices=slices)
    return backend.from_host(x)


def difference(backend: Backend, case: Case, how: str) -> str | None:
    """What the back end makes of a case that the reference does not, or None if the bits are the same."""
    with np.errstate(all="ignore"):
        wanted = np.asarray(ReferenceBackend().kernel(case.name)(*case.arrays, **case.attrs))
    made = backend.to_host(backend.kernel(case.name)(*[lay(backend, x, how) for x in case.arrays], **case.attrs))
    if made.shape != wanted.shape or made.dtype != wanted.dtype:
        return f"{case} ({how}): {made.dtype.name}{list(made.shape)} for {wanted.dtype.name}{list(wanted.shape)}"
    if same_bits(made, wanted):
        return None
    from refflow.numerics.bits import first_difference

    where = first_difference(made, wanted)
    at = tuple(where) if where is not None else ()
    return f"{case} ({how}): {made[at]!r} for {wanted[at]!r} at {at}"


def every_case(seed: int, n: int) -> Iterator[tuple[Case, str]]:
    """Cases of all chapters, each in one layout, in turn."""
    rng = np.random.default_rng(seed)
    count = seed
    for chapter in CHAPTERS:
        for case in chapter(rng, n):
            count += 1
            yield case, LAYOUTS[count % len(LAYOUTS)]
