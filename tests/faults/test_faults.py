"""Deliberate faults, each caught by a law: the tests test something.

A fault replaces one thing of refflow by a plausible wrong one; its detector, a law on fixed data, passes without it and
fails with it.  Several are faults of real systems, or were once in refflow.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import refflow as flow
from refflow.boxing.plan import _filler
from refflow.boxing.run import assembled
from refflow.errors import RefflowError
from refflow.ir import ANTITONE, signature
from refflow.ir.lower import _refuse
from refflow.kernels.reference import contraction, creation, indexing, movement
from refflow.layout import Partial, Split, broadcast, shards
from refflow.layout.placement import _mesh
from refflow.numerics import aligned, dtypes, identity, order, rounding, trees
from refflow.numerics import contraction as chains
from refflow.ops import border, shape, slicing
from refflow.ops import contraction as contraction_ops
from refflow.random import Generator
from refflow.state import Override
from refflow.tensor import autograd, view
from tests.faults import detectors as law
from tests.faults.planting import all_exact, declared, everywhere, instead, kernel

LINE, FOUR = [1e8, 1.0, -1e8, 1.0], (4,)
P, MAX = Partial("sum"), Partial("max")


@dataclass(frozen=True)
class Fault:
    """What is planted, and the law that notices."""

    plant: Callable[[], AbstractContextManager[None]]
    detect: law.Detector


FAULTS: dict[str, Fault] = {}


def fault(name: str, detect: law.Detector, plant: Callable[..., AbstractContextManager[None]], *args: Any) -> None:
    FAULTS[name] = Fault(partial(plant, *args), detect)


# --- layout ---------------------------------------------------------------------------------------------------------


def _ceiling(lo: int, hi: int, parts: int) -> tuple[int, ...]:
    size = -(-(hi - lo) // parts)
    return tuple(min(lo + i * size, hi) for i in range(parts + 1))


def _right_to_left(shape: Any, placement: Any, sbp: Any) -> Any:
    made = {}
    for rank in placement:
        box = [(0, n) for n in shape]
        for parts, one, position in reversed(list(zip(placement.mesh, sbp, placement.coords(rank)))):
            if isinstance(one, Split):
                box[one.axis] = shards.cut(box[one.axis], parts, position)
        made[rank] = tuple(box)
    return made


def _sorted_ranks(ranks: Any) -> Any:
    mesh, flat = _mesh(ranks)
    return mesh, tuple(sorted(flat))


fault("the split by ceilings", law.boxes_are_the_plain_cut, everywhere, shards.balanced, _ceiling)
fault("nested splits from right to left", law.boxes_are_the_plain_cut, everywhere, shards.boxes, _right_to_left)
fault("ranks sorted", law.rank_order_is_honoured, everywhere, _mesh, _sorted_ranks)

# --- boxing ---------------------------------------------------------------------------------------------------------


def _in_a_ring(parts: Any, kind: str) -> Any:
    total = parts[0]
    for part in parts[1:]:
        total = trees.tree_fold(np.stack([total, part]), 0, kind)
    return total


def _in_chains(parts: Any, kind: str) -> Any:
    """Leaves of up to sixteen addends, each from -0.0 on."""
    if len(parts) > 16:
        half = (len(parts) + 1) // 2
        return _in_chains([_in_chains(parts[:half], kind), _in_chains(parts[half:], kind)], kind)
    return _in_a_ring([np.full_like(parts[0], identity(kind, parts[0].dtype)), *parts], kind)


def _from_the_last(parts: Any, kind: str) -> Any:
    return trees.tree_fold(np.stack(list(parts)[::-1]), 0, kind)


def _zero_for_max(kind: str, dtype: Any) -> Any:
    return np.dtype(dtype).type(0) if kind == "max" else identity(kind, dtype)


def _positive_zero(kind: str, dtype: Any) -> Any:
    return identity(kind, dtype) + np.dtype(dtype).type(0) if kind == "sum" else identity(kind, dtype)


def _outer_first(step: Any, assembly: Any, parts: Any, dtype: Any, backend: Any) -> Any:
    flat = replace(step, folds=())
    held, index = [], 0
    for addend in assembly.addends:
        one = replace(assembly, addends=(addend,))
        held.append(assembled(flat, one, parts[index : index + len(addend)], dtype, backend))
        index += len(addend)
    for size, kind in step.folds:
        inner = len(held) // size
        held = [trees.fold_parts(held[i::inner], kind) for i in range(inner)]
    return held[0]


fault("a ring instead of a tree", law.folds(LINE, FOUR, 0.0), everywhere, trees.fold_parts, _in_a_ring)
fault(
    "the fold from the last rank on",
    law.folds([1e8, -1e8, 1.0], (3,), 1.0),
    everywhere,
    trees.fold_parts,
    _from_the_last,
)
fault("the fold with a leaf of sixteen", law.folds(LINE, FOUR, 0.0), everywhere, trees.fold_parts, _in_chains)
fault("the outer axis first", law.folds([1e8, 1, 0, -1e8, 1, 0], (2, 3), 0.0), everywhere, assembled, _outer_first)
fault("+0 neutral to sums", law.by_way_of((P,), (2,)), everywhere, identity, _positive_zero)
fault("0 neutral to maxima", law.by_way_of((MAX,), (2,)), everywhere, identity, _zero_for_max)
fault(
    "one filler for two kinds of P", law.by_way_of((P, MAX), (2, 2)), everywhere, _filler, lambda target, coords: "sum"
)
fault("replicas not compared", law.unequal_replicas_are_refused, everywhere, border.check_replicas, lambda *args: None)

# --- signatures -----------------------------------------------------------------------------------------------------

_split, _exactness, _admitted = signature._split, signature._exactness, signature.admitted


def _folded_called_broadcast(*args: Any) -> Any:
    found = _split(*args)
    outputs = tuple(broadcast if isinstance(one, Partial) else one for one in found.outputs) if found else ()
    return found and replace(found, outputs=outputs)


def _any_letter(rule: Any, space: Any, axes: Any, mesh: Any) -> Any:
    first = rule.over.split()[:1]
    return _exactness(rule, space, [replace(a, exact=True) if a.letter not in first else a for a in axes], mesh)


def _cheap_always(rule: Any, space: Any, metas: Any, where: Any, policy: str) -> Any:
    return _admitted(rule, space, metas, where, "cheap")


def _reversing(rule: Any) -> dict[str, Any]:
    return {"carries": (*rule.carries, ((0,), ANTITONE))}


fault("P + P called exact", law.exact_marks("add", (2,)), declared, "add", all_exact)
fault("-P called exact", law.exact_marks("neg", (2,)), declared, "neg", all_exact)
fault("P times a factor called exact", law.exact_marks("mul", (2,)), declared, "mul", all_exact)
fault("P through matmul called exact", law.exact_marks("matmul", (2,)), declared, "matmul", all_exact)
fault("P through cumsum called exact", law.exact_marks("cumsum", (2,)), declared, "cumsum", all_exact)
fault("a misaligned split called exact", law.exact_marks("sum", (3,)), everywhere, aligned, lambda bounds, leaf: True)
fault("the second folded letter called exact", law.exact_marks("sum", (2,)), everywhere, _exactness, _any_letter)
fault("a contraction aligned as a sum", law.exact_marks("matmul", (2,)), declared, "matmul", lambda rule: {"leaf": 1})
fault("-x of integers reverses order", law.exact_marks("neg", (2,), dtype="uint8"), declared, "neg", _reversing)
fault("a padding of 3 summed", law.exact_marks("pad", (2,)), everywhere, shape.keeps_sum, lambda *args: True)
fault(
    "16-bit partials called exact",
    law.exact_marks("sum", (2,), dtype="bfloat16"),
    instead,
    signature,
    "is_half",
    lambda d: False,
)
fault(
    "grouped dimensions cut anyhow",
    law.exact_marks("reshape", FOUR),
    everywhere,
    signature._coherent,
    lambda *args: True,
)
fault("a folded letter's output called B", law.exact_marks("sum", (2,)), everywhere, _split, _folded_called_broadcast)
fault("cheap signatures by default", law.default_policy_keeps_bits, everywhere, _admitted, _cheap_always)
fault("explicit boxing moves", law.explicit_boxing_refuses, everywhere, _refuse, lambda *args: None)

# --- kernels --------------------------------------------------------------------------------------------------------


def _row_of_plus_zero(x: Any, dim: int) -> Any:
    return np.concatenate([x, np.zeros((*x.shape[:dim], 1, *x.shape[dim + 1 :]), x.dtype)], axis=dim)


def _local_index(dims: Any, at: Any) -> Any:
    sizes = [at[f"d{d}"][1] - at[f"d{d}"][0] for d in range(len(dims))] if at else dims
    return np.arange(int(np.prod(sizes)), dtype=np.uint64).reshape(sizes)


_logical_index, _calls_so_far = creation.logical_index, iter(range(10**9))


def _another_on_each_rank(dims: Any, at: Any) -> Any:
    return _logical_index(dims, at) + np.uint64(next(_calls_so_far))


def _prefix_trees(x: Any, *, dim: int) -> Any:
    return np.stack([trees.tree_sum(np.take(x, range(i + 1), dim), dim) for i in range(x.shape[dim])], dim)


def _unstable(x: Any, axis: int = -1, descending: bool = False) -> Any:
    found = np.argsort(x, axis=axis, kind="stable")
    return np.flip(found, axis) if descending else found


def _multiply_then_add(p: Any, c: Any, s: Any, bits: Any, low: Any, narrow: Any, back: Any) -> None:
    narrow[...] = p.astype(np.float32) + c.astype(np.float32)
    back[...] = narrow


def _sequential(values: Any, target: Any, size: int, extent: int, source: Any = None) -> Any:
    out = np.full((size, *values.shape[1:]), identity("sum", values.dtype), values.dtype)
    for value, t in zip(values, target):
        if 0 <= t < size:
            out[t] = out[t] + value
    return out


_contract = contraction.contract


def _zeros_for_absent_taps(a: Any, b: Any, present: Any = None) -> Any:
    return _contract(a, b if present is None else np.where(present, b, b.dtype.type(0)))


def _twice(x: Any) -> Any:
    return x.astype(np.float32)


def _from_zero(at: Any, letter: str, size: int) -> Any:
    lo, hi, of = at.get(letter, (0, size, size))
    return 0, hi - lo, of


NAN, ZEROS = np.float32([np.nan, 1.0]), (np.float32([0.0, -0.0]), np.float32([-0.0, 0.0]))
LINEAR_SCAN = law.gives("cumsum", np.float32(LINE), expected=np.float32([1e8, 1e8, 0.0, 1.0]), dim=0)
TIES = law.gives("argsort", np.float32([1, 2, 1, 2]), expected=np.array([1, 3, 0, 2]), dim=0, descending=True)
MIDPOINT = np.array([1 + 2.0**-8 + 2.0**-40])  # in float32 a tie of bfloat16, which it is not
ONE_PLUS, CHAIN = (
    np.float32(1 + 2.0**-12),
    (np.float32([[-(1 + 2.0**-11), 1 + 2.0**-12]]), np.float32([[1], [1 + 2.0**-12]])),
)
_PADDED = {"stride": (1, 1), "padding": (1, 0), "dilation": (1, 1), "groups": 1}
EDGE = law.gives(
    "conv2d",
    np.ones((1, 1, 1, 1), np.float32),
    np.float32([np.inf, 2.0, np.inf]).reshape(1, 1, 3, 1),
    expected=np.float32([[[[2.0]]]]),
    **_PADDED,
)

fault(
    "+0 for rows of other ranks",
    law.zeros_keep_their_sign_in_a_split_table,
    everywhere,
    indexing.with_neutral_row,
    _row_of_plus_zero,
)
fault("random by local index", law.exact_marks("rand", (2,)), everywhere, _logical_index, _local_index)
fault("each rank its own mask", law.exact_marks("rand", (2,)), everywhere, _logical_index, _another_on_each_rank)
fault("ranges from the local origin", law.exact_marks("arange", (2,)), instead, creation, "extent", _from_zero)
fault("triangles of the local matrix", law.exact_marks("tril", (2,)), instead, movement, "extent", _from_zero)
fault("a scan as prefix trees", LINEAR_SCAN, kernel, "cumsum", _prefix_trees)
fault("ties in reverse", TIES, everywhere, order.argsort, _unstable)
fault("maximum drops NaN", law.gives("maximum", NAN, NAN[::-1], expected=NAN[[0, 0]]), kernel, "maximum", np.fmax)
fault(
    "maximum forgets the sign of zero",
    law.gives("maximum", *ZEROS, expected=np.float32([0, 0])),
    kernel,
    "maximum",
    lambda x, y: np.where(x > y, x, y),
)
fault(
    "a cast rounded twice",
    law.gives(
        "cast", MIDPOINT, expected=np.array([1 + 2.0**-7], ml_dtypes.bfloat16), dtype=np.dtype(ml_dtypes.bfloat16)
    ),
    everywhere,
    dtypes._odd_float32,
    _twice,
)
fault(
    "a product rounded before it is added",
    law.gives("matmul", *CHAIN, expected=np.float32([[2.0**-24]])),
    everywhere,
    rounding.add_rounded,
    _multiply_then_add,
)
fault("leaves of eight terms", law.fma_chain_of(16), instead, chains, "LEAF", 8)
fault("a scatter in sequence", law.scattered(LINE), everywhere, trees.scatter_tree, _sequential)
fault("padding multiplies by zero", EDGE, instead, contraction, "contract", _zeros_for_absent_taps)

# --- gradients and tensors ------------------------------------------------------------------------------------------

_add, _mean, _slice_lens, _sum_to = autograd.add, flow.mean, view.slice_lens, shape.sum_to


def _partials_added(self: Any, value: Any, g: Any) -> None:
    earlier = self._sums.get(id(value))
    if earlier is not None:
        with Override(signatures="cheap"):
            g = _add(earlier[1], g)
    self._sums[id(value)] = (value, g)


def _program_order(self: Any, value: Any, g: Any) -> None:
    uses = self.__dict__.setdefault("uses", {}).setdefault(id(value), [])
    uses.insert(0, autograd.in_layout_of(value, g))
    total = uses[0]
    for use in uses[1:]:
        total = _add(total, use)
    self._sums[id(value)] = (value, total)


def _dims_reversed(g: Any, like: Any) -> Any:
    if g.meta.shape == like.meta.shape or like.meta.shape:
        return _sum_to(g, like)
    return shape.sum_(g, dims=tuple(reversed(range(len(g.meta.shape)))))


def _first_dim_only(g: Any, like: Any) -> Any:
    if g.meta.shape == like.meta.shape:
        return g
    summed = shape.sum_(g, dims=(0,))
    while summed.meta.shape != like.meta.shape:
        summed = slicing.slice_(summed, starts=(0,), stops=(1,), steps=(1,))
        summed = shape.reshape(summed, shape=())
    return summed


def _tree_per_batch(a: Any, b: Any, batch: Any, *, shape: Any) -> Any:
    product = contraction_ops.matmul(a, b)
    extra = len(product.meta.shape) - len(shape)
    return sum_primitive(product, dims=tuple(range(extra))) if extra else product


sum_primitive = shape.sum_


def _mean_of_local_count(x: Any, dim: Any = None, keepdim: bool = False) -> Any:
    local = next(iter(x.local_arrays().values()))
    return flow.sum(x, dim, keepdim) / float(local.size)


def _write_lost(starts: Any, stops: Any, steps: Any) -> Any:
    return replace(_slice_lens(starts, stops, steps), put=lambda base, part: base)


def _same_stream(self: Generator, is_global: bool) -> dict[str, int]:
    return {"seed": self.seed, "stream": 0}


fault(
    "partial gradients added first",
    law.uses_are_reduced_before_they_are_added,
    instead,
    autograd._Gradients,
    "add",
    _partials_added,
)
fault("gradients in program order", law.later_uses_are_added_first, instead, autograd._Gradients, "add", _program_order)
fault(
    "gradients left partial",
    law.leaf_gradients_have_the_leaf_layout,
    everywhere,
    autograd.in_layout_of,
    lambda value, g: g,
)
fault(
    "broadcasting undone in reverse order",
    law.broadcasting_is_undone_by_one_flat_sum,
    everywhere,
    _sum_to,
    _dims_reversed,
)
fault(
    "broadcasting undone on one dimension",
    law.broadcasting_is_undone_by_one_flat_sum,
    everywhere,
    _sum_to,
    _first_dim_only,
)
fault(
    "a tree for each batch",
    law.a_shared_factor_has_one_tree,
    everywhere,
    contraction_ops._contract_lost,
    _tree_per_batch,
)
fault("a mean over the local count", law.mean_is_logical, everywhere, _mean, _mean_of_local_count)
fault("a write to a slice lost", law.write_through_a_slice, everywhere, _slice_lens, _write_lost)
fault("every draw the first", law.draws_differ, instead, Generator, "draw", _same_stream)


@pytest.mark.parametrize("name", FAULTS)
def test_fault_is_caught(name: str) -> None:
    found = FAULTS[name]
    found.detect()
    with found.plant(), pytest.raises((AssertionError, RefflowError)):
        found.detect()
    found.detect()


def test_there_are_enough() -> None:
    assert len(FAULTS) >= 30
