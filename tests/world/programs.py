"""Programs that must do the same in every world: under `virtual_world`, in `spmd` threads and in MPI processes.

Each is a function of nothing that returns {name: text}.  Texts of logical values are the same on every rank; those of
shards carry the rank in their name, so the union over the ranks is what the virtual world gives at once.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import refflow as flow
from refflow.world import current_world

S, B, P = flow.sbp.split, flow.sbp.broadcast, flow.sbp.partial_sum
MAX = flow.sbp.partial_max
Texts = dict[str, str]
Placed = tuple[Any, Any]  # a placement and an sbp


def size() -> int:
    return flow.get_world_size()


def everywhere() -> flow.Placement:
    return flow.Placement.all("cpu")


def text(array: Any) -> str:
    return flow.digest(np.asarray(array))


def shards(name: str, x: flow.Tensor) -> Texts:
    """The digest of each shard this process or thread owns."""
    owned = current_world().owned
    return {f"{name} @ {rank}": text(array) for rank, array in x.local_arrays().items() if rank in owned}


# --- boxing ---------------------------------------------------------------------------------------------------------


def layouts(ndim: int) -> list[Placed]:
    """Rows of all ranks in two orders, of some, of others, of one; a square; with every kind of sbp."""
    n = size()
    split = [S(axis) for axis in range(ndim)]
    rows = [range(n), range(n - 1, -1, -1), range(n - 1), range(1, n), [0], [n - 1]]
    found: list[Placed] = []
    for ranks in filter(None, dict.fromkeys(map(tuple, rows))):
        found += [(flow.placement("cpu", list(ranks)), one) for one in (*split, B, P, MAX)]
    if n == 4:
        square = flow.placement("cpu", [[0, 1], [2, 3]])
        found += [(square, pair) for pair in itertools.product((*split[:2], B, P), repeat=2)]
    return found


def pairs(every: int, ndim: int) -> Iterator[tuple[int, Placed, Placed]]:
    """Every so many-th pair of layouts."""
    product = itertools.product(layouts(ndim), repeat=2)
    return ((i, x, y) for i, (x, y) in enumerate(product) if i % every == 0)


def _each(sbp: Any) -> tuple[Any, ...]:
    return sbp if isinstance(sbp, tuple) else (sbp,)


def boxing() -> Texts:
    """Layout pairs, on shapes even, uneven, with empty shards, empty, and 0-d, of several dtypes."""
    found: Texts = {}
    cases: list[tuple[tuple[int, ...], Any, int]] = [
        ((5, 3), flow.float32, 3), ((1, 4), flow.bfloat16, 31), ((0, 3), flow.float32, 61), ((), flow.float32, 13),
        ((4, 6), flow.int64, 37), ((7,), flow.bool, 29), ((3, 2, 5), flow.float64, 43), ((6, 5), flow.int8, 41),
        ((9,), flow.float16, 23),
    ]  # fmt: skip
    for shape, dtype, every in cases:
        array = np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32) * 10
        if dtype == flow.bool:
            array = array > 0
        for i, source, target in pairs(every * max(1, size() - 1), len(shape)):
            if dtype == flow.bool and P in (*_each(source[1]), *_each(target[1])):
                continue  # bools have no sum
            x = flow.tensor(array, dtype=dtype, placement=source[0], sbp=source[1])
            y = x.to_global(placement=target[0], sbp=target[1])
            found.update(shards(f"{dtype.name}{shape} {i}", y))
    return found


# --- a small net ----------------------------------------------------------------------------------------------------


def log_softmax(x: flow.Tensor) -> flow.Tensor:
    moved = x - x.amax(1, keepdim=True)
    return moved - moved.exp().sum(1, keepdim=True).log()


def training(split_x: Any = None, split_w: Any = None) -> Texts:
    """Three steps of a two-layer net by plain gradient descent; the same digests on any number of ranks."""
    where = everywhere()
    flow.manual_seed(7)
    split_x, split_w = split_x or S(0), split_w or B
    x = flow.randn(12, 6, placement=where, sbp=split_x)
    target = flow.randint(0, 5, (12,), placement=where, sbp=B)
    weights = [(flow.randn(*shape, placement=where, sbp=split_w) * 0.5).detach().requires_grad_() for shape in ((6, 9), (9, 5))]
    found: Texts = {}
    for step in range(3):
        logits = (x @ weights[0]).tanh() @ weights[1]
        loss = -log_softmax(logits).gather(1, target.unsqueeze(1)).mean()
        loss.backward()
        with flow.no_grad():
            for w in weights:
                assert w.grad is not None
                w -= w.grad * 0.5
                w.grad = None
        found[f"loss {step}"] = text(loss.detach().numpy())
    found.update({f"w{i}": text(w.detach().numpy()) for i, w in enumerate(weights)})
    return found


def training_layouts() -> Texts:
    """The net under other layouts: the same bits."""
    first = training()
    for split_x, split_w in ((B, S(0)), (S(1), S(1)), (B, S(1))):
        assert training(split_x, split_w) == first
    return first


# --- values seen by the program -------------------------------------------------------------------------------------


def seen() -> Texts:
    """Printing, item, bool, numpy: the logical value, everywhere."""
    where, n = everywhere(), size()
    x = flow.arange(10, placement=where, sbp=S(0))
    parts = flow.per_rank(lambda rank: [float(rank + 1), -1.0]).to_global(placement=where, sbp=P)
    last = flow.ones(2, 2, placement=flow.placement("cpu", [n - 1]), sbp=B)
    assert x.sum().item() == 45 and bool((x < 10).all()) and parts.tolist() == [n * (n + 1) / 2, -float(n)]
    assert float(last.sum()) == 4.0 and x.numpy().tolist() == list(range(10))
    return {"x": repr(x), "parts": repr(parts), "last": str(last), "print": f"{x.sum()}"}


def random() -> Texts:
    """Random numbers go by logical index; local ones have their own counter."""
    where = everywhere()
    flow.manual_seed(3)
    drawn = [flow.randn(7, 3, placement=where, sbp=one) for one in (S(0), B, S(1))]
    flow.rand(4)
    drawn.append(flow.randperm(11, placement=where, sbp=B))
    drawn.append(flow.rand(5, placement=flow.placement("cpu", [size() - 1]), sbp=B))
    return {f"draw {i}": text(x.numpy()) for i, x in enumerate(drawn)}


def border() -> Texts:
    """Local to global and back, and the gradients across."""
    where = everywhere()
    local = flow.per_rank(lambda rank: np.full((2, 3), rank + 1, np.float32)).requires_grad_()
    x = local.to_global(placement=where, sbp=S(0))
    (x * x).sum().backward()
    assert local.grad is not None
    part = flow.arange(5, placement=flow.placement("cpu", [0]), sbp=B).to_local()
    return {**shards("grad", local.grad), **shards("x", x), **shards("part", part)}


PROGRAMS: dict[str, Callable[[], Texts]] = {
    "boxing": boxing, "training": training_layouts, "seen": seen, "random": random, "border": border,
}  # fmt: skip


# --- errors ---------------------------------------------------------------------------------------------------------


def on_one(one: Callable[[], Any], rest: Callable[[], Any]) -> Any:
    """Rank 1 does one thing, the rest another."""
    return one() if flow.get_rank() == 1 else rest()


def misbehave() -> dict[str, tuple[str, str]]:
    """What goes wrong, and how each rank learns of it: case -> (error type, message); the world stays usable."""
    where, n = everywhere(), size()
    x = flow.ones(4, 4, placement=where, sbp=S(0))
    cases: dict[str, Callable[[], Any]] = {
        "other target": lambda: on_one(lambda: x.to_global(sbp=B), lambda: x.to_global(sbp=S(1))),
        "other call": lambda: on_one(flow.barrier, lambda: x.numpy()),
        "other operation": lambda: on_one(lambda: x + 1, lambda: x * 2).numpy(),
        "other shape": lambda: flow.ones(on_one(lambda: 8, lambda: 9), placement=where, sbp=S(0)).numpy(),
        "replicas": lambda: flow.per_rank(lambda r: [0.0, float(r == 1)]).to_global(placement=where, sbp=B),
        "parts": lambda: flow.per_rank(lambda r: [0.0] * (1 + 3 * r)).to_global(placement=where, sbp=S(0)),
        "data": lambda: flow.tensor([1.0, float(on_one(lambda: 1, lambda: 0))], placement=where, sbp=B),
        "index": lambda: flow.index_select(
            flow.ones(5, placement=where, sbp=B), 0, flow.tensor(list(range(n - 1)) + [9], placement=where, sbp=S(0))
        ),
        "absent rank": lambda: flow.ones(2, placement=flow.placement("cpu", [0, n]), sbp=B),
        "more ranks": lambda: flow.virtual_world(n + 1),
        "device": lambda: flow.ones(2, placement=flow.placement("cuda", [0]), sbp=B),
    }  # fmt: skip
    told: dict[str, tuple[str, str]] = {}
    for name, case in cases.items():
        try:
            told[name] = ("nothing", repr(case()))
        except flow.RefflowError as error:
            told[name] = (type(error).__name__, str(error))
    flow.barrier()
    return told


EXPECTED: dict[str, tuple[str, str]] = {
    "other target": ("DivergenceError", r"reached different calls .*ranks 0, 2: all_to_all S\(0\).*rank 1: all_gather S\(0\)"),
    "other call": ("DivergenceError", r"reached different calls .*ranks 0, 2: all_gather.*rank 1: barrier"),
    "other operation": ("DivergenceError", r"same call by different operations.*ranks 0, 2: .* mul\n.*rank 1: .* add\n"),
    "other shape": ("DivergenceError", r"reached different calls .*ranks 0, 2: .*\(9,\).*rank 1: .*\(8,\)"),
    "replicas": ("ReplicaError", r"equal bits on ranks 0 and 1; they first differ at \(1,\)"),
    "parts": ("ShapeError", r"rank 0 must hold \(4,\).*found \(1,\)"),
    "data": ("ReplicaError", r"every rank must give the same logical data"),
    "index": ("IndexOutOfRange", r"9.*rank 2"),
    "absent rank": ("PlacementError", r"names ranks \[3\], the world has ranks 0\.\.2"),
    "more ranks": ("WorldError", r"virtual_world\(4\): the world is fixed, it has 3 ranks \((MPI|lockstep) world of 3"),
    "device": ("BackendError", r"no back end is bound to device type 'cuda'"),
}  # fmt: skip
