"""Describe an operator's call for reports: who makes it, and the arguments on which a backend's support depends."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from numdrift.kernels.expectation import tensors_in

from ..records.tools.backend_work import Work
from ..script.script_lines import HARNESS, TORCH
from ..tape.recording import followed_calls
from ..torch_private import dispatching, registered_kernels
from ..torch_private.compiler.graph_stages import parts_of_op
from ..torch_private.operators import arguments_of

ADOPTION = {
    str(Path(HARNESS, "script", f"{name}.py"))
    for name in (
        "adopted/adoption", "adopted/autocast", "adopted/cuda", "adopted/devices", "adopted/meeting",
        "adopted/placement", "parallel", "script_api", "script_compiling", "understood",
    )
}  # fmt: skip
"""Files that the script's own calls pass through. The other files of the folder `script` read values for numdrift."""

PASSED_OVER = frozenset(
    (
        __file__,
        str(Path(__file__).with_name("followed_kernels.py")),
        *(str(module.__file__) for module in (followed_calls, dispatching, registered_kernels)),
        *ADOPTION,
        # Once dynamo is loaded, its frames call the observers of operators.
        *(str(Path(TORCH, *parts)) for parts in (("_compile.py",), ("_dynamo", "eval_frame.py"))),
    )
)


def is_called_by_harness(within: Sequence[str]) -> bool:
    """Return whether the current call is made by the harness, in order to read values, rather than by the script.

    Frames of the files `within`, which observe the call, are skipped. So are frames that make calls for the script.
    """
    return is_of_harness(sys._getframe(1), PASSED_OVER.union(within))


def is_of_harness(frame: FrameType | None, passed_over: Collection[str]) -> bool:
    """Return whether the innermost frame outside of the files `passed_over` belongs to the harness."""
    while frame is not None and frame.f_code.co_filename in passed_over:
        frame = frame.f_back
    return frame is not None and frame.f_code.co_filename.startswith(HARNESS)


def line_in(script: str, frame: FrameType | None = None) -> str:
    """Return the innermost line of the script on the stack of `frame` (default: the caller's), as `train.py:24`.

    Return "" if there is none.
    """
    at = frame or sys._getframe(1)
    while at is not None:
        if at.f_code.co_filename == script:
            return f"{Path(script).name}:{at.f_lineno}"
        at = at.f_back  # type: ignore[assignment]
    return ""


def line_in_trace(script: str, trace: str | None) -> str:
    """Do the same as `line_in` for a stack trace as text, with frames such as `File "/a/train.py", line 24, in f`."""
    before = f'File "{script}", line '
    for line in reversed((trace or "").splitlines()):
        _, separator, rest = line.partition(before)
        if separator:
            return f"{Path(script).name}:{rest.partition(',')[0]}"
    return ""


# Failures of observers. They do not interrupt the observed work, and are raised only on request.


class KeptFailure:
    """Suppresses the exceptions of the `with` blocks that enter this object. `tell` raises the first of them."""

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
    """An op that a backend runs on the CPU, called from `place` in the Python code.

    Between `began` and `ended`, the arguments are copied to the CPU, the op runs, and its results are copied back.
    """

    op: str
    place: tuple[Any, int]
    call: str
    began: float
    ended: float

    def work(self) -> Work:
        return Work("fallback", self.op, self.ended - self.began, None, None, self.call)


# The configuration of an operator's call: the facts about its arguments that a backend's support may depend on.


def kind_of(target: Any) -> str:
    """Return an operator's name in reports: `aten::mul`."""
    parts = parts_of_op(target)
    return str(getattr(target, "__name__", target)) if parts is None else f"{parts[0]}::{parts[1]}"


def configuration(operation: Any, args: Sequence[Any], kwargs: Mapping[str, Any], device: str) -> str:
    """Return the arguments of a call as `float32[4,4], float32[4], dim=1`.

    Tensors are described by dtype and shape, integers and booleans by their value. Other numbers are described only by
    their type, since a learning rate may change with every step. A tensor that is not on `device` is shown with its own
    device. The elements of tensors are never read.
    """
    described = []
    for position, argument in enumerate(arguments_of(operation)):
        is_passed = position < len(args) or argument.name in kwargs
        value = args[position] if position < len(args) else kwargs.get(argument.name)
        if not is_passed or value is None or argument.name in ("device", "pin_memory", "layout"):
            continue
        text = described_value(value, device)
        is_tensor = isinstance(value, torch.Tensor) or text.startswith("(")
        described.append(text if is_tensor else f"{argument.name}={text}")
    return ", ".join(described)


def described_value(value: Any, device: str) -> str:
    if isinstance(value, torch.Tensor):
        elsewhere = "" if value.device.type == device else f" on {value.device.type}"
        return tensor_text(value) + elsewhere
    if isinstance(value, (list, tuple)):
        items = ", ".join(described_value(item, device) for item in value)
        return f"({items})" if any(isinstance(item, torch.Tensor) for item in value) else f"[{items}]"
    if isinstance(value, (bool, int, str)):
        return str(value)
    if isinstance(value, (float, complex)):
        return type(value).__name__
    if isinstance(value, torch.Generator):
        return "generator"
    return str(value).removeprefix("torch.")


def tensor_text(tensor: torch.Tensor) -> str:
    """Return the dtype and shape of a tensor: `float32[4,4]`."""
    return shape_text(str(tensor.dtype).removeprefix("torch."), tensor.shape)


def shape_text(dtype: str, shape: Iterable[Any]) -> str:
    return f"{dtype}[{','.join(str(size) for size in shape)}]"


def plain(value: Any) -> Any:
    """Return an argument in the form of a graph record: numbers and lists of them unchanged, all else as text."""
    if isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (list, tuple)) and all(isinstance(item, (bool, int, float)) for item in value):
        return list(value)
    return str(value).removeprefix("torch.")


def instruction(kind: str, outputs: Any, inputs: str) -> str:
    """Return an op's call as an instruction, for a backend that has no text for the op.

    For example: `complex64[4] aten::mul(float32[4])`.
    """
    made = ", ".join(tensor_text(tensor) for tensor in tensors_in(outputs))
    return f"{made} {kind}({inputs})".lstrip()
