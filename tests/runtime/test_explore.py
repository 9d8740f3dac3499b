"""ACT-EXPLORE: all interleavings of small plans; the numbers of states are checked in."""

from __future__ import annotations

import pytest

from refflow.graph.plan import DeadlockError, Plan, PlanError
from refflow.runtime import explore, run
from refflow.runtime.explore import symbols
from refflow.runtime.pipelines import sends_that_meet

from .plans import chain, crossing, cut_and_gather, diamond, in_place_chain, loop

# name: (plan, iterations, states, steps).  Literal: a change of the rules that changes what can happen shows here.
SPACES: dict[str, tuple[Plan, int, int, int]] = {}


def _space(plan: Plan, iterations: int, states: int, steps: int) -> None:
    SPACES[f"{len(SPACES)} {plan.name}, number {plan.registers[0].number}, {iterations} iterations"] = (
        plan,
        iterations,
        states,
        steps,
    )


_space(chain(1, number=1), 2, 45, 77)
_space(chain(1, number=2), 2, 117, 281)
_space(chain(2, number=1), 3, 223, 506)
_space(chain(2, number=2), 2, 552, 1766)
_space(diamond(), 1, 314, 1011)
_space(loop(), 3, 291, 798)
_space(in_place_chain(), 2, 34, 43)
_space(crossing(0), 2, 131, 288)
_space(crossing(1), 2, 153, 355)
_space(cut_and_gather("repeat", "acc"), 2, 140, 288)
_space(cut_and_gather("repeat", "acc", 3), 1, 118, 260)
_space(cut_and_gather("unpack", "pack"), 2, 312, 788)
_space(cut_and_gather("unpack", "acc", 3), 1, 228, 611)
_space(sends_that_meet(cure="order"), 1, 4792, 22744)


@pytest.mark.parametrize("name", SPACES)
def test_every_interleaving_gives_the_same_result(name: str) -> None:
    """ACT-EXPLORE: one last state, and the one that any single run reaches; so many states in between."""
    plan, iterations, states, steps = SPACES[name]
    initial = {register.name: ["start"] * register.initial for register in plan.registers if register.initial}
    seen = explore(plan, symbols(plan), iterations=iterations, initial=initial)
    assert seen.outcomes == (run(plan, symbols(plan), iterations=iterations, initial=initial).outputs,)
    assert (seen.states, seen.steps, seen.deadlocks) == (states, steps, 0)


def test_deadlocks_are_found_with_the_way_there() -> None:
    """ACT-EXPLORE, ACT-STUCK."""
    with pytest.raises(DeadlockError, match=r"(?s)waits for the post of.*after: .*make 1 acts"):
        explore(sends_that_meet())
    seen = explore(sends_that_meet(), keep_going=True)
    assert (seen.deadlocks, seen.outcomes) == (1, ())


def test_too_many_states_are_refused() -> None:
    """ACT-EXPLORE."""
    with pytest.raises(PlanError, match="more than 50 states"):
        explore(chain(3), limit=50)
