"""Support in xla mode: torch_xla's counters of fallbacks, and the HLO that each call adds to the pending
graph."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from ...records.backend_work import OperatorCall
from ...torch_private.xla import XLA_KEY, xla_counter, xla_hlo
from ..called_operators import tensors_among
from ..dispatched_support import Added, DeviceBackend, KernelCall, observe_device

GIVEN = ("parameter", "constant", "tuple", "get-tuple-element")
"""HLO instructions that compute nothing."""

_LINE = re.compile(r"^\s*(?:ROOT )?%?([\w.-]+) = (\([^=]*?\)|\S+) ([\w-]+)\((.*?)\)(.*)$")
_OPERAND = re.compile(r"%?([A-Za-z_][\w.-]*)\s*$")


def observe_xla(script: str, told: Callable[[OperatorCall], None]) -> AbstractContextManager[None]:
    """Within the context `told` hears of each operator that torch_xla is given."""
    backend = DeviceBackend(XLA_KEY, "xla", "xla lowering", xla_counter, _added)
    return observe_device(backend, script, told)


def _added(once: KernelCall, args: Sequence[Any]) -> Added:
    """Run a call; its instructions are those of its results' graph that its arguments' graph lacks."""
    before = Counter(_instructions(args))
    outputs = once.run()
    try:
        made = Counter(_instructions(list(tensors_among(outputs)) or args))
    except RuntimeError as error:
        return Added(outputs, (), (str(error).splitlines() or [type(error).__name__])[0])
    return Added(outputs, tuple((made - before).elements()))


def _instructions(values: Sequence[Any]) -> list[str]:
    tensors = [one for one in tensors_among(values) if one.device.type == "xla"]
    return hlo_instructions(xla_hlo(tensors)) if tensors else []


def hlo_instructions(text: str) -> list[str]:
    """The instructions in HLO text without their names: `f32[4]{0} add(f32[4]{0}, f32[4]{0})`."""
    shapes: dict[str, str] = {}
    found = []
    for line in text.splitlines():
        match = _LINE.match(line)
        if match is None:
            continue
        name, shape, op, operands, rest = match.groups()
        shapes[name] = shape
        if op not in GIVEN:
            taken = ", ".join(_operand(one, shapes) for one in re.split(r", (?![^\[{(]*[\]})])", operands))
            attributes = re.sub(r", (metadata|sharding|frontend_attributes)=\{.*?\}", "", rest)
            found.append(f"{shape} {op}({taken}){attributes}")
    return found


def _operand(text: str, shapes: dict[str, str]) -> str:
    """The shape of an operand, which HLO text names with or without it."""
    match = _OPERAND.search(text)
    if match is None:
        return text.strip()
    return text[: match.start()].strip(" %") or shapes.get(match[1], match[1])
