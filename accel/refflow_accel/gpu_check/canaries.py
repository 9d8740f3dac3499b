"""Canaries: the operations that all else rests on, one by one, on a device and in NumPy.

Part of ACC-GPU-CHECK of spec/text/acceleration.md.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from refflow.kernels import ReferenceBackend
from refflow.numerics import same_bits
from refflow.numerics.bits import first_difference
from refflow.numerics.rounding import fma32

from ..chains import Chain, Step
from ..cuda import elementwise, target
from ..cuda.backend import CudaBackend
from .report import Row


def canaries(backend: CudaBackend) -> Iterator[Row]:
    """The operations that all else rests on, one by one, against NumPy's."""
    n = 64 if target.SIMULATED else 1 << 16
    rng = np.random.default_rng(0)
    for name, probe in (("fma", _fma), ("a * b + c is two roundings", _two), ("subnormals", _subnormals),
                        ("division", _division), ("square root", _root), ("a chain", _chain), ("matmul", _matmul)):  # fmt: skip
        started = time.monotonic()
        try:
            wrong = probe(backend, rng, n)
        except Exception as error:  # told in the report: the other canaries say more
            wrong = f"{type(error).__name__}: {error}"
        yield {"name": name, "passed": wrong is None, "found": wrong, "seconds": round(time.monotonic() - started, 3)}


def _differs(made: Any, wanted: Any) -> str | None:
    wanted = np.asarray(wanted)
    if same_bits(made, wanted):
        return None
    at = first_difference(made, wanted)
    assert at is not None
    return f"{made[at]!r} for {wanted[at]!r} at {at}"


def _any_bits(rng: np.random.Generator, n: int, dtype: Any = np.float32) -> Any:
    word = np.uint32 if dtype == np.float32 else np.uint64
    return rng.integers(0, np.iinfo(word).max, n, word).view(dtype)


def _normal(rng: np.random.Generator, n: int, dtype: Any = np.float32) -> Any:
    return rng.standard_normal(n).astype(dtype)


def _on_device(backend: CudaBackend, ops: Sequence[tuple[str, tuple[int, ...]]], *arrays: Any) -> Any:
    """The last of a chain of float32 or float64 steps on arrays."""
    dtype = arrays[0].dtype.name
    chain = Chain((dtype,) * len(arrays), tuple(Step(op, at, dtype) for op, at in ops), (len(arrays) + len(ops) - 1,))
    return backend.to_host(elementwise.run(chain, [backend.from_host(a) for a in arrays])[0])


def _fma(backend: CudaBackend, rng: np.random.Generator, n: int) -> str | None:
    """By a matmul of one term more than none: fma(a, b, fma(c, 1, -0))."""
    a, b, c = (_any_bits(rng, min(n, 256)) for _ in range(3))
    x = np.stack([c, a], 1)[:, None, :]
    y = np.stack([np.ones_like(b), b], 1)[:, :, None]
    made = backend.to_host(backend.kernel("matmul")(backend.from_host(x), backend.from_host(y)))
    return _differs(made[:, 0, 0], fma32(a, b, fma32(c, np.float32(1), np.float32(-0.0))))


def _two(backend: CudaBackend, rng: np.random.Generator, n: int) -> str | None:
    for dtype in (np.float32, np.float64):
        a, b, c = (_normal(rng, n, dtype) for _ in range(3))
        wrong = _differs(_on_device(backend, [("mul", (0, 1)), ("add", (3, 2))], a, b, c), a * b + c)
        if wrong:
            return wrong
    return None


def _subnormals(backend: CudaBackend, rng: np.random.Generator, n: int) -> str | None:
    a = (rng.integers(1, 1 << 23, n, np.uint32)).view(np.float32)
    b = rng.standard_normal(n).astype(np.float32)
    for op, function in (("add", np.add), ("mul", np.multiply), ("div", np.divide)):
        wrong = _differs(_on_device(backend, [(op, (0, 1))], a, b), function(a, b))
        if wrong:
            return wrong
    return _differs(_on_device(backend, [("mul", (0, 0)), ("sqrt", (0,))], a), np.sqrt(a))


def _division(backend: CudaBackend, rng: np.random.Generator, n: int) -> str | None:
    for dtype in (np.float32, np.float64):
        a, b = _any_bits(rng, n, dtype), _any_bits(rng, n, dtype)
        wrong = _differs(_on_device(backend, [("div", (0, 1))], a, b), a / b)
        if wrong:
            return wrong
    return None


def _root(backend: CudaBackend, rng: np.random.Generator, n: int) -> str | None:
    for dtype in (np.float32, np.float64):
        a = _any_bits(rng, n, dtype)
        wrong = _differs(_on_device(backend, [("sqrt", (0,))], a), np.sqrt(a))
        if wrong:
            return wrong
    return None


def _chain(backend: CudaBackend, rng: np.random.Generator, n: int) -> str | None:
    reference = ReferenceBackend()
    a, b = rng.standard_normal(n).astype(np.float32), rng.standard_normal(n).astype(np.float32)
    ops = [("exp", (0,)), ("mul", (2, 1)), ("tanh", (3,)), ("gelu", (4,)), ("sub", (5, 0))]
    wanted = reference.kernel("gelu")(reference.kernel("tanh")(reference.kernel("exp")(a) * b)) - a
    return _differs(_on_device(backend, ops, a, b), wanted)


def _matmul(backend: CudaBackend, rng: np.random.Generator, n: int) -> str | None:
    m = 5 if n < 1000 else 150
    a, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((m, 3 * m + 2), (3 * m + 2, m + 1)))
    made = backend.to_host(backend.kernel("matmul")(backend.from_host(a), backend.from_host(b)))
    return _differs(made, ReferenceBackend().kernel("matmul")(a, b))
