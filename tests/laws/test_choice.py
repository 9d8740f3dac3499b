"""Which signature is taken: SIG-CHOICE, SIG-POLICY, and what it says it costs, SIG-EXPLAIN.

Least bytes to bring the operands there, then least left partial, then declaration order; only exact ones by default.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import refflow as flow
from refflow.boxing import Layout, plan
from refflow.errors import AttributeValueError
from refflow.explain import describe
from refflow.graph.time import timed
from refflow.ir import REGISTRY, Sample, Signature, declared, lower, options
from refflow.ir.signature import best
from refflow.layout import Partial, Split, broadcast
from tests.laws.cases import data_for, dtypes_of, metas_of
from tests.laws.sharded import Case, case
from tests.strategies import GRIDS, KINDS, LATTICE, ROWS, Array, examples, global_from, mesh_of, placements, sbps

CHOOSING = ("add", "mul", "matmul", "sum", "where", "reshape", "index_select", "conv2d", "relu", "cat", "amax")
S0, P = Split(0), Partial("sum")


def _bytes(made: Case, signature: Signature, layouts: list[tuple]) -> int:
    """What boxing the operands from these layouts to the signature's would move."""
    total = 0
    for meta, source, target in zip(made.metas, layouts, signature.inputs):
        steps = plan(meta.shape, Layout(made.placement, source), Layout(made.placement, target))
        total += steps.elements * meta.dtype.itemsize
    return total


@pytest.mark.parametrize("policy", ["exact", "cheap"])
@examples(150)
@given(st.data())
def test_the_written_rule_is_the_rule(policy: str, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(CHOOSING))
    sample: Sample = data.draw(st.sampled_from(REGISTRY[name].samples))
    made = case(REGISTRY[name], sample, dtypes_of(name, sample)[0], data.draw(placements((*ROWS, *GRIDS[:2]))))
    layouts = []
    for i, meta in enumerate(made.metas):
        kinds = () if i in sample.below else LATTICE if meta.dtype.kind == "b" else KINDS
        layouts.append(data.draw(sbps(made.placement, len(meta.shape), kinds)))
    admitted = [s for s in made.signatures if s.exact or policy == "cheap"]
    left = [sum(isinstance(one, Partial) for sbp in s.outputs for one in sbp) for s in admitted]
    ranked = sorted(range(len(admitted)), key=lambda i: (_bytes(made, admitted[i], layouts), left[i], i))
    metas = tuple(m.with_layout(made.placement, sbp) for m, sbp in zip(made.metas, layouts))
    taken = lower(made.primitive, metas, sample.attrs, policy, False).signature
    assert str(taken) == str(admitted[ranked[0]])
    values = [
        global_from(data_for(name, sample, i, m, np.random.default_rng(1), "exact"), m.shape, made.placement, sbp)[0]
        for i, (m, sbp) in enumerate(zip(metas_of(sample, dtypes_of(name, sample)[0]), layouts))
    ]
    with flow.signatures(policy), flow.comm_log() as log:
        made.primitive(*values, **sample.attrs)
        told = describe(made.primitive, tuple(values), sample.attrs).options[0]
    assert log.bytes == told.bytes == _bytes(made, admitted[ranked[0]], layouts)


@examples(30)
@given(st.data())
def test_the_choice_among_micro_steps_is_the_first_option(data: st.DataObject) -> None:
    """TIME-CHOICE, SIG-CHOICE: what is found without all prices is what all prices say, whatever waits for whom."""
    name = data.draw(st.sampled_from(CHOOSING))
    primitive, sample = REGISTRY[name], data.draw(st.sampled_from(REGISTRY[name].samples))
    where = timed(data.draw(placements((*ROWS, *GRIDS[:2]))), data.draw(st.sampled_from([2, 4])))
    plain = metas_of(sample, dtypes_of(name, sample)[0])
    metas = []
    for i, meta in enumerate(plain):
        kinds = () if i in sample.below else LATTICE if meta.dtype.kind == "b" else KINDS
        metas.append(meta.with_layout(where, data.draw(sbps(where, len(meta.shape), kinds))))
    rule, space = declared(primitive, metas, sample.attrs)
    for policy in ("exact", "cheap"):
        first = options(rule, space, metas, where, policy)[0]
        assert str(best(rule, space, metas, where, policy)) == str(first)


def _tensor(array: Array, sbp: object, ranks: int = 4) -> flow.Tensor:
    return flow.tensor(np.asarray(array, np.float32), placement=mesh_of((ranks,)), sbp=sbp)


def test_what_the_design_says_of_a_product() -> None:
    """x@S(0) times w@B stays S(0) and moves nothing; the sum of the result folds an aligned letter."""
    x, w = _tensor(np.ones((8, 16)), S0), _tensor(np.ones((16, 4)), broadcast)
    with flow.comm_log() as log:
        y = flow.matmul(x, w)
    assert (y.sbp, log.bytes) == ((S0,), 0)
    assert flow.sum(y, 0).sbp == (P,)


def test_a_misaligned_contraction_gathers_its_operands() -> None:
    """k = 24 over 4 ranks is not aligned with leaves of 16; under "cheap" it stays split."""
    x, w = _tensor(np.ones((3, 24)), Split(1)), _tensor(np.ones((24, 5)), S0)
    with flow.comm_log() as log:
        assert P not in flow.matmul(x, w).sbp
    assert log.bytes > 0
    with flow.signatures("cheap"), flow.comm_log() as log:
        assert flow.matmul(x, w).sbp == (P,)
    assert log.bytes == 0


def test_an_aligned_contraction_stays_split() -> None:
    """k = 64 over 4 ranks is: four leaves of 16."""
    x, w = _tensor(np.ones((3, 64)), Split(1)), _tensor(np.ones((64, 5)), S0)
    assert flow.matmul(x, w).sbp == (P,)


def test_leading_ones_are_not_in_the_way() -> None:
    """A new dimension of size 1 in front or behind moves nothing and keeps the split."""
    x = _tensor(np.ones(8), S0)
    with flow.comm_log() as log:
        assert flow.unsqueeze(x, 0).sbp == (Split(1),)
        assert flow.unsqueeze(x, 1).sbp == (S0,)
        assert flow.squeeze(flow.unsqueeze(x, 0), 0).sbp == (S0,)
    assert log.bytes == 0


def test_explain_prints_the_choice_first() -> None:
    x, w = _tensor(np.ones((3, 24)), Split(1)), _tensor(np.ones((24, 5)), S0)
    text = str(flow.explain(flow.matmul, x, w))
    chosen = next(line for line in text.splitlines() if "->" in line[:4])
    assert "signatures: exact" in text
    assert "refused" in text and "not aligned" in text
    assert chosen.split()[0] == "->"


def test_other_policies_are_refused() -> None:
    with pytest.raises(AttributeValueError, match="'exact' or 'cheap'"):
        flow.signatures("fast")
    with pytest.raises(AttributeValueError, match="'implicit' or 'explicit'"):
        flow.boxing("none")
