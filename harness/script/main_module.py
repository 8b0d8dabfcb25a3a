"""Executing a script as `__main__`, and how a script or a recorded training came to its end."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import re
import sys
import traceback
import types
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from ..errors import AdoptionError, KernelError, NumdriftError
from ..records import frames
from ..records.run_config import RunConfig


def execute(config: RunConfig, code: types.CodeType) -> None:
    """Execute the script's code as `python SCRIPT` or, where it was asked for as a module, `python -m` does."""
    if config.module:
        sys.path.insert(0, str(Path.cwd()))
        facts = _module_facts(config.module)
        first = config.script
    else:
        sys.path.insert(0, str(Path(config.script).resolve().parent))
        facts = _script_facts(config.script)
        first = config.invoked or config.script
    main = types.ModuleType("__main__")
    main.__dict__.update(__file__=config.script, __builtins__=__builtins__, **{"__cached__": None, **facts})
    sys.modules["__main__"] = main
    sys.argv = [first, *config.arguments]
    exec(code, main.__dict__)  # noqa: S102, the script that the user asked to run


def _script_facts(script: str) -> dict[str, Any]:
    return {
        "__spec__": None,
        "__package__": None,
        "__loader__": importlib.machinery.SourceFileLoader("__main__", script),
    }


def _module_facts(name: str) -> dict[str, Any]:
    """The packages around the module are imported here, as `python -m` does."""
    spec = importlib.util.find_spec(name)
    if spec is not None and spec.submodule_search_locations is not None:
        spec = importlib.util.find_spec(f"{name}.__main__")
    if spec is None:
        raise ModuleNotFoundError(f"No module named {name}")
    return {
        "__spec__": spec,
        "__package__": spec.parent,
        "__loader__": spec.loader,
        "__cached__": spec.cached,
    }


# How a script, or a training that is recorded in its process, came to its end.

_EXPLAINED = re.compile(r"^  Explanation: .*: got (.+)$", re.MULTILINE)
"""Where torch.compile says what an op raised while it was traced; the first line is a heading (torch 2.13).
"""


@dataclass(frozen=True, slots=True)
class ScriptEnd:
    """What a journal's last event says; `message` is "" for a run that completed. `told` is an error that
    says everything in its message: nobody needs its traceback.
    """

    status: str
    exit_code: int = 0
    message: str = ""
    told: bool = False

    def facts(self) -> dict[str, str]:
        return {"message": self.message} if self.message else {}


def end_of(error: BaseException | None, script: str) -> ScriptEnd:
    """The end of a training that `error` ended, None for one that ended by itself; `script` is the file of
    its code."""
    if error is None:
        return ScriptEnd("complete")
    if isinstance(error, SystemExit):
        return _left(error)
    if isinstance(error, KeyboardInterrupt):
        return ScriptEnd("killed", 130, "interrupted")
    if isinstance(error, AdoptionError):
        return ScriptEnd(frames.REFUSED, error.exit_code, str(error), told=True)
    if isinstance(error, KernelError):
        return ScriptEnd("crashed", error.exit_code, str(error), told=True)
    status = "out-of-memory" if _is_out_of_memory(error) else "crashed"
    return ScriptEnd(status, 1, first_line(error) + _place(error, script))


def own_trace(error: BaseException, script: str) -> TracebackType | None:
    """The traceback from the script's first frame on; the whole one where the script has none in it."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename != script:
        trace = trace.tb_next
    return trace or error.__traceback__


def first_line(error: BaseException) -> str:
    """The first line of what an error says, behind its type where it is none of ours, with what an op raised
    under a compiler."""
    lines = str(error).splitlines() or [""]
    if isinstance(error, NumdriftError):
        return lines[0]
    raised = _EXPLAINED.search(str(error))
    return f"{type(error).__name__}: {lines[0]}{f': {raised[1]}' if raised else ''}".rstrip(": ")


def _left(leaving: SystemExit) -> ScriptEnd:
    code = leaving.code
    if code is None or code == 0:
        return ScriptEnd("complete")
    exit_code = code & 0xFF if isinstance(code, int) else 1
    if not exit_code:
        return ScriptEnd("complete")
    return ScriptEnd("crashed", exit_code, f"the script called sys.exit({code!r})")


def _place(error: BaseException, script: str) -> str:
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == script]
    return f" ({own[-1].filename}:{own[-1].lineno})" if own else ""


def _is_out_of_memory(error: BaseException) -> bool:
    names = [kind.__name__ for kind in type(error).__mro__]
    allocator = "can't allocate memory" in str(error) or "not enough memory" in str(error)
    return "OutOfMemoryError" in names or isinstance(error, MemoryError) or allocator
