"""What was saved comes back, bit for bit, under any layout on either side: CKPT-TREE, CKPT-LOGICAL, CKPT-RESHARD."""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import refflow as flow
from refflow.errors import CheckpointError, LocalGlobalError, PlacementError, RefflowError, SbpError
from tests.checkpoint.trees import arrays, layouts, same_tree, tensors, trees

S, B, P = flow.sbp.split, flow.sbp.broadcast, flow.sbp.partial_sum
examples = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])


@examples
@given(data=st.data(), before=st.integers(1, 4), after=st.integers(1, 4))
def test_any_tree_saved_on_some_ranks_loads_on_others(data: st.DataObject, before: int, after: int, tmp_path: Path) -> None:
    """CKPT-TREE, CKPT-LOGICAL"""
    with flow.virtual_world(before):
        tree = data.draw(trees(tensors(before)))
        flow.save(tree, tmp_path / "f")
        assert same_tree(flow.load(tmp_path / "f"), tree)
        logical = [t.numpy() for t in _leaves(tree)]
    with flow.virtual_world(after):
        loaded = flow.load(tmp_path / "f")
        assert all(flow.same_bits(t.numpy(), a) for t, a in zip(_leaves(loaded), logical, strict=True))


@examples
@given(data=st.data(), array=arrays(), before=st.integers(1, 4), after=st.integers(1, 4))
def test_any_layout_loads_as_any_other(data: st.DataObject, array: Any, before: int, after: int, tmp_path: Path) -> None:
    """CKPT-RESHARD"""
    partial = array.dtype != flow.bool
    with flow.virtual_world(before):
        where, sbp = data.draw(layouts(array.shape, before, partial))
        flow.save(flow.tensor(array, placement=where, sbp=sbp), tmp_path / "f")
    with flow.virtual_world(after):
        where, sbp = data.draw(layouts(array.shape, after, partial))
        loaded = flow.load(tmp_path / "f", placement=where, sbp=sbp)
        assert (loaded.placement, loaded.sbp, loaded.dtype) == (where, sbp, array.dtype)
        assert flow.same_bits(loaded.numpy(), array)


def _leaves(tree: Any) -> list[flow.Tensor]:
    if isinstance(tree, flow.Tensor):
        return [tree]
    inner = tree.values() if isinstance(tree, dict) else tree if isinstance(tree, (list, tuple)) else ()
    return [leaf for item in inner for leaf in _leaves(item)]


def test_a_partial_is_saved_as_what_it_adds_up_to(tmp_path: Path) -> None:
    """CKPT-LOGICAL: the canonical fold, not one rank's addend."""
    with flow.virtual_world(3):
        parts = flow.per_rank(lambda r: np.float32([0.1, 1e8, -1e8][r]) * np.ones(2, np.float32))
        x = parts.to_global(flow.placement("cpu", [2, 0, 1]), P)
        flow.save(x, tmp_path / "f")
        expected = x.numpy()
    assert flow.same_bits(flow.load(tmp_path / "f").numpy(), expected)


def test_equal_checkpoints_are_equal_bytes(tmp_path: Path) -> None:
    """CKPT-FORMAT"""
    for name in "ab":
        flow.save({"w": flow.arange(6).reshape(2, 3), "n": [1.5, "x"]}, tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_other_programs_can_read_the_file(tmp_path: Path) -> None:
    """CKPT-FORMAT: it is a safetensors file, tensors named by their path."""
    from safetensors.numpy import load_file

    with flow.virtual_world(4):
        w = flow.randn(5, 3, placement=flow.placement("cpu", [0, 1, 2, 3]), sbp=S(0))
        flow.save({"model": {"fc.weight": w}, "step": 3, "t": (flow.tensor([1, 2]),)}, tmp_path / "f")
        found = load_file(tmp_path / "f")
        assert sorted(found) == ["model.fc.weight", "t.0"]
        assert flow.same_bits(found["model.fc.weight"], w.numpy())


def test_names_that_would_clash_are_kept_apart(tmp_path: Path) -> None:
    """CKPT-TREE"""
    tree = {"a": {"b": flow.tensor(1)}, "a.b": flow.tensor(2), "__metadata__": flow.tensor(3), 0: flow.tensor(4),
            "0": flow.tensor(5), "\ud800": flow.tensor(6)}  # fmt: skip
    flow.save(tree, tmp_path / "f")
    assert same_tree(flow.load(tmp_path / "f"), tree)


def test_what_a_loaded_tensor_is(tmp_path: Path) -> None:
    """CKPT-TREE: its own memory, a leaf without gradient; dict subclasses are dicts."""
    w = flow.ones(2, requires_grad=True)
    flow.save(OrderedDict(w=w), tmp_path / "f")
    loaded = flow.load(tmp_path / "f")
    assert type(loaded) is dict and loaded["w"].is_leaf and not loaded["w"].requires_grad
    loaded["w"].add_(1.0)
    assert loaded["w"].tolist() == [2, 2] and w.tolist() == [1, 1]


def test_layout_rules(tmp_path: Path) -> None:
    """CKPT-RESHARD: stored layout, else local; a placement alone; an sbp alone; a function."""
    path = tmp_path / "f"
    four = flow.placement("cpu", [0, 1, 2, 3])
    with flow.virtual_world(4):
        tree = {"w": flow.ones(5, 2, placement=four, sbp=S(0)), "b": flow.zeros(3), "step": flow.tensor(0)}
        flow.save(tree, path)
        assert flow.load(path)["w"].sbp == (S(0),) and flow.load(path)["b"].is_local
        assert flow.load(path, sbp=lambda name, shape: S(1) if name == "w" else None)["w"].sbp == (S(1),)
    with flow.virtual_world(2):
        two = flow.placement("cpu", [1, 0])
        assert all(t.is_local for t in flow.load(path).values())
        there = flow.load(path, placement=two)
        assert [t.sbp for t in there.values()] == [(S(0),), (B,), (B,)]
        seen = flow.load(path, placement=two, sbp=lambda name, shape: S(0) if shape else B)
        assert [t.sbp for t in seen.values()] == [(S(0),), (S(0),), (B,)] and seen["w"].shapes == {1: (3, 2), 0: (2, 2)}
        with pytest.raises(SbpError, match=r"load: 'step': S\(0\) of a tensor of 0 dimensions"):
            flow.load(path, placement=two, sbp=S(0))
        with pytest.raises(SbpError, match="'b' was saved as a local tensor"):
            flow.load(path, sbp=lambda name, shape: B if name == "b" else None)
        with pytest.raises(PlacementError, match=r"load: 'w': .* names ranks \[2, 3\]"):
            flow.load(path, sbp=B)
        with pytest.raises(PlacementError, match="must be a flow.placement"):
            flow.load(path, placement=[0, 1])  # type: ignore[arg-type]
        with pytest.raises(SbpError, match="give an sbp for the mesh"):
            flow.load(path, placement=flow.placement("cpu", [[0, 1]]))
        with pytest.raises(SbpError, match="expected sbp.split"):
            flow.load(path, placement=two, sbp=S)
        with pytest.raises(SbpError, match="the sbp function raised KeyError"):
            flow.load(path, placement=two, sbp=lambda name, shape: {}[name])


def test_fused_weight_changes_its_number_of_ranks(tmp_path: Path) -> None:
    """known-faults 79: a fused gate/up weight, saved on 2 ranks and loaded on 1, came back as rows 0, 2, 4, …"""
    W = np.arange(16, dtype=np.float32).reshape(8, 2)  # rows 0-3 gate, 4-7 up
    fused = lambda ranks: flow.placement("cpu", list(range(ranks)))  # noqa: E731
    with flow.virtual_world(2):
        # The fused layout is part of the tensor: (2, 4, 2) split on dimension 1, so rank r holds gate and up rows of its own.
        w = flow.tensor(W.reshape(2, 4, 2), placement=fused(2), sbp=S(1))
        assert w.local_arrays()[0].reshape(4, 2).tolist() == W[[0, 1, 4, 5]].tolist()
        flow.save(w, tmp_path / "f")
        flow.save(flow.tensor(W, placement=fused(2), sbp=S(0)), tmp_path / "plain")
    assert flow.same_bits(flow.load(tmp_path / "f").reshape(8, 2).numpy(), W)
    for ranks in (1, 3, 4):
        with flow.virtual_world(ranks):
            w = flow.load(tmp_path / "f", placement=fused(ranks), sbp=S(1))
            assert flow.same_bits(w.reshape(8, 2).numpy(), W)
            assert flow.same_bits(flow.load(tmp_path / "plain", placement=fused(ranks), sbp=S(0)).numpy(), W)


def test_ranks_outside_the_placement_and_views(tmp_path: Path) -> None:
    """CKPT-LOGICAL"""
    with flow.virtual_world(4):
        x = flow.arange(12, placement=flow.placement("cpu", [3, 1]), sbp=S(0)).reshape(3, 4)
        flow.save([x.t(), x[1:, ::2]], tmp_path / "f")
        expected = np.arange(12).reshape(3, 4)
        a, b = flow.load(tmp_path / "f")
        assert a.tolist() == expected.T.tolist() and b.tolist() == expected[1:, ::2].tolist()


Point = namedtuple("Point", "x y")


def test_refused_objects_are_named(tmp_path: Path) -> None:
    """CKPT-TREE"""
    cyclic: list[Any] = []
    cyclic.append(cyclic)
    cases: list[tuple[Any, str]] = [
        ({"a": [1, {2}]}, r"'a.1' is a set; a checkpoint holds tensors"),
        ({"a": np.ones(2)}, r"'a' is a ndarray.*flow.tensor"),
        (Point(1, 2), r"the object is a Point.*plain tuple"),
        ({(1, 2): 3}, r"the object has the key \(1, 2\)"),
        (cyclic, "does something contain itself"),
        (1j, "is a complex"),
    ]  # fmt: skip
    for obj, message in cases:
        with pytest.raises(CheckpointError, match=message):
            flow.save(obj, tmp_path / "f")
    assert list(tmp_path.iterdir()) == []


def test_local_tensors_that_differ_have_no_logical_value(tmp_path: Path) -> None:
    """CKPT-LOGICAL"""
    with flow.virtual_world(3):
        with pytest.raises(LocalGlobalError, match="'x.0' is local and differs between ranks 0 and 1"):
            flow.save({"x": [flow.per_rank(lambda r: [float(r)])]}, tmp_path / "f")
        with pytest.raises(LocalGlobalError, match="differs between ranks 0 and 2"):
            flow.save({"x": flow.per_rank(lambda r: np.zeros(2 + (r == 2)))}, tmp_path / "f")


def test_paths(tmp_path: Path) -> None:
    """CKPT-AGREED: what the file system refuses is a CheckpointError that names the file."""
    cases: list[tuple[Any, str]] = [
        (tmp_path / "absent" / "f", "No such file or directory"), (tmp_path, "[Dd]irectory"), (None, "must be a string"),
        ("a\0b", "must name a file"), ("", "must name a file"),
    ]  # fmt: skip
    for path, message in cases:
        for call in (lambda p: flow.save(1, p), flow.load):
            with pytest.raises(CheckpointError, match=message):
                call(path)
    (tmp_path / "link").symlink_to(tmp_path / "target")
    flow.save({"a": 1}, str(tmp_path / "link"))
    assert (tmp_path / "link").is_symlink() and flow.load(bytes(tmp_path / "target")) == {"a": 1}
    assert issubclass(CheckpointError, RefflowError)


class Elsewhere(flow.world.VirtualWorld):
    """A world in which rank 1 tells something else."""

    def __init__(self, told: Any) -> None:
        super().__init__(2)
        self.told = told

    def agree(self, call: str, mine: Any) -> Any:
        return {**mine, 1: self.told(call, mine[1])}


def test_what_fails_on_one_rank_fails_on_all(tmp_path: Path) -> None:
    """CKPT-AGREED"""
    from refflow.state import Override

    flow.save(1, tmp_path / "old")
    full = Elsewhere(lambda call, mine: ("save: disk full", mine[1]))
    with Override(world=full), pytest.raises(CheckpointError, match=r"disk full \(on rank 1\)"):
        flow.save(2, tmp_path / "old")
    with Override(world=Elsewhere(lambda call, mine: (None, "else"))):
        with pytest.raises(CheckpointError, match=r"ranks \[1\] have another tree"):
            flow.save(2, tmp_path / "old")
        with pytest.raises(CheckpointError, match=r"load: ranks \[1\] have another"):
            flow.load(tmp_path / "old")
    assert flow.load(tmp_path / "old") == 1
