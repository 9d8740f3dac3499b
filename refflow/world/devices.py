"""Which back end computes on a device type: the world binds them, a placement only names the type.

Implements WORLD-DEVICE of spec/text/worlds.md and KER-PLUGIN of spec/text/kernels.md.  Other packages offer back ends
in the entry-point group `refflow.backends`; nothing is ever bound silently.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

from ..errors import BackendError
from ..kernels import Backend
from ..state import Override, settings

GROUP = "refflow.backends"
BUILT_IN = {  # found in a checkout that is not installed, too
    "reference": "refflow.state:reference_backend",
    "numba": "refflow_accel.cpu.backend:NumbaBackend",
    "cuda": "refflow_accel.cuda.backend:CudaBackend",
}
EXTRAS = {"numba": "accel", "cuda": "cuda"}  # what brings the packages they need
_made: dict[str, Backend] = {}


def available_backends() -> dict[str, Callable[[], Any]]:
    """name -> a function that loads the back end, or what makes it."""
    plugins = sorted(_entry_points(group=GROUP), key=lambda plugin: plugin.name)
    built_in = {name: partial(_load, target) for name, target in BUILT_IN.items()}
    return {**{plugin.name: plugin.load for plugin in plugins}, **built_in}


def _entry_points(group: str) -> Any:
    from importlib.metadata import entry_points  # slow to import, and rarely needed

    return entry_points(group=group)


def _load(target: str) -> Any:
    module, attribute = target.split(":")
    return getattr(import_module(module), attribute)


def find_backend(which: str | Backend) -> Backend:
    """The back end of a name, made once, or the given one.

    Errors: `BackendError` listing what exists, or saying what a plugin lacks.  Source: KER-PLUGIN.
    """
    if not isinstance(which, str):
        return _checked(which, "the given object")
    if which not in _made:
        available = available_backends()
        if which not in available:
            raise BackendError(
                f"no back end is named {which!r}; there are: {', '.join(sorted(available))}"
                f" (more come from packages with entry points in the group '{GROUP}')"
            )
        try:
            loaded = available[which]()
            made = loaded() if callable(loaded) else loaded
        except ImportError as error:
            hint = f"; install refflow with the extra '{EXTRAS[which]}'" if which in EXTRAS else ""
            raise BackendError(f"the back end {which!r} cannot be loaded: {error}{hint}") from error
        _made[which] = _checked(made, f"the back end {which!r}")
    return _made[which]


def _checked(backend: Any, what: str) -> Backend:
    """`backend`, if it has all of the protocol."""
    missing = [name for name in ("name", "kernel", "from_host", "to_host", "shape") if not hasattr(backend, name)]
    if missing or isinstance(backend, type):
        found = "a class; make an instance" if isinstance(backend, type) else f"no {', '.join(missing)}"
        raise BackendError(f"{what} is no back end (refflow.kernels.Backend): it has {found}")
    complete: Backend = backend
    return complete


def bind_device(type: str, backend: str | Backend) -> Override:
    """Lets a back end compute on a device type: its name, or an instance; a function and a context manager.

    Tensors made before hold arrays of the back end bound then: bind first, then make tensors.
    Errors: `BackendError` for a bad type or back end.  Source: WORLD-DEVICE.

    >>> import refflow as flow
    >>> with flow.bind_device("cuda", "reference"):
    ...     flow.ones(2, placement=flow.placement("cuda", [0]), sbp=flow.sbp.broadcast).sum().item()
    2.0
    """
    if not isinstance(type, str) or not type:
        raise BackendError(f"bind_device: the device type must be a non-empty string such as 'cuda', found {type!r}")
    return Override(backends={**settings().backends, type: find_backend(backend)})


def backend(name: str | Backend) -> Override:
    """Lets the named back end compute on "cpu" and on local tensors; a function and a context manager.

    Errors: `BackendError`.  Source: WORLD-DEVICE.
    """
    return bind_device("cpu", name)
