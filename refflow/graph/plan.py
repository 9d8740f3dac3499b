"""The plan: tasks on ranks and streams, the registers between them, and the messages between ranks.  Data, no rules.

Implements PLAN-TASK, PLAN-REGISTER, PLAN-STREAM, PLAN-MESSAGE and PLAN-RATES of spec/text/plan.md.  A plan is a
synchronous-dataflow graph: `graph.proofs` decides what can be said of it, `runtime` runs it, `graph.plan_text` and
`graph.plan_json` write it down.  What a payload computes is left to whoever runs the plan.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Literal, get_args

from ..errors import DeadlockError as DeadlockError
from ..errors import PlanError as PlanError

if TYPE_CHECKING:
    from .proofs import Report

VERSION = 1

TaskKind = Literal["source", "compute", "sink", "repeat", "acc", "pack", "unpack", "send", "recv", "buffer", "tick"]
RegisterKind = Literal["data", "ctrl", "message"]
StreamKind = Literal["compute", "copy", "comm"]

KINDS: tuple[str, ...] = get_args(TaskKind)
FEWER_IN = frozenset({"repeat", "unpack"})  # one input serves `count` actions
FEWER_OUT = frozenset({"acc", "pack"})  # `count` actions make one output
FORWARDING = frozenset({"repeat", "buffer", "send", "recv"})  # the output is the input: no payload, nothing written


@dataclass(frozen=True)
class Memory:
    """A place in a rank's memory: `offset` bytes into block number `block` (blocks belong to one rank)."""

    block: int
    offset: int


@dataclass(frozen=True)
class Task:
    """What an actor is made from (PLAN-TASK).

    `payload` names the work: the runtime maps it to a callable.  `inputs` and `outputs` are register ids, control
    registers included.  A cycle is `count` actions (repeat, acc, pack, unpack; else 1).  `in_place` pairs an input
    with the output that takes over its memory.  `time` is one action's, in units of the reader's choice, `workspace`
    bytes are the task's own.
    """

    id: int
    name: str
    rank: int = 0
    stream: str = "compute"
    kind: TaskKind = "compute"
    payload: str = ""
    inputs: tuple[int, ...] = ()
    outputs: tuple[int, ...] = ()
    in_place: tuple[tuple[int, int], ...] = ()
    count: int = 1
    time: Fraction = Fraction(0)
    flops: int = 0
    workspace: int = 0

    @property
    def takes(self) -> int:
        """Registers taken from each input in a cycle (PLAN-RATES)."""
        return 1 if self.kind in FEWER_IN else self.count

    @property
    def gives(self) -> int:
        """Registers sent on each output in a cycle (PLAN-RATES)."""
        return 1 if self.kind in FEWER_OUT else self.count


@dataclass(frozen=True)
class RegisterDesc:
    """`number` registers of `bytes` each, filled by one task and read by others (PLAN-REGISTER).

    `number` is the producer's credit: how many may be in flight.  Of kind "message" it is a channel from a send to a
    receive on another rank, and 0 means rendezvous.  `initial` of them are full before the first action: what an
    iteration leaves to the next.  `time_shape`, where given, factors how many are filled in one iteration.
    """

    id: int
    name: str
    producer: int
    consumers: tuple[int, ...] = ()
    number: int = 1
    bytes: int = 0
    kind: RegisterKind = "data"
    memory: Memory | None = None
    time_shape: tuple[int, ...] = ()
    initial: int = 0


@dataclass(frozen=True)
class Stream:
    """Where actions of one rank follow one another (PLAN-STREAM).

    `order` is the static order of one iteration: task ids, one entry per action, repeated for ever; empty: any order,
    one at a time.
    """

    rank: int
    name: str
    kind: StreamKind = "compute"
    order: tuple[int, ...] = ()


@dataclass(frozen=True)
class Message:
    """The `index`-th register that crosses a channel in an iteration (PLAN-MESSAGE)."""

    register: int
    index: int
    source: int
    target: int


@dataclass(frozen=True)
class Plan:
    """Everything that is decided before a run; ids are positions.  `messages` lists one iteration's, in total order."""

    tasks: tuple[Task, ...]
    registers: tuple[RegisterDesc, ...]
    streams: tuple[Stream, ...]
    messages: tuple[Message, ...] = ()
    iterations: int = 1
    name: str = "plan"
    version: int = field(default=VERSION)

    @cached_property
    def ranks(self) -> tuple[int, ...]:
        """The ranks that have work, ascending."""
        return tuple(sorted({task.rank for task in self.tasks}))

    @cached_property
    def stream_of(self) -> Mapping[tuple[int, str], Stream]:
        """The streams by (rank, name)."""
        return {(stream.rank, stream.name): stream for stream in self.streams}

    def on_rank(self, rank: int) -> tuple[Task, ...]:
        """The tasks of a rank, by id."""
        return tuple(task for task in self.tasks if task.rank == rank)

    def task(self, name: str) -> Task:
        """The task of that name; `PlanError` unless there is exactly one."""
        found = [task for task in self.tasks if task.name == name]
        if len(found) != 1:
            raise PlanError(f"plan '{self.name}' has {len(found)} tasks named '{name}'")
        return found[0]

    def register(self, name: str) -> RegisterDesc:
        """The register descriptor of that name; `PlanError` unless there is exactly one."""
        found = [register for register in self.registers if register.name == name]
        if len(found) != 1:
            raise PlanError(f"plan '{self.name}' has {len(found)} registers named '{name}'")
        return found[0]

    def with_numbers(self, numbers: Mapping[int, int]) -> Plan:
        """The plan with other register numbers, by register id."""
        changed = tuple(replace(r, number=numbers.get(r.id, r.number)) for r in self.registers)
        return replace(self, registers=changed)

    def verify(self) -> Report:
        """The proofs on this plan: rates, liveness, memory, messages (`graph.proofs.verify`)."""
        from .proofs import verify

        return verify(self)

    def to_json(self) -> str:
        """The plan as JSON text, by `spec/vectors/plan.schema.json`."""
        from .plan_json import to_json

        return to_json(self)

    @staticmethod
    def from_json(text: str) -> Plan:
        """The plan that `to_json` wrote; `PlanError` for another version or unknown fields."""
        from .plan_json import from_json

        return from_json(text)

    def dot(self) -> str:
        """The plan in Graphviz' language: a cluster per rank, a colour per stream, numbers on the edges."""
        from .plan_text import dot

        return dot(self)

    def __str__(self) -> str:
        from .plan_text import text

        return text(self)

    def _repr_svg_(self) -> str:
        from ..pictures.timeline import plan_picture

        return plan_picture(self).svg


class PlanBuilder:
    """Collects tasks and registers in any order that names a producer before its consumers, then makes a Plan.

    >>> b = PlanBuilder("two")
    >>> x = b.register("x", b.task("load", kind="source"), number=2)
    >>> _ = b.task("store", kind="sink", inputs=[x])
    >>> b.plan().verify().sound
    True
    """

    def __init__(self, name: str = "plan") -> None:
        self.name = name
        self._tasks: list[Task] = []
        self._outputs: list[list[int]] = []
        self._registers: list[RegisterDesc] = []
        self._consumers: list[list[int]] = []

    def task(
        self,
        name: str,
        *,
        rank: int = 0,
        stream: str = "compute",
        kind: TaskKind = "compute",
        payload: str = "",
        inputs: Iterable[int] = (),
        in_place: Iterable[tuple[int, int]] = (),
        count: int = 1,
        time: Fraction | int = 0,
        flops: int = 0,
        workspace: int = 0,
    ) -> int:
        """Adds a task and returns its id; `inputs` are ids of registers already added."""
        id = len(self._tasks)
        entry = Task(
            id, name, rank, stream, kind, payload, tuple(inputs), (), tuple(in_place), count, Fraction(time), flops,
            workspace,
        )  # fmt: skip
        self._tasks.append(entry)
        self._outputs.append([])
        for register in entry.inputs:
            self._consumers[register].append(id)
        return id

    def register(
        self,
        name: str,
        producer: int,
        *,
        number: int = 1,
        bytes: int = 0,
        kind: RegisterKind = "data",
        memory: Memory | None = None,
        time_shape: Sequence[int] = (),
        initial: int = 0,
        in_place: int | None = None,
    ) -> int:
        """Adds an output of `producer` and returns its id; `in_place` names the input whose memory it takes over."""
        id = len(self._registers)
        self._registers.append(
            RegisterDesc(id, name, producer, (), number, bytes, kind, memory, tuple(time_shape), initial)
        )
        self._consumers.append([])
        self._outputs[producer].append(id)
        if in_place is not None:
            task = self._tasks[producer]
            self._tasks[producer] = replace(task, in_place=task.in_place + ((in_place, id),))
        return id

    @property
    def size(self) -> int:
        """The number of tasks added so far."""
        return len(self._tasks)

    def feed(self, register: int, consumer: int) -> None:
        """Adds an input to a task made earlier: how a loop is closed."""
        task = self._tasks[consumer]
        self._tasks[consumer] = replace(task, inputs=task.inputs + (register,))
        self._consumers[register].append(consumer)

    def named(self, name: str) -> int:
        """The id of the task added under that name; `PlanError` unless there is exactly one."""
        found = [task.id for task in self._tasks if task.name == name]
        if len(found) != 1:
            raise PlanError(f"plan '{self.name}' has {len(found)} tasks named '{name}'")
        return found[0]

    def retime(self, task: int, time: Fraction | int) -> None:
        """Sets the time of an action."""
        self._tasks[task] = replace(self._tasks[task], time=Fraction(time))

    def control(self, before: int, after: int, *, number: int = 1, name: str = "") -> int:
        """Adds a control register, so that each action of `after` follows one of `before`; returns its id."""
        named = name or f"{self._tasks[before].name}>{self._tasks[after].name}"
        register = self.register(named, before, number=number, kind="ctrl")
        self.feed(register, after)
        return register

    def message(
        self,
        register: int,
        target: int,
        *,
        capacity: int = 1,
        number: int = 1,
        time: Fraction | int = 0,
        streams: tuple[str, str] = ("comm", "comm"),
        name: str = "",
    ) -> int:
        """Adds a send, its channel and a receive on rank `target`; returns the received register's id."""
        moved = self._registers[register]
        source = self._tasks[moved.producer].rank
        named = name or moved.name
        send = self.task(f"send {named}", rank=source, stream=streams[0], kind="send", inputs=[register], time=time)
        channel = self.register(f"{named} {source}>{target}", send, number=capacity, bytes=moved.bytes, kind="message")
        recv = self.task(f"recv {named}", rank=target, stream=streams[1], kind="recv", inputs=[channel])
        return self.register(f"{named}@{target}", recv, number=number, bytes=moved.bytes)

    def plan(
        self,
        *,
        orders: Mapping[tuple[int, str], Sequence[int]] | None = None,
        kinds: Mapping[str, StreamKind] | None = None,
        iterations: int = 1,
        messages: Sequence[Message] | None = None,
    ) -> Plan:
        """The plan.  `orders` gives streams their static order, `kinds` their kind by name; else a stream named
        after a kind ("comm", "copy>1") has that kind.  Messages that are not given are derived (PLAN-MESSAGE).
        """
        tasks = tuple(replace(task, outputs=tuple(out)) for task, out in zip(self._tasks, self._outputs))
        registers = tuple(replace(r, consumers=tuple(c)) for r, c in zip(self._registers, self._consumers))
        places = sorted({(task.rank, task.stream) for task in tasks})
        streams = tuple(
            Stream(rank, name, (kinds or {}).get(name) or _kind_of(name), tuple((orders or {}).get((rank, name), ())))
            for rank, name in places
        )
        plan = Plan(tasks, registers, streams, tuple(messages or ()), iterations, self.name)
        if messages is None and any(r.kind == "message" for r in registers):
            from .proofs.messages import derive

            with suppress(PlanError):  # rates that clash: `verify` tells
                plan = replace(plan, messages=derive(plan))
        return plan


def _kind_of(stream: str) -> StreamKind:
    for kind in get_args(StreamKind):
        if stream.startswith(kind):
            return kind  # type: ignore[no-any-return]
    return "compute"
