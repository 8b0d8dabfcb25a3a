"""What reports say of an operator's call: the line of the user's program, and the arguments that decide on support."""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from numdrift.kernels.expectation import tensors_in

from ..torch_private.dispatching import current_autograd_node, next_sequence_number, sequence_number
from ..torch_private.graph_stages import parts_of_op
from ..torch_private.operators import arguments_of

HARNESS = str(Path(__file__).parents[1])
TORCH = str(Path(torch.__file__).parent)

ADOPTION = {
    str(Path(HARNESS, "script", f"{name}.py"))
    for name in (
        "adoption", "autocast", "cuda", "devices", "meeting", "parallel", "placement", "script_api",
        "script_compiling", "understood",
    )
}  # fmt: skip
"""Where calls of the script's own are led through; what else lies there reads for numdrift."""

PASSED_OVER = frozenset(
    (
        __file__,
        *ADOPTION,
        # Once dynamo is loaded it calls those who watch operators.
        *(str(Path(TORCH, *parts)) for parts in (("_compile.py",), ("_dynamo", "eval_frame.py"))),
    )
)

HIDDEN = (TORCH, HARNESS, "<")
"""Files whose frames are none of the user's: torch's own, the harness's, and what has no file."""

_FRAME = re.compile(r'^ *File "(.+?)", line (\d+)', re.MULTILINE)

Frame = tuple[str, int]
"""File and line."""


class ScriptLines:
    """Names lines of a script's own files: those in its folder and below, by their path from there.

    An operator that a library calls is named by the innermost of the script's lines that led to it.
    """

    def __init__(self, script: str) -> None:
        self._folder = Path(script).absolute().parent
        self._named: dict[str, str] = {}
        self._forward: dict[int, str] = {}

    def here(self) -> str:
        """The line that an operator is called from now; within a backward it is that of its forward."""
        node = current_autograd_node()
        if node is not None:
            number = sequence_number(node)
            return self._forward.get(-1 if number is None else number, "") or self._named_line(_stack())
        line = self._named_line(_stack())
        if line and torch.is_grad_enabled():
            self._forward.setdefault(next_sequence_number() - 1, line)
        return line

    def of_stack(self, text: str) -> str:
        """The line in a stack trace as FX nodes keep it, outermost frame first; "" where it has none of the user's."""
        frames = [(match[1], int(match[2])) for match in _FRAME.finditer(text)]
        return self._named_line(reversed(frames))

    def _named_line(self, frames: Iterator[Frame]) -> str:
        """The innermost of these frames, innermost first, that is the script's; else the innermost of a library."""
        library = ""
        for file, line in frames:
            # A file is named from the script's folder, in full where it is elsewhere, "" where it is hidden. An
            # environment that lies in the script's folder is a library's all the same.
            if file not in self._named:
                own = Path(file).is_relative_to(self._folder) and "site-packages" not in file
                name = str(Path(file).relative_to(self._folder)) if own else file
                self._named[file] = "" if file.startswith(HIDDEN) else name
            name = self._named[file]
            if name and not Path(name).is_absolute():
                return f"{name}:{line}"
            library = library or (f"{name}:{line}" if name else "")
        return library


def is_called_by_harness(within: Sequence[str]) -> bool:
    """Whether what is being called is called by the harness itself, which reads values, and not by the training.

    Frames of the files `within`, which observe the call, are passed over, and those that call what the script calls.
    """
    return is_of_harness(sys._getframe(1), PASSED_OVER.union(within))


def is_of_harness(frame: FrameType | None, passed_over: Collection[str]) -> bool:
    """Whether the innermost frame that lies in none of the files `passed_over` is the harness's."""
    while frame is not None and frame.f_code.co_filename in passed_over:
        frame = frame.f_back
    return frame is not None and frame.f_code.co_filename.startswith(HARNESS)


def _stack() -> Iterator[Frame]:
    frame = sys._getframe(2)
    while frame is not None:
        yield frame.f_code.co_filename, frame.f_lineno
        frame = frame.f_back  # type: ignore[assignment]


def line_in(script: str, frame: FrameType | None = None) -> str:
    """The innermost line of the script on the stack of `frame` (default: the caller's), as `train.py:24`; ""
    for none."""
    at = frame or sys._getframe(1)
    while at is not None:
        if at.f_code.co_filename == script:
            return f"{Path(script).name}:{at.f_lineno}"
        at = at.f_back  # type: ignore[assignment]
    return ""


def line_in_trace(script: str, trace: str | None) -> str:
    """The same of the text of a stack trace, whose frames read `File "/a/train.py", line 24, in f`."""
    before = f'File "{script}", line '
    for line in reversed((trace or "").splitlines()):
        _, found, rest = line.partition(before)
        if found:
            return f"{Path(script).name}:{rest.partition(',')[0]}"
    return ""


# A failure of an observation, kept out of the work that it observes until somebody asks for it.


class KeptFailure:
    """`with kept:` lets no exception out; `tell` raises the first one."""

    def __init__(self) -> None:
        self.error: Exception | None = None

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> bool:
        if isinstance(error, Exception):
            self.error = self.error or error
            return True
        return False

    def tell(self) -> None:
        if self.error is not None:
            raise self.error


@dataclass(slots=True)
class Fallback:
    """An op that a backend runs on the CPU: between `began` and `ended` its arguments are copied, it runs, and
    its results are copied back, all from one `place` in the Python code."""

    op: str
    place: tuple[Any, int]
    call: str
    began: float
    ended: float


# The configuration of an operator's call: what of its arguments may decide whether a backend can do it.


def kind_of(target: Any) -> str:
    """An operator as reports name it: `aten::mul`."""
    parts = parts_of_op(target)
    return str(getattr(target, "__name__", target)) if parts is None else f"{parts[0]}::{parts[1]}"


def configuration(operation: Any, args: Sequence[Any], kwargs: Mapping[str, Any], device: str) -> str:
    """The arguments of a call as `float32[4,4], float32[4], dim=1`: tensors by dtype and shape, whole numbers and
    switches by their value, other numbers by their type alone, since a learning rate changes with every step.

    A tensor that is not on `device` is named with its own. Values are never read.
    """
    described = []
    for position, one in enumerate(arguments_of(operation)):
        given = position < len(args) or one.name in kwargs
        value = args[position] if position < len(args) else kwargs.get(one.name)
        if not given or value is None or one.name in ("device", "pin_memory", "layout"):
            continue
        text = described_value(value, device)
        is_tensor = isinstance(value, torch.Tensor) or text.startswith("(")
        described.append(text if is_tensor else f"{one.name}={text}")
    return ", ".join(described)


def described_value(value: Any, device: str) -> str:
    if isinstance(value, torch.Tensor):
        elsewhere = "" if value.device.type == device else f" on {value.device.type}"
        return tensor_text(value) + elsewhere
    if isinstance(value, (list, tuple)):
        items = ", ".join(described_value(one, device) for one in value)
        return f"({items})" if any(isinstance(one, torch.Tensor) for one in value) else f"[{items}]"
    if isinstance(value, (bool, int, str)):
        return str(value)
    if isinstance(value, (float, complex)):
        return type(value).__name__
    if isinstance(value, torch.Generator):
        return "generator"
    return str(value).removeprefix("torch.")


def tensor_text(tensor: torch.Tensor) -> str:
    """A tensor by dtype and shape: `float32[4,4]`."""
    return shape_text(str(tensor.dtype).removeprefix("torch."), tensor.shape)


def shape_text(dtype: str, shape: Iterable[Any]) -> str:
    return f"{dtype}[{','.join(str(size) for size in shape)}]"


def plain(value: Any) -> Any:
    """An argument as the record of a graph holds it: numbers and lists of them as they are, anything else as text."""
    if isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (list, tuple)) and all(isinstance(one, (bool, int, float)) for one in value):
        return list(value)
    return str(value).removeprefix("torch.")


def instruction(kind: str, outputs: Any, inputs: str) -> str:
    """An operator as one instruction of a backend that has no text for it: `complex64[4] aten::mul(float32[4])`."""
    made = ", ".join(tensor_text(one) for one in tensors_in(outputs))
    return f"{made} {kind}({inputs})".lstrip()
