"""Every test here runs in a virtual world of eight ranks with a generator of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from refflow.random import Generator
from refflow.state import Override
from refflow.world import VirtualWorld
from tests.strategies import WORLD


@pytest.fixture(autouse=True)
def world() -> Iterator[None]:
    with Override(world=VirtualWorld(WORLD), generator=Generator()):
        yield
