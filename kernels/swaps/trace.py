"""Record the first calls of an op with shapes and value ranges, and keep their inputs for the lab."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from numdrift.harness.torch_private.deferred.deferred_devices import DEFERRED_DEVICES

from ..expectation import tensors_in
from .execution import text_of
from .sites import CallSite

FIRST_CALLS = 5
"""The number of calls of an op that are recorded in each phase."""

MOST_BYTES = 64 * 2**20
"""The total size up to which the inputs of a call are kept."""


class CallTrace:
    """Records the first calls of `ops` with `write`, and keeps their inputs in `folder`/<op>/<number>.pt."""

    def __init__(self, ops: Sequence[str], folder: Path, write: Callable[..., None]) -> None:
        self._ops = frozenset(ops)
        self._folder = folder
        self._write = write
        self._seen: Counter[tuple[str, str]] = Counter()
        self._kept: Counter[str] = Counter()

    def wants(self, op: str, site: CallSite) -> bool:
        return op in self._ops and self._seen[op, site.phase] < FIRST_CALLS

    def called(
        self,
        op: str,
        kernel: str,
        site: CallSite,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        result: Any,
    ) -> None:
        """Record a call. `args` and `kwargs` are the arguments as they were before the call."""
        self._seen[op, site.phase] += 1
        tensors = [*tensors_in(list(args)), *tensors_in(list(kwargs.values()))]
        size = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
        saved_as = None
        # Reading a lazy tensor would execute its graph in the middle of a step.
        if size <= MOST_BYTES and not any(tensor.device.type in DEFERRED_DEVICES for tensor in tensors):
            path = self._folder / op / f"{self._kept[op]}.pt"
            self._kept[op] += 1
            path.parent.mkdir(parents=True, exist_ok=True)
            results = _plain(list(tensors_in(result)))
            torch.save({"op": op, "args": _plain(list(args)), "kwargs": _plain(dict(kwargs)), "results": results}, path)
            saved_as = str(path.relative_to(self._folder))
        self._write(
            op=op,
            kernel=kernel,
            phase=site.phase,
            module=site.module,
            arguments=[describe(value) for value in args]
            + [f"{name}={describe(value)}" for name, value in kwargs.items()],
            results=[describe(tensor) for tensor in tensors_in(result)],
            inputs=saved_as,
        )


def describe(value: Any) -> str:
    """Describe a value in one phrase. A tensor is described by dtype and shape, and by its range unless reading it
    would execute a graph."""
    if not isinstance(value, torch.Tensor):
        if isinstance(value, (list, tuple)) and any(True for _ in tensors_in(value)):
            return f"[{', '.join(describe(element) for element in value)}]"
        return repr(value)
    text = text_of(value.shape, value.dtype)
    if value.device.type in DEFERRED_DEVICES or value.numel() == 0 or value.is_complex():
        return text
    # in float64: float8 has no min and max
    wide = value.detach().double()
    finite = wide[torch.isfinite(wide)]
    others = value.numel() - finite.numel()
    spread = f" {finite.min().item():.4g} to {finite.max().item():.4g}" if finite.numel() else ""
    return text + spread + (f", {others} not finite" if others else "")


def _plain(value: Any) -> Any:
    """Return the value with its tensors detached, on the CPU, each with only its own storage."""
    if isinstance(value, torch.Tensor):
        return value.detach().cpu().clone()
    if isinstance(value, (list, tuple)):
        return [_plain(element) for element in value]
    if isinstance(value, dict):
        return {name: _plain(element) for name, element in value.items()}
    return value
