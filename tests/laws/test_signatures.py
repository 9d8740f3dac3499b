"""Every derived signature of every primitive gives the whole: SIG-DERIVE, SIG-EXACT, SIG-ALIGNED, SIG-PRODUCT.

Operands are put into exactly the layout a signature asks for (P: dense addends, each drawn for itself), the kernel runs
on every rank, the results are gathered by the output's layout.  Exact signatures keep the bits of any values; all of
them are right where every intermediate is exact.  Rows of 2, 3 and 4 ranks are enumerated, grids sampled (a signature
of a mesh is a product of axis signatures).  So each OPS-* declaration is tested, and RNG-INDEX.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refflow.ir import REGISTRY
from tests.laws.cases import dtypes_of, samples
from tests.laws.sharded import case, difference
from tests.strategies import GRIDS, MESHES, ROWS, examples, mesh_of, placements, seeds

NAMES = sorted(REGISTRY)
HALVES = {"float16", "bfloat16"}


def check(made, signature, rng: np.random.Generator, kinds: tuple[str, ...]) -> None:
    """Exact data, and arbitrary data too where the signature is marked exact."""
    for kind in kinds:
        if kind == "exact" or signature.exact:
            assert not (wrong := difference(made, signature, rng, kind)), wrong


@pytest.mark.parametrize("name", NAMES)
def test_every_signature_on_rows(name: str) -> None:
    rng = np.random.default_rng(1)
    primitive = REGISTRY[name]
    assert primitive.samples, f"{name} declares no sample"
    for sample in primitive.samples:
        for dtype, mesh in itertools.product(dtypes_of(name, sample), ROWS):
            made = case(primitive, sample, dtype, mesh_of(mesh))
            for signature in made.signatures:
                check(made, signature, rng, ("exact", "arbitrary", "arbitrary"))


@pytest.mark.parametrize("name", NAMES)
def test_products_on_grids(name: str) -> None:
    rng = np.random.default_rng(2)
    primitive = REGISTRY[name]
    for sample, mesh in itertools.product(primitive.samples, GRIDS):
        made = case(primitive, sample, dtypes_of(name, sample)[0], mesh_of(mesh, list(rng.permutation(8))))
        chosen = rng.permutation(len(made.signatures))[:8]
        for i in chosen:
            check(made, made.signatures[i], rng, ("exact", "arbitrary"))


@pytest.mark.parametrize("name", NAMES)
@examples(12)
@given(st.data())
def test_signatures_of_other_shapes(name: str, data: st.DataObject) -> None:
    sample = data.draw(samples(name))
    dtype = data.draw(st.sampled_from(dtypes_of(name, sample)))
    made = case(REGISTRY[name], sample, dtype, data.draw(placements(MESHES)))
    rng = np.random.default_rng(data.draw(seeds))
    for i in rng.permutation(len(made.signatures))[:4]:
        check(made, made.signatures[i], rng, ("exact", "arbitrary"))
