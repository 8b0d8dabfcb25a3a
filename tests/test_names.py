"""One name, one thing: the classes of the whole tree, and those that may share a name, each with the reason."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

from .levels import ROOT, nodes_of

FOLDERS = ("harness", "kernels", "plots", "reproducers")

CLASSES = {
    "Block": "reproducers are scripts of their own: a transformer's block, a residual network's",
    "Culprit": "numdrift.Culprit is what a user sees of the record",
}


def classes_by_name(root: Path) -> dict[str, list[str]]:
    """Return the paths that define each class."""
    classes = defaultdict(list)
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*.py")):
            for node in nodes_of(path):
                if isinstance(node, ast.ClassDef):
                    classes[node.name].append(path.relative_to(root).as_posix())
    return classes


def repeated(classes: dict[str, list[str]]) -> list[str]:
    return [f"{name}: {', '.join(paths)}" for name, paths in classes.items() if len(paths) > 1 and name not in CLASSES]


def test_a_name_is_one_thing() -> None:
    found = repeated(classes_by_name(ROOT))
    assert not found, "\n" + "\n".join(found)


def test_no_repetition_is_allowed_for_nothing() -> None:
    classes = classes_by_name(ROOT)
    assert [name for name in CLASSES if len(classes[name]) < 2] == []


def test_a_repetition_is_found(tmp_path: Path) -> None:
    for place in ("harness/a.py", "plots/b.py"):
        (tmp_path / place).parent.mkdir(parents=True)
        (tmp_path / place).write_text("class Twice: ...\n")
    assert repeated(classes_by_name(tmp_path)) == ["Twice: harness/a.py, plots/b.py"]
