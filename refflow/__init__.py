"""refflow: OneFlow's distributed semantics as something to read, check and run; the reference runtime of global
tensors.

import refflow as flow
"""

from __future__ import annotations

from . import autograd, data, errors, layout, nn, numerics, optim
from .boxing import comm_log
from .checkpoint import load, save
from .errors import RefflowError
from .explain import explain
from .functional.arithmetic import *  # noqa: F403
from .functional.creation import *  # noqa: F403
from .functional.movement import *  # noqa: F403
from .functional.reduction import *  # noqa: F403
from .layout import sbp
from .layout.placement import Placement, placement
from .numerics import (
    PROFILE,
    bfloat16,
    check_subnormals,
    digest,
    float16,
    float32,
    float64,
    int8,
    int32,
    int64,
    same_bits,
    uint8,
)
from .numerics import bool_ as bool
from .pictures import Picture, draw_boxing, draw_layout
from .random import Generator, default_generator, manual_seed
from .state import boxing, signatures
from .tensor import methods as _methods
from .tensor.backward import enable_grad, is_grad_enabled, no_grad, set_grad_enabled
from .tensor.tensor import Tensor
from .world import backend, barrier, bind_device, get_rank, get_world_size, mpi_world, spmd, virtual_world
from .world import default_world as _default_world

check_subnormals()
_default_world()  # under mpiexec every process joins here, so that one that ends early is noticed
_methods.attach()

__version__ = "0.1.0"
