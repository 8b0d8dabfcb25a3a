"""A user's kernel tried on a small input, in a process of its own, since it may crash.

python -m numdrift.kernels.native.trial FILE OP RESULT writes to RESULT, as JSON, what came out; without an op
(an empty text) only what the file exports.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from ...harness.compiler import compile_library
from ...harness.errors import NumdriftError, UsageError
from ..registry import Kernel
from ..user import user_kernel
from .binding import exported
from .signature import Signature, signature_of
from .source import user_source


@dataclass(frozen=True, slots=True)
class Trial:
    """What a file exports, and for each dtype what became of the small input, in words.

    With an `error` there is nothing else; `exit_code` is then the error's.
    """

    dtypes: tuple[str, ...] = ()
    expects: str = ""
    outcomes: tuple[tuple[str, str], ...] = ()
    error: str = ""
    exit_code: int = 0


def attempt(path: Path, op: str) -> Trial:
    """Load the file and, for an op, call its kernel once for each dtype."""
    try:
        if not op:
            return Trial(dtypes=_symbols(path))
        kernel, signature = user_kernel(op, path), signature_of(op)
        expects = signature.in_c(kernel.dtypes[0]) if kernel.native else signature.in_python()
        outcomes = tuple((dtype, _outcome(kernel, signature, dtype)) for dtype in kernel.dtypes)
        return Trial(kernel.dtypes, expects, outcomes)
    except NumdriftError as error:
        return Trial(error=str(error), exit_code=error.exit_code)


def _symbols(path: Path) -> tuple[str, ...]:
    found = tuple(exported(path, compile_library(user_source(path))))
    if not found:
        raise UsageError(
            f"{path} defines no kernel_float32 nor kernel_float64; --op OP says how each is declared"
        )
    return found


def _outcome(kernel: Kernel, signature: Signature, name: str) -> str:
    """Call the kernel and the op on the same input. Raises UsageError for a wrong result."""
    if not signature.is_elementwise():
        return "not tried: there is no small input that fits any op that is not elementwise"
    device = "cpu" if kernel.supports(name, "cpu") else kernel.devices[0]
    dtype = getattr(torch, name)
    try:
        args, kwargs = signature.example(dtype, device)
        expected = signature.overload(*args, **kwargs)
    except (RuntimeError, AssertionError, ImportError) as error:
        return f"not tried: {str(error).splitlines()[0]}"
    result = _called(kernel, args, kwargs)
    if _kind(result) != _kind(expected):
        raise UsageError(
            f"{kernel.path} returned {_kind(result)} for {name}; aten.{kernel.op} returns {_kind(expected)}"
        )
    equal = int(((result == expected) | (result.isnan() & expected.isnan())).sum())
    return f"{equal} of {expected.numel()} elements equal aten's"


def _called(kernel: Kernel, args: list[Any], kwargs: dict[str, Any]) -> Any:
    try:
        return kernel.load()(*args, **kwargs)
    except NumdriftError:
        raise
    except Exception as error:
        why = " ".join(str(error).split())
        raise UsageError(f"{kernel.path} raised {type(error).__name__} when it was called: {why}") from error


def _kind(value: Any) -> str:
    if not isinstance(value, torch.Tensor):
        return type(value).__name__
    return f"{list(value.shape)} {str(value.dtype).removeprefix('torch.')}"


def main(path: str, op: str, result: str) -> None:
    Path(result).write_text(json.dumps(asdict(attempt(Path(path), op))), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
