"""The specification against code and tests: ids, examples, the generated table, version and profile."""

from __future__ import annotations

import doctest
import importlib.util
import re
from contextvars import copy_context
from typing import Any

import numpy as np
import pytest

import refflow as flow
from tests.spec import chapters
from tests.spec.chapters import CITED, GENERATED, ROOT, TEXT, Rule

FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
# Words that look like ids and are none.
ORDINARY = {"SHA-256", "IEEE-754", "UTF-8", "CC-BY", "BY-4"}


def listing(names: dict[str, Any] | set[str]) -> str:
    """Ids, one a line, with the files that name them."""
    where = names if isinstance(names, dict) else dict.fromkeys(names, ())
    return "\n".join(f"  {name}  {', '.join(dict.fromkeys(where[name]))}" for name in sorted(where))


def test_ids_are_unique_and_have_a_known_prefix_in_their_chapter() -> None:
    ids = [rule.id for rule in chapters.rules()]
    twice = {name for name in ids if ids.count(name) > 1}
    assert not twice, f"defined twice:\n{listing(twice)}"
    astray = {rule.id for rule in chapters.rules() if chapters.prefixes().get(rule.id.split("-")[0]) != rule.chapter}
    assert not astray, f"not in the chapter that index.md gives their prefix:\n{listing(astray)}"


def test_every_rule_is_stated_in_words_and_has_an_example() -> None:
    bare = {rule.id for rule in chapters.rules() if not rule.text or not any(">>>" in code for code, _ in rule.examples)}
    assert not bare, f"no normative text, or no example:\n{listing(bare)}"
    long = {rule.id for rule in chapters.rules() if len(re.findall(r"[.;:](?=\s|$)", rule.text)) > 9}
    assert not long, f"more than a few sentences; make it two rules:\n{listing(long)}"


def test_every_rule_is_cited_by_the_code() -> None:
    missing = {rule.id for rule in chapters.rules()} - set(chapters.cited_in(chapters.code()))
    assert not missing, f"no file of refflow/ cites these rules of spec/text:\n{listing(missing)}"


def test_every_rule_is_named_by_a_test() -> None:
    missing = {rule.id for rule in chapters.rules()} - set(chapters.cited_in(chapters.tests()))
    assert not missing, f"no test under tests/ names these rules of spec/text:\n{listing(missing)}"


def test_every_id_cited_is_defined() -> None:
    defined = {rule.id for rule in chapters.rules()}
    cited = chapters.cited_in([*chapters.code(), *chapters.tests(), *chapters.chapters(), TEXT / GENERATED])
    unknown = {name: files for name, files in cited.items() if name not in defined}
    assert not unknown, f"spec/text defines no such rule:\n{listing(unknown)}"


def test_prefixes_in_code_are_known() -> None:
    unknown: dict[str, list[str]] = {}
    for path in chapters.code():
        for name in CITED.findall(path.read_text()):
            if name.split("-")[0] not in chapters.prefixes() and name not in ORDINARY:
                unknown.setdefault(name, []).append(str(path.relative_to(ROOT)))
    assert not unknown, f"looks like a rule id; give its prefix a chapter in spec/text/index.md:\n{listing(unknown)}"


def names() -> dict[str, Any]:
    """What notation.md promises to every example."""
    sbp = flow.sbp

    def parts(x: flow.Tensor) -> dict[int, Any]:
        return {rank: array.tolist() for rank, array in x.local_arrays().items()}

    return {
        "flow": flow, "np": np, "S": sbp.split, "B": sbp.broadcast, "P": sbp.partial_sum, "Pmax": sbp.partial_max,
        "Pmin": sbp.partial_min, "pair": flow.placement("cpu", [0, 1]), "row": flow.placement("cpu", [0, 1, 2, 3]),
        "grid": flow.placement("cpu", [[0, 1], [2, 3]]), "parts": parts,
    }  # fmt: skip


@pytest.mark.parametrize("rule", chapters.rules(), ids=lambda rule: rule.id)
def test_example(rule: Rule) -> None:
    def run() -> list[str]:
        flow.virtual_world(4)
        flow.state.Override(generator=flow.Generator())
        out: list[str] = []
        for code, line in rule.examples:
            test = doctest.DocTestParser().get_doctest(code, names(), rule.id, f"spec/text/{rule.chapter}.md", line)
            doctest.DocTestRunner(optionflags=FLAGS, verbose=False).run(test, out=out.append)
        return out

    failures = copy_context().run(run)
    assert not failures, "".join(failures)


def generator() -> Any:
    """spec/generate.py as a module; spec/ is no package."""
    found = importlib.util.spec_from_file_location("spec_generate", ROOT / "spec" / "generate.py")
    assert found is not None and found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def test_the_table_of_primitives_is_current() -> None:
    assert (TEXT / GENERATED).read_text() == generator().table(), "run: python spec/generate.py"


def test_version_and_profile() -> None:
    index = (TEXT / "index.md").read_text()
    assert f"* Version: {(ROOT / 'spec' / 'VERSION').read_text().strip()} " in index
    assert f"* Arithmetic profile: `{flow.PROFILE}`" in index


def test_every_chapter_is_in_the_index() -> None:
    linked = set(re.findall(r"\]\((\w+)\.md\)", (TEXT / "index.md").read_text()))
    assert linked == {path.stem for path in TEXT.glob("*.md")} - {"index"}
