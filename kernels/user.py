"""A user's own kernel: a file in C or in Python, for any op.

`mine.c` defines `kernel_float32`, `kernel_float64` or both; see native/binding.py. `mine.py` defines a function named
like the op, or `kernel`, that takes the op's arguments and returns its results. A Python file may also define
DESCRIPTION, FORMULA, DTYPES, DEVICES and SOURCE. It is executed when it is loaded, and may then import modules from its
folder."""

from __future__ import annotations

import hashlib
import importlib.abc
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

from numdrift.harness.errors import CompileError, NotAvailable, NumdriftError, UsageError, nearest

from .native.binding import KernelSignature, bind, signature_of
from .native.source import checked_path, user_source
from .registry import ANY_DEVICE, FLOATING, Kernel

DEVICES = (*ANY_DEVICE, "cpu", "cuda", "xpu", "hpu", "npu", "mps", "lazy", "xla")

PLUGINS = "numdrift.devices"
"""The group of entry points by which vendors name their devices."""


def device_kinds() -> tuple[str, ...]:
    """Return the devices that a kernel may name: torch's, and those of installed vendor packages."""
    return (*DEVICES, *(point.name for point in entry_points(group=PLUGINS)))


def user_kernel(op: str, path: Path) -> Kernel:
    """Compile or execute a user's file for an op, and return the record of its kernel, named after the file's stem.

    Raises UsageError for a file that is missing, is neither C nor Python, raises an error, or lacks the op's function;
    CompileError for a file that does not compile; KernelNotFound for an unknown op; and NotAvailable if a compiler, or
    a module that the file imports, is missing.
    """
    path = checked_path(path)
    signature = signature_of(op)
    identity = f"{path}, {_digest(path)}"
    if path.suffix == ".c":
        return Kernel(
            op=op,
            name=path.stem,
            description=f"C from {path.name}",
            formula=f"as in {path.name}",
            target=f"{__name__}:load",
            source=identity,
            dtypes=tuple(str(dtype).removeprefix("torch.") for dtype in bind(path, signature).functions),
            native=True,
            needs_compiler=True,
            path=str(path),
        )
    module = _module(op, path)
    _function(module, path, signature)
    identity = "; ".join([identity, *(f"{helper.name}, {_digest(helper)}" for helper in helpers_of(module))])
    return Kernel(
        op=op,
        name=path.stem,
        description=_text(module, path, "DESCRIPTION", f"Python from {path.name}"),
        formula=_text(module, path, "FORMULA", f"as in {path.name}"),
        target=f"{__name__}:load",
        source=_text(module, path, "SOURCE", identity),
        dtypes=_words(module, path, "DTYPES", FLOATING, FLOATING),
        devices=_words(module, path, "DEVICES", ANY_DEVICE, device_kinds()),
        path=str(path),
    )


def load(op: str, path: str) -> Callable[..., Any]:
    """Return the function of a user's file for an op. Raises the errors of `user_kernel`."""
    file = checked_path(Path(path))
    signature = signature_of(op)
    if file.suffix == ".c":
        return bind(file, signature)
    return _function(_module(op, file), file, signature)


def source_of(op: str, path: Path) -> bytes:
    """Return all sources of a user's kernel: the file, and the headers or modules that it takes from its folder.

    Raises the errors of `user_kernel`.
    """
    path = checked_path(path)
    if path.suffix == ".c":
        return user_source(path).content().encode(errors="surrogateescape")
    helpers = helpers_of(_module(op, path))
    return b"\0".join(_content(file) for file in (path, *helpers))


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None


def _digest(path: Path) -> str:
    return f"SHA-256 {hashlib.sha256(_content(path)).hexdigest()[:16]}"


def _module(op: str, path: Path) -> ModuleType:
    content = _content(path)
    try:
        return module_of(path, content)
    except NumdriftError:
        raise
    except (Exception, SystemExit) as error:
        if isinstance(error, SyntaxError) and error.filename == str(path):
            raise CompileError(path, f"{path.name}:{error.lineno}: {error.msg}") from error
        if isinstance(error, ModuleNotFoundError):
            missing = f"it imports {error.name}, which is neither installed nor in the same folder"
            raise NotAvailable(f"kernel {op}={path}", missing) from error
        # the line in the file itself, however deep in a library the error was raised
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
        place = f"line {lines[-1]}" if lines else "its import"
        message = " ".join(str(error).split())
        raise UsageError(f"{path}: {place} raises {type(error).__name__}: {message}") from error


def _function(module: Any, path: Path, signature: KernelSignature) -> Callable[..., Any]:
    name = signature.op.partition(".")[0]
    function: Callable[..., Any] | None = getattr(module, name, None) or getattr(module, "kernel", None)
    if function is None or not callable(function):
        raise UsageError(f"{path} defines neither {name} nor kernel; it needs `{signature.in_python()}`")
    required = [None for argument in signature.arguments if not argument.optional and not argument.keyword]
    try:
        inspect.signature(function).bind(*required)
    except TypeError as error:
        raise UsageError(f"{path}: {error}; the op calls it as `{signature.in_python()}`") from None
    except ValueError:
        pass  # a callable whose parameters cannot be inspected
    return function


def _text(module: Any, path: Path, name: str, default: str) -> str:
    value = getattr(module, name, default)
    if not isinstance(value, str):
        raise UsageError(f"{path}: {name} is {value!r}; it must be a string")
    return value


def _words(module: Any, path: Path, name: str, default: tuple[str, ...], allowed: tuple[str, ...]) -> tuple[str, ...]:
    value = getattr(module, name, default)
    if not isinstance(value, (tuple, list)) or not value or not all(isinstance(word, str) for word in value):
        raise UsageError(f'{path}: {name} is {value!r}; it must be a tuple of strings such as ("{allowed[0]}",)')
    for word in value:
        if word not in allowed:
            raise UsageError(f"{path}: {name} has {word!r}; {nearest(word, allowed)}")
    return tuple(value)


# The Python file of a user's kernel as a module, with the modules beside it.
#
# While the file is executed, its folder comes first in `sys.path`, as for a script. Modules from this folder are the
# file's own: they are removed afterwards, and modules of the same names that other code has imported are restored, so
# that two kernels, or a kernel and the training script, may each have a `helper.py`.

_HELPERS = "__numdrift_helpers__"


@dataclass(frozen=True, slots=True)
class _Source(importlib.abc.SourceLoader):
    """Executes source text that was already read, and writes no compiled file."""

    path: Path
    content: bytes

    def get_filename(self, fullname: str) -> str:
        return str(self.path)

    def get_data(self, path: str | bytes) -> bytes:
        return self.content


def module_of(path: Path, content: bytes) -> ModuleType:
    """Return the module that a file defines. The file is executed once, and again only if its content changes.

    Raises the errors of the file.
    """
    key = hashlib.sha256(bytes(path.resolve()) + b"\0" + content).hexdigest()[:24]
    name = f"numdrift_kernel_{key}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_loader(name, _Source(path, content))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)

    # While the file is executed, the script's own modules of the same names are hidden.
    folder, script = path.resolve().parent, Path(sys.path[0] if sys.path else "").resolve()
    hidden = {other: loaded for other, loaded in sys.modules.items()
              if script != folder and _is_beside(folder, other) and _is_beside(script, other, loaded)}  # fmt: skip
    for module_name in hidden:
        del sys.modules[module_name]
    sys.modules[name] = module
    before = set(sys.modules)
    writes, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()  # a helper may be newer than the cached contents of the folder
    helpers: list[Path] = []
    try:
        try:
            spec.loader.exec_module(module)
        finally:
            sys.path.remove(str(folder))  # raises if the file itself removed the folder; such a file is refused
            sys.dont_write_bytecode = writes
            for module_name in sys.modules.keys() - before:
                if _is_beside(folder, module_name, sys.modules[module_name]):
                    helpers.append(Path(str(sys.modules.pop(module_name).__file__)))
            sys.modules.update(hidden)
    except BaseException:
        del sys.modules[name]
        raise
    setattr(module, _HELPERS, tuple(sorted(helpers)))
    return module


def helpers_of(module: ModuleType) -> tuple[Path, ...]:
    """Return the files that a module imported from its folder, in alphabetical order."""
    helpers: tuple[Path, ...] = getattr(module, _HELPERS, ())
    return helpers


def _is_beside(folder: Path, name: str, module: ModuleType | None = None) -> bool:
    """Check whether a folder has a module or package of this name, and `module`, if passed, came from this folder."""
    top = name.partition(".")[0]
    if not (folder / f"{top}.py").is_file() and not (folder / top / "__init__.py").is_file():
        return False
    file = getattr(module, "__file__", None)
    return module is None or (isinstance(file, str) and Path(file).is_relative_to(folder))
