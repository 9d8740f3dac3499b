"""NUM-PROFILE and NUM-CHECK."""

from __future__ import annotations

import numpy as np
import pytest

from refflow import numerics
from refflow.numerics import LEAF, PROFILE, check_subnormals, checks, self_check


def test_the_profile_has_a_name_and_one_constant() -> None:
    assert PROFILE == "refflow-arith-1" and LEAF == 16


def test_public_names_exist() -> None:
    assert len(set(numerics.__all__)) == len(numerics.__all__)
    assert all(hasattr(numerics, name) for name in numerics.__all__)


def test_this_machine_passes() -> None:
    check_subnormals()
    results = self_check()
    assert len(results) == len(checks.CHECKS)
    assert all(r.passed and r.detail for r in results), results


def test_a_failed_check_is_reported_not_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "fma32", lambda a, b, c: np.asarray(a * b + c))
    with np.errstate(all="ignore"):
        failed = {r.name: r.detail for r in self_check() if not r.passed}
    assert "fused multiply-add" in failed and "fma32" in failed["fused multiply-add"]
