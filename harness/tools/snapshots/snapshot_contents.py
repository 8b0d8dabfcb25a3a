"""The contents of a snapshot as plain rows: its ops by number of calls, its inputs and its outputs."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import torch

from ...snapshots.snapshot_record import Hlo, Port, Snapshot
from ...tape.tape import View


@dataclass(frozen=True, slots=True)
class PortFacts:
    """One input or output. The numbers are None if the snapshot lacks the value. `minimum` and `maximum` are over the
    finite elements, and None if no element is finite."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    minimum: float | None = None
    maximum: float | None = None
    nan: int | None = None
    inf: int | None = None


@dataclass(frozen=True, slots=True)
class Contents:
    """The contents of a snapshot. `ops` are all ops that the graph calls, including views, the most frequent first."""

    ops: dict[str, int]
    inputs: tuple[PortFacts, ...]
    outputs: tuple[PortFacts, ...]


def contents_of(snapshot: Snapshot) -> Contents:
    """Return the contents of a snapshot."""
    called = Counter(call.op.removesuffix(".default") for call in snapshot.tape.calls)
    ordered = sorted(called.items(), key=lambda item: (-item[1], item[0]))
    return Contents(
        dict(ordered),
        tuple(_facts(port, snapshot.value_of(port)) for port in snapshot.inputs),
        tuple(_facts(port, value) for port, value in zip(snapshot.outputs, snapshot.output_values(), strict=True)),
    )


def hlo_instructions(hlo: Hlo) -> int:
    """Count the instructions of a module, including the computations that it calls."""
    return sum(" = " in line for line in hlo.text.splitlines())


def _facts(port: Port, value: torch.Tensor | None) -> PortFacts:
    view: View = port.view
    dtype, shape = str(view.dtype).removeprefix("torch."), view.size
    if value is None:
        return PortFacts(port.name, dtype, shape)
    dtype, shape = str(value.dtype).removeprefix("torch."), tuple(value.shape)
    numbers = torch.view_as_real(value.resolve_conj()) if value.is_complex() else value
    numbers = numbers.double() if numbers.dtype != torch.int64 else numbers
    if not numbers.is_floating_point():
        if not numbers.numel():
            return PortFacts(port.name, dtype, shape, None, None, 0, 0)
        return PortFacts(port.name, dtype, shape, float(numbers.min()), float(numbers.max()), 0, 0)
    finite = numbers[torch.isfinite(numbers)]
    return PortFacts(
        port.name,
        dtype,
        shape,
        float(finite.min()) if finite.numel() else None,
        float(finite.max()) if finite.numel() else None,
        int(torch.isnan(numbers).sum()),
        int(torch.isinf(numbers).sum()),
    )
