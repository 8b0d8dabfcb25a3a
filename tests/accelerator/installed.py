"""The stand-in for an accelerator, compiled once and installed where a test wants it."""

from __future__ import annotations

import fcntl
import hashlib
import importlib.metadata
import importlib.util
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

PACKAGE = Path(__file__).parent / "device" / "standin_device"
CACHE = Path(sys.prefix) / "standin"
"""What was compiled, in a folder for each state of the sources, torch and the compiler; .venv/ is not part of the repository."""

COMPILER = "g++"
FLAGS = ("-std=c++20", "-O1", "-fPIC", "-fvisibility=hidden", "-w", "-DUSE_KINETO", "-DAT_PER_OPERATOR_HEADERS")
EXTENSION = f"_device{sysconfig.get_config_var('EXT_SUFFIX')}"

METADATA = "Metadata-Version: 2.1\nName: standin-device\nVersion: 0.1\n"
DEVICES = "[numdrift.devices]\nstandin = standin_device\n"
AUTOLOAD = "[torch.backends]\nstandin = standin_device:load\n"


def install(site: Path, *, autoload: bool = False) -> Path:
    """Put the package into a folder for PYTHONPATH, with the entry points that pip would write; return the folder.

    With `autoload` torch imports the package by itself, so that a script needs no import of it.
    """
    shutil.copytree(PACKAGE, site / PACKAGE.name, ignore=shutil.ignore_patterns("*.cpp", "*.h", "__pycache__"))
    (site / PACKAGE.name / EXTENSION).symlink_to(compiled())
    facts = site / "standin_device-0.1.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text(METADATA)
    (facts / "entry_points.txt").write_text(DEVICES + (AUTOLOAD if autoload else ""))
    return site


def compiled() -> Path:
    """Return the extension, compiled now where that has not been done; one process compiles, the others wait."""
    extension = CACHE / state() / EXTENSION
    if not extension.exists():
        with locked(CACHE / "lock"):
            if not extension.exists():
                compile_to(extension)
    return extension


def state() -> str:
    """Return a digest of all that the extension depends on."""
    digest = hashlib.sha256()
    for path in sorted([*PACKAGE.glob("*.cpp"), *PACKAGE.glob("*.h")]):
        digest.update(path.name.encode() + path.read_bytes())
    compiler = subprocess.run([COMPILER, "--version"], capture_output=True, check=True).stdout
    versions = [importlib.metadata.version("torch"), sys.version, *FLAGS]
    digest.update(compiler + "\n".join(versions).encode())
    return digest.hexdigest()[:16]


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock that other processes wait for."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def compile_to(extension: Path) -> None:
    """Compile all files and link them; the extension appears when it is whole.

    Nearly all the time goes into torch's headers. So the files are put together, into one unit for each of two
    compilers at once, and no name of a file-local function or variable may be that of another file's.
    """
    torch = torch_folder()
    folders = [PACKAGE, Path(sysconfig.get_paths()["include"])]
    folders += [torch / "include" / part for part in ("", "kineto", "torch/csrc/api/include")]
    flags = [*FLAGS, *(f"-I{folder}" for folder in folders)]
    extension.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=extension.parent) as name:
        units = []
        for number, paths in enumerate(halves(sorted(PACKAGE.glob("*.cpp")))):
            units.append(Path(name) / f"unit{number}.cpp")
            units[-1].write_text("".join(f'#include "{path}"\n' for path in paths))
        with ThreadPoolExecutor(len(units)) as pool:
            list(pool.map(run_compiler, ([COMPILER, *flags, "-c", unit, "-o", f"{unit}.o"] for unit in units)))
        linked = Path(name) / EXTENSION
        objects = [f"{unit}.o" for unit in units]
        run_compiler([COMPILER, "-shared", *objects, f"-L{torch / 'lib'}", "-ltorch_cpu", "-lc10", "-o", linked])
        linked.replace(extension)


def halves(paths: list[Path]) -> list[list[Path]]:
    """Part files by what they cost, which their size tells well enough."""
    by_size = sorted(paths, key=lambda path: (-path.stat().st_size, path.name))
    return [by_size[0::2], by_size[1::2]]


def torch_folder() -> Path:
    """Return where torch is installed, without importing it."""
    found = importlib.util.find_spec("torch")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent


def run_compiler(command: list[str | Path]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"the stand-in does not compile:\n{done.stderr}")
