"""The Python file of a user's kernel as a module, with the modules that lie beside it.

While the file is executed its folder comes first in `sys.path`, as for a script. Modules from there are the
file's own: they are forgotten afterwards, and those of the same names that others have imported are put back,
so that two kernels, or a kernel and the training script, may each have a `helper.py`."""

from __future__ import annotations

import hashlib
import importlib.abc
import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

_HELPERS = "__numdrift_helpers__"


@dataclass(frozen=True, slots=True)
class _Source(importlib.abc.SourceLoader):
    """Executes a text that was read already, and leaves no compiled file beside it."""

    path: Path
    content: bytes

    def get_filename(self, fullname: str) -> str:
        return str(self.path)

    def get_data(self, path: str | bytes) -> bytes:
        return self.content


def module_of(path: Path, content: bytes) -> ModuleType:
    """The module that a file defines; the same one as long as the file's content is the same.

    Raises what the file raises.
    """
    key = hashlib.sha256(bytes(path.resolve()) + b"\0" + content).hexdigest()[:24]
    name = f"numdrift_kernel_{key}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_loader(name, _Source(path, content))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        with _beside(path.resolve().parent) as helpers:
            spec.loader.exec_module(module)
        setattr(module, _HELPERS, tuple(helpers))
    except BaseException:
        del sys.modules[name]
        raise
    return module


def helpers_of(module: ModuleType) -> tuple[Path, ...]:
    """The files beside a module's own that it imported, in alphabetical order."""
    found: tuple[Path, ...] = getattr(module, _HELPERS, ())
    return found


@contextmanager
def _beside(folder: Path) -> Iterator[list[Path]]:
    """Let modules of a folder be imported, and give their files at the end."""
    helpers: list[Path] = []
    script = Path(sys.path[0] if sys.path else "").resolve()
    hidden = {name: module for name, module in sys.modules.items()
              if script != folder and _is_beside(folder, name) and _is_beside(script, name, module)}  # fmt: skip
    for name in hidden:
        del sys.modules[name]
    before = set(sys.modules)
    writes, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    try:
        yield helpers
    finally:
        sys.path.remove(str(folder))
        sys.dont_write_bytecode = writes
        for name in sys.modules.keys() - before:
            if _is_beside(folder, name, sys.modules[name]):
                helpers.append(Path(str(sys.modules.pop(name).__file__)))
        sys.modules.update(hidden)
        helpers.sort()


def _is_beside(folder: Path, name: str, module: ModuleType | None = None) -> bool:
    """Whether a folder has a module of this name, or has the package that it is of; and `module` came from
    there."""
    top = name.partition(".")[0]
    if not (folder / f"{top}.py").is_file() and not (folder / top / "__init__.py").is_file():
        return False
    file = getattr(module, "__file__", None)
    return module is None or (isinstance(file, str) and Path(file).is_relative_to(folder))
