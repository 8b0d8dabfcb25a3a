"""How a script, or a training that is recorded in its process, came to its end."""

from __future__ import annotations

import re
import traceback
from dataclasses import dataclass
from types import TracebackType

from ..errors import AdoptionError, KernelError, NumdriftError
from ..records import frames

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
