"""Executes a script as `__main__`, and describes how a script or a recorded training run ended."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import re
import sys
import traceback
import types
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from ..errors import AdoptionError, KernelError, NumdriftError, UsageError
from ..records import frames
from ..records.run.run_config import RunConfig
from ..tape.origin import own_files


def execute(config: RunConfig, code: types.CodeType, name: str = "__main__") -> dict[str, Any]:
    """Execute the script's code as `python SCRIPT` or, if the script was requested as a module, as `python -m`.

    With another `name`, execute it as an imported module of that name. Return the script's variables.
    """
    if config.import_paths:  # also for processes that the script starts
        sys.path[:0] = config.import_paths
        before = os.environ.get("PYTHONPATH")
        os.environ["PYTHONPATH"] = os.pathsep.join([*config.import_paths, *([before] if before else [])])
    if config.module:
        # `find_spec` imports the packages that contain the module, as `python -m` does.
        sys.path.insert(0, str(Path.cwd()))
        spec = importlib.util.find_spec(config.module)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = importlib.util.find_spec(f"{config.module}.__main__")
        if spec is None:
            raise ModuleNotFoundError(f"No module named {config.module}")
        facts = {
            "__spec__": spec,
            "__package__": spec.parent,
            "__loader__": spec.loader,
            "__cached__": spec.cached,
        }
        first = config.script
    else:
        sys.path.insert(0, str(Path(config.script).resolve().parent))
        loader = importlib.machinery.SourceFileLoader("__main__", config.script)
        facts = {"__spec__": None, "__package__": None, "__loader__": loader, "__cached__": None}
        first = config.invoked or config.script
    main = types.ModuleType("__main__")
    main.__dict__.update({"__file__": config.script, "__builtins__": __builtins__, **facts})
    sys.modules["__main__"] = main
    sys.argv = [first, *config.mode.arguments(config.arguments)]
    if name != "__main__":
        main.__dict__["__name__"] = name
        sys.modules.setdefault(name, main)
    exec(code, main.__dict__)  # noqa: S102, the user has asked to run this script
    return main.__dict__


# The ending of a script, or of a training run that is recorded in its own process.

_EXPLAINED = re.compile(r"^  Explanation: .*: got (.+)$", re.MULTILINE)
"""The line in which torch.compile, while tracing, quotes an op's error. It is below the message's heading (torch 2.13).
"""


INTERPRETER = "operation failed in the TorchScript interpreter"
"""The heading of an error that an op in a graph of lazy tensors raises."""

WITHOUT_KERNEL = " This could be because the operator doesn't exist for this backend"
"""The beginning of the long explanation in torch's error for an op that has no kernel for a device."""


@dataclass(frozen=True, slots=True)
class ScriptEnd:
    """The content of a journal's last event.

    message: the reason for the end, "" for a run that completed
    is_plain: true for an error whose message explains it without a traceback
    """

    status: str
    exit_code: int = 0
    message: str = ""
    is_plain: bool = False

    def facts(self) -> dict[str, str]:
        return {"message": self.message} if self.message else {}


def end_of(error: BaseException | None, script: str) -> ScriptEnd:
    """Return the end of a training run.

    `error` is the exception that ended the run, None if there was none. `script` is the file with the training code.
    """
    if error is None:
        return ScriptEnd("complete")
    if isinstance(error, SystemExit):
        # The exit code that a shell sees: 0 for no code and for multiples of 256; 1 for a string.
        code = 0 if error.code is None or error.code == 0 else error.code
        exit_code = code & 0xFF if isinstance(code, int) else 1
        text = f"{frames.CALLED_EXIT}({code!r})"
        return ScriptEnd("crashed", exit_code, text) if exit_code else ScriptEnd("complete")
    if isinstance(error, KeyboardInterrupt):
        return ScriptEnd("killed", 130, "interrupted")
    if isinstance(error, (AdoptionError, UsageError)):
        return ScriptEnd(frames.REFUSED, error.exit_code, str(error), is_plain=True)
    if isinstance(error, KernelError):
        return ScriptEnd("crashed", error.exit_code, str(error), is_plain=True)
    # Accelerators raise OutOfMemoryError, Python a MemoryError, torch's CPU allocator a RuntimeError with these words.
    names = [kind.__name__ for kind in type(error).__mro__]
    allocator = "can't allocate memory" in str(error) or "not enough memory" in str(error)
    is_memory = "OutOfMemoryError" in names or isinstance(error, MemoryError) or allocator
    place = place_of(error, script)
    if place and is_of_a_graph(error):
        place += " (this line executes the graph; the op itself may be on an earlier line)"
        if {"double", "float"} <= set(re.findall("[a-z]+", first_line(error).lower())):
            place += DOUBLED
    if os.environ.get("DEVICE", "cpu") != "cpu" and MIXED_DEVICES.search(str(error)):
        place += ELSEWHERE
    return ScriptEnd("out-of-memory" if is_memory else "crashed", 1, first_line(error) + place)


MIXED_DEVICES = re.compile(
    r"on the same device|at least two devices|returned an invalid gradient|expected device|is not a lazy tensor|"
    r"weight type .* should be the same"
)
"""The pattern of torch's errors about tensors on different devices."""

ELSEWHERE = (
    "; if a part of the model or of the data stays on the CPU, let the script take the device from "
    'os.environ["DEVICE"] and move both there'
)

DOUBLED = (
    "; if the script itself uses no double precision, the lazy core created a double from a Python number and a "
    "tensor without dimensions, as in 0.5 * loss: write torch.tensor(0.5) * loss instead"
)
"""A message on the source of double precision in a graph of a script that uses none, and on how to avoid it (observed
with torch 2.13)."""


def is_of_a_graph(error: BaseException) -> bool:
    """Return whether an op in a graph of lazy tensors raised the error.

    If the script's own TorchScript code raises such an error, the message lists lines of code below the heading. If a
    lazy graph raises it, the message lists none (torch 2.13).
    """
    lines = [line for line in str(error).splitlines() if line.strip()]
    return INTERPRETER in "".join(lines[:1]) and not any(line.startswith("  File ") for line in lines)


def place_of(error: BaseException, script: str) -> str:
    """Return the location of an error as ` (file:line)`: the innermost line in the user's own files.

    If this line is not in the script, the script's line that led to it follows: ` (file:line <- script:line)`.
    """
    own_frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename in own_files(script)]
    if not own_frames:
        return ""
    lines = [f"{own_frames[-1].filename}:{own_frames[-1].lineno}"]
    if own_frames[-1].filename != script:
        lines += [f"{frame.filename}:{frame.lineno}" for frame in reversed(own_frames) if frame.filename == script][:1]
    return f" ({' <- '.join(lines)})"


def own_trace(error: BaseException, script: str) -> TracebackType | None:
    """Return the traceback from the script's first frame on, or all of it if no frame is the script's."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename != script:
        trace = trace.tb_next
    return trace or error.__traceback__


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message.

    The error's type precedes the line, unless the error is numdrift's. If the error is a compiler's report of an op's
    error, the op's error follows.
    """
    if isinstance(error, NumdriftError):
        return (str(error).splitlines() or [""])[0]
    raised = _EXPLAINED.search(str(error))
    return f"{type(error).__name__}: {message_of(error)}{f': {raised[1]}' if raised else ''}".rstrip(": ")


def message_of(error: BaseException) -> str:
    """Return the informative part of an error's message as one line: the first line or, for TorchScript, the last."""
    lines = [line for line in str(error).splitlines() if line.strip()] or [""]
    if INTERPRETER in lines[0]:
        return lines[-1].partition(": ")[2] or lines[-1]
    return lines[0].partition(WITHOUT_KERNEL)[0]
