"""How a composite treats float16 and bfloat16: storage types, widened once at its start and rounded once at its end.

Implements NN-HALF of spec/text/nn.md (NUM-HALF for whole functions).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec

from ..errors import DtypeError
from ..numerics import float32, is_float, is_half, promote
from ..tensor.tensor import Tensor
from .arithmetic import cast, require_tensor

P = ParamSpec("P")


def in_float32(function: Callable[P, Tensor]) -> Callable[P, Tensor]:
    """`function` with every half-precision tensor argument widened to float32, and its result rounded once.

    The result has the dtype the floating point arguments meet in, so one float32 argument makes it float32.
    """

    @wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> Tensor:
        floats = [t.dtype for t in (*args, *kwargs.values()) if isinstance(t, Tensor) and is_float(t.dtype)]
        if not any(map(is_half, floats)):
            return function(*args, **kwargs)
        met = floats[0]
        for dtype in floats[1:]:
            met = promote(met, dtype)
        result: Tensor = function(*map(_widened, args), **{k: _widened(v) for k, v in kwargs.items()})
        return cast(result, met) if is_half(met) else result

    return run


def floating(name: str, x: Any) -> Tensor:
    """`x`, or `DtypeError` if it is not a floating point tensor."""
    tensor = require_tensor(name, x)
    if not is_float(tensor.dtype):
        raise DtypeError(f"{name}: needs a floating point tensor, found {tensor.dtype.name}; cast it first")
    return tensor


def _widened(argument: Any) -> Any:
    return cast(argument, float32) if isinstance(argument, Tensor) and is_half(argument.dtype) else argument
