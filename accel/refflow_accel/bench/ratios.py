"""What `refflow bench accel` finds: two times side by side, or one beside a limit; as a table and as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from rich.table import Table

from .process import Make, Sides
from .rounds import race

OURS = "refflow"


@dataclass(frozen=True)
class Ratio:
    """A rival's seconds over ours, so that more is better; with `rival` None, our seconds beside a limit."""

    section: str
    name: str
    threads: int
    seconds: float
    rival: str | None = None
    rival_seconds: float = 0.0
    spread: float = 0.0  # by how much of the least the five quickest rounds differ, the greater of both
    target: float | None = None  # least ratio, or greatest seconds

    @property
    def ratio(self) -> float | None:
        """How often ours is done while the rival's is done once."""
        return None if self.rival is None else self.rival_seconds / self.seconds

    @property
    def met(self) -> bool | None:
        """Whether the target is reached; None without one."""
        if self.target is None:
            return None
        return self.seconds < self.target if self.ratio is None else self.ratio >= self.target

    @property
    def json(self) -> dict[str, Any]:
        """All of it."""
        return {**asdict(self), "ratio": self.ratio, "met": self.met}


def compared(
    section: str, name: str, sides: Sides, work: Mapping[str, Make], *, target: float | None = None, patience: float = 3.0
) -> Iterator[Ratio]:  # fmt: skip
    """Gives sides their work (one is OURS), races them, and gives the ratio of each rival."""
    yield from raced(section, name, sides, sides.give(work), target=target, patience=patience)


def raced(
    section: str, name: str, sides: Sides, names: Iterable[str], *, target: float | None = None, patience: float = 3.0
) -> Iterator[Ratio]:  # fmt: skip
    """The same of sides that have their work."""
    found = race(sides, list(names), patience=patience)
    ours = found[OURS]
    for rival, time in found.items():
        if rival != OURS:
            spread = max(ours.spread, time.spread)
            yield Ratio(section, name, sides.threads, ours.seconds, rival, time.seconds, spread, target)


def table(ratios: Iterable[Ratio]) -> Table:
    """One line each."""
    made = Table()
    numbers = ("threads", "refflow", "rival's", "ratio", "spread", "target")
    for heading in ("section", "measured", "threads", "refflow", "rival", "rival's", "ratio", "spread", "target", ""):
        made.add_column(heading, justify="right" if heading in numbers else "left", overflow="fold")
    for r in ratios:
        bound = (
            ""
            if r.target is None
            else f"{'<' if r.ratio is None else '>='} {r.target:g}{' s' if r.ratio is None else ''}"
        )
        made.add_row(
            r.section, r.name, str(r.threads), told(r.seconds), r.rival or "", told(r.rival_seconds) if r.rival else "",
            "" if r.ratio is None else f"{r.ratio:.2f}", f"{r.spread:.0%}" if r.rival else "", bound,
            {None: "", True: "met", False: "missed"}[r.met],
        )  # fmt: skip
    return made


def told(seconds: float) -> str:
    """Seconds with a unit."""
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e6:.3g} µs"
