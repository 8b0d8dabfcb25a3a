"""A checkout: its sources, its tests, and a copy of it into which mutants are written."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

SOURCES = ("harness/", "kernels/", "plots/", "src/")

APART = {"e2e", "habits", "faults", "frameworks", "backend", "bisector"}
"""Folders with tests that run whole commands."""


def files_of(root: Path) -> list[str]:
    """Return the files that git tracks or would track, relative to the root, sorted."""
    command = ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split("\0")
    return sorted({name for name in listed if name and (root / name).exists()})


def source_files(root: Path) -> list[str]:
    """Return the Python files that can contain mutants."""
    return [name for name in files_of(root) if name.startswith(SOURCES) and name.endswith(".py")]


def test_files(root: Path, sources: Iterable[str]) -> list[str]:
    """Return the test files that mirror a folder of these sources, or import from such a folder.

    Tests that run whole commands are left out. Imports in the helpers of a test count as well.
    """
    folders = {str(Path(name).parent) for name in sources}
    dotted = {"numdrift." + folder.replace("/", ".") for folder in folders}
    found = []
    for name in files_of(root):
        parts = Path(name).parts
        if parts[0] != "tests" or APART & set(parts) or not (parts[-1].startswith("test_") and name.endswith(".py")):
            continue
        imported = _imports(root, name, set())
        if "/".join(parts[1:-1]) in folders or any(
            one == "numdrift." or one in dotted or one.rpartition(".")[0] in dotted for one in imported
        ):
            found.append(name)
    return found


def _imports(root: Path, name: str, seen: set[str]) -> set[str]:
    """Return the modules of numdrift that a test file imports, itself or through helpers among the tests."""
    if name in seen:
        return set()
    seen.add(name)
    found = set()
    for node in ast.walk(ast.parse((root / name).read_text(encoding="utf-8"))):
        for module, member in _imported(node, Path(name).parent):
            if module.startswith("numdrift"):
                found |= {module, f"{module}.{member}"}
            elif module.startswith("tests"):
                for helper in (module, f"{module}.{member}"):
                    path = helper.replace(".", "/") + ".py"
                    if (root / path).exists():
                        found |= _imports(root, path, seen)
    return found


def _imported(node: ast.AST, folder: Path) -> Iterator[tuple[str, str]]:
    if isinstance(node, ast.Import):
        yield from ((one.name, "") for one in node.names)
    if isinstance(node, ast.ImportFrom):
        above = ".".join(folder.parts[: len(folder.parts) - node.level + 1]) if node.level else ""
        module = ".".join(part for part in (above, node.module) if part)
        yield from ((module, one.name) for one in node.names)


class Copy:
    """A copy of a checkout in a separate folder, in which files are changed and restored."""

    def __init__(self, root: Path, folder: Path) -> None:
        self.folder = folder
        self._changes = 0
        for name in files_of(root):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, folder / name, follow_symlinks=False)

    def put(self, name: str, text: str) -> Restore:
        """Write a file with a new modification time, so that Python never uses the bytecode of another version."""
        path = self.folder / name
        original, times = path.read_bytes(), path.stat()
        self._changes += 1
        path.write_text(text, encoding="utf-8")
        os.utime(path, (times.st_atime, int(times.st_mtime) + 10 * self._changes))
        return Restore(path, original, times.st_mtime_ns)


class Restore:
    """Restore one file as it was."""

    def __init__(self, path: Path, original: bytes, changed: int) -> None:
        self.path, self.original, self.changed = path, original, changed

    def __call__(self) -> None:
        self.path.write_bytes(self.original)
        os.utime(self.path, ns=(self.changed, self.changed))
