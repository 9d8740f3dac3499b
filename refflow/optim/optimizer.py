"""Optimizer: parameter groups, state, and the one place where a parameter is written.

Implements OPT-LAYOUT, OPT-SCALAR, OPT-HALF and OPT-STATE of spec/text/optim.md.  What an update is, is each
optimizer's own: a stated sequence of primitives on tensors in the layout of the parameter, so nothing is communicated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from ..errors import AttributeValueError, SbpError, ShapeError
from ..functional.arithmetic import cast
from ..functional.creation import zeros_like
from ..layout import Placement, broadcast
from ..numerics import float32, is_float, is_half
from ..ops.border import is_partial
from ..state import settings
from ..tensor.backward import enable_grad, no_grad
from ..tensor.tensor import Tensor

Group = dict[str, Any]
State = dict[str, Any]
Number = np.floating[Any]


class Optimizer:
    """Base of the optimizers; a subclass says what one update is (`update`).

    `params`: tensors, or dicts with "params" and hyper-parameters of their own; `defaults`: the hyper-parameters of
    groups that give none.  Errors: `AttributeValueError`, `SbpError`.  Source: OPT-LAYOUT.
    """

    def __init__(self, params: Iterable[Any], defaults: Mapping[str, Any]) -> None:
        self.defaults = dict(defaults)
        self.state: dict[Tensor, State] = {}
        self.param_groups: list[Group] = []
        if isinstance(params, Tensor):
            raise AttributeValueError("optimizer: params must be a list of tensors or of dicts, found one tensor")
        given = _listed(params)
        if not given:
            raise AttributeValueError("optimizer: params is empty; give model.parameters() or a list of tensors")
        for group in given if isinstance(given[0], Mapping) else [{"params": given}]:
            self.add_param_group(group)

    def add_param_group(self, group: Mapping[str, Any]) -> None:
        """Adds tensors with hyper-parameters of their own, those not given being the defaults."""
        if "params" not in group:
            raise AttributeValueError(f"optimizer: a group is a dict with 'params', found only {', '.join(map(repr, group))}")
        params = [group["params"]] if isinstance(group["params"], Tensor) else _listed(group["params"])
        unknown = sorted(set(group) - set(self.defaults) - {"params"})
        if unknown:
            known = ", ".join(sorted(self.defaults))
            raise AttributeValueError(f"optimizer: no hyper-parameter is called {unknown[0]!r}; there are {known}")
        known_params = {id(p) for g in self.param_groups for p in g["params"]}
        for position, p in enumerate(params):
            _check_parameter(position, p)
            if id(p) in known_params:
                raise AttributeValueError(f"optimizer: parameter {position} is given twice; each may be in one group")
            known_params.add(id(p))
        made = {**self.defaults, **group, "params": params}
        self.check(made)
        self.param_groups.append(made)

    def check(self, group: Group) -> None:
        """Raises AttributeValueError for a hyper-parameter outside its range."""

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forgets the gradients; with `set_to_none=False` they become +0 instead."""
        for group in self.param_groups:
            for p in group["params"]:
                p.grad = None if set_to_none or p.grad is None else zeros_like(p.grad)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Updates every parameter that has a gradient; returns what `closure` does, which is called first (OPT-STEP)."""
        for interpreter in settings().interpreters:
            if hasattr(interpreter, "steps_optimizer"):  # a graph's tracer steps its own
                interpreter.steps_optimizer()
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        with no_grad():
            for group in self.param_groups:
                for p in group["params"]:
                    if p.grad is not None:
                        self._step_one(p, group)
        return loss

    def _step_one(self, p: Tensor, group: Group) -> None:
        state = self.state.setdefault(p, {})
        new = self.update(_wide(p.detach()), _wide(p.grad.detach()), state, group)  # type: ignore[union-attr]
        p.write(new.value)  # rounds once to a half parameter's dtype, keeps its placement and sbp

    def update(self, p: Tensor, g: Tensor, state: State, group: Group) -> Tensor:
        """The new parameter after gradient `g`; changes `state`.  In grad mode off."""
        raise NotImplementedError

    def state_dict(self) -> dict[str, Any]:
        """{"state": {number of the parameter: its state}, "param_groups": [hyper-parameters, "params": numbers]}."""
        numbers = {id(p): i for i, p in enumerate(self._parameters())}
        state = {numbers[id(p)]: {k: _snapshot(v) for k, v in s.items()} for p, s in self.state.items()}
        groups = [{**group, "params": [numbers[id(p)] for p in group["params"]]} for group in self.param_groups]
        return {"state": state, "param_groups": groups}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Takes over what `state_dict` gave; state tensors are brought to the layout of their parameter (OPT-STATE).

        Nothing is changed on an error: `AttributeValueError` for other groups, `ShapeError` for other shapes.
        """
        groups = list(state_dict["param_groups"])
        found, wanted = ([len(g["params"]) for g in gs] for gs in (groups, self.param_groups))
        if found != wanted:
            raise AttributeValueError(f"load_state_dict: has groups of {found} parameters, the optimizer of {wanted}")
        parameters = self._parameters()
        state: dict[Tensor, State] = {}
        for number, entries in state_dict["state"].items():
            if not 0 <= int(number) < len(parameters):
                raise AttributeValueError(f"load_state_dict: state of parameter {number}; there are {len(parameters)}")
            p = parameters[int(number)]
            state[p] = {k: _like(v, p, f"{number}.{k}") if isinstance(v, Tensor) else v for k, v in entries.items()}
        self.state = state
        for mine, group in zip(self.param_groups, groups, strict=True):
            mine.update({k: v for k, v in group.items() if k != "params"})

    def _parameters(self) -> list[Tensor]:
        return [p for group in self.param_groups for p in group["params"]]

    def __repr__(self) -> str:
        groups = [", ".join(f"{k}={v}" for k, v in g.items() if k != "params") for g in self.param_groups]
        return f"{type(self).__name__}({'; '.join(groups)})"


def number(value: float, p: Tensor) -> Number:
    """A hyper-parameter in the arithmetic of the update: float64 for a float64 parameter, else float32 (OPT-SCALAR)."""
    return np.float64(value) if p.dtype == np.float64 else np.float32(value)


def keep(state: State, name: str, value: Tensor, p: Tensor) -> Tensor:
    """Keeps `value` as state `name`, in the layout of the parameter `p`, and returns it (OPT-LAYOUT)."""
    if p.is_global:
        value = value.to_global(p.placement, p.sbp)  # nothing to do but where a mesh axis of one rank hides a split
    if name in state:
        state[name].write(value.value)  # the same cell from the first step on: a graph finds it there
    else:
        state[name] = Tensor(value.value)
    return value


def power(state: State, name: str, base: Number) -> Number:
    """base^t after the t-th call, by repeated multiplication; kept in `state` as a Python float (OPT-POWER)."""
    result = base if name not in state else type(base)(state[name]) * base
    state[name] = float(result)
    return result


def require(ok: bool, name: str, value: Any, room: str) -> None:
    """`AttributeValueError` unless `ok`."""
    if not ok:
        raise AttributeValueError(f"optimizer: {name} must be {room}, found {value!r}")


def _wide(x: Tensor) -> Tensor:
    return cast(x, float32) if is_half(x.dtype) else x


def _snapshot(entry: Any) -> Any:
    return entry.snapshot() if isinstance(entry, Tensor) else entry


def _listed(params: Any) -> list[Any]:
    if hasattr(params, "parameters") or isinstance(params, str) or not isinstance(params, Iterable):  # a module may be iterable
        raise AttributeValueError(
            f"optimizer: params must be a list of tensors or of dicts, found {type(params).__name__}; give model.parameters()"
        )
    return list(params)


def _check_parameter(position: int, p: Any) -> None:
    if not isinstance(p, Tensor) or not p.is_leaf or not is_float(p.dtype):
        what = f"{type(p).__name__}" if not isinstance(p, Tensor) else f"{p.dtype.name}, leaf: {p.is_leaf}"
        works = "detach() makes a leaf" if isinstance(p, Tensor) else "model.parameters() gives those of a module"
        raise AttributeValueError(f"optimizer: parameter {position} must be a floating point leaf tensor, found {what}; {works}")
    if p.is_global and is_partial(p.sbp):
        raise SbpError(f"optimizer: parameter {position} is {p.sbp}; a P addend cannot be updated, to_global it to S or B")


def _like(x: Tensor, p: Tensor, what: str) -> Tensor:
    """`x` in the placement and sbp of `p` (its dtype is its own: the state of halves is float32)."""
    if x.shape != p.shape:
        raise ShapeError(f"load_state_dict: state {what} has shape {x.shape}, its parameter {p.shape}")
    x = x.snapshot()
    if p.is_local:
        return x.to_global(Placement.all(x.placement.type), broadcast).to_local() if x.is_global else x
    if x.is_local:
        x = x.to_global(p.placement, (broadcast,) * p.placement.ndim)
    return x.to_global(p.placement, p.sbp)
