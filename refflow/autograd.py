"""autograd: the user's names for differentiation, and `Function`, a gradient one writes oneself.

Implements AUTO-FUNCTION of spec/text/autograd.md.  The reverse pass is tensor/autograd.py's: a Function is one node of
its own primitive, whose vjp calls `backward`.
"""

from __future__ import annotations

from typing import Any

from .errors import AutogradError, LocalGlobalError, ShapeError
from .ir import Meta, Node, Primitive, Rule, Value, record
from .state import Override, settings
from .tensor.backward import backward, enable_grad, grad, is_grad_enabled, no_grad, set_grad_enabled
from .tensor.tensor import Tensor


class Context:
    """What `forward` leaves for `backward`: saved tensors, and any attribute one sets."""

    def __init__(self, needs_input_grad: tuple[bool, ...]) -> None:
        self.needs_input_grad = needs_input_grad
        self._saved: tuple[Value | None, ...] = ()
        self._flat: tuple[int, ...] = ()

    def save_for_backward(self, *tensors: Tensor | None) -> None:
        """Keeps the present values of `tensors`; writing into them later does not alter what was saved."""
        self._saved = tuple(None if t is None else t.value for t in tensors)

    @property
    def saved_tensors(self) -> tuple[Tensor | None, ...]:
        """What `save_for_backward` was given."""
        return tuple(None if value is None else Tensor(value) for value in self._saved)

    def mark_non_differentiable(self, *tensors: Tensor) -> None:
        """Says that these results have no gradient."""
        self._flat = (*self._flat, *(id(t.value) for t in tensors))


class Function:
    """An operation with a gradient of its own: subclasses define two static methods, and are called by `apply`.

    ``forward(ctx, *args)`` gives a tensor or a tuple of tensors; nothing in it is recorded.  ``backward(ctx, *grads)``
    gives one gradient, or None, per argument of forward (a single one need not be a tuple), each of the shape of its
    tensor; a result that had no gradient brings zeros.  Written with tensor functions it can be differentiated again.
    Works on local and global tensors; a gradient is brought to the layout of its tensor.
    Errors: `AutogradError`, `ShapeError`, `LocalGlobalError`.  Source: AUTO-FUNCTION.

    >>> import refflow as flow
    >>> class Double(flow.autograd.Function):
    ...     @staticmethod
    ...     def forward(ctx, x):
    ...         return x + x
    ...     @staticmethod
    ...     def backward(ctx, g):
    ...         return g + g
    >>> x = flow.tensor([1.0, 2.0], requires_grad=True)
    >>> Double.apply(x).sum().backward()
    >>> x.grad
    tensor([2., 2.], dtype=float32)
    """

    @staticmethod
    def forward(ctx: Any, *args: Any) -> Any:
        """The results; subclasses define it."""
        raise NotImplementedError("Function: define a static forward(ctx, *args)")

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """The gradient to each argument of forward; subclasses define it."""
        raise NotImplementedError("Function: define a static backward(ctx, *grads)")

    @classmethod
    def apply(cls, *args: Any) -> Any:
        """Calls `forward` and records `backward`."""
        wanted = tuple(isinstance(a, Tensor) and a.requires_grad for a in args)
        ctx = Context(wanted)
        with Override(grad=False):
            made = cls.forward(ctx, *args)
        results = made if isinstance(made, tuple) else (made,)
        for result in results:
            if not isinstance(result, Tensor):
                raise AutogradError(f"{cls.__name__}: forward must give tensors, found {type(result).__name__}")
        inputs = tuple(a.value for a in args if isinstance(a, Tensor))
        outputs = tuple(_own(r, inputs) for r in results)
        flat = {i for i, r in enumerate(results) if id(r.value) in ctx._flat}
        record(_primitive(cls, ctx, args), inputs, {}, outputs, settings())
        for i in flat:
            outputs[i].node, outputs[i].requires_grad = None, False
        tensors = tuple(r if r.value is v else Tensor(v) for r, v in zip(results, outputs, strict=True))
        return tensors if isinstance(made, tuple) else tensors[0]


def _own(result: Tensor, inputs: tuple[Value, ...]) -> Value:
    """The value the node will be put behind: never an argument's own, or one with a history."""
    value = result.value
    if value.node is None and not value.requires_grad and all(value is not one for one in inputs):
        return value
    return Value(value.meta, value.shards, ragged=value.ragged)


def _rule(*metas: Meta, **attrs: Any) -> Rule:
    raise AutogradError("a Function computes by its forward: it has no index space")


def _primitive(cls: type[Function], ctx: Context, args: tuple[Any, ...]) -> Primitive:
    """The primitive of one call: its vjp calls `backward` and checks what it gives."""

    def vjp(node: Node, *cotangents: Value) -> list[Value | None]:
        found = cls.backward(ctx, *[Tensor(g) for g in cotangents])
        grads = found if isinstance(found, tuple) else (found,)
        if len(grads) != len(args):
            raise AutogradError(
                f"{cls.__name__}: backward must give one gradient (or None) per argument of forward, {len(args)}, found {len(grads)}"
            )
        pairs = [(i, a, g) for i, (a, g) in enumerate(zip(args, grads, strict=True)) if isinstance(a, Tensor)]
        return [_checked(cls.__name__, i, value, g) for (i, _, g), value in zip(pairs, node.inputs, strict=True)]

    return Primitive(cls.__name__, _rule, vjp, doc=f"the Function {cls.__name__}")


def _checked(name: str, i: int, value: Value, g: Any) -> Value | None:
    if g is None:
        return None
    if not isinstance(g, Tensor):
        raise AutogradError(f"{name}: the gradient to argument {i} must be a tensor or None, found {type(g).__name__}")
    if g.is_global != (value.meta.placement is not None):
        raise LocalGlobalError(
            f"{name}: argument {i} is {'local' if g.is_global else 'global'}, its gradient is not; to_global or to_local"
        )
    if not value.ragged and g.shape != value.meta.shape:
        raise ShapeError(f"{name}: argument {i} has shape {value.meta.shape}, its gradient {g.shape}")
    return g.to(dtype=value.meta.dtype).value  # type: ignore[attr-defined,no-any-return]


__all__ = [
    "Context",
    "Function",
    "backward",
    "enable_grad",
    "grad",
    "is_grad_enabled",
    "no_grad",
    "set_grad_enabled",
]
