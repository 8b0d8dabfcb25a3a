"""Names for the lines of a script's own files: lines that make a call, and lines in a compiler's stack trace."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import torch

from ..torch_private.dispatching import current_autograd_node, next_sequence_number, sequence_number

HARNESS = str(Path(__file__).parents[1])
TORCH = str(Path(torch.__file__).parent)

HIDDEN = (TORCH, HARNESS, "<")
"""The path prefixes of frames that are not the user's: in torch's files, in the harness's, and in code without a file.
"""

_FRAME = re.compile(r'^ *File "(.+?)", line (\d+)', re.MULTILINE)

Frame = tuple[str, int]
"""File and line."""


class ScriptLines:
    """Names for the lines of a script's own files: those in the script's folder and below, relative to the folder.

    An operator that a library calls gets the name of the innermost of the script's lines that led to the call.
    """

    def __init__(self, script: str) -> None:
        self._folder = Path(script).absolute().parent
        self._named: dict[str, str] = {}
        self._forward: dict[int, str] = {}

    def here(self) -> str:
        """Return the line that calls the current operator; in the backward, that of the forward operator."""
        node = current_autograd_node()
        if node is not None:
            number = sequence_number(node)
            return self._forward.get(-1 if number is None else number, "") or self._named_line(_stack())
        line = self._named_line(_stack())
        if line and torch.is_grad_enabled():
            self._forward.setdefault(next_sequence_number() - 1, line)
        return line

    def of_stack(self, text: str) -> str:
        """Return the user's line in the stack trace of an FX node (outermost frame first), "" if there is none."""
        frames = [(match[1], int(match[2])) for match in _FRAME.finditer(text)]
        return self._named_line(reversed(frames))

    def _named_line(self, frames: Iterator[Frame]) -> str:
        """Return the script's innermost line in these frames or, if the script has none, that of a library.

        The frames are innermost first.
        """
        library = ""
        for file, line in frames:
            # A file in the script's folder is named by its path relative to the folder. Any other file is named by its
            # full path, or by "" if it is hidden. A virtual environment in the script's folder counts as a library.
            if file not in self._named:
                own = Path(file).is_relative_to(self._folder) and "site-packages" not in file
                name = str(Path(file).relative_to(self._folder)) if own else file
                self._named[file] = "" if file.startswith(HIDDEN) else name
            name = self._named[file]
            if name and not Path(name).is_absolute():
                return f"{name}:{line}"
            library = library or (f"{name}:{line}" if name else "")
        return library


def _stack() -> Iterator[Frame]:
    frame = sys._getframe(2)
    while frame is not None:
        yield frame.f_code.co_filename, frame.f_lineno
        frame = frame.f_back  # type: ignore[assignment]
