"""The errors refflow raises: one class per kind of broken rule, all under `RefflowError`.

Implements ERR-TYPES and ERR-UNCHANGED of spec/text/errors.md.  A message says what was asked, what was found and what would work.
Each class also derives from the built-in a user of NumPy or PyTorch would catch (`ValueError`, `TypeError`,
`IndexError`).
"""

from __future__ import annotations


class RefflowError(Exception):
    """Base of every error raised on purpose by refflow."""


class NumericsError(RefflowError, ArithmeticError):
    """The machine or a request breaks the arithmetic profile (subnormals flushed, no such function)."""


class ShapeError(RefflowError, ValueError):
    """Shapes do not fit the operation."""


class DtypeError(RefflowError, TypeError):
    """Element types do not fit the operation."""


class AttributeValueError(RefflowError, ValueError):
    """An attribute of an operation (a dimension, a stride, a probability …) is out of its range."""


class PlacementError(RefflowError, ValueError):
    """A placement is malformed, or tensors live on placements that do not match."""


class SbpError(RefflowError, ValueError):
    """A split / broadcast / partial signature is malformed or not allowed here."""


class LocalGlobalError(RefflowError, TypeError):
    """Local and global tensors were mixed, or one was used where the other is needed."""


class ReplicaError(RefflowError, ValueError):
    """Ranks that must hold equal bits (sbp broadcast) do not."""


class BoxingError(RefflowError, RuntimeError):
    """A tensor would have to be moved implicitly while boxing is explicit."""


class DataError(RefflowError, ValueError):
    """A value found in the data is not allowed (found at run time, agreed on by every rank)."""


class IndexOutOfRange(DataError, IndexError):
    """An index tensor holds a value outside the indexed dimension."""


class AutogradError(RefflowError, RuntimeError):
    """Backward was asked for where it has no meaning, or twice on a freed graph."""


class GraphError(RefflowError, RuntimeError):
    """Code in `build` asks for what a graph cannot do, or a graph is called with what it was not traced for."""


class TooManySteps(GraphError):
    """A graph cannot be cut into that many micro-batches (TIME-REFUSED)."""


class PlanError(RefflowError, ValueError):
    """A plan is malformed, or a proof on it fails: names the rule, the tasks and the registers."""


class DeadlockError(PlanError):
    """Tasks wait for one another in a cycle: says who waits for whom, and for what."""


class InvariantError(RefflowError, AssertionError):
    """A rule of the runtime was broken while it ran: names the rule, the actor and the register."""


class OutOfMemory(RefflowError, MemoryError):
    """An array does not fit into this machine's memory."""


class WorldError(RefflowError, RuntimeError):
    """The world (ranks, processes, back ends) cannot do what was asked."""


class DivergenceError(WorldError):
    """Ranks reached different calls, or one left early: names the ranks and the calls."""


class BackendError(WorldError):
    """A back end is unknown, or lacks a kernel."""


class CheckpointError(RefflowError, RuntimeError):
    """A checkpoint is truncated, altered or does not fit what it is loaded into."""
