"""Conformance: does a back end have every kernel, and does it give the reference's bits?

Implements KER-CONFORM of spec/text/kernels.md.  The cases are the samples each primitive declares, whole and unsharded,
in every dtype the reference's kernel serves, and the array operations of boxing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..errors import BackendError, DtypeError
from ..numerics.bits import first_difference, same_bits
from ..numerics.dtypes import DTYPES, is_bool, is_float
from .protocol import Backend
from .reference import KERNELS
from .reference.backend import ReferenceBackend

HostArray = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Case:
    """A call of a kernel, on NumPy arrays."""

    name: str
    arrays: tuple[HostArray, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        operands = ", ".join(f"{array.dtype.name}{list(array.shape)}" for array in self.arrays)
        attrs = "".join(f", {key}={value!r}" for key, value in self.attrs.items())
        return f"{self.name}({operands}{attrs})"


@dataclass(frozen=True)
class Report:
    """What a back end was asked, and where it differed."""

    backend: str
    kernels: int
    cases: int
    faults: tuple[str, ...]

    @property
    def passed(self) -> bool:
        """Whether nothing differed."""
        return not self.faults

    def __str__(self) -> str:
        verdict = "the reference's bits" if self.passed else f"{len(self.faults)} faults"
        head = f"back end '{self.backend}': {self.kernels} kernels, {self.cases} cases: {verdict}"
        return "\n".join([head, *(f"  {fault}" for fault in self.faults)])


def check_backend(backend: Backend, dtypes: Sequence[np.dtype[Any]] = DTYPES) -> Report:
    """Compares a back end with the reference, kernel by kernel; the report names every case that differs.

    `dtypes`: those to draw operands from, where a primitive takes several.
    Raises BackendError naming the kernels that are missing.  Source: KER-CONFORM.
    """
    missing = [name for name in sorted(KERNELS) if not _has(backend, name)]
    if missing:
        raise BackendError(f"the back end '{backend.name}' has no kernel named {', '.join(map(repr, missing))}")
    reference, faults, asked = ReferenceBackend(), list(_copies(backend)), []
    for case in cases(dtypes):
        if not _takes(case):
            continue
        try:
            expected = reference.kernel(case.name)(*case.arrays, **case.attrs)
        except DtypeError:
            continue  # a dtype the primitive does not take; any other error is a wrong case
        asked.append(case.name)
        fault = _differs(backend, case, expected)
        if fault:
            faults.append(f"{case}: {fault}")
    faults += [f"{name}: no case asks for it" for name in sorted(KERNELS.keys() - set(asked))]
    return Report(backend.name, len(KERNELS), len(asked), tuple(faults))


def _takes(case: Case) -> bool:
    """Whether the reference's kernel takes the dtypes, as far as it does not say so itself: NumPy has no minus of booleans."""
    return case.name not in ("neg", "sub") or not is_bool(case.arrays[0].dtype)


def _has(backend: Backend, name: str) -> bool:
    try:
        return callable(backend.kernel(name))
    except BackendError:
        return False


def _differs(backend: Backend, case: Case, expected: Any) -> str:
    """What is wrong with a back end's answer; nothing if nothing is."""
    try:
        made = backend.kernel(case.name)(*map(backend.from_host, case.arrays), **case.attrs)
    except Exception as error:  # whatever it is, it is the back end's, and the report goes on
        return f"raised {type(error).__name__}: {error}"
    found = made if isinstance(made, tuple) else (made,)
    wanted = expected if isinstance(expected, tuple) else (expected,)
    if len(found) != len(wanted):
        return f"{len(found)} results, not {len(wanted)}"
    for array, want in zip(found, wanted, strict=True):
        host = backend.to_host(array)
        if (host.shape, host.dtype) != (want.shape, want.dtype) or backend.shape(array) != want.shape:
            return f"{host.dtype.name}{list(host.shape)}, not {want.dtype.name}{list(want.shape)}"
        if not same_bits(host, want):
            at = first_difference(host, want)
            return f"at {at}: {host[at]!r}, not {want[at]!r}"
    return ""


def _copies(backend: Backend) -> Iterator[str]:
    """Host copies that lose a bit, a shape or a dtype."""
    for dtype in DTYPES:
        for shape in ((), (0, 3), (2, 5)):
            array = values(shape, dtype, 1)
            back = backend.to_host(backend.from_host(array))
            if not same_bits(array, back):
                yield f"from_host, to_host: {dtype.name}{list(shape)} comes back as {back.dtype.name}{list(back.shape)}"


# --- cases ------------------------------------------------------------------------------------------------------------


def cases(dtypes: Sequence[np.dtype[Any]] = DTYPES) -> Iterator[Case]:
    """Every sample of every primitive that has a kernel, then the array operations, in these dtypes."""
    from .. import ops  # noqa: F401  (declares the primitives)
    from ..ir import REGISTRY

    for name in sorted(REGISTRY.keys() & KERNELS.keys()):
        for sample in REGISTRY[name].samples:
            open_ = bool(sample.shapes) and (not sample.dtypes or "" in sample.dtypes)
            for dtype in dtypes if open_ else dtypes[:1]:
                named = sample.dtypes or ("",) * len(sample.shapes)
                arrays = tuple(
                    _operand(name, i, shape, np.dtype(own) if own else dtype, sample.below)
                    for i, (shape, own) in enumerate(zip(sample.shapes, named, strict=True))
                )
                yield Case(name, arrays, _attrs(name, sample.attrs))
    for dtype in dtypes:
        yield from _array_operations(dtype)


def _operand(name: str, i: int, shape: tuple[int, ...], dtype: np.dtype[Any], below: Mapping[int, int]) -> HostArray:
    """Operand i of a sample: any values, but indices `below` an extent, and nothing that integer kernels refuse."""
    if i in below:
        return np.asarray(np.arange(math.prod(shape)).reshape(shape) * 7 % below[i]).astype(dtype)
    array = values(shape, dtype, i)
    if i == 1 and not is_float(dtype) and name in ("floor_divide", "remainder", "pow"):
        return np.asarray(array % 5 + 1).astype(dtype)  # no zero divisor, no negative power
    return array


def _attrs(name: str, attrs: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes as a kernel receives them: a draw also has its seed and stream."""
    from ..ir import REGISTRY

    return {**({"seed": 0x9E3779B97F4A7C15, "stream": 3} if REGISTRY[name].random else {}), **attrs}


def _array_operations(dtype: np.dtype[Any]) -> Iterator[Case]:
    """Boxing's own: cut, assemble, fold."""
    part = values((2, 3), dtype, 2)
    yield Case("slice_box", (part,), {"slices": (slice(1, 2), slice(0, 2))})
    where = [(slice(0, 2), slice(0, 3)), (slice(2, 4), slice(1, 4))]
    yield Case("assemble", (part, part), {"shape": (4, 5), "slices": where, "fill": 0, "dtype": dtype})
    yield Case("assemble", (part,), {"shape": (2, 3), "slices": where[:1], "fill": 0, "dtype": dtype})
    for kind in ("sum", "prod", "max", "min"):
        yield Case("fold", tuple(values((2, 3), dtype, i) for i in range(5)), {"kind": kind})


def values(shape: tuple[int, ...], dtype: np.dtype[Any], salt: int) -> HostArray:
    """The same unruly values each time: floats of many sizes that cancel, with NaN, infinities and zeros; any integers."""
    n = math.prod(shape)
    k = (np.arange(n) + 1) * (2 * salt + 3)
    if is_bool(dtype):
        return np.asarray(k % 3 == 0).reshape(shape)
    if not is_float(dtype):
        return np.asarray((k * 2654435761) % 251 - 100).reshape(shape).astype(dtype)
    x = ((k * 2654435761) % 2003 - 1001) / 64.0 * np.where(k % 2, 1.0, 2.0**-7)
    special = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-40, -1.0])
    return np.where(k % 11 == 10, special[k % 7], x).reshape(shape).astype(dtype)


__all__ = ["Case", "Report", "cases", "check_backend", "values"]
