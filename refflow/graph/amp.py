"""Automatic mixed precision: which primitives round to a half type inside a graph, and dynamic loss scaling.

Implements AMP-ALLOW, AMP-DENY, AMP-INFER, AMP-SCALE and AMP-SKIP of spec/text/passes.md (Micikevicius et al., 2018).
Values stay float32 arrays, some of which hold half-precision numbers; so no layout, boxing or accumulation rule
changes, and a graph has one result for every number of ranks, stages and micro-batches.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from ..errors import AttributeValueError
from ..ir import Primitive, Value, to_global
from ..ir.bind import bind
from ..layout import broadcast, reduced
from ..numerics import float32, is_half
from ..ops.border import is_partial
from ..ops.constant import full
from ..ops.elementwise import cast, isfinite, logical_and, mul
from ..ops.reduction import all_
from ..state import Override
from ..tensor.tensor import Tensor
from .logical import key
from .trace import Tracer

ALLOW = frozenset({"matmul", "conv2d", "conv2d_input", "conv2d_filter"})
"""Rounded to the half type, operands and result; computed in float32 (AMP-ALLOW)."""

DENY = frozenset({
    "exp", "expm1", "log", "log1p", "pow", "rsqrt", "sqrt", "div", "erf", "gelu", "sigmoid", "softplus", "tanh", "sin", "cos",
    "sum", "prod", "cumsum", "cumprod", "scatter_add", "index_add", "fold2d",
})  # fmt: skip
"""float32 whatever the operands came from: functions and sums that lose too much, and what softmax, normalisations and
losses are made of (AMP-DENY).  All other primitives follow their operands, which are float32 arrays (AMP-INFER)."""


class HalfContractions:
    """An interpreter around a graph's build: what is allowed to is rounded to `dtype`, backward included."""

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self.dtype = dtype
        self._halves: dict[int, Value] = {}  # values known to hold numbers of the half type, by key

    def bind(self, primitive: Primitive, inputs: tuple[Value, ...], attrs: Mapping[str, Any]) -> tuple[Value, ...]:
        """AMP-ALLOW: operands rounded and widened, a float32 contraction, its result rounded and widened."""
        if primitive.name not in ALLOW or any(value.meta.dtype != float32 for value in inputs):
            return bind(primitive, inputs, attrs)
        (result,) = bind(primitive, tuple(map(self._rounded, inputs)), attrs)
        return (self._rounded(result),)

    def _rounded(self, value: Value) -> Value:
        if key(value) in self._halves:
            return value
        meta = value.meta
        if is_partial(meta.sbp):  # folded in float32, then rounded once
            assert meta.sbp is not None
            value = to_global(value, placement=meta.placement, sbp=reduced(meta.sbp))
        half = cast(cast(value, dtype=self.dtype), dtype=float32)
        self._halves[key(half)] = half
        return half


def require_half(dtype: Any) -> np.dtype[Any]:
    """`dtype` as one of the half types; `AttributeValueError` for another."""
    found: np.dtype[Any] = np.dtype(dtype)
    if not is_half(found):
        raise AttributeValueError(f"enable_amp: dtype must be float16 or bfloat16, found {found.name}")
    return found


# --- loss scaling -------------------------------------------------------------------------------------------------


class GradScaler:
    """Dynamic loss scaling by powers of two, for graphs: ``graph.set_grad_scaler(GradScaler())``.

    The gradient of a loss starts from `scale` instead of 1, and gradients are divided by it before the optimizers see
    them.  A step whose gradients are not all finite is skipped and the scale multiplied by `backoff_factor`; after
    `growth_interval` steps without one it is multiplied by `growth_factor`.  Errors: `AttributeValueError` unless scale
    and factors are powers of two.  Source: AMP-SCALE.
    """

    def __init__(
        self,
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
    ) -> None:
        self.skipped = 0  # steps skipped since this scaler was made
        self._set(init_scale, growth_factor, backoff_factor, growth_interval, 0)

    def _set(self, scale: float, growth: float, backoff: float, interval: int, tracker: int) -> None:
        _require_power("init_scale", scale, _LEAST, _MOST)
        _require_power("growth_factor", growth, 1.0, _MOST)
        _require_power("backoff_factor", backoff, _LEAST, 1.0)
        if not isinstance(interval, int) or isinstance(interval, bool) or interval < 1:
            raise AttributeValueError(f"GradScaler: growth_interval must be an int >= 1, found {interval!r}")
        self._scale, self.growth_factor, self.backoff_factor = float(scale), float(growth), float(backoff)
        self.growth_interval, self._tracker = interval, int(tracker)

    def get_scale(self) -> float:
        """The scale in force."""
        return self._scale

    def update(self, finite: bool) -> None:
        """A step has ended: backs off after an overflow, grows after enough steps without one (AMP-SCALE)."""
        if not finite:
            self._scale, self._tracker = max(self._scale * self.backoff_factor, _LEAST), 0
            self.skipped += 1
            return
        self._tracker += 1
        if self._tracker == self.growth_interval:
            self._scale, self._tracker = min(self._scale * self.growth_factor, _MOST), 0

    def state_dict(self) -> dict[str, Any]:
        """All that later steps depend on."""
        return {
            "scale": self._scale, "growth_factor": self.growth_factor, "backoff_factor": self.backoff_factor,
            "growth_interval": self.growth_interval, "growth_tracker": self._tracker,
        }  # fmt: skip

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Takes over what `state_dict` gave.  Errors: `AttributeValueError`."""
        factors = state_dict["growth_factor"], state_dict["backoff_factor"]
        self._set(state_dict["scale"], *factors, state_dict["growth_interval"], state_dict["growth_tracker"])

    def __repr__(self) -> str:
        return f"GradScaler(scale={self._scale:g}, {self._tracker} of {self.growth_interval} steps to its growth)"


_LEAST, _MOST = 2.0**-126, 2.0**126  # so that the scale and its inverse are both normal float32 numbers


def _require_power(name: str, value: Any, low: float, high: float) -> None:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not low <= value <= high or math.frexp(value)[0] != 0.5:
        raise AttributeValueError(
            f"GradScaler: {name} must be a power of two from {low:g} to {high:g}, so that scaling is exact; found {value!r}"
        )


@contextmanager
def scaled_losses(tracer: Tracer, scale: float) -> Iterator[None]:
    """For the block (build), the gradient of each loss starts from `scale` times what it would be (AMP-SCALE)."""

    def scaled(seed: Value) -> Value:
        return mul(seed, _number(tracer, seed, scale))

    with Override(loss_scale=scaled):
        yield


def unscaled(tracer: Tracer, params: list[Tensor], scale: float) -> Tensor:
    """Divides every gradient by `scale`; whether all of them are finite, as a 0-d bool tensor (AMP-SKIP)."""
    finite: Value | None = None
    for p in params:
        if p.grad is None:
            continue
        g = mul(p.grad.value, _number(tracer, p.grad.value, 1 / scale))
        p.grad = Tensor(g)
        mine = _everywhere(all_(isfinite(g), dims=tuple(range(len(g.meta.shape)))))
        if finite is not None and finite.meta.placement != mine.meta.placement:
            finite = to_global(finite, placement=mine.meta.placement, sbp=mine.meta.sbp)
        finite = mine if finite is None else logical_and(finite, mine)
    assert finite is not None
    return Tensor(finite)


def _everywhere(value: Value) -> Value:
    meta = value.meta
    assert meta.sbp is not None
    return to_global(value, placement=meta.placement, sbp=(broadcast,) * len(meta.sbp))


def _number(tracer: Tracer, like: Value, value: float) -> Value:
    """A 0-d number beside `like` that is another one in each call (GRAPH-SCALARS)."""
    meta = like.meta
    assert meta.sbp is not None
    before = tracer.scalars
    tracer.scalars = [] if before is None else before
    made = full(shape=(), value=value, dtype=meta.dtype, placement=meta.placement, sbp=(broadcast,) * len(meta.sbp))
    if before is None:
        tracer.scales += [scalar for scalar, _ in tracer.scalars]
    tracer.scalars = before
    return made
