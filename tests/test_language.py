"""The words of the sources: variables say what they hold, docstrings begin as sentences, and retired words stay retired."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from .levels import ROOT, nodes_of

FOLDERS = ("harness", "kernels", "plots", "reproducers")

VAGUE = frozenset(
    (
        *("one", "another", "ours", "theirs", "mine", "yours", "said", "told", "asked", "given", "known", "taken"),
        *("found_", "here", "there"),
    )
)
"""Names of variables and parameters that do not say what these hold."""

RIDDLES = frozenset(("What", "Whether", "How", "Where", "Whatever", "Who", "Whoever", "Whose", "Of", "That"))
"""First words of docstrings that are neither an order nor the name of a thing."""

GLOSSARY = ROOT / "docs" / "glossary.md"

SOURCES = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py") if not path.is_symlink())
PAGES = sorted([*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"])


def bound_names(nodes: Sequence[ast.AST]) -> Iterator[tuple[str, int]]:
    """Yield the names of variables and parameters that a module binds, with their lines.

    Fields of classes are left out: they name what is in files and what users read.
    """
    fields = {
        id(statement.target)
        for node in nodes
        if isinstance(node, ast.ClassDef)
        for statement in node.body
        if isinstance(statement, ast.AnnAssign)
    }
    for node in nodes:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and id(node) not in fields:
            yield node.id, node.lineno
        elif isinstance(node, ast.arg):
            yield node.arg, node.lineno


def first_words(nodes: Sequence[ast.AST]) -> Iterator[tuple[str, int]]:
    """Yield the first word of each docstring of a module, with its line."""
    for node in nodes:
        if not isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        if text := ast.get_docstring(node):
            yield text.split()[0].rstrip(",.:;"), node.body[0].lineno


def retired() -> dict[str, str]:
    """Read the retired words of the glossary, each with what is said in its place."""
    section = GLOSSARY.read_text(encoding="utf-8").partition("## Retired words")[2]
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", section, flags=re.MULTILINE)
    return {word.strip(): instead.strip() for word, instead in rows if not set(word) <= {"-"} and word != "word"}


def test_a_variable_is_named_by_what_it_holds() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line} {name}"
        for path in SOURCES
        for name, line in bound_names(nodes_of(path))
        if name in VAGUE
    ]
    assert found == []


def test_a_docstring_begins_with_a_verb_or_a_noun() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line} {word}"
        for path in SOURCES
        for word, line in first_words(nodes_of(path))
        if word in RIDDLES
    ]
    assert found == []


@functools.cache
def texts() -> dict[Path, tuple[str, str]]:
    """The sources and pages that no retired word may be in, each with its text as it is and in lower case."""
    found = {path: path.read_text(encoding="utf-8") for path in (*SOURCES, *PAGES) if path != GLOSSARY}
    return {path: (text, text.lower()) for path, text in found.items()}


@pytest.mark.parametrize("word", sorted(retired()))
def test_a_retired_word_is_in_no_source_and_on_no_page(word: str) -> None:
    pattern = re.compile(r"\b" + r"[\s_]+".join(map(re.escape, word.split())) + r"\b", re.IGNORECASE)
    found = [
        f"{path.relative_to(ROOT)}:{text.count(chr(10), 0, match.start()) + 1}"
        for path, (text, lowered) in texts().items()
        if word.split()[0].lower() in lowered
        for match in pattern.finditer(text)
    ]
    assert found == [], f"the glossary has {retired()[word]!r} for {word!r}"


@pytest.mark.parametrize(
    ("source", "names", "words"),
    [
        ("for one in range(3):\n    print(one)\n", ["one"], []),
        ("def f(told):\n    'Whether it is so.'\n", ["told"], ["Whether"]),
        ("count = 1\nclass A:\n    'Of a thing.'\n", ["count"], ["Of"]),
        ("[given for given in ()]", ["given"], []),
        ("class A:\n    given: int\n    def f(self, mine): ...\n", ["self", "mine"], []),
    ],
)
def test_the_words_of_a_source_are_found(source: str, names: list[str], words: list[str]) -> None:
    nodes = list(ast.walk(ast.parse(source)))
    assert [name for name, _ in bound_names(nodes)] == names
    assert [word for word, _ in first_words(nodes)] == words


def test_the_glossary_is_read() -> None:
    assert len(retired()) >= 5 and all(retired().values())
    assert Path(GLOSSARY).name == "glossary.md"
