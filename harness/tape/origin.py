"""The place in the script from which something happened."""

from __future__ import annotations

import functools
import os
import re
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType

INSTALLED = ("/site-packages/", "/dist-packages/", "/torchinductor_")
"""In the paths of installed files, and of generated code that lies where Inductor puts it by itself."""

CALLED_FROM = "numdrift"
"""The file name of the frames that kernels of the lazy core are called from, which are nobody's."""

MOST_FRAMES = 32
"""Frames of the user's that are kept of a place: what calls itself has any number of them."""

FRAME = re.compile(r'^\s*File "([^"]+)", line (\d+)(?:, in (\S+))?', re.MULTILINE)
"""A frame in the text of a stack."""


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
        self._shown: dict[tuple[CodeType, int], str] = {}
        self._chains: dict[tuple[str, ...], tuple[str, ...]] = {}

    def __contains__(self, filename: str) -> bool:
        known = self._known.get(filename)
        if known is None:
            foreign = (
                filename.startswith(("<", *self._installed))
                or filename == CALLED_FROM
                or any(part in filename for part in INSTALLED)
            )
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

    def chain(self, frame: FrameType | None) -> tuple[str, ...]:
        """The frames of these files from this one outwards, each as `file:line function`."""
        found: list[str] = []
        for one in self.frames(frame):
            key = (one.f_code, one.f_lineno)
            if key not in self._shown:
                self._shown[key] = f"{one.f_code.co_filename}:{one.f_lineno} {one.f_code.co_qualname}"
            found.append(self._shown[key])
            if len(found) == MOST_FRAMES:
                break
        chain = tuple(found)
        return self._chains.setdefault(chain, chain)  # thousands of calls have few places

    def chain_in(self, stack: str) -> tuple[str, ...]:
        """The same of the text of a stack, whose outermost frame comes first."""
        mine = [f"{name}:{line} {function}".rstrip() for name, line, function in FRAME.findall(stack) if name in self]
        return tuple(reversed(mine[-MOST_FRAMES:]))


@functools.cache
def own_files(script: str) -> OwnFiles:
    """Those of a script, once and for all: what is installed does not change while it runs."""
    return OwnFiles(script)


def script_line(script: str) -> str | None:
    """The innermost frame of the user's own files on the current stack, as `file:line`: a model's, where a trainer of
    the user's calls it."""
    return own_files(script).line(sys._getframe(1)) or None


def script_frames(script: str) -> tuple[str, ...]:
    """The frames of the user's own files on the current stack, the innermost first, each as `file:line function`."""
    return own_files(script).chain(sys._getframe(1))


@functools.lru_cache(maxsize=4096)
def frames_in(stack: str, script: str) -> tuple[str, ...]:
    """The same of the text of a stack, which a compiler notes of each of its nodes."""
    return own_files(script).chain_in(stack)


class StepFrames:
    """The user's frames of the calls of one step. An op of the backward has those of the forward whose derivative it
    is, by autograd's number of the node."""

    def __init__(self, script: str) -> None:
        self._script = script
        self._forward: dict[int, tuple[str, ...]] = {}

    def here(self, phase: str, sequence: int | None) -> tuple[str, ...]:
        """Those of the call that is being made."""
        frames = script_frames(self._script)
        if sequence is not None and phase == "forward":
            self._forward.setdefault(sequence, frames)
        elif sequence is not None and phase == "backward":
            frames = self._forward.get(sequence, frames)
        return frames


def line_of(frame: str) -> str:
    """`file:line` of a frame that is `file:line function`."""
    line, _, function = frame.rpartition(" ")
    return line if function and line.rpartition(":")[2].isdecimal() else frame


def names_in(code: CodeType) -> frozenset[str]:
    """Every global and attribute name that a code object mentions, its functions and classes included."""
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            names |= names_in(constant)
    return frozenset(names)
