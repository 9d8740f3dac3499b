"""flow.digest: the SHA-256 of logical values.  Implements NUM-DIGEST of spec/text/numerics.md for tensors and their names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import DtypeError
from ..numerics import digest as digest_of
from ..numerics import digest_many
from .logical import logical_array
from .tensor import Tensor


def digest(x: npt.ArrayLike | Tensor | Mapping[str, Any]) -> str:
    """The SHA-256, in hex, of what `x` means: an array or a tensor; of a mapping such as a state_dict, all of them by name.

    Of a tensor it is the logical value's, the same in every layout (a collective).
    Errors: `DtypeError` for what holds no numbers.  Source: NUM-DIGEST.

    >>> import refflow as flow
    >>> flow.digest(flow.ones(2)) == flow.digest(np.ones(2, np.float32))
    True
    >>> flow.digest(flow.nn.ReLU().state_dict())[:8]
    'b5427d67'
    """
    if isinstance(x, Mapping):
        return digest_many({name: _array(name, value) for name, value in x.items()})
    return digest_of(_array("", x))


def _array(name: str, x: Any) -> npt.NDArray[Any]:
    array = logical_array(x.value) if isinstance(x, Tensor) else np.asarray(x)
    if array.dtype.kind in "OSUmM":
        of = f" {name!r}" if name else ""
        raise DtypeError(f"digest: needs an array or tensor of numbers, or a mapping of them by name; found{of} {type(x).__name__}")
    return array
