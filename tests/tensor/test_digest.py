"""flow.digest of tensors, layouts and names (NUM-DIGEST)."""

from __future__ import annotations

import numpy as np
import pytest

import refflow as flow
from refflow.errors import DtypeError
from refflow.numerics import digest_many


def test_a_layout_does_not_show() -> None:  # NUM-DIGEST
    x = np.random.default_rng(3).standard_normal((5, 4)).astype(np.float32)
    with flow.virtual_world(3):
        p = flow.placement("cpu", ranks=[2, 0, 1])
        layouts = [flow.tensor(x, placement=p, sbp=s) for s in (flow.sbp.broadcast, flow.sbp.split(0), flow.sbp.split(1))]
        layouts.append(layouts[0].to_global(sbp=flow.sbp.partial_sum).requires_grad_())
        assert {flow.digest(t) for t in layouts} == {flow.digest(x)}


def test_of_names() -> None:  # NUM-DIGEST
    state = flow.nn.Linear(3, 2).state_dict()
    named = {name: tensor.detach().numpy() for name, tensor in state.items()}
    assert flow.digest(state) == flow.digest(named) == digest_many(named)
    assert flow.digest(dict(reversed(state.items()))) == flow.digest(state) != flow.digest({})


@pytest.mark.parametrize("wrong, found", [("text", "found str"), (None, "found NoneType"), ({"a": {"b": 1}}, "found 'a' dict")])
def test_what_holds_no_numbers(wrong: object, found: str) -> None:  # NUM-DIGEST
    with pytest.raises(DtypeError, match=found):
        flow.digest(wrong)  # type: ignore[arg-type]
