"""refflow: OneFlow's distributed semantics as something to read, check and run; the reference runtime of global
tensors.

import refflow as flow
"""

from __future__ import annotations

from math import inf, nan, pi
from typing import Any as _Any

from . import autograd, data, errors, layout, models, nn, numerics, optim
from .absent import absence as _absence
from .boxing import comm_log
from .checkpoint import load, save
from .errors import RefflowError
from .explain import explain
from .functional.arithmetic import *  # noqa: F403
from .functional.composed import *  # noqa: F403
from .functional.creation import *  # noqa: F403
from .functional.einsum import *  # noqa: F403
from .functional.movement import *  # noqa: F403
from .functional.reduction import *  # noqa: F403
from .functional.softmax import *  # noqa: F403
from .layout import sbp
from .layout.placement import Placement, placement
from .numerics import (
    PROFILE,
    bfloat16,
    check_subnormals,
    finfo,
    float16,
    float32,
    float64,
    iinfo,
    int8,
    int32,
    int64,
    same_bits,
    uint8,
)
from .numerics import bool_ as bool
from .numerics import float16 as half
from .numerics import float32 as float
from .numerics import float64 as double
from .numerics import int32 as int
from .numerics import int64 as long
from .pictures import Picture, draw_boxing, draw_layout
from .random import Generator
from .state import boxing, default_generator, manual_seed, signatures
from .tensor import methods as _methods
from .tensor.backward import enable_grad, is_grad_enabled, no_grad, set_grad_enabled
from .tensor.digest import digest
from .tensor.tensor import Tensor
from .world import backend, barrier, bind_device, get_rank, get_world_size, mpi_world, spmd, virtual_world
from .world import default_world as _default_world

check_subnormals()
_default_world()  # under mpiexec every process joins here, so that one that ends early is noticed
_methods.attach()


def __getattr__(name: str) -> _Any:
    """flow.amp, like nn.Graph and nn.graph, comes with refflow.graph: loaded when first asked for, to import fast."""
    if name == "amp":
        from .graph import amp

        return amp
    raise AttributeError(f"module 'refflow' has no attribute {name!r}{_absence('flow', name)}")


def _graphs_of_nn(name: str) -> _Any:
    """nn.Graph and nn.graph.GraphModule: graphs are built on nn, so nn itself cannot import them."""
    if name == "Graph":
        from .graph.api import Graph

        return Graph
    if name == "graph":
        from .graph import module

        return module
    raise AttributeError(f"module 'refflow.nn' has no attribute {name!r}{_absence('nn', name)}")


vars(nn)["__getattr__"] = _graphs_of_nn

__version__ = "0.1.0"
