"""Tensor: a cell that holds a value, its gradient, and perhaps a view of another cell.

Implements TENSOR-CELL and TENSOR-DETACH of spec/text/tensors.md; writing is in writing.py, the logical value in
logical.py.  The operations are in refflow/functional, attached as methods by refflow/tensor/methods.py.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ..absent import absence
from ..boxing import format_sbp
from ..errors import (
    AttributeValueError,
    AutogradError,
    DtypeError,
    LocalGlobalError,
    PlacementError,
    SbpError,
    ShapeError,
)
from ..ir import Meta, Value, to_global
from ..layout import NdSbp, Placement, normalize
from ..numerics import is_float
from ..ops.border import local_to_global, to_local
from ..state import Override, settings
from ..world.base import refuse_foreign
from .logical import Array, check_ranks, digits, logical_array, read_only, same_everywhere
from .view import DETACHED, Lens
from .writing import write


class Tensor:
    """A tensor: global (it has `placement` and `sbp`) or local (one array per rank)."""

    __slots__ = ("__weakref__", "_base", "_grad", "_lens", "_seen", "_tracked", "_value", "_version", "name")
    __array_ufunc__ = None  # NumPy's operators leave mixed expressions to ours, which refuse arrays

    def __init__(self, value: Value) -> None:
        if not isinstance(value, Value):
            raise DtypeError(
                f"Tensor: holds a value of refflow, found {type(value).__name__}; flow.tensor(data) makes a tensor of data"
            )
        self._value = value
        self._base: Tensor | None = None
        self._lens: Lens | None = None
        self._seen = self._version = 0
        self._tracked = True  # of a view: whether it was made in grad mode
        self._grad: Tensor | None = None
        self.name = ""

    # --- the cell ---------------------------------------------------------------------------------------------------

    @property
    def value(self) -> Value:
        """The present value; a view reads its base again if that was written to."""
        if self._base is not None:
            version = self.version
            stale: list[Tensor] = []
            cell = self
            while cell._base is not None and cell._seen != version:
                stale.append(cell)
                cell = cell._base
            for view in reversed(stale):  # from the base outwards: a chain of views may be long
                assert view._base is not None and view._lens is not None
                with Override(grad=view._tracked):  # whoever reads first, in whatever mode: the view stays what it is
                    view._value = view._lens.get(view._base._value)
                view._seen = version
        return self._value

    @property
    def version(self) -> int:
        """How often the cell was written to."""
        cell = self
        while cell._base is not None:
            cell = cell._base
        return cell._version

    def view_through(self, lens: Lens) -> Tensor:
        """A view of this tensor through `lens`."""
        view = Tensor(lens.get(self.value))
        view._base, view._lens, view._seen, view._tracked = self, lens, self.version, settings().grad
        return view

    def write(self, value: Value) -> Tensor:
        """Gives the cell a new value of its shape, dtype and layout; views write through (TENSOR-INPLACE).

        Errors: `AutogradError` for a leaf that requires a gradient (in grad mode) and for an expanded view;
        `ShapeError`.
        """
        return write(self, value)

    def _own(self, value: Value) -> None:
        value.requires_grad = True
        value.owner = weakref.ref(self)

    # --- what it is -------------------------------------------------------------------------------------------------

    @property
    def shape(self) -> tuple[int, ...]:
        """The logical shape; of a local tensor the shape on every rank, `ShapeError` if ranks differ (see `shapes`)."""
        value = self.value
        if value.ragged:
            raise ShapeError(f"shape: ranks hold different shapes: {self.shapes}; use .shapes")
        return value.meta.shape

    @property
    def shapes(self) -> dict[int, tuple[int, ...]]:
        """The local shape on each rank this process owns."""
        placement = self.value.meta.placement
        backend = settings().backend("cpu" if placement is None else placement.type)
        return {rank: backend.shape(array) for rank, array in self.value.shards.items()}

    @property
    def dtype(self) -> np.dtype[Any]:
        """The element type."""
        return self._value.meta.dtype

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self._value.meta.shape)

    def dim(self) -> int:
        """The number of dimensions."""
        return self.ndim

    def size(self, dim: int | None = None) -> Any:
        """The shape, or its entry `dim`."""
        if dim is not None and not -self.ndim <= dim < self.ndim:
            raise AttributeValueError(f"size: dim must be in [{-self.ndim}, {self.ndim}), found {dim}")
        return self.shape if dim is None else self.shape[dim]

    def numel(self) -> int:
        """The number of elements of the logical tensor."""
        return math.prod(self.shape)

    nelement = numel

    def element_size(self) -> int:
        """Bytes per element."""
        return self.dtype.itemsize

    @property
    def placement(self) -> Placement:
        """Where it lives; `LocalGlobalError` for a local tensor."""
        placement = self._value.meta.placement
        if placement is None:
            raise LocalGlobalError("placement: a local tensor has none; to_global(placement, sbp) makes a global one")
        return placement.base

    @property
    def sbp(self) -> NdSbp:
        """One sbp per mesh axis; `LocalGlobalError` for a local tensor."""
        sbp = self._value.meta.sbp
        if sbp is None:
            raise LocalGlobalError("sbp: a local tensor has none; to_global(placement, sbp) makes a global one")
        return sbp[: self.placement.ndim]  # inside a graph the axis of micro-steps stays hidden

    @property
    def is_global(self) -> bool:
        """Whether it has a placement and an sbp."""
        return self._value.meta.placement is not None

    @property
    def is_local(self) -> bool:
        """Whether it is one array per rank."""
        return not self.is_global

    @property
    def device(self) -> str:
        """The device type."""
        return self.placement.type if self.is_global else "cpu"

    # --- gradients --------------------------------------------------------------------------------------------------

    @property
    def grad(self) -> Tensor | None:
        """The gradient that was left here, or None.

        Errors: `ShapeError`, `DtypeError`, `LocalGlobalError` or `PlacementError` where one is assigned that is not of this
        tensor's shape, dtype and placement.  Source: AUTO-LEAF.
        """
        return self._grad

    @grad.setter
    def grad(self, gradient: Tensor | None) -> None:
        if gradient is not None:
            _require_gradient_of(self, gradient)
        self._grad = gradient

    @property
    def requires_grad(self) -> bool:
        """Whether a gradient will be wanted."""
        return self.value.requires_grad

    @requires_grad.setter
    def requires_grad(self, wanted: bool) -> None:
        self.requires_grad_(wanted)

    def requires_grad_(self, wanted: bool = True) -> Tensor:
        """Marks a leaf; a view so marked is a cell of its own.

        Errors: `AutogradError` for integers and bools, and for unmarking the result of an operation.
        """
        value = self.value
        if value.node is not None:
            if wanted:
                return self
            raise AutogradError("requires_grad_: the result of an operation; detach() gives a tensor without gradient")
        if wanted and not is_float(self.dtype):
            raise AutogradError(f"requires_grad_: only floating point tensors have gradients, found {self.dtype.name}")
        if wanted and not value.requires_grad:
            self._base = self._lens = None
            self._value = Value(value.meta, value.shards, ragged=value.ragged)
            self._own(self._value)
        elif not wanted:
            self._value = Value(value.meta, value.shards, ragged=value.ragged)
        return self

    @property
    def is_leaf(self) -> bool:
        """Whether no recorded operation made it."""
        return self.value.node is None

    @property
    def grad_fn(self) -> Any:
        """The node that made it, or None."""
        return self.value.node

    @property
    def data(self) -> Tensor:
        """This tensor without gradient: a view that writes through, in any grad mode."""
        return self.detach()

    def detach(self) -> Tensor:
        """A view of this tensor without gradient; writing to it writes here (TENSOR-DETACH)."""
        return self.view_through(DETACHED)

    def snapshot(self) -> Tensor:
        """The present value in a cell of its own, without gradient; later writes to this tensor do not reach it."""
        value = self.value
        return Tensor(Value(value.meta, value.shards, ragged=value.ragged))

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        if not self.is_leaf:
            raise AutogradError("deepcopy: only leaves can be copied; detach() the result of an operation first")
        copy = memo[id(self)] = self.snapshot()
        if self.requires_grad:
            copy.requires_grad_()
        copy.grad = None if self.grad is None else self.grad.snapshot()
        return copy

    def __reduce__(self) -> tuple[Any, ...]:
        """A leaf is pickled as the parts this process owns, and comes back where those ranks are owned."""
        if not self.is_leaf:
            raise AutogradError("pickle: only leaves can be pickled; detach() the result of an operation first")
        value = self.value
        parts = {rank: np.array(array) for rank, array in self.local_arrays().items()}
        return _restored, (type(self), value.meta, parts, value.ragged, value.requires_grad, self.grad, self.name)

    def retain_grad(self) -> None:
        """Asks that `.grad` be filled for the result of an operation too."""
        if self.value.node is not None:
            self.value.owner = weakref.ref(self)

    def register_hook(self, hook: Callable[[Tensor], Tensor | None]) -> Callable[[], None]:
        """Calls `hook(gradient)` when this tensor's gradient is complete; a tensor it returns replaces it.

        Returns a function that takes the hook away.  Errors: `AutogradError`.  Source: AUTO-LEAF.
        """
        value = self.value
        if not value.requires_grad:
            raise AutogradError("register_hook: the tensor requires no gradient")
        if not callable(hook):
            raise AutogradError(f"register_hook: needs a function of the gradient, found {type(hook).__name__}")
        if value.hooks is None:
            value.hooks = []
        value.hooks.append(hook)
        return lambda: value.hooks.remove(hook) if value.hooks and hook in value.hooks else None

    def backward(
        self, gradient: Tensor | None = None, retain_graph: bool | None = None, create_graph: bool = False
    ) -> None:
        """Adds the gradient of this tensor to `.grad` of every leaf behind it (AUTO-BACKWARD)."""
        from .backward import backward

        backward([self], None if gradient is None else [gradient], retain_graph=retain_graph, create_graph=create_graph)

    # --- layout -----------------------------------------------------------------------------------------------------

    def to_global(
        self, placement: Placement | None = None, sbp: Any = None, *, grad_sbp: Any = None, check_meta: bool = True
    ) -> Tensor:
        """This tensor in another layout, or local parts as a global tensor.

        A cell of its own, even in the layout this one has.  Args: `placement` (default: as it is), `sbp` one or one per
        mesh axis (default: as it is, S stays S), `grad_sbp` the layout the gradient is brought to first, `check_meta`
        whether local parts are compared over the ranks.
        Errors: `SbpError`, `PlacementError`, `ShapeError`, `ReplicaError`.  Source: BOX-*, BORDER-LOCAL-TO-GLOBAL.
        """
        value = self.value
        meta = value.meta
        if meta.placement is None and (placement is None or sbp is None):
            raise LocalGlobalError("to_global: a local tensor needs both placement and sbp")
        mine = None if meta.placement is None else (self.placement, self.sbp)
        placement = placement or (mine[0] if mine else None)
        assert placement is not None
        check_ranks("to_global", placement)
        if sbp is None:
            assert mine is not None
            if len(mine[1]) != placement.ndim:
                raise SbpError(
                    f"to_global: the mesh changes from {mine[0]} to {placement}; give an sbp for the new one"
                )
            sbp = mine[1]
        nd_sbp = normalize(sbp, placement.mesh, meta.shape, "to_global")
        if grad_sbp is not None:
            grad_sbp = normalize(grad_sbp, placement.mesh, meta.shape, "to_global: grad_sbp")
        if meta.placement is None:
            if grad_sbp is not None:
                raise SbpError(
                    "to_global: grad_sbp belongs to global tensors; across the border the gradient has the dual layout"
                )
            return Tensor(local_to_global(value, placement=placement, sbp=nd_sbp, check_meta=check_meta))
        if (placement, nd_sbp) == mine and not value.requires_grad:
            return Tensor(value)  # never this cell: a write must not reach further in one layout than in another
        wish = {} if grad_sbp is None else {"grad_sbp": grad_sbp}
        return Tensor(to_global(value, placement=placement, sbp=nd_sbp, **wish))

    def to_local(self) -> Tensor:
        """What each rank holds; a tensor of size 0 on ranks outside the placement (BORDER-TO-LOCAL)."""
        return Tensor(to_local(self.value))

    def local_arrays(self) -> Mapping[int, Array]:
        """rank -> the local array, as NumPy and read-only, of the ranks this process owns; for looking, not computing."""
        placement = self.value.meta.placement
        backend = settings().backend("cpu" if placement is None else placement.type)
        return {rank: read_only(backend.to_host(array)) for rank, array in self.value.shards.items()}

    # --- the logical value ------------------------------------------------------------------------------------------

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        """For np.asarray(tensor): the logical value (a collective)."""
        array = self.numpy()
        return array if dtype is None else array.astype(dtype)

    def numpy(self) -> Array:
        """A copy of the logical value as a NumPy array, on every rank (a collective); of a local tensor this rank's, if
        ranks agree.

        Errors: `AutogradError` if a gradient is required (detach() first); `LocalGlobalError` if owned ranks hold
        different values.
        """
        if self.requires_grad and settings().grad:
            raise AutogradError("numpy: the tensor requires a gradient; call detach().numpy()")
        return np.array(logical_array(self.value))  # a copy: values never change

    def item(self) -> Any:
        """The one element as a Python number (a collective)."""
        if self.numel() != 1:
            raise ShapeError(f"item: needs a tensor of one element, found shape {self.shape}")
        return logical_array(self.value).reshape(()).item()

    def tolist(self) -> Any:
        """The logical value as nested lists (a collective)."""
        return logical_array(self.value).tolist()

    def __format__(self, spec: str) -> str:
        """One element formats as its number, so f"{loss:.4f}" works; without a format any tensor as str()."""
        if not spec:
            return str(self)
        if self.numel() != 1:
            raise ShapeError(f"format: {spec!r} is for a tensor of one element, found shape {self.shape}")
        return format(self.item(), spec)

    def __bool__(self) -> bool:
        if self.numel() != 1:
            raise ShapeError(f"bool: a tensor of shape {self.shape} has no single truth value; use any() or all()")
        return bool(self.item())

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __index__(self) -> int:
        if is_float(self.dtype):
            raise TypeError(f"only integer tensors of one element can be an index, found {self.dtype.name}")
        return int(self.item())

    def __len__(self) -> int:
        if self.ndim == 0:
            raise TypeError("len() of a 0-d tensor")
        return self.shape[0]

    def __iter__(self) -> Iterator[Tensor]:
        if self.ndim == 0:
            raise TypeError("iteration over a 0-d tensor")
        return (self[i] for i in range(len(self)))  # type: ignore[index]

    def __hash__(self) -> int:
        return id(self)

    if not TYPE_CHECKING:  # a checker is to find names that do not exist

        def __getattr__(self, name: str) -> Any:
            raise AttributeError(f"a tensor has no attribute '{name}'{absence('Tensor', name)}")

    def __repr__(self) -> str:
        where = f", placement={self.placement}, sbp={format_sbp(self.sbp)}" if self.is_global else ""
        grad = (
            ", requires_grad=True"
            if self.requires_grad and self.is_leaf
            else f", grad_fn={self.grad_fn.primitive.name}"
            if self.grad_fn
            else ""
        )
        tail = f"{where}, dtype={self.dtype.name}{grad})"
        if self.is_local and not same_everywhere(self.value):
            parts = "\n".join(f"  rank {rank}: {digits(array)}" for rank, array in self.local_arrays().items())
            return f"tensor(one array per rank{tail}\n{parts}"
        return f"tensor({digits(logical_array(self.value))}{tail}"


def _restored(
    kind: type[Tensor],
    meta: Meta,
    parts: Mapping[int, Array],
    ragged: bool,
    requires_grad: bool,
    grad: Tensor | None,
    name: str,
) -> Tensor:
    """The leaf that was pickled, here; errors if this world owns other ranks."""
    state, placement = settings(), meta.placement
    needed = [rank for rank in state.world.owned if placement is None or rank in placement]
    refuse_foreign("unpickle", 0 if placement is None else placement.top, parts, needed, state.world)
    backend = state.backend("cpu" if placement is None else placement.type)
    tensor = kind.__new__(kind)
    shards = {rank: backend.from_host(array) for rank, array in parts.items()}
    Tensor.__init__(tensor, Value(meta, shards, ragged=ragged))
    tensor.grad, tensor.name = grad, name
    return tensor.requires_grad_() if requires_grad else tensor


def _require_gradient_of(tensor: Tensor, gradient: Any) -> None:
    """Refuses what cannot be the gradient of `tensor`; its sbp is its own."""
    if not isinstance(gradient, Tensor):
        raise DtypeError(f"grad: a gradient is a tensor or None, found {type(gradient).__name__}")
    mine, its = tensor.value, gradient.value
    if (mine.meta.placement is None) != (its.meta.placement is None):
        kinds = ["local" if v.meta.placement is None else "global" for v in (mine, its)]
        raise LocalGlobalError(f"grad: the tensor is {kinds[0]}, its gradient {kinds[1]}; to_global or to_local brings it over")
    if mine.meta.placement != its.meta.placement:
        raise PlacementError(f"grad: the tensor is on {mine.meta.placement}, its gradient on {its.meta.placement}")
    if mine.meta.dtype != its.meta.dtype:
        raise DtypeError(f"grad: the tensor is {mine.meta.dtype.name}, its gradient {its.meta.dtype.name}")
    ragged = mine.ragged or its.ragged
    if (tensor.shapes != gradient.shapes) if ragged else (mine.meta.shape != its.meta.shape):
        found = (tensor.shapes, gradient.shapes) if ragged else (mine.meta.shape, its.meta.shape)
        raise ShapeError(f"grad: the tensor has shape {found[0]}, its gradient {found[1]}")
