"""A function of tensors as the rows of native kernels that a compiled graph makes of it, without what Python does around."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from refflow.functional.arithmetic import mul
from refflow.functional.creation import tensor
from refflow.functional.reduction import sum as sum_
from refflow.graph.api import Graph
from refflow.layout import Placement, broadcast
from refflow.nn import ParameterList
from refflow.nn.parameter import Parameter
from refflow.optim import AdamW
from refflow.tensor.tensor import Tensor

from ..program import CompiledProgram
from ..program.local import LocalCall
from ..program.passes import CHAIN


class FunctionGraph(Graph):
    """The graph of a function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self._function = function

    def build(self, *tensors: Tensor) -> Any:
        return self._function(*tensors)


class AdamWStep(Graph):
    """AdamW on one parameter whose gradient is a given tensor."""

    def __init__(self, parameter: Parameter) -> None:
        super().__init__()
        self.held = ParameterList([parameter])
        self.add_optimizer(AdamW([parameter]))

    def build(self, gradient: Tensor) -> Tensor:
        loss = sum_(mul(self.held[0], gradient))
        loss.backward()
        return loss


def program_of(graph: Graph) -> CompiledProgram:
    """The compiled program of a graph's last call; it must have one, of one back end only."""
    assert graph._last is not None
    ((_, program),) = graph._last.programs.values()
    assert isinstance(program, CompiledProgram)
    return program


def whole(array: np.ndarray[Any, Any]) -> Tensor:
    """A tensor of one rank."""
    return tensor(array, placement=Placement("cpu", [0]), sbp=broadcast)


@dataclass(frozen=True)
class Rows:
    """Kernels of a program, to be run again on memory that the program keeps."""

    graph: Graph
    runs: Sequence[Callable[[], Any]]

    def __call__(self) -> None:
        for run in self.runs:
            run()


def rows_of(function: Callable[..., Any], *arrays: np.ndarray[Any, Any]) -> Rows:
    """All kernels of `function`.  Called in a world of one rank, under the back end."""
    return _rows(FunctionGraph(function), [whole(array) for array in arrays], lambda call: True)


def rows_of_adamw(parameter: np.ndarray[Any, Any]) -> Rows:
    """The one kernel of AdamW's step."""
    held = Parameter(whole(parameter))
    return _rows(AdamWStep(held), [whole(parameter)], is_adamw)


def is_adamw(call: LocalCall) -> bool:
    """Whether a call is the chain of an update: no other part of `AdamWStep` has a root."""
    return call.name == CHAIN and any(step.op == "sqrt" for step in call.attrs["chain"].steps)


def _rows(graph: Graph, inputs: Sequence[Tensor], wanted: Callable[[LocalCall], bool]) -> Rows:
    for _ in range(4):  # state is made, the call recorded, and then twice native: a variable has two arrays
        graph(*inputs)
    return Rows(graph, [run for call, _, run in program_of(graph).pieces()[1] if wanted(call)])
