"""One name, one thing: classes and files of the whole tree, and those that may share a name, each with the reason."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

from .levels import ROOT

FOLDERS = ("harness", "kernels", "plots", "reproducers")

ROOMS = "the same part of each room: backends look alike"
COMMANDS = "a command of that name in each group of commands"

FILES = {
    "mode": ROOMS,
    "adapter": ROOMS,
    "capture": ROOMS,
    "list": COMMANDS,
    "open": COMMANDS,
    "show": COMMANDS,
    "check": COMMANDS,
    "sweep": "the command, and the sweep that it shows",
    "replay": "the command, and the replay that it shows",
    "doctor": "the command, and the examination that it shows",
}
CLASSES = {
    "Block": "reproducers are scripts of their own: a transformer's block, a residual network's",
    "Culprit": "numdrift.Culprit is what a user sees of the record",
}


def defined(root: Path) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """Files and classes of the tree by name, each with the paths that have it."""
    files, classes = defaultdict(list), defaultdict(list)
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*.py")):
            place = path.relative_to(root).as_posix()
            if path.stem != "__init__":
                files[path.stem].append(place)
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ClassDef):
                    classes[node.name].append(place)
    return files, classes


def repeated(found: dict[str, list[str]], allowed: dict[str, str]) -> list[str]:
    return [f"{name}: {', '.join(at)}" for name, at in found.items() if len(at) > 1 and name not in allowed]


def test_a_name_is_one_thing() -> None:
    files, classes = defined(ROOT)
    assert not repeated(files, FILES), "\n" + "\n".join(repeated(files, FILES))
    assert not repeated(classes, CLASSES), "\n" + "\n".join(repeated(classes, CLASSES))


def test_no_repetition_is_allowed_for_nothing() -> None:
    files, classes = defined(ROOT)
    assert [name for name in FILES if len(files[name]) < 2] == []
    assert [name for name in CLASSES if len(classes[name]) < 2] == []


def test_repeated_names_would_be_seen(tmp_path: Path) -> None:
    for place in ("harness/runs/one.py", "harness/drift/one.py"):
        (tmp_path / place).parent.mkdir(parents=True)
        (tmp_path / place).write_text("class Pair: ...\n")
    files, classes = defined(tmp_path)
    assert repeated(files, {}) == ["one: harness/drift/one.py, harness/runs/one.py"]
    assert repeated(classes, {}) == ["Pair: harness/drift/one.py, harness/runs/one.py"]
