"""The levels of the tree, and what each file imports: read from the sources, for the tests of the arrows and the picture of them."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent

LEVELS = (
    # guests of the training process: torch and the standard library only
    "errors",
    "compiler",
    "search",
    "records",
    "torch_private",
    "kernels",
    "tape",
    "hooks",
    "script",
    "snapshots",
    "backends",
    "observers",
    "recorder",
    # hosts: they read what guests have written, start processes, and show
    "runs",
    "drift",
    "plots",
    "graphs",
    "launch",
    "localize",
    "investigate",
    "tools",
    "engines",
    "report",
    "batches",
    "api",
    "cli",
)
"""Every folder and file of `harness/` and the other top folders, from the ground up: imports point down only."""

GUEST_LEVELS = LEVELS[: LEVELS.index("runs")]


@dataclass(frozen=True, slots=True)
class Import:
    """One import: the file from the root, its line and the dotted name that is asked for."""

    file: str
    line: int
    target: str


@functools.cache
def _parsed(file: Path, changed: int) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"), str(file))


@functools.cache
def _nodes(file: Path, changed: int) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(_parsed(file, changed)))


def parsed(file: Path) -> ast.Module:
    """The syntax tree of a file, made once for each of its versions."""
    return _parsed(file, file.stat().st_mtime_ns)


def nodes_of(file: Path) -> tuple[ast.AST, ...]:
    """The nodes of a file's syntax tree, walked once for each of its versions."""
    return _nodes(file, file.stat().st_mtime_ns)


def imports(root: Path, file: Path, *, typed: bool = True) -> tuple[Import, ...]:
    """Every import of a file, relative ones resolved; `from a import b` asks for `a.b`.

    Without `typed` those under `if TYPE_CHECKING` are left out.
    """
    return _imports(root, file, typed, file.stat().st_mtime_ns)


@functools.cache
def _imports(root: Path, file: Path, typed: bool, changed: int) -> tuple[Import, ...]:
    name = file.relative_to(root)
    package = ["numdrift", *name.parent.parts]
    left_out = {
        id(inner)
        for node in nodes_of(file)
        if not typed and isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for statement in node.body
        for inner in ast.walk(statement)
    }
    found: list[Import] = []
    for node in nodes_of(file):
        if id(node) in left_out:
            continue
        targets: list[str] = []
        if isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            start = package[: len(package) - node.level + 1] if node.level else []
            base = [*start, *([node.module] if node.module else [])]
            targets = [".".join([*base, alias.name]) for alias in node.names]
        elif isinstance(node, ast.Call):
            literal = node.args[0] if node.args else None
            text = literal.value if isinstance(literal, ast.Constant) else None
            if isinstance(text, str) and "import_module" in ast.unparse(node.func):
                targets = [text]
        for target in targets:
            found.append(Import(name.as_posix(), node.lineno, target))  # type: ignore[attr-defined]
    return tuple(found)


MODULE = re.compile(r"numdrift(\.\w+)+(:\w+)?")


def named_modules(root: Path, file: Path) -> Iterator[Import]:
    """Every string of a file that is the dotted name of a module, or of a thing in it, below `numdrift`."""
    for node in nodes_of(file):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and MODULE.fullmatch(node.value):
            yield Import(file.relative_to(root).as_posix(), node.lineno, node.value.replace(":", "."))


def level_of(target: str) -> str | None:
    """The level that a dotted name below `numdrift` belongs to, None for one that has none."""
    parts = target.split(".")
    if parts[0] != "numdrift" or len(parts) < 2:
        return None
    return parts[1] if parts[1] != "harness" else (parts[2] if len(parts) > 2 else None)


def place_of(root: Path, level: str) -> Path:
    """The folder of a level, or its file."""
    folder = root / level if level in ("kernels", "plots") else root / "harness" / level
    return folder if folder.is_dir() else folder.with_suffix(".py")


def levels_in(root: Path) -> set[str]:
    """The folders that hold Python files, and the files beside them."""
    found = {path.stem for path in (root / "harness").glob("*.py")}
    for top in (root / "harness", root):
        names = ("kernels", "plots") if top == root else None
        for path in top.iterdir():
            if path.is_dir() and any(path.rglob("*.py")) and (names is None or path.name in names):
                found.add(path.name)
    return found - {"reproducers"}


def upward(root: Path) -> list[str]:
    """Imports that point up in LEVELS, or to a level that is not in it. Names for the type checker alone load nothing."""
    found = []
    for level in levels_in(root):
        place = place_of(root, level)
        files = [place] if place.is_file() else sorted(place.rglob("*.py"))
        for file in files:
            for one in imports(root, file, typed=False):
                other = level_of(one.target)
                if (
                    other is None
                    or other == level
                    or (level in LEVELS and other in LEVELS and LEVELS.index(other) < LEVELS.index(level))
                ):
                    continue
                found.append(f"{one.file}:{one.line}: {level} imports {one.target}, which is above it")
    return found


Arrows = dict[str, dict[str, Import]]
"""The rooms that each room imports, with the first such import."""


def rooms_in(root: Path, folder: Path) -> Arrows:
    """The arrows between the rooms of a folder: its sub-folders, and the room "." of its own files."""
    package = ["numdrift", *folder.relative_to(root).parts]
    names = {path.name for path in folder.iterdir() if path.is_dir() and any(path.rglob("*.py"))}
    arrows: Arrows = {room: {} for room in (".", *sorted(names))}
    for file in sorted(folder.rglob("*.py")):
        parts = file.relative_to(folder).parts
        room = parts[0] if len(parts) > 1 else "."
        for found in imports(root, file, typed=False):
            target = found.target.split(".")
            if target[: len(package)] == package and len(target) > len(package):
                other = target[len(package)] if target[len(package)] in names else "."
                if other != room:
                    arrows[room].setdefault(other, found)
    return arrows


def circles_of_rooms(root: Path) -> list[str]:
    """The imports by which rooms of a folder import each other in a circle, in any level."""
    found = []
    for place in (place_of(root, level) for level in sorted(levels_in(root))):
        for folder in [place, *sorted(place.rglob("*/"))] if place.is_dir() else []:
            arrows = rooms_in(root, folder)
            for room, others in arrows.items():
                for other in (name for name in others if room in _reached(arrows, name)):
                    seen = others[other]
                    found.append(f"{seen.file}:{seen.line}: {room} imports {other}, which imports {room}")
    return found


def _reached(arrows: Arrows, start: str) -> set[str]:
    """The rooms that a room imports, and those that these import."""
    reached, pending = {start}, [start]
    while pending:
        new = arrows[pending.pop()].keys() - reached
        reached |= new
        pending += new
    return reached
