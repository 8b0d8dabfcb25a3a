"""The place in the script from which something happened."""

from __future__ import annotations

import functools
import os
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType

INSTALLED = ("/site-packages/", "/dist-packages/", "/torchinductor_")
"""In the paths of installed files, and of generated code that lies where Inductor puts it by itself."""


class OwnFiles:
    """Tells the user's own files, the script and what it imports from beside it, from installed ones and numdrift's."""

    def __init__(self, script: str) -> None:
        here = Path(__file__).resolve().parents[2]
        paths = (sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib"))
        installed = [str(Path(path)) for path in paths if path]
        installed += [str(here / name) for name in ("harness", "kernels", "src")]
        torch = sys.modules.get("torch")  # which may be built in a folder of its own
        if torch is not None and torch.__file__ is not None:
            installed.append(str(Path(torch.__file__).parent))
        installed += [str(Path(__file__).absolute().parents[1])]  # numdrift as it was imported, by whatever link
        if cache := os.environ.get("TORCHINDUCTOR_CACHE_DIR"):  # where Inductor writes the code that it generates
            installed.append(cache)
        installed += [str(Path(path).resolve()) for path in installed]  # an environment may be a link to another
        self._installed = tuple(f"{path}/" for path in dict.fromkeys(installed))
        self._known = {script: True}

    def __contains__(self, filename: str) -> bool:
        known = self._known.get(filename)
        if known is None:
            foreign = filename.startswith(("<", *self._installed)) or any(part in filename for part in INSTALLED)
            known = not foreign
            self._known[filename] = known
        return known

    def frames(self, frame: FrameType | None) -> Iterator[FrameType]:
        """The frames of these files from this one outwards."""
        while frame is not None:
            if frame.f_code.co_filename in self:
                yield frame
            frame = frame.f_back

    def line(self, frame: FrameType | None) -> str:
        """The innermost line of these files from this frame outwards, as `file:line`; "" where there is none."""
        found = next(self.frames(frame), None)
        return "" if found is None else f"{found.f_code.co_filename}:{found.f_lineno}"


@functools.cache
def own_files(script: str) -> OwnFiles:
    """Those of a script, once and for all: what is installed does not change while it runs."""
    return OwnFiles(script)


def script_line(script: str) -> str | None:
    """The innermost frame of the user's own files on the current stack, as `file:line`: a model's, where a trainer of
    the user's calls it."""
    return own_files(script).line(sys._getframe(1)) or None


def names_in(code: CodeType) -> frozenset[str]:
    """Every global and attribute name that a code object mentions, its functions and classes included."""
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            names |= names_in(constant)
    return frozenset(names)
