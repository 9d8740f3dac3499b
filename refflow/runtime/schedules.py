"""Schedules: which of the possible steps is taken next.

Implements ACT-STEP of spec/text/actors.md.  A step is to deliver the oldest message of an edge, or to let an actor that
can act do so.  What is possible stays possible until it is done, so a schedule is a bag; no choice changes a result.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from random import Random as _Generator
from typing import Protocol

from .actor import Actor, Edge

Step = Edge | Actor


class Schedule(Protocol):
    """A bag of possible steps.  An edge is added once for each message on it."""

    def add(self, step: Step) -> None:
        """A step has become possible."""
        ...

    def take(self) -> Step | None:
        """Removes the step to take now; None if there is none."""
        ...


class Canonical:
    """The oldest first."""

    def __init__(self) -> None:
        self._steps: deque[Step] = deque()
        self.add = self._steps.append

    def take(self) -> Step | None:
        """Removes the oldest."""
        return self._steps.popleft() if self._steps else None


class Newest:
    """Adversarial: the newest first, so what has waited longest waits on."""

    def __init__(self) -> None:
        self._steps: list[Step] = []
        self.add = self._steps.append

    def take(self) -> Step | None:
        """Removes the newest."""
        return self._steps.pop() if self._steps else None


class Random:
    """Any, by a seed."""

    def __init__(self, seed: int) -> None:
        self._steps: list[Step] = []
        self._draw = _Generator(seed).random
        self.add = self._steps.append

    def take(self) -> Step | None:
        """Removes one drawn from all."""
        steps = self._steps
        if not steps:
            return None
        at = int(self._draw() * len(steps))
        steps[at], steps[-1] = steps[-1], steps[at]
        return steps.pop()


class Starve:
    """Adversarial: what concerns the starved tasks happens only when nothing else can."""

    def __init__(self, tasks: Iterable[int]) -> None:
        self._starved = frozenset(tasks)
        self._steps: list[Step] = []
        self._last: deque[Step] = deque()

    def add(self, step: Step) -> None:
        """Keeps the starved apart."""
        actor = step.target if isinstance(step, Edge) else step
        late = actor is not None and actor.task.id in self._starved
        (self._last if late else self._steps).append(step)

    def take(self) -> Step | None:
        """Removes the newest of the others, else the oldest of the starved."""
        if self._steps:
            return self._steps.pop()
        return self._last.popleft() if self._last else None
