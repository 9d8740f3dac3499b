"""The back end "numba" is whole and gives the reference's bits (ACC-BACKEND, ACC-KERNELS, KER-CONFORM)."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
from refflow_accel.cpu.backend import NumbaBackend
from refflow_accel.cpu.registry import NATIVE, VIEWS

from refflow.errors import BackendError, DataError
from refflow.kernels import ReferenceBackend, conformance
from refflow.kernels.conformance import check_backend
from refflow.kernels.reference import KERNELS
from refflow.numerics.dtypes import DTYPES
from tests.loopback import LoopbackBackend

# Every other kernel is native; a change of this table is a change to be seen.
HOST: frozenset[str] = frozenset()


def test_which_kernels_are_native() -> None:  # ACC-KERNELS
    assert {"transpose", "expand", "slice", "slice_box"} == VIEWS
    assert set(KERNELS) - set(NATIVE) - VIEWS == HOST
    assert not set(NATIVE) - set(KERNELS)


@pytest.mark.parametrize("name", sorted(KERNELS))
def test_every_kernel_is_there(name: str) -> None:  # ACC-BACKEND
    assert callable(NumbaBackend().kernel(name))


def test_the_back_end_conforms() -> None:  # KER-CONFORM
    """In three dtypes, for every kernel is compiled for each of its dtypes; in all of them under the profile `long`."""
    some = (np.dtype("float32"), np.dtype("int64"), np.dtype("bool"))
    report = check_backend(NumbaBackend(), DTYPES if os.environ.get("HYPOTHESIS_PROFILE") == "long" else some)
    assert report.passed, str(report)


def test_a_back_end_of_opaque_arrays_conforms() -> None:  # KER-CONFORM
    report = check_backend(LoopbackBackend())
    assert report.passed, str(report)
    assert report.cases > 500


class Lacking(ReferenceBackend):
    name = "lacking"

    def kernel(self, name: str) -> Any:
        if name == "cumsum":
            raise BackendError("no cumsum")
        return super().kernel(name)


class Wrong(ReferenceBackend):
    name = "wrong"

    def kernel(self, name: str) -> Any:
        if name == "sum":
            return lambda x, *, dims: np.asarray(np.flip(x), x.dtype).sum(axis=tuple(dims), dtype=x.dtype)
        return super().kernel(name)


def test_a_missing_kernel_is_named() -> None:  # KER-CONFORM
    with pytest.raises(BackendError, match="'lacking' has no kernel named 'cumsum'"):
        check_backend(Lacking())


def test_a_wrong_case_is_not_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:  # KER-CONFORM
    """Only a dtype that a primitive does not take leaves a case out."""
    wrong = conformance.Case("index_select", (np.zeros(2, np.float32), np.array([2])), {"dim": 0})
    monkeypatch.setattr(conformance, "cases", lambda dtypes: iter([wrong]))
    with pytest.raises(DataError):
        check_backend(ReferenceBackend())


def test_other_bits_are_reported() -> None:  # KER-CONFORM
    report = check_backend(Wrong())
    assert not report.passed
    assert all(fault.startswith("sum(") for fault in report.faults)
    assert "back end 'wrong'" in str(report)
