"""digest.c as a shared library: compiled on first use, cached for this compiler, CPU and user.

A cached library ends with the SHA-256 of what precedes it (the dynamic linker ignores bytes after the ELF
image), because loading a truncated library kills the process with SIGBUS instead of raising an error.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shlex
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

SOURCE = Path(__file__).with_name("digest.c")
FLAGS = (
    "-O3",
    "-fassociative-math",
    "-ffinite-math-only",
    "-fno-signed-zeros",
    "-fno-trapping-math",
    "-fno-math-errno",
    "-shared",
    "-fPIC",
)
TUNINGS = (("-march=native", "-mprefer-vector-width=512"), ("-march=native",), ())
BUILD_SECONDS = 60
CHECKSUM_BYTES = hashlib.sha256().digest_size

DigestFunction = Callable[[int, int, int], None]


class NativeUnavailable(Exception):
    """Why the native digest cannot be used."""


def load() -> tuple[DigestFunction | None, str | None]:
    """The function (address of items, number of items, address of records), or None and the reason."""
    try:
        return _load(), None
    except (
        NativeUnavailable,
        OSError,
        RuntimeError,
        ValueError,
        AttributeError,
        subprocess.SubprocessError,
    ) as error:
        return None, " ".join(str(error).split()) or type(error).__name__


def cache_folder() -> Path:
    """Where libraries are kept; created with mode 0700 when one is built."""
    if chosen := os.environ.get("NUMDRIFT_CACHE"):
        return Path(chosen)
    if shared := os.environ.get("XDG_CACHE_HOME"):
        return Path(shared) / "numdrift"
    return Path.home() / ".cache" / "numdrift"


def _load() -> DigestFunction:
    compiler = _compiler()
    folder = cache_folder()
    library = folder / f"digest-{_key(compiler)}.so"
    _make_private(folder)
    if not _intact(library):
        _build(compiler, library)
    function = ctypes.CDLL(str(library)).numdrift_digest
    function.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
    function.restype = None
    digest: DigestFunction = function
    return digest


def _compiler() -> list[str]:
    asked = os.environ.get("CC", "")
    for command in [asked] if asked.strip() else ["cc", "gcc", "clang"]:
        words = shlex.split(command)
        if found := shutil.which(words[0]):
            return [found, *words[1:]]
    raise NativeUnavailable(f"no C compiler found (CC={asked!r}, cc, gcc, clang)")


def _key(compiler: list[str]) -> str:
    binary = Path(compiler[0]).resolve()
    status = binary.stat()
    parts = (
        SOURCE.read_text(),
        FLAGS,
        TUNINGS,
        compiler,
        str(binary),
        status.st_size,
        status.st_mtime_ns,
        _cpu(),
    )
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:24]


def _cpu() -> str:
    """Model and instruction sets of the first CPU: a home folder may be shared by different machines."""
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
        raise NativeUnavailable(f"{folder} belongs to, or is writable by, somebody else")


def _intact(library: Path) -> bool:
    try:
        if library.lstat().st_uid != os.getuid():
            raise NativeUnavailable(f"{library} belongs to somebody else")
        content = library.read_bytes()
    except FileNotFoundError:
        return False
    image, checksum = content[:-CHECKSUM_BYTES], content[-CHECKSUM_BYTES:]
    return hashlib.sha256(image).digest() == checksum


def _build(compiler: list[str], library: Path) -> None:
    """Compile next to the target and rename: processes that build at once replace equal files."""
    with tempfile.TemporaryDirectory(dir=library.parent, prefix="build-") as scratch:
        built = Path(scratch) / library.name
        _compile(compiler, built)
        image = built.read_bytes()
        built.write_bytes(image + hashlib.sha256(image).digest())
        built.replace(library)


def _compile(compiler: list[str], target: Path) -> None:
    complaint = ""
    for tuning in TUNINGS:
        command = [*compiler, *FLAGS, *tuning, str(SOURCE), "-o", str(target), "-lm"]
        done = subprocess.run(
            command,
            check=False,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=BUILD_SECONDS,
        )
        if done.returncode == 0 and target.exists():
            return
        complaint = complaint or _first_error(done.stderr) or f"exit status {done.returncode}"
    raise NativeUnavailable(f"{compiler[0]}: {complaint}")


def _first_error(output: str) -> str:
    lines = [line for line in output.splitlines() if line.strip()]
    return next((line for line in lines if "error" in line.lower()), lines[0] if lines else "")
