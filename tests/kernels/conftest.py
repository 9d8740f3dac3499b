"""Kernels run as their caller runs them: NumPy's warnings about NaN, infinity and overflow are off."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    with np.errstate(all="ignore"):
        yield
