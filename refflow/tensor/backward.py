"""backward and grad: the user's side of `vjp`.

Implements AUTO-BACKWARD, AUTO-SEED and AUTO-ACCUMULATE of spec/text/autograd.md, and the grad mode.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from functools import partial, wraps
from inspect import isgeneratorfunction
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar

from ..errors import AutogradError
from ..ir import Value, to_global
from ..layout import reduced
from ..ops.constant import full
from ..ops.elementwise import add
from ..state import Override, settings
from .autograd import fits_gradient, in_layout_of, leaves, reachable, vjp
from .tensor import Tensor

P = ParamSpec("P")
T = TypeVar("T")


def _seeds(outputs: Sequence[Tensor], gradients: Sequence[Tensor | None] | None) -> list[Value]:
    """The cotangent of each output: the one given, or 1 for a scalar (AUTO-SEED)."""
    seeds = []
    for output, gradient in zip(outputs, gradients or [None] * len(outputs), strict=True):
        value = output.value
        if not value.requires_grad:
            raise AutogradError(
                "backward: the tensor requires no gradient and nothing behind it does; call requires_grad_() on a leaf first"
            )
        if gradient is not None:
            if not isinstance(gradient, Tensor):
                raise AutogradError(f"backward: the gradient must be a tensor, found {type(gradient).__name__}")
            fits_gradient("backward", gradient.value, value)
            seeds.append(_placed(gradient.value, value))
        elif output.numel() != 1:
            raise AutogradError(
                f"backward: needs a gradient for a tensor of shape {output.shape}; only one of one element has the default 1"
            )
        else:
            seeds.append(_ones(value))
    return seeds


def _placed(gradient: Value, value: Value) -> Value:
    meta = value.meta
    if meta.placement is None or meta.sbp is None:
        return gradient
    return to_global(gradient, placement=meta.placement, sbp=reduced(meta.sbp))


def _ones(value: Value) -> Value:
    meta = value.meta
    where = (
        {} if meta.placement is None or meta.sbp is None else {"placement": meta.placement, "sbp": reduced(meta.sbp)}
    )
    return full(shape=meta.shape, value=1.0, dtype=meta.dtype, **where)


def backward(
    outputs: Sequence[Tensor],
    gradients: Sequence[Tensor | None] | None = None,
    *,
    retain_graph: bool | None = None,
    create_graph: bool = False,
) -> None:
    """Adds the gradient of the outputs to `.grad` of every leaf behind them, in the leaf's own sbp with P reduced.

    Errors: `AutogradError`, `ShapeError`, `DtypeError`, `LocalGlobalError` for gradients that do not fit.  Source:
    AUTO-ACCUMULATE, AUTO-SEED.
    """
    values = [output.value for output in outputs]
    seeds = _seeds(outputs, gradients)
    scale = settings().loss_scale
    if scale is not None:
        seeds = [scale(seed) for seed in seeds]
    targets = {key: value for key, value in leaves(values).items() if value.owner is not None}
    targets.update({id(v): v for node in reachable(values) for v in node.outputs if v.owner is not None})
    found = vjp(
        values,
        seeds,
        retain_graph=create_graph if retain_graph is None else retain_graph,
        create_graph=create_graph,
        watch=list(targets.values()),
    )
    for key, g in found.items():
        tensor = targets[key].owner() if key in targets else None
        if tensor is None:
            continue
        if tensor.grad is None:
            tensor.grad = Tensor(g)
        else:
            with Override(grad=create_graph):
                tensor.grad = Tensor(in_layout_of(g, add(tensor.grad.value, g)))


def grad(
    outputs: Tensor | Sequence[Tensor],
    inputs: Tensor | Sequence[Tensor],
    grad_outputs: Tensor | Sequence[Tensor | None] | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    allow_unused: bool = False,
) -> tuple[Tensor | None, ...]:
    """The gradients of the outputs to `inputs`, each in the layout of its input with P reduced; `.grad` is left alone.

    Errors: `AutogradError` if an input has no part in the outputs (unless `allow_unused`, then None).  Source:
    AUTO-VJP.
    """
    outs = [outputs] if isinstance(outputs, Tensor) else list(outputs)
    ins = [inputs] if isinstance(inputs, Tensor) else list(inputs)
    given = [grad_outputs] if isinstance(grad_outputs, Tensor) else grad_outputs
    for i, one in enumerate([*outs, *ins]):
        if not isinstance(one, Tensor):
            raise AutogradError(f"grad: outputs and inputs must be tensors, found {type(one).__name__} (number {i})")
    wanted = [tensor.value for tensor in ins]
    for i, value in enumerate(wanted):
        if not value.requires_grad:
            raise AutogradError(f"grad: input {i} requires no gradient")
    retain = create_graph if retain_graph is None else retain_graph
    found = vjp(
        [o.value for o in outs], _seeds(outs, given), retain_graph=retain, create_graph=create_graph, watch=wanted
    )
    results = [found.get(id(value)) for value in wanted]
    if not allow_unused and any(g is None for g in results):
        raise AutogradError(
            f"grad: input {results.index(None)} has no part in the outputs; allow_unused=True gives None for it"
        )
    return tuple(None if g is None else Tensor(g) for g in results)


class GradMode:
    """Sets whether operations are recorded, for a `with` block or a decorated function."""

    def __init__(self, enabled: bool) -> None:
        self._enabled = enabled
        self._stack: list[Override] = []

    def __enter__(self) -> Self:
        self._stack.append(Override(grad=self._enabled))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.pop().__exit__(kind, error, trace)

    def __call__(self, function: Callable[P, T]) -> Callable[P, T]:
        """The function in this mode; a generator function's body is in it, what happens between its items is not."""
        if isgeneratorfunction(function):
            return self._resumed(function)

        @wraps(function)
        def run(*args: P.args, **kwargs: P.kwargs) -> T:
            with GradMode(self._enabled):
                return function(*args, **kwargs)

        return run

    def _resumed(self, function: Callable[P, Any]) -> Callable[P, Any]:
        """A generator function that enters the mode whenever it is resumed, and leaves it with each item."""

        @wraps(function)
        def run(*args: P.args, **kwargs: P.kwargs) -> Generator[Any, Any, Any]:
            steps = function(*args, **kwargs)
            resume: Callable[[], Any] = partial(next, steps)
            while True:
                try:
                    with GradMode(self._enabled):
                        item = resume()
                except StopIteration as stop:
                    return stop.value
                try:
                    sent = yield item
                except GeneratorExit:
                    with GradMode(self._enabled):
                        steps.close()
                    raise
                except BaseException as error:
                    resume = partial(steps.throw, error)
                else:
                    resume = partial(steps.send, sent)

        return run


class no_grad(GradMode):
    """Operations in the block (or decorated function) are not recorded."""

    def __init__(self) -> None:
        super().__init__(False)


class enable_grad(GradMode):
    """Operations in the block (or decorated function) are recorded."""

    def __init__(self) -> None:
        super().__init__(True)


def set_grad_enabled(enabled: bool) -> Override:
    """Sets the grad mode from now on; as a context manager, for the block."""
    return Override(grad=enabled)


def is_grad_enabled() -> bool:
    """Whether operations are recorded."""
    return settings().grad
