"""Back ends are tested in a world of eight ranks in one process, with a generator of their own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import refflow as flow
from tests.strategies import WORLD


@pytest.fixture(autouse=True)
def world() -> Iterator[None]:
    with flow.virtual_world(WORLD), flow.state.Override(generator=flow.Generator()):
        yield
