"""The place in the script, or in another of the user's files, that caused an event."""

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
"""Parts of the paths of installed files, and of files that Inductor generates in its default folder."""

CALLED_FROM = "numdrift"
"""The file name that numdrift gives to frames that call kernels of the lazy core. They belong to no file."""

MOST_FRAMES = 32
"""The largest number of the user's frames that are kept for a place. A recursive function may have any number."""

FRAME = re.compile(r'^\s*File "([^"]+)", line (\d+)(?:, in (\S+))?', re.MULTILINE)
"""The pattern of a frame in the text of a stack."""


def short_place(line: str) -> str:
    """Return the `file:line` of a place without the folders of the file; an installed file keeps the name of its
    package, as in `torch/nn/modules/transformer.py:1245`, since a script may have a file of the same name."""
    path = line.replace("\\", "/")
    for installed in INSTALLED[:2]:
        if installed in path:
            return path.rpartition(installed)[2]
    return path.rpartition("/")[2]


class OwnFiles:
    """The user's own files: the script and the files that it imports, except for installed files and numdrift's."""

    def __init__(self, script: str) -> None:
        repository = Path(__file__).resolve().parents[2]
        paths = (sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib"))
        installed = [str(Path(path)) for path in paths if path]
        installed += [str(repository / name) for name in ("harness", "kernels", "src")]
        torch = sys.modules.get("torch")  # its folder may be outside of the installed packages
        if torch is not None and torch.__file__ is not None:
            installed.append(str(Path(torch.__file__).parent))
        installed += [str(Path(__file__).absolute().parents[1])]  # as numdrift was imported, perhaps through a link
        if cache := os.environ.get("TORCHINDUCTOR_CACHE_DIR"):  # the folder for the code that Inductor generates
            installed.append(cache)
        installed += [str(Path(path).resolve()) for path in installed]  # an environment may be a link to another one
        self._installed = tuple(f"{path}/" for path in dict.fromkeys(installed))
        self._own = {script: True}
        self._shown: dict[tuple[CodeType, int], str] = {}
        self._chains: dict[tuple[str, ...], tuple[str, ...]] = {}

    def __contains__(self, filename: str) -> bool:
        is_own = self._own.get(filename)
        if is_own is None:
            foreign = (
                filename.startswith(("<", *self._installed))
                or filename == CALLED_FROM
                or any(part in filename for part in INSTALLED)
            )
            is_own = not foreign
            self._own[filename] = is_own
        return is_own

    def frames(self, frame: FrameType | None) -> Iterator[FrameType]:
        """Yield the frames of these files, from this frame outwards."""
        while frame is not None:
            if frame.f_code.co_filename in self:
                yield frame
            frame = frame.f_back

    def line(self, frame: FrameType | None) -> str:
        """Return the innermost line of these files from this frame outwards, as `file:line`; "" if there is none."""
        innermost = next(self.frames(frame), None)
        return "" if innermost is None else f"{innermost.f_code.co_filename}:{innermost.f_lineno}"

    def chain(self, frame: FrameType | None) -> tuple[str, ...]:
        """Return the frames of these files from this frame outwards, each as `file:line function`."""
        entries: list[str] = []
        for own_frame in self.frames(frame):
            key = (own_frame.f_code, own_frame.f_lineno)
            if key not in self._shown:
                self._shown[key] = f"{own_frame.f_code.co_filename}:{own_frame.f_lineno} {own_frame.f_code.co_qualname}"
            entries.append(self._shown[key])
            if len(entries) == MOST_FRAMES:
                break
        chain = tuple(entries)
        return self._chains.setdefault(chain, chain)  # thousands of calls share few chains

    def chain_in(self, stack: str) -> tuple[str, ...]:
        """Return the frames of these files in the text of a stack, innermost first. The text is in reverse order."""
        entries = [
            f"{name}:{line} {function}".rstrip() for name, line, function in FRAME.findall(stack) if name in self
        ]
        return tuple(reversed(entries[-MOST_FRAMES:]))


@functools.cache
def own_files(script: str) -> OwnFiles:
    """Return the user's own files for a script. They do not change while it runs, so the object is always the same."""
    return OwnFiles(script)


def script_line(script: str) -> str | None:
    """Return the innermost frame of the user's own files on the current stack, as `file:line`.

    If the user's training loop calls the user's model, for example, this is a frame of the model.
    """
    return own_files(script).line(sys._getframe(1)) or None


def script_frames(script: str) -> tuple[str, ...]:
    """Return the frames of the user's own files on the current stack, innermost first, as `file:line function`."""
    return own_files(script).chain(sys._getframe(1))


@functools.lru_cache(maxsize=4096)
def frames_in(stack: str, script: str) -> tuple[str, ...]:
    """Return the frames of the user's own files in the text of a stack. Compilers record such a stack for each node."""
    return own_files(script).chain_in(stack)


class StepFrames:
    """The user's frames for the calls of one step.

    An op in the backward has the frames of the forward op whose derivative it computes. Autograd's sequence number
    connects the two ops.
    """

    def __init__(self, script: str) -> None:
        self._script = script
        self._forward: dict[int, tuple[str, ...]] = {}

    def here(self, phase: str, sequence: int | None) -> tuple[str, ...]:
        """Return the user's frames of the call that is being made."""
        if sequence is not None and phase == "backward" and sequence in self._forward:
            return self._forward[sequence]
        frames = script_frames(self._script)
        if sequence is not None and phase == "forward":
            self._forward.setdefault(sequence, frames)
        return frames


def line_of(frame: str) -> str:
    """Return the `file:line` of a frame that has the form `file:line function`."""
    line, _, function = frame.rpartition(" ")
    return line if function and line.rpartition(":")[2].isdecimal() else frame


def names_in(code: CodeType) -> frozenset[str]:
    """Return every global and attribute name in a code object, including the names in its functions and classes."""
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            names |= names_in(constant)
    return frozenset(names)
