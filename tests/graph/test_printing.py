"""A logical graph is text and DOT: every value with dtype, shape, sbp and placement.  GRAPH-PRINT, GRAPH-NODE."""

from __future__ import annotations

import re

import pytest

import refflow as flow
from refflow.layout import Placement
from tests.graph.nets import Told, dropped, mlp
from tests.graph.nets import run as train
from tests.graph.running import B, Of, S

EDGE = re.compile(r"^  (\w+) -> (\w+) \[label=\"([^\"]*)\"\];$")


@pytest.mark.parametrize("told", [Told((2,), micro=2, zero=2), Told((2, 2), tensor=True), Told(stages=2, micro=4)], ids=str)
@pytest.mark.parametrize("net", [mlp, dropped], ids=lambda net: net.__name__)
def test_every_value_is_described_once_and_every_edge_has_its_sbp(net: object, told: Told) -> None:
    holder = train(net, told, steps=1).graph  # type: ignore[arg-type]
    assert holder is not None
    graph = holder.graph
    lines = str(graph).splitlines()
    assert str(holder) == str(graph) and lines[0] == "graph Train"
    defined = [line for line in lines if ": " in line and " <- " not in line]
    names = [line.split(": ")[0].split(" = ")[0].split()[-1] for line in defined]
    assert len(names) == len(set(names)) == len(graph.inputs) + len(graph.nodes) + len(graph.scalars) + len(graph.constants()) + sum(
        v.value is not None for v in graph.variables
    )
    sbp = r"(B|S\(\d\)|P\(\w+\)|\((B|S\(\d\)|P\(\w+\))(, (B|S\(\d\)|P\(\w+\)))*\))"
    assert all(re.search(rf": \w+ (scalar|[\dx]+) {sbp} on placement", line) for line in defined)
    used = {word for line in lines for word in re.findall(r"[(, ](%\d+|input\d+|scalar\d+|constant\d+)\b", line)}
    assert used <= set(names)
    dot = graph.to_dot().splitlines()
    edges = [match for line in dot if (match := EDGE.match(line))]
    assert len(edges) == sum("->" in line for line in dot)
    assert len(edges) == sum(len(n.inputs) for n in graph.nodes) + len(list(graph.results()))
    boxes = {match[1] for line in dot if (match := re.match(r"^  (\w+) \[label=", line))}
    assert {end for edge in edges for end in edge.groups()[:2]} <= boxes
    assert all(re.fullmatch(rf"(scalar|[\dx]+) {sbp}", edge[3]) for edge in edges)


@pytest.mark.parametrize(("micro", "split", "gradient"), [(1, "S(0)", "B"), (2, "(S(0), S(0))", "(B, S(0))")])
def test_the_axis_of_micro_steps_is_printed_where_there_are_several(micro: int, split: str, gradient: str) -> None:
    """GRAPH-PRINT: else a layout is as the user wrote it."""
    graph = Of(lambda x: (x * 2).to_global(sbp=S(0), grad_sbp=B).sum(0), micro)
    graph(flow.ones(4, 3, placement=Placement("cpu", [0, 1]), sbp=S(0), requires_grad=True))
    text = str(graph)
    assert f"input input0: float32 4x3 {split} on placement" in text
    assert f", grad_sbp={gradient}): float32 4x3 {split} on" in text
    assert f'label="4x3 {split}"' in graph.graph.to_dot()
