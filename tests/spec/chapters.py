"""Reading spec/text: its chapters, rules, examples and prefixes, from the machine-readable form that index.md states."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TEXT = ROOT / "spec" / "text"
HEADING = re.compile(r"^### ([A-Z]+(?:-[A-Z0-9]+)+): (.+)$", re.MULTILINE)
CITED = re.compile(r"(?<![\w-])[A-Z]{2,}(?:-[A-Z0-9]+)+(?![\w-])")
GENERATED = "primitives_table.md"


@dataclass(frozen=True)
class Rule:
    """One rule: its id, title, chapter, normative text, examples (doctest source and line) and differences."""

    id: str
    title: str
    chapter: str
    text: str
    examples: tuple[tuple[str, int], ...]
    differences: str


@lru_cache(maxsize=1)
def prefixes() -> dict[str, str]:
    """prefix -> chapter, from the table of index.md."""
    rows = re.findall(r"^\| \[(\w+)\]\(\w+\.md\) \| ([A-Z ]*) \|", (TEXT / "index.md").read_text(), re.MULTILINE)
    return {prefix: chapter for chapter, those in rows for prefix in those.split()}


@lru_cache(maxsize=1)
def chapters() -> tuple[Path, ...]:
    """The chapters written by hand."""
    return tuple(path for path in sorted(TEXT.glob("*.md")) if path.name not in ("index.md", GENERATED))


@lru_cache(maxsize=1)
def rules() -> tuple[Rule, ...]:
    """Every rule of every chapter, in order."""
    return tuple(rule for path in chapters() for rule in read(path))


def read(path: Path) -> list[Rule]:
    """The rules of one chapter."""
    text = path.read_text()
    heads = list(HEADING.finditer(text))
    ends = ([head.start() for head in heads[1:]] + [len(text)])[: len(heads)]
    found = []
    for head, end in zip(heads, ends, strict=True):
        body = text[head.end() : end].split("\n## ")[0]
        blocks = list(re.finditer(r"^```python\n(.*?)^```$", body, re.MULTILINE | re.DOTALL))
        line = text[: head.end()].count("\n")
        examples = tuple((block[1], line + body[: block.start(1)].count("\n")) for block in blocks)
        differences = re.search(r"^\*\*Differences\.\*\* (.+)$", body, re.MULTILINE)
        normative = body.split("```")[0].split("**Differences.**")[0].strip()
        found.append(Rule(head[1], head[2], path.stem, normative, examples, differences[1] if differences else ""))
    return found


def cited_in(paths: list[Path]) -> dict[str, list[str]]:
    """Ids with a known prefix -> the files that name them."""
    found: dict[str, list[str]] = {}
    for path in paths:
        for name in CITED.findall(path.read_text()):
            if name.split("-")[0] in prefixes():
                found.setdefault(name, []).append(str(path.relative_to(ROOT)))
    return found


def code() -> list[Path]:
    """The Python files of the runtime (and, where it exists, of the acceleration layer)."""
    return sorted([*(ROOT / "refflow").rglob("*.py"), *(ROOT / "accel").rglob("*.py")])


def tests() -> list[Path]:
    """The test files that may name a rule: every one but the reader and runner of the text itself."""
    own = {"chapters.py", "test_text.py"}
    return [path for path in sorted((ROOT / "tests").rglob("*.py")) if not (path.parent.name == "spec" and path.name in own)]
