"""Reports that need the lazy graph, pipelines, ZeRO or the actor runtime: what each test must show, and why it waits."""

from __future__ import annotations

import ast
from pathlib import Path

NEEDS_GRAPH = "needs nn.Graph"
NEEDS_PIPELINE = "needs pipeline stages and their plan"
NEEDS_ACTORS = "needs registers and actors"

LATER: dict[str, tuple[str, str]] = {
    # report: (what is missing, what the test must show)
    "oneflow_8484": (NEEDS_ACTORS, "the least buffer sizes for full overlap are computed, not guessed as 2 * stages"),
    "oneflow_9734_graph": (NEEDS_GRAPH, "stack under S(0) compiles and its gradient equals the eager one"),
    "oneflow_9310_graph": (NEEDS_GRAPH, "boxing of uneven multi-level splits inside a graph equals eager"),
    "pytorch_127332": (NEEDS_PIPELINE, "pp=2, v=2, m=4 interleaved: every send has its receive in one total order (also PiPPy 1088)"),
    "deepspeed_5518": (NEEDS_PIPELINE, "outputs (float with grad, int, float without): one gradient message (also diffusion-pipe 544)"),
    "torchtitan_775": (NEEDS_PIPELINE, "m=2, pp=4, and batch 8 in 3,3,2: right or refused in words (also pytorch 126600)"),
    "nemo_automodel_3530_pipeline": (NEEDS_PIPELINE, "a change of shape between accumulations keeps the gradients so far"),
    "alpa_405_graph": (NEEDS_GRAPH, "sum loss, 4 micro-batches in one graph call: gradient equals the whole batch's"),
    "piper_13_pipeline": (NEEDS_PIPELINE, "tied weight on two stages: one gradient, equal copies after the step"),
    "oneflow_6746_graph": (NEEDS_PIPELINE, "a backward link that crosses stages is a named error"),
    "nemo_rl_3788_zero": ("needs ZeRO", "clip_grad_norm_ counts each logical parameter once when states are sharded"),
    "oneflow_7513": ("needs ZeRO", "ZeRO leaves the 2-d sbp of a 0-d variable alone"),
    "oneflow_7079": (NEEDS_GRAPH, "a shared parameter is one variable of the graph"),
    "oneflow_9880": (NEEDS_GRAPH, "the all-match signature is not missed"),
    "oneflow_9093": (NEEDS_GRAPH, "shapes inside build are the whole batch's; loss shapes (also 6254, 7442)"),
    "oneflow_9075": (NEEDS_GRAPH, "BatchNorm with accumulation is refused in words"),
    "oneflow_10285": (NEEDS_GRAPH, "one BatchNorm used twice in a graph (also 3516)"),
    "oneflow_3974_recompute": (NEEDS_GRAPH, "activation recompute replays the dropout mask"),
    "libai_232": (NEEDS_ACTORS, "3-d parallel with accumulation does not deadlock (also oneflow 8226, 10313, 6224)"),
    "oneflow_4806": (NEEDS_ACTORS, "collectives on several streams keep one order (also 8455, 9588, 10118, 4617)"),
}  # fmt: skip


def test_no_report_is_both_tested_and_later() -> None:
    """A report that has got its test leaves the list."""
    tests = [
        node.name.removeprefix("test_")
        for file in sorted(Path(__file__).parent.glob("test_*.py"))
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    ]
    done = [report for report in LATER if any(name.startswith(report) for name in tests)]
    assert not done, f"tested by now: {done}"
