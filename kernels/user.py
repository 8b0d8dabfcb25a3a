"""A kernel that a user brings: a file in C or in Python, for any op.

`mine.c` defines `kernel_float32`, `kernel_float64` or both; see native/signature.py. `mine.py` defines a
function named as the op, or `kernel`, that takes and returns what the op does; it may say DESCRIPTION,
FORMULA, DTYPES, DEVICES and SOURCE. A Python file is executed when it is loaded, and may then import modules
that lie beside it."""

from __future__ import annotations

import hashlib
import inspect
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from numdrift.harness.errors import CompileError, NotAvailable, NumdriftError, UsageError, nearest

from .native.binding import bind
from .native.signature import Signature, signature_of
from .native.source import checked_path, user_source
from .registry import ANY_DEVICE, FLOATING, Kernel
from .user_module import helpers_of, module_of

DEVICES = (*ANY_DEVICE, "cpu", "cuda", "xpu", "hpu", "npu", "mps", "lazy", "xla")


def user_kernel(op: str, path: Path) -> Kernel:
    """The record of a user's file for an op, after compiling or executing it; its name is the file's stem.

    Raises UsageError for a file that is missing, is neither C nor Python, raises, or lacks the op's function,
    CompileError for one that does not compile, KernelNotFound for an unknown op, and NotAvailable where a
    compiler or a module that it imports is missing.
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
    identity = "; ".join([identity, *(f"{one.name}, {_digest(one)}" for one in helpers_of(module))])
    return Kernel(
        op=op,
        name=path.stem,
        description=_text(module, path, "DESCRIPTION", f"Python from {path.name}"),
        formula=_text(module, path, "FORMULA", f"as in {path.name}"),
        target=f"{__name__}:load",
        source=_text(module, path, "SOURCE", identity),
        dtypes=_words(module, path, "DTYPES", FLOATING, FLOATING),
        devices=_words(module, path, "DEVICES", ANY_DEVICE, DEVICES),
        path=str(path),
    )


def load(op: str, path: str) -> Callable[..., Any]:
    """The function of a user's file for an op. Raises what `user_kernel` raises."""
    file = checked_path(Path(path))
    signature = signature_of(op)
    if file.suffix == ".c":
        return bind(file, signature)
    return _function(_module(op, file), file, signature)


def source_of(op: str, path: Path) -> bytes:
    """All that a user's kernel is made from: the file, the headers or the modules beside it that it takes in.

    Raises what `user_kernel` raises.
    """
    path = checked_path(path)
    if path.suffix == ".c":
        return user_source(path).content().encode(errors="surrogateescape")
    helpers = helpers_of(_module(op, path))
    return b"\0".join(_content(one) for one in (path, *helpers))


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
    except (Exception, SystemExit) as error:
        if isinstance(error, NumdriftError):
            raise
        raise _import_error(op, path, error) from error


def _import_error(op: str, path: Path, error: BaseException) -> NumdriftError:
    message = " ".join(str(error).split())
    if isinstance(error, SyntaxError) and error.filename == str(path):
        return CompileError(path, f"{path.name}:{error.lineno}: {error.msg}")
    if isinstance(error, ModuleNotFoundError):
        return NotAvailable(
            f"kernel {op}={path}", f"it imports {error.name}, which is neither installed here nor beside it"
        )
    lines = [
        frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)
    ]
    place = f"line {lines[-1]}" if lines else "its import"
    return UsageError(f"{path}: {place} raises {type(error).__name__}: {message}")


def _function(module: Any, path: Path, signature: Signature) -> Callable[..., Any]:
    name = signature.op.partition(".")[0]
    function = getattr(module, name, None) or getattr(module, "kernel", None)
    if not callable(function):
        raise UsageError(f"{path} defines neither {name} nor kernel; it needs `{signature.in_python()}`")
    required = [None for one in signature.arguments if not one.optional and not one.keyword]
    try:
        inspect.signature(function).bind(*required)
    except TypeError as error:
        raise UsageError(f"{path}: {error}; the op calls it as `{signature.in_python()}`") from None
    except ValueError:
        pass  # a callable that does not tell its parameters
    found: Callable[..., Any] = function
    return found


def _text(module: Any, path: Path, name: str, default: str) -> str:
    value = getattr(module, name, default)
    if not isinstance(value, str):
        raise UsageError(f"{path}: {name} is {value!r}; it is a text")
    return value


def _words(
    module: Any, path: Path, name: str, default: tuple[str, ...], known: tuple[str, ...]
) -> tuple[str, ...]:
    value = getattr(module, name, default)
    if not isinstance(value, (tuple, list)) or not value or not all(isinstance(one, str) for one in value):
        raise UsageError(f'{path}: {name} is {value!r}; it is a tuple of texts such as ("{known[0]}",)')
    for one in value:
        if one not in known:
            raise UsageError(f"{path}: {name} has {one!r}; {nearest(one, known)}")
    return tuple(value)
