"""The lockstep world: one thread per rank, one of them running at a time, handing over at collectives.

Implements WORLD-SPMD of spec/text/worlds.md.  What MPI does between processes can be taught and tested with it in one:
rank-dependent code, divergence, a rank that leaves or fails.  Between two collectives ranks run in rank order, so even
what they print comes in one order; nobody waits for ever, because whoever ends hands over too.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from ..errors import DivergenceError, WorldError
from ..state import Override, settings
from .base import Transfer
from .rendezvous import History, Kind, Letter, compare_ends, reason

T = TypeVar("T")


class Meeting:
    """Where the ranks meet: who has arrived, who is gone, whose turn it is."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.interrupted = False
        self._arrived: dict[int, tuple[Letter, Any]] = {}
        self.gone: dict[int, Letter] = {}
        self.lost: dict[int, Letter] = {}  # the gone ones that all others have been told about
        self._said: dict[int, Letter] = {}
        self._brought: dict[int, Any] = {}
        self._turns = [threading.Lock() for _ in range(size)]  # held while it is another rank's turn
        for turn in self._turns:
            turn.acquire()

    def begin(self) -> None:
        """The first rank's turn."""
        self._turns[0].release()

    def await_turn(self, rank: int) -> None:
        """Blocks until it is the turn of `rank`."""
        self._turns[rank].acquire()

    def meet(self, rank: int, letter: Letter, content: Any) -> tuple[dict[int, Letter], dict[int, Any]]:
        """What every rank says and brings, once all have arrived; at once if some are known to be gone."""
        if self.interrupted:
            raise DivergenceError("the caller of spmd was interrupted")
        if self.lost:
            return {**self.lost, rank: letter}, {}
        self._arrived[rank] = (letter, content)
        self._hand_over()
        self.await_turn(rank)
        return self._said, self._brought

    def leave(self, rank: int, letter: Letter) -> None:
        """`rank` has ended: the others are told when they next meet."""
        self.gone[rank] = letter
        self._hand_over()

    def _hand_over(self) -> None:
        """The turn of the first rank that has not arrived; when all have, this meeting is over and the next begins."""
        present = [rank for rank in range(self.size) if rank not in self.gone]
        missing = [rank for rank in present if rank not in self._arrived]
        if not missing and present:
            self._said = {**{rank: said for rank, (said, _) in self._arrived.items()}, **self.gone}
            self._brought = {rank: content for rank, (_, content) in sorted(self._arrived.items())}
            self.lost = dict(self.gone)
            self._arrived = {}
            missing = present
        if missing:
            self._turns[missing[0]].release()


class LockstepWorld:
    """The world as one rank of `spmd` sees it."""

    def __init__(self, rank: int, meeting: Meeting) -> None:
        self.size = meeting.size
        self.owned = (rank,)
        self._rank, self._meeting = rank, meeting
        self._number, self._history = 0, History()

    def saw(self, name: str, mark: int) -> None:
        self._history.saw(name, mark)

    def transfer(self, call: str, transfers: Sequence[Transfer], outgoing: Mapping[int, Any]) -> Mapping[int, Any]:
        brought = self._meet(call, outgoing)
        return {i: brought[t.source][i] for i, t in enumerate(transfers) if t.target == self._rank}

    def agree(self, call: str, mine: Mapping[int, T]) -> Mapping[int, T]:
        return dict(sorted(entry for entries in self._meet(call, mine).values() for entry in entries.items()))

    def describe(self) -> str:
        return f"lockstep world of {self.size} rank{'s' if self.size > 1 else ''} in threads, this is rank {self._rank}"

    def _meet(self, call: str, content: Any) -> dict[int, Any]:
        self._number += 1
        said, brought = self._meeting.meet(self._rank, self._history.letter("call", self._number, call), content)
        self._history.compare(said)
        return brought

    def end(self, error: BaseException | None) -> None:
        """This rank's function has returned, or raised `error`."""
        kind: Kind = "left" if error is None else "failed"
        why = "its function returned" if error is None else reason(error)
        self._meeting.leave(self._rank, self._history.letter(kind, self._number + 1, why))


def spmd(size: int, function: Callable[..., T], *args: Any, **kwargs: Any) -> list[T]:
    """Runs ``function(*args, **kwargs)`` once per rank of a world of `size` ranks, in lockstep threads; the results in
    rank order.

    Inside, `get_rank()` tells the rank and a tensor holds that rank's shard only; each rank starts with its own copy of
    the caller's generator.  An error on one rank ends all: it is raised here with a note that names the rank.
    Errors: `WorldError` for a bad size; `DivergenceError` if ranks reach different calls or one returns early.
    Source: WORLD-SPMD.
    """
    if not isinstance(size, int) or isinstance(size, bool) or size < 1:
        raise WorldError(f"spmd: the number of ranks must be an int >= 1, found {size!r}")
    meeting = Meeting(size)
    results: dict[int, T] = {}
    errors: dict[int, BaseException] = {}

    def run(rank: int) -> None:
        world, error = LockstepWorld(rank, meeting), None
        meeting.await_turn(rank)
        try:
            _enter(world, rank)
            results[rank] = function(*args, **kwargs)
        except BaseException as raised:
            error = errors[rank] = raised
        finally:
            world.end(error)

    contexts = [contextvars.copy_context() for _ in range(size)]
    threads = [threading.Thread(target=contexts[r].run, args=(run, r), name=f"rank {r}") for r in range(size)]
    for thread in threads:
        thread.start()
    meeting.begin()
    try:
        _join(threads)
    except BaseException:
        meeting.interrupted = True
        _join(threads)
        raise
    if errors:
        raise _cause(errors, size)
    if not meeting.lost:
        compare_ends(meeting.gone)
    return [results[rank] for rank in range(size)]


def _join(threads: Sequence[threading.Thread]) -> None:
    for thread in threads:
        thread.join()


def _enter(world: LockstepWorld, rank: int) -> None:
    """The settings of one rank: the caller's, with this world and an own generator; rank 0 writes the caller's logs."""
    state = settings()
    Override(
        world=world,
        generator=replace(state.generator),
        logs=state.logs if rank == 0 else (),
        interpreters=(),
    )


def _cause(errors: Mapping[int, BaseException], size: int) -> BaseException:
    """The error to raise: the first that is not merely a rank's notice of another's, with the ranks named."""
    own = {rank: error for rank, error in errors.items() if not isinstance(error, DivergenceError)} or dict(errors)
    rank = min(own)
    error = own[rank]
    same = [r for r in sorted(own) if type(own[r]) is type(error) and str(own[r]) == str(error)]
    others = [f"rank {r} raised {reason(own[r])}" for r in sorted(own) if r not in same]
    who = "every rank" if len(same) == size > 1 else f"rank {rank}" if len(same) == 1 else f"ranks {same}"
    error.add_note(f"raised by {who} of {size} (spmd)" + "".join(f"; {other}" for other in others))
    return error
