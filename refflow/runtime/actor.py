"""The actor: its state and its rules, one rule a method.

Implements ACT-STATE and the rules named at each method, of spec/text/actors.md.  They are those of OneFlow's actors,
with three of our own: a static order of actions on a stream (ACT-TURN), channels of capacity 0 (ACT-POST) and
registers that start full (ACT-INITIAL).  What is checked, and not needed to act, is marked *ghost*.  Delivery and
choice are left to `run` and `schedules`, contents to `work`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from ..errors import InvariantError as InvariantError
from ..graph.plan import FEWER_IN, FEWER_OUT, FORWARDING, RegisterDesc, Task

if TYPE_CHECKING:
    from .run import Run

READY, ACK, POST, EORD = range(4)  # the kinds of message (ACT-MESSAGE)
MESSAGE_NAMES = ("ready", "ack", "post", "eord")
NORMAL, ZOMBIE, DONE = range(3)  # what an actor does with a message (ACT-STATE)


class At(NamedTuple):
    """Where and when a payload runs: `position` counts the task's actions in an iteration, `phase` in a cycle."""

    task: Task
    rank: int
    act: int
    iteration: int
    position: int
    phase: int


class Register:
    """One register: `readers` have it and have not acknowledged it.  `unread` (ghost) have really not used it yet."""

    __slots__ = ("content", "desc", "index", "lent", "owner", "readers", "token", "unread", "writing")

    def __init__(self, desc: RegisterDesc, index: int) -> None:
        self.desc, self.index = desc, index
        self.readers = self.unread = 0
        self.token = -1  # how many of this descriptor were filled before it: ghost
        self.writing = False  # ghost
        self.owner: Register | None = None  # whose memory it has taken over: ghost
        self.lent = 0  # how many still read what has taken over its memory: ghost
        self.content: Any = None


class Edge:
    """Messages about one descriptor between its producer and one consumer, one way: first in, first out (ACT-FIFO)."""

    __slots__ = ("desc", "end", "far", "id", "queue", "received", "receiver", "remote", "sender", "sent", "target")

    def __init__(self, id: int, desc: RegisterDesc, sender: int, receiver: int, far: bool) -> None:
        self.id, self.desc, self.sender, self.receiver = id, desc, sender, receiver
        self.far = far  # between ranks
        self.remote = False  # the receiving actor is another process's
        self.target: Actor | None = None
        self.end: In | Out | None = None
        self.queue: deque[tuple[int, Register | None, int, int]] = deque()
        self.sent = self.received = 0


class In:
    """What an actor keeps of a descriptor it consumes: the FIFO R of arrived registers, and the way back."""

    __slots__ = ("arrived", "back", "desc", "ended", "fifo", "held", "leftover", "out", "taken")

    def __init__(self, desc: RegisterDesc, back: Edge) -> None:
        self.desc, self.back = desc, back
        self.fifo: deque[Register] = deque()
        self.out: Out | None = None  # the output that takes over its memory
        self.ended = self.held = False
        self.arrived = self.taken = 0
        self.leftover: list[Any] = []


class Out:
    """What an actor keeps of a descriptor it produces: the FIFO W of free registers, and the edges to its consumers."""

    __slots__ = ("credits", "desc", "edges", "filled", "free", "in_flight", "into", "overlaps", "returned")

    def __init__(self, desc: RegisterDesc, registers: list[Register], edges: list[Edge]) -> None:
        self.desc, self.edges = desc, edges
        self.credits = max(1, desc.number)
        self.free: deque[Register] = deque(registers if desc.number else [])
        self.into: In | None = None
        self.in_flight = self.filled = self.returned = 0
        self.overlaps: list[Register] = []  # registers whose bytes are shared: ghost


Work = Callable[["Actor", At, list[Any]], Any]


class Actor:
    """A task at work (ACT-STATE).  `lacking` counts what is missing to act: empty R, empty W, inputs held in place."""

    __slots__ = (
        "acts", "clock", "count", "data_in", "data_out", "ended", "ends", "fewer_in", "fewer_out", "handler", "inputs",
        "lacking", "limit", "meets", "outputs", "parts", "per_iteration", "posted", "queued", "reading", "run", "stream",
        "task", "work",
    )  # fmt: skip

    def __init__(self, run: Run, task: Task, per_iteration: int, limit: int) -> None:
        self.run, self.task, self.count = run, task, task.count
        self.per_iteration, self.limit = per_iteration, limit
        self.fewer_in, self.fewer_out = task.kind in FEWER_IN, task.kind in FEWER_OUT
        self.inputs: list[In] = []
        self.outputs: list[Out] = []
        self.data_in: list[In] = []
        self.data_out: list[Out] = []
        self.ends: list[In | Out] = []
        self.handler = NORMAL
        self.lacking = self.reading = self.acts = self.clock = self.ended = 0
        self.queued = self.posted = False
        self.stream: Turns | None = None
        self.meets: In | None = None  # the rendezvous it receives from
        self.parts: list[Any] = []  # what acc and pack keep between the actions of a cycle
        self.work: Work | None = None

    # -- acting -------------------------------------------------------------------------------------------------

    def can_act(self) -> bool:
        """Every input has a register, every output a free one, and it is the actor's turn (ACT-FIRE, ACT-TURN)."""
        return self.lacking == 0 and self.handler == NORMAL and (self.stream is None or self.stream.now is self)

    def act(self) -> None:
        """Launch on the fronts of all queues, send what is filled, give back what is read (ACT-ACT)."""
        if not self.can_act():
            self.broken("ACT-PERSIST", "could act and now cannot")
        phase = self.acts % self.count
        for out in self.outputs:
            self.check_writable(out)
        if self.run.kernels is not None:
            self.launch(phase)
        self.acts += 1
        self.clock += 1
        wraps = phase + 1 == self.count
        if wraps or not self.fewer_out:
            for out in self.outputs:
                self.send(out)
        if wraps or not self.fewer_in:
            for into in self.inputs:
                self.consume(into)
        if self.acts == self.limit and self.task.kind == "source":
            self.end()

    def launch(self, phase: int) -> None:
        """The payload reads the fronts of R and fills the fronts of W (ACT-LAUNCH)."""
        iteration, position = divmod(self.acts, self.per_iteration)
        at = At(self.task, self.task.rank, self.acts, iteration, position, phase)
        work = self.work
        if work is not None:
            results = work(self, at, [into.fifo[0].content for into in self.data_in])
            if results is not None:
                for out, content in zip(self.data_out, results):
                    out.free[0].content = content

    def check_writable(self, out: Out) -> None:
        """A register is never written while somebody still reads it, or bytes it shares, or its input (ACT-WRITE)."""
        register = out.free[0]
        if register.readers or register.unread:
            self.broken("ACT-WRITE", f"would write '{out.desc.name}' while {register.unread} still read it")
        for other in out.overlaps:
            if other.unread or other.writing:
                self.broken("ACT-SHARE", f"would write '{out.desc.name}' over '{other.desc.name}', still in use")
        if register.lent:
            self.broken("ACT-INPLACE", f"would write '{out.desc.name}', whose memory another register has taken over")
        if out.into is not None and self.task.kind not in FORWARDING and out.into.fifo[0].unread > 1:
            self.broken("ACT-INPLACE", f"would write over '{out.into.desc.name}', which others still read")
        register.writing = True

    def send(self, out: Out) -> None:
        """The filled front of W goes to every consumer; without consumers it stays where it is (ACT-SEND)."""
        register = out.free[0]
        register.writing = False
        register.token = out.filled
        out.filled += 1
        if out.edges:
            self.pop_free(out)
            register.readers = register.unread = len(out.edges)
            if out.into is not None:
                front = out.into.fifo[0]
                register.owner = front.owner or front
                register.owner.lent += len(out.edges)
            self.reading += len(out.edges)
            out.in_flight += 1
            if out.in_flight > out.credits:
                self.broken(
                    "ACT-CREDIT", f"has {out.in_flight} of '{out.desc.name}' in flight; its number is {out.credits}"
                )
            post = self.run.post
            for edge in out.edges:
                post(edge, READY, register, self.clock)

    def consume(self, into: In) -> None:
        """A front that was read goes back; one that outputs took over is held until they are back (ACT-RETURN, ACT-REPEAT)."""
        if into.out is not None and into.out.edges:
            into.held = True
            self.lacking += 1
            if into.out.returned == into.out.filled:  # everything of this cycle came home while it went on
                self.release(into)
        else:
            self.give_back(into)

    def give_back(self, into: In) -> None:
        """Pops the front of R and acknowledges it to its producer (ACT-RETURN)."""
        register = into.fifo.popleft()
        if not into.fifo:
            self.lacking += 1
        if register.token != into.taken:
            self.broken("ACT-FIFO", f"took '{into.desc.name}' number {register.token}, not {into.taken}")
        into.taken += 1
        register.unread -= 1
        if register.owner is not None:
            register.owner.lent -= 1
        self.posted = False
        self.run.post(into.back, ACK, register, self.clock)

    def release(self, into: In) -> None:
        """What took over an input's memory is back, so the input goes back (ACT-INPLACE)."""
        into.held = False
        self.lacking -= 1
        self.give_back(into)

    # -- messages -----------------------------------------------------------------------------------------------

    def receive_ready(self, into: In, register: Register) -> None:
        """A register arrives: it joins R (ACT-READY); an actor that has ended sends it back (ACT-ZOMBIE)."""
        if register.token != into.arrived:
            self.broken("ACT-FIFO", f"was sent '{into.desc.name}' number {register.token}, not {into.arrived}")
        into.arrived += 1
        if not into.fifo:
            self.lacking -= 1
        into.fifo.append(register)
        if len(into.fifo) > max(1, into.desc.number):
            self.broken("ACT-CREDIT", f"holds {len(into.fifo)} of '{into.desc.name}'; its number is {into.desc.number}")
        if self.handler != NORMAL:
            self.drain(into)

    def receive_ack(self, out: Out, register: Register) -> None:
        """A reader is done: the last one makes the register free again (ACT-ACK)."""
        if register.readers < 1:
            self.broken("ACT-ACK", f"got '{out.desc.name}' back from nobody")
        register.readers -= 1
        self.reading -= 1
        if not register.readers:
            out.in_flight -= 1
            out.returned += 1
            if out.desc.number:
                self.push_free(out, register)
            into = out.into
            if into is not None and into.held and out.returned == out.filled:
                self.release(into)

    def receive_post(self, out: Out, register: Register) -> None:
        """The receive of a rendezvous stands ready, and lends its register (ACT-POST)."""
        if self.handler == NORMAL:
            self.push_free(out, register)

    def receive_end(self, into: In, register: Register | None) -> None:
        """No more of this descriptor will come (ACT-EORD)."""
        if into.ended:
            self.broken("ACT-EORD", f"heard twice that '{into.desc.name}' has ended")
        into.ended = True
        self.ended += 1

    # -- ending -------------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """After a message or an action: end if nothing can come (ACT-END), finish if nothing is out (ACT-FINISH)."""
        if self.handler == NORMAL and self.ended and self.starved():
            self.end()
        if self.handler == ZOMBIE and self.ended == len(self.inputs) and not self.reading:
            self.finish()

    def starved(self) -> bool:
        """Some input has ended and R is empty, but for registers that started full (ACT-END)."""
        over = False
        for into in self.inputs:
            if into.held or (into.fifo and not into.desc.initial):
                return False
            over = over or (into.ended and not into.fifo)
        return over

    def end(self) -> None:
        """Tells every consumer that nothing more will come; from now on only drains (ACT-EORD, ACT-ZOMBIE)."""
        self.handler = ZOMBIE
        for into in self.inputs:
            while into.fifo:
                self.drain(into)
        for out in self.outputs:
            for edge in out.edges:
                self.run.post(edge, EORD, None, self.clock)
        if self.acts != self.limit:
            self.broken("ACT-END", f"ended after {self.acts} of {self.limit} actions")

    def drain(self, into: In) -> None:
        """Sends a register back unread; its content is what the run leaves behind (ACT-ZOMBIE, ACT-INITIAL)."""
        into.leftover.append(into.fifo[0].content)
        self.give_back(into)
        if len(into.leftover) > into.desc.initial:
            self.broken("ACT-END", f"ended with '{into.desc.name}' still unread")

    def finish(self) -> None:
        """All inputs have ended and all outputs are back (ACT-FINISH)."""
        self.handler = DONE
        for out in self.outputs:
            if out.in_flight or (out.desc.number and len(out.free) != out.desc.number):
                self.broken("ACT-FINISH", f"is done with {out.in_flight} of '{out.desc.name}' in flight")

    # -- rendezvous ---------------------------------------------------------------------------------------------

    def may_post(self) -> bool:
        """Only the message is missing (ACT-POST)."""
        return (
            not self.posted
            and self.lacking == 1
            and self.meets is not None
            and not self.meets.fifo
            and self.handler == NORMAL
            and self.acts < self.limit
            and (self.stream is None or self.stream.now is self)
        )

    def post(self) -> None:
        """Lends the register to the send (ACT-POST)."""
        assert self.meets is not None
        self.posted = True
        self.run.post(self.meets.back, POST, self.run.registers[self.meets.desc.id][0], self.clock)

    # -- free registers -----------------------------------------------------------------------------------------

    def pop_free(self, out: Out) -> None:
        """Takes the front of W."""
        out.free.popleft()
        if not out.free:
            self.lacking += 1

    def push_free(self, out: Out, register: Register) -> None:
        """Adds to W: free registers and those in flight are all there are (ACT-CREDIT)."""
        if not out.free:
            self.lacking -= 1
        out.free.append(register)
        if len(out.free) + out.in_flight > out.credits:
            self.broken(
                "ACT-CREDIT", f"has {len(out.free) + out.in_flight} of '{out.desc.name}'; its number is {out.credits}"
            )

    def broken(self, rule: str, what: str) -> NoReturn:
        """Raises `InvariantError`."""
        raise InvariantError(f"{rule}: actor '{self.task.name}' (rank {self.task.rank}, action {self.acts}) {what}")


class Turns:
    """Whose action is next on a stream with a static order (ACT-TURN)."""

    __slots__ = ("at", "now", "order")

    def __init__(self, order: list[Actor]) -> None:
        self.order, self.at, self.now = order, 0, order[0]

    def advance(self) -> None:
        """Passes the turn on."""
        self.at = (self.at + 1) % len(self.order)
        self.now = self.order[self.at]
