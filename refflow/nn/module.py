"""Module: a tree of parameters, buffers and submodules with a forward function; PyTorch's surface.

Implements NN-MODULE, NN-NAMES, NN-HOOK and NN-TO-GLOBAL of spec/text/nn.md; saving and loading is state.py's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Self, TypeVar

import numpy as np

from ..absent import absence
from ..errors import AttributeValueError, DtypeError
from ..layout import Placement, Split, broadcast, chosen_by
from ..numerics import is_float
from ..state import Override
from ..tensor.tensor import Tensor
from .hooks import HookHandle, Hooks
from .parameter import Parameter, laid_out, like
from .state import Loaded, load_state, state_of

T = TypeVar("T")


class Module:
    """Base of every layer and model: assign parameters, modules and buffers in `__init__`, define `forward`."""

    training: bool

    def __init__(self) -> None:
        slots: dict[str, Any] = {
            "training": True,
            "_parameters": {},
            "_buffers": {},
            "_modules": {},
            "_transient": set(),  # names of buffers that are not saved
            "_forward_pre_hooks": Hooks(),
            "_forward_hooks": Hooks(),
        }
        self.__dict__.update(slots)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The function of the module; subclasses define it."""
        raise NotImplementedError(f"{type(self).__name__} defines no forward()")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """`forward` between its hooks (NN-HOOK); in a graph, in the stage and scope set for it (GRAPH-STAGE)."""
        told = self.__dict__.get("_graph_module")
        return self._call(*args, **kwargs) if told is None else told.run(self._call, args, kwargs)

    def _call(self, *args: Any, **kwargs: Any) -> Any:
        for hook in self._forward_pre_hooks:
            changed = hook(self, args)
            if changed is not None:
                args = changed if isinstance(changed, tuple) else (changed,)
        result = self.forward(*args, **kwargs)
        for hook in self._forward_hooks:
            changed = hook(self, args, result)
            if changed is not None:
                result = changed
        return result

    def register_forward_pre_hook(self, hook: Callable[[Module, tuple[Any, ...]], Any]) -> HookHandle:
        """Calls ``hook(module, args)`` before forward; what it returns replaces the arguments."""
        return self._forward_pre_hooks.add(hook)

    def register_forward_hook(self, hook: Callable[[Module, tuple[Any, ...], Any], Any]) -> HookHandle:
        """Calls ``hook(module, args, result)`` after forward; what it returns replaces the result."""
        return self._forward_hooks.add(hook)

    # --- attributes ---------------------------------------------------------------------------------------------------

    _parameters: dict[str, Parameter | None]
    _buffers: dict[str, Tensor | None]
    _modules: dict[str, Module | None]
    _transient: set[str]
    _forward_pre_hooks: Hooks
    _forward_hooks: Hooks

    def _tables(self) -> tuple[dict[str, Any], ...]:
        try:
            return self.__dict__["_parameters"], self.__dict__["_buffers"], self.__dict__["_modules"]
        except KeyError:
            raise AttributeError(
                f"{type(self).__name__}: call super().__init__() before assigning parameters"
            ) from None

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, (Parameter, Module)):
            place = 0 if isinstance(value, Parameter) else 2
            self._forget(name, keep=place)
            self._tables()[place][name] = value
            return
        for table, kind in zip(self._tables() if "_parameters" in self.__dict__ else (), _KINDS):
            if name in table:
                if value is not None and not (kind is Tensor and isinstance(value, Tensor)):
                    raise DtypeError(
                        f"{type(self).__name__}.{name}: must be a {kind.__name__} or None, found {type(value).__name__}"
                    )
                table[name] = value
                return
        object.__setattr__(self, name, value)

    def _forget(self, name: str, keep: int | None = None) -> None:
        """Takes `name` out of every table but number `keep`, where a new entry then takes the old one's place."""
        for i, table in enumerate((*self._tables(), self.__dict__)):
            if i != keep:
                table.pop(name, None)
        self._transient.discard(name)

    def __getattr__(self, name: str) -> Any:
        for table in ("_parameters", "_buffers", "_modules"):
            held = self.__dict__.get(table, {})
            if name in held:
                return held[name]
        raise AttributeError(f"{type(self).__name__} has no attribute '{name}'{absence('Module', name)}")

    def __delattr__(self, name: str) -> None:
        if any(name in table for table in self._tables()):
            self._forget(name)
        else:
            object.__delattr__(self, name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self._parameters, *self._buffers, *self._modules})

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        """Adds a parameter, or the name of one that is absent (None)."""
        self._register(name, param, Parameter, 0)

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Adds a tensor that is not trained; one that is not `persistent` is left out of state_dict."""
        self._register(name, tensor, Tensor, 1)
        (self._transient.discard if persistent else self._transient.add)(name)

    def add_module(self, name: str, module: Module | None) -> None:
        """Adds a submodule."""
        self._register(name, module, Module, 2)

    register_module = add_module

    def _register(self, name: str, value: Any, kind: type, table: int) -> None:
        if not name or "." in name:
            raise AttributeValueError(f"{type(self).__name__}: a name must not be empty or contain '.', found {name!r}")
        if hasattr(self, name) and name not in self._tables()[table]:
            raise AttributeValueError(f"{type(self).__name__}: the attribute '{name}' exists already")
        if value is not None and not isinstance(value, kind):
            raise DtypeError(
                f"{type(self).__name__}.{name}: must be a {kind.__name__} or None, found {type(value).__name__}"
            )
        self._tables()[table][name] = value

    def get_submodule(self, target: str) -> Module:
        """The submodule at a dotted path; "" is the module itself."""
        module: Module = self
        for part in target.split(".") if target else ():
            found = module._modules.get(part)
            if found is None:
                raise AttributeError(f"{type(self).__name__} has no submodule '{target}'")
            module = found
        return module

    def get_parameter(self, target: str) -> Parameter:
        """The parameter at a dotted path."""
        path, _, name = target.rpartition(".")
        found = self.get_submodule(path)._parameters.get(name)
        if found is None:
            raise AttributeError(f"{type(self).__name__} has no parameter '{target}'")
        return found

    # --- walking ------------------------------------------------------------------------------------------------------

    def named_modules(self, memo: set[int] | None = None, prefix: str = "") -> Iterator[tuple[str, Module]]:
        """(dotted name, module) of this module and all below, each once, parents first (NN-NAMES)."""
        memo = set() if memo is None else memo
        if id(self) in memo:
            return
        memo.add(id(self))
        yield prefix, self
        for name, child in self._modules.items():
            if child is not None:
                yield from child.named_modules(memo, f"{prefix}.{name}" if prefix else name)

    def modules(self) -> Iterator[Module]:
        """This module and all below, each once."""
        return (module for _, module in self.named_modules())

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """(name, module) of the direct submodules, each once."""
        return _once((n, m) for n, m in self._modules.items() if m is not None)

    def children(self) -> Iterator[Module]:
        """The direct submodules, each once."""
        return (module for _, module in self.named_children())

    def _named(self, table: str, prefix: str, recurse: bool) -> Iterator[tuple[str, Any]]:
        for path, module in self.named_modules(prefix=prefix) if recurse else [(prefix, self)]:
            for name, tensor in getattr(module, table).items():
                if tensor is not None:
                    yield (f"{path}.{name}" if path else name), tensor

    def named_parameters(self, prefix: str = "", recurse: bool = True) -> Iterator[tuple[str, Parameter]]:
        """(dotted name, parameter), one that is shared once, under its first name (NN-NAMES)."""
        return _once(self._named("_parameters", prefix, recurse))

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        """Every parameter, one that is shared once."""
        return (parameter for _, parameter in self.named_parameters(recurse=recurse))

    def named_buffers(self, prefix: str = "", recurse: bool = True) -> Iterator[tuple[str, Tensor]]:
        """(dotted name, buffer), one that is shared once."""
        return _once(self._named("_buffers", prefix, recurse))

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """Every buffer, one that is shared once."""
        return (buffer for _, buffer in self.named_buffers(recurse=recurse))

    def apply(self, fn: Callable[[Module], Any]) -> Self:
        """Calls `fn` on every module below, children first, then on this one."""
        for child in self.children():
            child.apply(fn)
        fn(self)
        return self

    # --- modes --------------------------------------------------------------------------------------------------------

    def train(self, mode: bool = True) -> Self:
        """Sets `training` here and below; dropout and batch norm look at it."""
        for module in self.modules():
            module.training = mode
        return self

    def eval(self) -> Self:
        """train(False)."""
        return self.train(False)

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Marks every parameter."""
        for parameter in self.parameters():
            parameter.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drops every gradient, or with set_to_none=False fills it with +0."""
        from ..functional.creation import zeros_like

        for parameter in self.parameters():
            if parameter.grad is not None:
                parameter.grad = None if set_to_none else zeros_like(parameter.grad)

    # --- layout and dtype ---------------------------------------------------------------------------------------------

    def to_global(self, placement: Placement, sbp: Any) -> Self:
        """Moves every parameter, its gradient and every buffer to `placement`, in place; the module itself is returned.

        `sbp`: one (or one per mesh axis) for all, where S(i) means B for a tensor without a dimension i; or a function
        of (dotted name, tensor) that gives it.  Local tensors must be equal on all ranks (checked): they are the
        logical value.  Errors: those of `Tensor.to_global`, before anything is moved.  Source: NN-TO-GLOBAL.
        """

        def moved(name: str, tensor: Tensor) -> Tensor:
            chosen = sbp(name, tensor) if chosen_by(sbp) else _fitting(sbp, tensor)
            return laid_out(tensor, placement, chosen)

        return self._relocate(moved)

    def to_local(self) -> Self:
        """Replaces every parameter and buffer by what each rank holds of it, in place."""
        return self._relocate(lambda name, tensor: tensor.to_local() if tensor.is_global else tensor)

    def to(self, target: Any = None, *, dtype: np.dtype[Any] | None = None) -> Self:
        """Moves to a device type (a string), or casts every floating point parameter and buffer, in place.

        ``to(nn.graph.GraphModule)`` gives what a graph is told about this module (its stage, recomputation).
        """
        if isinstance(target, type) and hasattr(target, "of"):
            return target.of(self)  # type: ignore[no-any-return]
        if isinstance(target, str):
            self._relocate(lambda name, tensor: tensor.to(target))  # type: ignore[attr-defined]
            target = None
        wanted = dtype if dtype is not None else target
        if wanted is None:
            return self
        if not is_float(np.dtype(wanted)):
            raise DtypeError(f"{type(self).__name__}.to: needs a floating point dtype, found {np.dtype(wanted).name}")
        return self._relocate(lambda name, t: t.to(dtype=np.dtype(wanted)) if is_float(t.dtype) else t)  # type: ignore[attr-defined]

    def cpu(self) -> Self:
        """to("cpu")."""
        return self.to("cpu")

    def cuda(self) -> Self:
        """to("cuda"): for modules of global tensors, where a back end is bound to that device type (`bind_device`)."""
        return self.to("cuda")

    def float(self) -> Self:
        """to(float32)."""
        return self.to(dtype=np.dtype("float32"))

    def double(self) -> Self:
        """to(float64)."""
        return self.to(dtype=np.dtype("float64"))

    def half(self) -> Self:
        """to(float16)."""
        return self.to(dtype=np.dtype("float16"))

    def bfloat16(self) -> Self:
        """to(bfloat16)."""
        from ..numerics import bfloat16

        return self.to(dtype=bfloat16)

    def _relocate(self, move: Callable[[str, Tensor], Tensor]) -> Self:
        """Every tensor moved first, then put in place, so that an error changes nothing; shared ones stay shared."""
        with Override(grad=False):
            parameters = [(cell, move(name, cell.detach())) for name, cell in self.named_parameters()]
            grads = [None if cell.grad is None else like(cell.grad, moved) for cell, moved in parameters]
            buffers = {id(cell): move(name, cell.detach()) for name, cell in self.named_buffers()}
        for (cell, moved), grad in zip(parameters, grads):
            cell.relocate(moved, grad)
        for module in self.modules():
            for name, cell in module._buffers.items():  # type: ignore[assignment]
                if cell is not None:
                    module._buffers[name] = buffers[id(cell)]
        return self

    # --- saving -------------------------------------------------------------------------------------------------------

    def state_dict(self, prefix: str = "", keep_vars: bool = False) -> dict[str, Tensor]:
        """dotted name -> value of every parameter and persistent buffer, a snapshot; keep_vars gives the cells.

        A shared tensor appears under each of its names, as in PyTorch.  Source: NN-STATE.
        """
        return state_of(self, prefix, keep_vars)

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True) -> Loaded:
        """Writes values into parameters and buffers, each in its own placement, sbp and dtype; see
        `refflow.nn.state.load_state`.
        """
        return load_state(self, state_dict, strict)

    # --- text ---------------------------------------------------------------------------------------------------------

    def extra_repr(self) -> str:
        """What stands between the parentheses of the module's own line."""
        return ""

    def __repr__(self) -> str:
        extra = self.extra_repr().split("\n") if self.extra_repr() else []
        lines = [f"({name}): " + repr(m).replace("\n", "\n  ") for name, m in self._modules.items()]
        if not lines and len(extra) <= 1:
            return f"{type(self).__name__}({''.join(extra)})"
        return "\n  ".join([f"{type(self).__name__}(", *extra, *lines]) + "\n)"


_KINDS = (Parameter, Tensor, Module)


def _once(named: Iterator[tuple[str, T]]) -> Iterator[tuple[str, T]]:
    """Each object under its first name only."""
    seen: set[int] = set()
    for name, thing in named:
        if id(thing) not in seen:
            seen.add(id(thing))
            yield name, thing


def _fitting(sbp: Any, tensor: Tensor) -> Any:
    """`sbp` with S(i) replaced by B where the tensor has no dimension i."""

    def fit(one: Any) -> Any:
        return broadcast if isinstance(one, Split) and not -tensor.ndim <= one.axis < tensor.ndim else one

    return [fit(one) for one in sbp] if isinstance(sbp, (list, tuple)) else fit(sbp)
