"""The process of an `IsolatedKernel`: reads paths of saved calls from stdin, answers each with one line of
JSON.

Not a part of the lab's interface. What the kernel prints goes to standard error, and it has nothing to read.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TextIO

import torch

from numdrift.harness.errors import KernelError, NotAvailable, UsageError

from ..registry import Kernel
from ..user import user_kernel
from .calls import LabCall
from .captured import flush_c
from .trial import attempt


def main(op: str, path: str, device: str) -> None:
    """Serve until standard input ends; an empty line asks only whether the file can be loaded."""
    requests = os.fdopen(os.dup(0), encoding="utf-8")
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    kernel: Kernel | None = None
    for line in requests:
        request = line.strip()
        try:
            kernel = kernel or user_kernel(op, Path(path))
            text = _served(kernel, Path(request), device) if request else ""
            _say(answers, "done", text)
        except UsageError as error:
            _say(answers, "usage", str(error))
        except NotAvailable as error:
            _say(answers, "not available", error.why)
        except KernelError as error:
            _say(answers, "failed", str(error).removeprefix(f"kernel {error.kernel} "))


def _served(kernel: Kernel, request: Path, device: str) -> str:
    calls = [LabCall(tuple(args), kwargs) for args, kwargs in torch.load(request, weights_only=True)]
    results = attempt(kernel, calls, device)
    target = request.with_name("outputs.pt")
    torch.save([[(one.name, list(one.tensors)) for one in outputs] for outputs in results], target)
    return str(target)


def _say(answers: TextIO, kind: str, text: str) -> None:
    flush_c()
    answers.write(json.dumps({"kind": kind, "text": text}) + "\n")
    answers.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
