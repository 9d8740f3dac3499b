"""What a graph tells of its choices: GRAPH-EXPLAIN."""

from __future__ import annotations

from typing import Any

import pytest

import refflow as flow
from refflow import Tensor
from refflow.boxing import format_sbp
from refflow.errors import GraphError
from refflow.graph.logical import key
from refflow.layout import Placement
from tests.graph.nets import Told, attention, dropped, mlp, momentum, rows, run
from tests.graph.running import B, Of, S, label

PAIR = Placement("cpu", [0, 1])


@pytest.mark.parametrize(
    ("net", "told"),
    [
        (mlp, Told((2,))), (mlp, Told((2,), micro=4, zero=2)), (dropped, Told((2,), stages=2, micro=2, zero=3)),
        (attention, Told((2,), tensor=True, recompute=True)),
    ],
    ids=label,
)  # fmt: skip
def test_every_node_is_told_as_it_is(net: Any, told: Told) -> None:
    """The layouts told are those of the nodes, and the bytes of the moves are those a communication log lists."""
    graph = run(net, told, optimizer=momentum, steps=1).graph
    assert graph is not None
    found = graph.explain()
    assert [node.primitive for node in found.nodes] == [node.primitive.name for node in graph.graph.nodes]
    for node, word in zip(graph.graph.nodes, found.nodes, strict=True):
        seen = slice(None) if told.micro > 1 else slice(-1)  # one micro-step is not told of
        assert word.chosen.endswith(f"-> {format_sbp(node.metas[0].sbp[seen])}")
        if word.options is not None:
            assert word.options.options[0].signature.inputs == tuple(value.meta.sbp[seen] for value in node.inputs)
            assert bool(word.operands) or not word.price
    assert found.bytes == sum(move.bytes for move in graph._called().compiled.moves) > 0
    names = graph.graph.names()
    assert all(node.name in str(found) for node in found.nodes) and names[key(graph.graph.nodes[0].outputs[0])] == "%0"
    assert len(found.text(None)) > len(str(found))


def test_why_something_moves() -> None:
    """A contraction that is not aligned: what is dearer, and what is refused though it would be cheaper."""
    x = flow.tensor(rows(4, 8), placement=PAIR, sbp=S(1))
    w = flow.tensor(rows(8, 4), placement=PAIR, sbp=S(0))
    graph = Of(flow.matmul)
    product = graph(x, w)
    found = graph.explain("matmul")
    (told,) = found.nodes
    text = str(found)
    assert told.price and told.chosen.endswith(f"-> {product.sbp[0]}")
    assert "not aligned with the tree (leaf 16)" in text and "refused S(1), S(0) -> P(sum)" in text
    assert "dearer" in text and "operand 1 moved from S(0)" in text
    assert "for %2 (matmul)" in str(graph.explain("to_global"))
    with flow.signatures("cheap"):
        graph(x, w)
        assert not graph.explain("matmul").nodes[0].price and "signatures: cheap" in str(graph.explain())


def test_moves_that_build_asks_for() -> None:
    graph = Of(lambda x: x.to_global(sbp=B) * 2)
    with pytest.raises(GraphError, match="not traced yet"):
        graph.explain()
    graph(flow.tensor(rows(4, 2), placement=PAIR, sbp=S(0)))
    assert "all_gather; as build or a pass asks" in str(graph.explain("to_global"))


def test_parts_are_told() -> None:
    """TIME-PARTS"""

    def build(x: Tensor) -> Tensor:
        return x.sum()

    graph = Of(build, 2)
    graph.config.keep_parts = True
    graph(flow.tensor(rows(8, 2), placement=PAIR, sbp=S(0)))
    assert "of micro-step 1" in str(graph.explain("at_step"))
