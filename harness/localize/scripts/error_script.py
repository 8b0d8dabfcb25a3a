"""A script of plain PyTorch in which only one side raises an error, and the execution of such scripts in forks."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import torch

from ...errors import UsageError
from .shrunk_script import MOST_ELEMENTS, written

SECONDS = 60.0
"""The time that a trial of a script may take."""

PRINTED = 'f"{name} raises {errors[-1]}" if errors[-1] else f"{name} returns"'
"""What a script prints of each side."""

Call = Mapping[str, torch.Tensor]
"""The inputs of a call by name."""


@dataclass(frozen=True, slots=True)
class ErrorScript:
    """A function whose calls raise an error in one mode alone.

    heading: the docstring's lines
    imports, settings: lines before the function
    body, returns: the function's statements, and the variables that it returns
    calls: the inputs of each call; their names are the function's arguments
    gradients: the inputs that require a gradient
    backward: whether the results' gradients are computed
    under: the contexts of the calls
    compiled: the arguments of `torch.compile` in Python, None if the mode does not compile
    device: the device of the mode, "" for the CPU
    labels: the names of the reference and of the mode
    """

    heading: Sequence[str]
    imports: Sequence[str]
    settings: Sequence[str]
    body: Sequence[str]
    returns: Sequence[str]
    calls: Sequence[Call]
    gradients: frozenset[str]
    backward: bool
    under: Sequence[str]
    compiled: Mapping[str, object] | None
    device: str
    labels: tuple[str, str]

    @property
    def size(self) -> tuple[int, int, int]:
        """The number of calls, of statements, and of elements."""
        elements = sum(value.numel() for call in self.calls for value in call.values())
        return len(self.calls), len(self.body), elements

    def text(self, *, listed: bool = True) -> str:
        """Write the script. Raises UsageError if an input has too many elements to be listed.

        Without `listed`, the inputs come from a function CALLS, which whoever executes the script has to define.
        """
        names = list(self.calls[0])
        lines = [f'"""{self.heading[0]}', *self.heading[1:], '"""', "", *self.imports, "import torch", *self.settings]
        lines += ["", "", f"def function({', '.join(names)}):", *(f"    {line}" for line in self.body)]
        lines += [f"    return [{', '.join(self.returns)}]", "", "", "def inputs():"]
        lines += [f"    {line}" for line in (self._inputs(names) if listed else ["return CALLS()"])]
        lines += ["", "", "def error_of(called):", "    try:"]
        indent = " " * 8
        for context in self.under:
            lines.append(f"{indent}with {context}:")
            indent += " " * 4
        lines.append(f"{indent}for arguments in inputs():")
        lines += [f"{indent}    {line}" for line in self._call()]
        lines += [
            "    except Exception as error:",
            '        return f"{type(error).__name__}: {error}"',
            '    return ""',
        ]
        mode = "function"
        if self.compiled is not None:
            stated = [f"{name}={value!r}" for name, value in self.compiled.items()]
            mode = f"torch.compile({', '.join(['function', *stated])})"
        if self.device:
            lines += ["", "", "def on_device(*arguments):", f"    called = {mode}"]
            moved = f"[argument.to({self.device!r}) for argument in arguments]"
            lines.append(f"    return [result.cpu() for result in called(*{moved})]")
            mode = "on_device"
        lines += [
            "",
            "",
            "errors = []",
            f"for name, called in (({self.labels[0]!r}, function), ({self.labels[1]!r}, {mode})):",
            "    errors.append(error_of(called))",
            f"    print({PRINTED}, flush=True)",
            'assert all(errors) or not any(errors), "only one of them raises an error"',
        ]
        return "\n".join(lines) + "\n"

    def _inputs(self, names: Sequence[str]) -> list[str]:
        lines = []
        for number, call in enumerate(self.calls):
            lines += [*written_inputs(call), *(f"{name}.requires_grad_()" for name in call if name in self.gradients)]
            arguments = f"({', '.join(names)}{',' if len(names) == 1 else ''})"
            lines.append(f"calls.append({arguments})" if number else f"calls = [{arguments}]")
        return [*lines, "return calls"]

    def _call(self) -> list[str]:
        if not self.backward:
            return ["called(*arguments)"]
        return [
            "results = [result for result in called(*arguments) if result.requires_grad]",
            "torch.autograd.backward(results, [torch.ones_like(result) for result in results])",
        ]

    def with_values(self, values: Mapping[str, torch.Tensor]) -> ErrorScript:
        """Return the script with other inputs; their names are those of `values_of`."""
        calls = [{name: values[f"{name} {number}"] for name in call} for number, call in enumerate(self.calls)]
        return replace(self, calls=calls)

    def values(self) -> dict[str, torch.Tensor]:
        """Return the inputs of all calls, by name and number of the call."""
        return {f"{name} {number}": value for number, call in enumerate(self.calls) for name, value in call.items()}


def written_inputs(call: Call) -> list[str]:
    """Return lines of Python that make inputs with their strides. Raises UsageError if one lists too many elements."""
    lines = []
    for name, value in call.items():
        flat = value.contiguous()
        is_dense = value.is_contiguous()
        if not is_dense:
            reach = 1 + sum((size - 1) * stride for size, stride in zip(value.shape, value.stride(), strict=True))
            flat = value.as_strided((reach,), (1,), value.storage_offset())
        first = flat.flatten()[0].item() if flat.numel() else 0
        alike = flat.numel() > 1 and flat.dtype is not torch.bool and bool((flat == first).all())
        if not flat.numel() or (alike and first in (0, 1)):
            maker = "ones" if flat.numel() and first else "zeros"
            line = f"{name} = torch.{maker}({tuple(flat.shape)}, dtype={flat.dtype})"
        elif alike:
            line = f"{name} = torch.full({tuple(flat.shape)}, {first!r}, dtype={flat.dtype})"
        elif flat.numel() > MOST_ELEMENTS:
            raise UsageError(f"{name} still has {flat.numel()} elements, more than a script lists")
        else:
            (line,) = written({name: flat})
        lines.append(line if is_dense else f"{line}.as_strided({tuple(value.shape)}, {value.stride()})")
    return lines


def outcome(script: ErrorScript) -> tuple[str, str] | None:
    """Execute a script in a fork of this process, and return the errors of both sides.

    The error of a side that kills the process is `killed by` its signal. Return None if there is no answer in time, or
    if the reference kills the process.
    """
    reading, writing = os.pipe()
    process = os.fork()
    if process == 0:
        try:
            os.setsid()
            silent = os.open(os.devnull, os.O_RDWR)
            for number in (0, 1, 2):
                os.dup2(silent, number)

            def report(text: str, *, flush: bool) -> None:
                os.write(writing, f"{json.dumps(text[:10_000])}\n".encode())

            scope: dict[str, object] = {"__name__": "__main__", "CALLS": lambda: _arguments(script), "print": report}
            exec(compile(script.text(listed=False), "script", "exec"), scope)  # noqa: S102, written by numdrift
        finally:
            os._exit(0)
    os.close(writing)
    content, until = b"", time.monotonic() + SECONDS
    while (left := until - time.monotonic()) > 0 and select.select([reading], [], [], left)[0]:
        part = os.read(reading, 65536)
        content += part
        if not part:
            break
    os.close(reading)
    if left <= 0:
        with suppress(ProcessLookupError):
            os.killpg(process, signal.SIGKILL)
    _, status = os.waitpid(process, 0)
    errors = [
        json.loads(line).removeprefix(f"{label} returns").removeprefix(f"{label} raises ")
        for label, line in zip(script.labels, content.decode().splitlines(), strict=False)
    ]
    if len(errors) == 1 and os.WIFSIGNALED(status) and left > 0:
        errors.append(f"killed by {signal.Signals(os.WTERMSIG(status)).name}")
    return (errors[0], errors[1]) if len(errors) == 2 else None


def _arguments(script: ErrorScript) -> list[tuple[torch.Tensor, ...]]:
    return [
        tuple(value.clone().requires_grad_(name in script.gradients) for name, value in call.items())
        for call in script.calls
    ]


def alike(error: str) -> str:
    """Return the class and the first line of an error without its numbers and paths, which change with the shapes."""
    if not error:
        return ""
    first = next((line.strip() for line in error.splitlines() if line.strip()), "")
    name, colon, rest = first.partition(":")
    if colon and not rest.strip():  # the message begins on a line of its own
        rest = next((line.strip() for line in error.splitlines()[1:] if line.strip()), "")
    return re.sub(r"\d+", "#", re.sub(r"(/[\w.@+-]+)+", "PATH", f"{name}: {rest.strip()}"))
