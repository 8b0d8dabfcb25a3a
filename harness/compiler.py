"""Compile C code on first use with the system's compiler, and cache the libraries by compiler, CPU and user.

A cached library ends with the SHA-256 of its preceding bytes (the dynamic linker ignores bytes after the ELF image),
because loading a truncated library kills the process with SIGBUS instead of raising an error.
"""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import re
import shlex
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from .errors import CompileError, NotAvailable, UsageError

BUILD_SECONDS = 60
CHECKSUM_BYTES = hashlib.sha256().digest_size
_FAILURES = (OSError, RuntimeError, ValueError, subprocess.SubprocessError)
COMPILERS = ("cc", "gcc", "clang")
Execute = Callable[[Sequence[str]], "subprocess.CompletedProcess[str]"]
"""Executes the command of a compiler, and returns its exit status and its messages."""

REMEDY = "install one, on Debian with apt-get install gcc, or name it in CC"


@dataclass(frozen=True, slots=True)
class CSource:
    """A C file with its compiler options: `flags` and the first group of `tunings` that the compiler accepts.

    The headers that the file includes with quotes from its own folder are part of the source.
    """

    path: Path
    flags: tuple[str, ...]
    tunings: tuple[tuple[str, ...], ...] = ((),)

    def content(self) -> str:
        """Return the text of the file and of its headers. Raises UsageError if the file cannot be read."""
        return "\0".join(_texts(self.path, set()))


@dataclass(frozen=True, slots=True)
class Library:
    """A compiled library: its file, the command of the compiler, and the flags that the compiler received."""

    path: Path
    compiler: tuple[str, ...]
    flags: tuple[str, ...]


def cache_folder() -> Path:
    """Return the folder of the cached libraries, which is created with mode 0700 when a library is built."""
    if chosen := os.environ.get("NUMDRIFT_CACHE"):
        return Path(chosen)
    if shared := os.environ.get("XDG_CACHE_HOME"):
        return Path(shared) / "numdrift"
    return Path.home() / ".cache" / "numdrift"


def run_compiler(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Execute a compiler for BUILD_SECONDS at most."""
    return subprocess.run(
        command,
        check=False,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env=os.environ | {"LC_ALL": "C"},
        text=True,
        errors="replace",
        timeout=BUILD_SECONDS,
    )


def compile_library(source: CSource, execute: Execute = run_compiler) -> Library:
    """Return the library of a C file, compiling it with `execute` unless it is cached.

    Raises UsageError if the file cannot be read, CompileError if it does not compile, and NotAvailable if there is no
    compiler, or no private folder for the library.
    """
    content = source.content()
    with _failures_as_unavailable():
        libraries = _libraries(source, content)
        return _cached(libraries) or _build(source, libraries, execute)


def cached_library(source: CSource) -> Library | None:
    """Return the library of a C file if it is cached. Raises UsageError and NotAvailable as `compile_library` does."""
    content = source.content()
    with _failures_as_unavailable():
        return _cached(_libraries(source, content))


def library_place(source: CSource) -> Path:
    """Return where the library of a C file is cached if its first tuning compiles.

    Raises UsageError and NotAvailable as `compile_library` does.
    """
    content = source.content()
    with _failures_as_unavailable():
        return _libraries(source, content)[0].path


@contextmanager
def _failures_as_unavailable() -> Iterator[None]:
    try:
        yield
    except _FAILURES as error:
        raise _unavailable(" ".join(str(error).split()) or type(error).__name__) from error


def _libraries(source: CSource, content: str) -> list[Library]:
    """Return the libraries that the tunings would build, which may not exist yet."""
    compiler = find_compiler()
    folder = cache_folder()
    _make_private(folder)
    return [_place(source, content, compiler, folder, tuning) for tuning in source.tunings]


def _cached(libraries: Sequence[Library]) -> Library | None:
    return next((library for library in libraries if _intact(library.path)), None)


def find_compiler() -> tuple[str, ...]:
    """Return the command of the C compiler: CC, or the first of cc, gcc, clang. Raises NotAvailable."""
    if configured := os.environ.get("CC", "").strip():
        words = shlex.split(configured)
        if program := shutil.which(words[0]):
            return (program, *words[1:])
        raise _unavailable(f"CC={configured!r} names no program", "unset CC, or set it to a C compiler")
    for command in COMPILERS:
        if program := shutil.which(command):
            return (program,)
    raise _unavailable(f"no C compiler found ({', '.join(COMPILERS)})", REMEDY)


def _unavailable(why: str, remedy: str = "") -> NotAvailable:
    return NotAvailable("compiled C", why, remedy)


def _texts(path: Path, visited: set[Path]) -> Iterator[str]:
    """Yield the text of a file and of the headers that it includes with quotes, each once."""
    visited.add(path.resolve())
    try:
        text = path.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    yield text
    for name in re.findall(r'^\s*#\s*include\s*"([^"\n]+)"', text, re.MULTILINE):
        header = path.parent / name
        if header.is_file() and header.resolve() not in visited:
            yield from _texts(header, visited)


def _place(source: CSource, content: str, compiler: tuple[str, ...], folder: Path, tuning: tuple[str, ...]) -> Library:
    """Return the library that a tuning would build.

    The name of its file contains a digest of everything that determines the library's bytes.
    """
    binary = Path(compiler[0]).resolve()
    status = binary.stat()
    flags = (*source.flags, *tuning)
    parts = (content, flags, compiler, str(binary), status.st_size, status.st_mtime_ns, _cpu())
    key = hashlib.sha256(repr(parts).encode()).hexdigest()[:24]
    stem = re.sub(r"[^\w.-]", "_", source.path.stem)[:64]
    return Library(folder / f"{stem}-{key}.so", compiler, flags)


@functools.cache
def _cpu() -> str:
    """Return the model and instruction sets of the first CPU. Machines with different CPUs may share a cache folder."""
    wanted: dict[str, str] = {}
    try:
        with Path("/proc/cpuinfo").open() as lines:
            for line in lines:
                name, _, value = line.partition(":")
                if name.strip() in ("model name", "flags", "Features", "CPU part"):
                    wanted[name.strip()] = value.strip()
                if not line.strip():
                    break
    except OSError:
        wanted["processor"] = platform.processor()
    return f"{platform.system()} {platform.machine()} {wanted}"


def _make_private(folder: Path) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = folder.stat()
    if status.st_uid != os.getuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise _unavailable(
            f"{folder} belongs to another user, or another user can write to it",
            "name another folder in NUMDRIFT_CACHE",
        )


def _intact(library: Path) -> bool:
    try:
        if library.lstat().st_uid != os.getuid():
            raise _unavailable(f"{library} belongs to another user", "remove it")
        content = library.read_bytes()
    except FileNotFoundError:
        return False
    image, checksum = content[:-CHECKSUM_BYTES], content[-CHECKSUM_BYTES:]
    return hashlib.sha256(image).digest() == checksum


def _build(source: CSource, libraries: Sequence[Library], execute: Execute) -> Library:
    """Compile next to the target and rename, so that processes that build at the same time replace equal files.

    Return the first library that compiles. The error quotes the compiler's message for the last library, which has the
    plainest flags: earlier libraries may fail only because of their tuning.
    """
    complaint = ""
    for library in libraries:
        with tempfile.TemporaryDirectory(dir=library.path.parent, prefix="build-") as scratch:
            built = Path(scratch) / library.path.name
            complaint = _compile(source.path, library, built, execute)
            if not complaint:
                image = built.read_bytes()
                built.write_bytes(image + hashlib.sha256(image).digest())
                built.replace(library.path)
                return library
    raise CompileError(source.path, complaint)


def _compile(path: Path, library: Library, target: Path, execute: Execute) -> str:
    """Run the compiler; return its first error, "" if there is none."""
    process = execute([*library.compiler, *library.flags, str(path.absolute()), "-o", str(target), "-lm"])
    if process.returncode == 0 and target.exists():
        return ""
    return first_error(process.stderr) or f"{library.compiler[0]} ended with exit status {process.returncode}"


def first_error(output: str) -> str:
    """Return the first error in the output of gcc, clang or a linker, as `file:line: message` if it has a position."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    for line in lines:
        if match := re.match(r"(.+?):(\d+):(?:\d+:)? (?:fatal )?error: (.*)", line):
            return f"{Path(match[1]).name}:{match[2]}: {match[3]}"
        if "undefined reference" in line:
            return line[line.index("undefined reference") :]
    return next((line for line in lines if "error" in line.lower()), lines[0] if lines else "")
