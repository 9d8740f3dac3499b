"""An interpreter that looks at every value made: local shapes and dtypes as the layout says, replicas equal to the bit.

It watches boxing too, and every step of a gradient (LAY-REPLICA, IR-BIND).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from refflow.ir import Primitive, Value
from refflow.ir.bind import EAGER
from refflow.layout import box_shape, boxes
from refflow.state import Override, settings
from tests.strategies import logical


class Checking:
    """Computes as the eager interpreter does, and checks each output."""

    def __init__(self) -> None:
        self.steps = 0

    def bind(self, primitive: Primitive, inputs: tuple[Value, ...], attrs: Mapping[str, Any]) -> tuple[Value, ...]:
        with Override(interpreters=(*settings().interpreters, self)):  # so that the boxing of operands is seen as well
            outputs = EAGER.bind(primitive, inputs, attrs)
        for value in outputs:
            check_value(primitive.name, value)
        self.steps += 1
        return outputs


def check_value(name: str, value: Value) -> None:
    """A global value holds what its metadata say."""
    meta = value.meta
    if meta.placement is None or meta.sbp is None:
        return
    for rank, box in boxes(meta.shape, meta.placement, meta.sbp).items():
        found = value.shards[rank].shape, value.shards[rank].dtype
        assert found == (box_shape(box), meta.dtype), f"{name}: rank {rank} holds {found}, the layout says {meta}"
    logical(value)  # asserts that replicas are equal


@contextmanager
def checked() -> Iterator[Checking]:
    """Every primitive of the block is checked."""
    checking = Checking()
    with Override(interpreters=(*settings().interpreters, checking)):
        yield checking
