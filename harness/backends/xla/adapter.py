"""The adapter through which the bring-up tools query torch_xla (PJRT).

Whether an op is supported is derived from torch_xla's fallback counters and from the HLO that a call of the op adds to
the pending graph. `xla_work` observes compilations, executions and transfers.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch

from numdrift.kernels.expectation import tensors_in

from ...errors import NotAvailable
from ...hooks.backend_adapter import Tell
from ...records.tools.backend_work import OperatorCall, Work
from ...torch_private.deferred.xla import XLA_KEY, start_xla, sync_xla, xla_counter, xla_hlo
from ...torch_private.presence import versions_of
from ..dispatched_support import Added, DeviceBackend, ObservedCall, observe_device
from ..eager.adapter import EagerAdapter
from .hlo_graph import WITHOUT_WORK
from .mode import require_xla
from .xla_work import XlaWork, xla_counters, xla_report

# Support

_LINE = re.compile(r"^\s*(?:ROOT )?%?([\w.-]+) = (\([^=]*?\)|\S+) ([\w-]+)\((.*?)\)(.*)$")
_OPERAND = re.compile(r"%?([A-Za-z_][\w.-]*)\s*$")


def _added(observed: ObservedCall, outputs: Any) -> Added:
    """Return the instructions that the graph of a call's outputs has and the graph of its arguments lacked."""
    try:
        after = Counter(_instructions(list(tensors_in(outputs)) or observed.call.passed))
    except RuntimeError as error:
        return Added((), (str(error).splitlines() or [type(error).__name__])[0])
    return Added(tuple((after - observed.before).elements()))


def _instructions(values: Sequence[Any]) -> list[str]:
    tensors = [tensor for tensor in tensors_in(values) if tensor.device.type == "xla"]
    return hlo_instructions(xla_hlo(tensors)) if tensors else []


def hlo_instructions(text: str) -> list[str]:
    """Return the instructions in HLO text without their names: `f32[4]{0} add(f32[4]{0}, f32[4]{0})`."""
    shapes: dict[str, str] = {}
    instructions = []
    for line in text.splitlines():
        match = _LINE.match(line)
        if match is None:
            continue
        name, shape, op, operands, rest = match.groups()
        shapes[name] = shape
        if op in WITHOUT_WORK:
            continue
        operand_texts = []
        # Split at the commas outside of brackets: a shape such as `f32[4,2]{1, 0}` contains commas too.
        for operand in re.split(r", (?![^\[{(]*[\]})])", operands):
            # HLO text writes an operand with its shape, `f32[4]{0} %p.1`, or without it.
            name_match = _OPERAND.search(operand)
            if name_match is None:
                operand_texts.append(operand.strip())
            else:
                operand_texts.append(
                    operand[: name_match.start()].strip(" %") or shapes.get(name_match[1], name_match[1])
                )
        attributes = re.sub(r", (metadata|sharding|frontend_attributes)=\{.*?\}", "", rest)
        # The name of a called computation ends in a number that differs between graphs.
        attributes = re.sub(r"(to_apply|calls)=%?([A-Za-z_]\w*)(\.\d+)*", r"\1=\2", attributes)
        instructions.append(f"{shape} {op}({', '.join(operand_texts)}){attributes}")
    return instructions


class XlaAdapter(EagerAdapter):
    name = "xla"
    instruction_set = "hlo"
    executes_at_once = False
    part = "xla lowering"
    settle = staticmethod(sync_xla)
    counters = staticmethod(xla_counters)
    report = staticmethod(xla_report)

    def started_device(self) -> str:
        require_xla()
        start_xla()
        return "xla"

    def versions(self) -> Mapping[str, str]:
        return {"torch": torch.__version__, **versions_of("torch_xla", "libtpu")}

    def observe_support(self, script: str, report: Callable[[OperatorCall], None]) -> AbstractContextManager[None]:
        backend = DeviceBackend(
            XLA_KEY, "xla", self.part, xla_counter, lambda args: Counter(_instructions(args)), _added
        )
        return observe_device(backend, script, report)

    def without_execution(self) -> AbstractContextManager[None]:
        raise NotAvailable(
            f"a dry run in mode {self.spec.name!r}",
            "torch_xla executes a graph wherever a value is read",
            "use --mode lazy or --mode compile, or leave out --dry",
        )

    def observe_work(self, script: str, report: Callable[[Work], None]) -> AbstractContextManager[Tell]:
        return XlaWork(script, report)
