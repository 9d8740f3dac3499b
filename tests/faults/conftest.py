"""Faults are planted in a world of eight ranks in one process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import refflow as flow
from tests.strategies import WORLD


@pytest.fixture(autouse=True, scope="module")
def world() -> Iterator[None]:
    with flow.virtual_world(WORLD):
        yield
