"""PyTorch's own samples of its ops: the inputs with which its test suite calls each of them (`OpInfo`, torch 2.13).

python -m numdrift.harness.torch_private.op_samples "^tanh$|log"      the names as JSON, one line
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..errors import NotAvailable, UsageError


def _ops() -> Sequence[Any]:
    """Return the records of all ops. Raises NotAvailable if the test suite of this torch cannot be used."""
    try:
        from torch.testing._internal.common_methods_invocations import op_db
    except (ImportError, AttributeError) as error:
        reason = f"the test suite of torch cannot be imported: {error}"
        raise NotAvailable("PyTorch's samples of its ops", reason, "pip install 'numdrift[ops]'") from None
    return op_db


def op_name(op: Any) -> str:
    """Return the name of an op's record; variants of an op have a name of their own, such as `norm.nuc`."""
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else str(op.name)


def op_names(pattern: str) -> list[str]:
    """Return the names of the ops with float32 samples that the regular expression matches somewhere."""
    return sorted({op_name(op) for op in _ops() if torch.float32 in op.dtypes and re.search(pattern, op_name(op))})


def op_samples(name: str, count: int, *, gradients: bool) -> tuple[Callable[..., Any], list[tuple[Any, ...]]]:
    """Return the function of an op, and its first `count` float32 samples on the CPU, as arguments and keywords.

    Raises UsageError if there is no such op, or no sample of it.
    """
    op = next((op for op in _ops() if op_name(op) == name), None)
    if op is None:
        raise UsageError(f"torch has no op {name!r} with samples")
    needs_gradients = gradients and op.supports_autograd
    samples = []
    for sample in op.sample_inputs("cpu", torch.float32, requires_grad=needs_gradients):
        samples.append(((sample.input, *sample.args), dict(sample.kwargs)))
        if len(samples) == count:
            break
    if not samples:
        raise UsageError(f"torch has no float32 sample of {name}")
    return op.op, samples


if __name__ == "__main__":
    print(json.dumps(op_names(sys.argv[1])))
