"""Every CUDA kernel's code, without a device: each operation rounds once, for all architectures (ACC-CUDA-PTX, ACC-CUDA-COMPILE).

Covered: every family of kernels for sm_70, sm_80 and sm_90.  Of elementwise kernels each elementary function of float32
by itself, the other primitives and casts of a dtype together in one kernel (the text of each is the same as alone), and
spaces of 1, 2, 3, 4 and 6 dimensions; of contractions every type that is computed in.  Where ptxas is at hand (the wheels
of CUDA 12 bring it) it must accept each for sm_90.
"""

from __future__ import annotations

import os
import re
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("numba_cuda")
if os.environ.get("NUMBA_ENABLE_CUDASIM") == "1":
    pytest.skip("the simulator compiles nothing", allow_module_level=True)

from refflow_accel.chains import Chain, Step
from refflow_accel.cuda import elementwise, gate, registry, target
from refflow_accel.cuda.program import together
from refflow_accel.program import CompiledProgram, passes

import refflow as flow
from refflow.errors import BackendError
from refflow.kernels import ReferenceBackend

SM_70 = pytest.mark.skipif(
    (7, 0) not in target.architectures(), reason="CUDA 13's libNVVM has no sm_70; the extra `cuda` installs 12.9"
)


@pytest.fixture(scope="module")
def examined() -> dict[tuple[str, int], gate.Examined]:
    return {(found.family, found.index): found for found in gate.examine_all(processes=2)}


@pytest.mark.parametrize("row", list(gate.rows()), ids=lambda row: f"{row[0]}-{row[1]}")
def test_every_kernel_rounds_each_operation(row: Any, examined: Any) -> None:  # ACC-CUDA-PTX
    found = examined[row]
    assert set(found.faults) >= {"sm_80", "sm_90"}
    assert not any(found.faults.values()), f"{found.family} {found.key}: {found.faults}"


@SM_70
@pytest.mark.parametrize("row", list(gate.rows()), ids=lambda row: f"{row[0]}-{row[1]}")
def test_every_kernel_is_compiled_for_sm_70(row: Any, examined: Any) -> None:  # ACC-CUDA-PTX
    assert examined[row].faults["sm_70"] == []


# --- fused chains -----------------------------------------------------------------------------------------------------


class Recording(ReferenceBackend):
    """The reference, with the passes of CUDA for its compiled graphs, which are never run."""

    def program(self, graph: Any) -> CompiledProgram:
        return CompiledProgram(graph, self, None, partial(passes.optimized, together=together))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def fused() -> list[tuple[Any, int]]:
    """(chain, rank of its space) of the longest chains of a training step with dropout, GELU, layer norms and AdamW."""
    where = flow.placement("cpu", [0])
    with flow.state.Override(generator=flow.Generator()), flow.backend(Recording()):
        net = flow.nn.Sequential(
            flow.nn.Linear(4, 8), flow.nn.LayerNorm(8), flow.nn.GELU(), flow.nn.Dropout(0.2), flow.nn.Linear(8, 3)
        ).to_global(where, flow.sbp.broadcast)  # fmt: skip
        optimizer, loss_of = flow.optim.AdamW(net.parameters(), lr=0.1), flow.nn.CrossEntropyLoss()

        class Train(flow.nn.Graph):
            def __init__(self) -> None:
                super().__init__()
                self.net = net
                self.add_optimizer(optimizer)

            def build(self, x: Any, y: Any) -> Any:
                loss = loss_of(self.net(x), y)
                loss.backward()
                return loss

        graph = Train()
        x = flow.ones(6, 4, placement=where, sbp=flow.sbp.broadcast)
        y = flow.zeros(6, dtype=flow.int64, placement=where, sbp=flow.sbp.broadcast)
        for _ in range(2):
            graph(x, y)
    ((_, made),) = graph._last.programs.values()  # type: ignore[union-attr]
    program = made._recorded.program  # type: ignore[attr-defined]
    chains = {
        call.attrs["chain"]: len(program.arrays[call.outputs[0]].shape)
        for call in program.calls
        if call.name == passes.CHAIN
    }
    return sorted(chains.items(), key=lambda item: -len(item[0].steps))[:4]


def test_fused_chains_round_each_operation(fused: list[tuple[Any, int]]) -> None:  # ACC-CUDA-PROGRAM, ACC-CUDA-PTX
    assert len(fused) == 4 and len(fused[0][0].steps) > 10
    assert any({"sqrt", "div"} <= {step.op for step in chain.steps} for chain, _ in fused)  # AdamW's
    for key in fused:
        texts = registry.FAMILIES["chain"].ptx(key)
        assert {cc: gate.faults(text, fma=False) for cc, text in texts.items()} == {cc: [] for cc in texts}
        assert gate.refused(texts[9, 0], "sm_90") == []


def test_the_fullest_kernels_fit_their_constants() -> None:  # ACC-CUDA-PROGRAM
    """The bytes of tables that fusion counts with are those in the code, and ptxas takes the fullest chain there can be."""

    def constants(ops: list[str]) -> tuple[int, str]:
        steps = tuple(Step(op, (0, 0) if op == "pow" else (0,), "float32") for op in ops)
        chain = Chain(("float32",), steps, tuple(range(1, len(steps) + 1)))
        text = registry.FAMILIES["chain"].ptx((chain, 1))[9, 0]
        found = re.findall(r"\.const [^;]*?\.b(\d+) [^;]*?\[(\d+)\]", text)
        return sum(int(wide) // 8 * int(count) for wide, count in found), text

    full: list[str] = []
    for op in sorted(elementwise.TABLES, key=elementwise.TABLES.__getitem__, reverse=True):
        if together([*full, op]):
            full.append(op)
    size, text = constants(full)
    assert 50000 < size <= sum(elementwise.TABLES[op] for op in full) <= elementwise.CONSTANTS < 65536
    assert gate.refused(text, "sm_90") == []
    left = [op for op in elementwise.TABLES if op not in full]
    assert constants(left)[0] <= sum(elementwise.TABLES[op] for op in left)


def _probe(a: Any, b: Any, c: Any, out: Any) -> None:
    out[0] = (a[0] * b[0] + c[0]) / b[0]


def test_the_gate_sees_contraction(monkeypatch: pytest.MonkeyPatch) -> None:  # ACC-CUDA-PTX, ACC-CUDA-COMPILE
    signature = (target.pointer(target.f32),) * 4
    assert gate.faults(target.ptx(_probe, signature)[8, 0], fma=False) == []
    monkeypatch.setitem(target.SWITCHES, "fma", 1)
    monkeypatch.setitem(target.SWITCHES, "prec_div", 0)
    monkeypatch.setitem(target.SWITCHES, "ftz", 1)
    wrong = gate.faults(target.ptx(_probe, signature)[8, 0], fma=False)
    assert any(op.startswith("fma.rn") for op in wrong) and any(".ftz" in op for op in wrong)
    assert any(op.startswith("div.") for op in wrong)


@pytest.mark.parametrize(
    "line",
    ["mul.f32 %f1, %f2, %f3;", "ex2.approx.ftz.f32 %f1, %f2;", "fma.rn.f64 %d1, %d2, %d3, %d4;", "@%p1 call.uni foo;"],
)
def test_the_gate_refuses(line: str) -> None:  # ACC-CUDA-PTX
    assert gate.faults(f"\t{line}\n", fma=False)


@pytest.mark.skipif(gate.assembler() is None, reason="there is no ptxas")
def test_ptxas_is_asked() -> None:  # ACC-CUDA-PTX
    text = target.ptx(_probe, (target.pointer(target.f32),) * 4)[9, 0]
    assert gate.refused(text, "sm_90") == []
    assert gate.refused(text.replace("mul.rn.f32", "mul.sideways.f32"), "sm_90")


def test_a_declared_fma_must_be_there() -> None:  # ACC-CUDA-PTX
    assert gate.faults("\tmul.rn.f32 %f1, %f2, %f3;\n", fma=True)
    assert gate.faults("\tfma.rn.f32 %f1, %f2, %f3, %f4;\n", fma=True) == []


def test_another_release_of_numba_cuda_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:  # ACC-CUDA-COMPILE
    import numba_cuda

    assert version("numba-cuda") == target.SUPPORTED
    monkeypatch.setattr(numba_cuda, "__version__", "0.31.0")
    with pytest.raises(BackendError, match=f"needs numba-cuda {re.escape(target.SUPPORTED)}, found 0.31.0"):
        target._numba_cuda()


def test_link_time_optimisation_is_off() -> None:  # ACC-CUDA-COMPILE
    """nvJitLink would compile the kernels' IR once more, and contract by default."""
    import ast

    source = Path(target.__file__).read_text()
    calls = [n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.Call) and ast.unparse(n.func) == "cuda.jit"]
    compiled = [call for call in calls if not (len(call.args) == 1 and not call.keywords)]  # the simulator's has none
    assert len(compiled) == 3
    assert all(
        {"lto": "False"}.items() <= {k.arg: ast.unparse(k.value) for k in call.keywords}.items() for call in compiled
    )


def test_the_package_names_the_release() -> None:  # ACC-CUDA-COMPILE
    project = Path(__file__).parents[3] / "pyproject.toml"
    assert f"numba-cuda[cu12]=={target.SUPPORTED}" in project.read_text()
