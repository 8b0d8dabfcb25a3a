"""The adapter of eager execution for the bring-up tools: every operator is executed separately, as in torch.

An operator is unsupported if the device has no kernel for it: the dispatcher raises, or its fallback takes over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import torch

from numdrift.kernels.expectation import tensors_in

from ...errors import NotAvailable
from ...hooks.backend_adapter import Tell
from ...records.tools.backend_work import OperatorCall, SupportAnswer, Work
from ...script.script_lines import ScriptLines
from ...tape.recording.followed_calls import FollowedOps, OpCall
from ...torch_private.device_kernels import is_taken_by_fallback
from ...torch_private.profiling.device_work import is_accelerator
from ...torch_private.registered_kernels import dispatch_key
from ..called_operators import KeptFailure, configuration, instruction, is_called_by_harness, kind_of
from ..device_presence import require_device
from ..device_traffic import DeviceTraffic
from ..one_node import Counters, Settle, answer_by_execution, graph_on, nothing_pending

if TYPE_CHECKING:
    from ...records.modes.mode_spec import ModeSpec


class EagerAdapter:
    """The adapter of a device that executes operators one by one. Backends that execute them later override members."""

    name = ""
    """The backend's name. "" is replaced by the name of the mode's accelerator, or by `eager` if the mode has none."""

    instruction_set = "aten"
    executes_at_once = True
    settle: Settle = staticmethod(nothing_pending)
    counters: Counters = dict
    report: Callable[[], str] = str
    part = ""
    """The component that a failure to execute a node is attributed to, "" for the device's kernels."""

    def __init__(self, spec: ModeSpec) -> None:
        self.spec = spec
        self.name = self.name or spec.accelerator or "eager"

    def versions(self) -> Mapping[str, str]:
        return {"torch": torch.__version__}

    def observe_support(self, script: str, report: Callable[[OperatorCall], None]) -> AbstractContextManager[None]:
        return observe_eager(script, self.spec.device or self.spec.base, report)

    def without_execution(self) -> AbstractContextManager[None]:
        raise NotAvailable(
            f"a dry run in mode {self.spec.name!r}",
            "the mode executes each operator as soon as it is called",
            "use --mode lazy or --mode compile, or leave --dry out",
        )

    def supports(self, node: torch.fx.Node) -> SupportAnswer:
        device = self.started_device()
        return answer_by_execution(node, device, self.part or f"kernels of {device}", self.settle, self.counters)

    def compile_graph(self, graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        return graph_on(graph, self.started_device(), self.settle)

    def observe_work(self, script: str, report: Callable[[Work], None]) -> AbstractContextManager[Tell]:
        device = self.spec.device or self.spec.base
        return DeviceTraffic(script, device, report) if is_accelerator(device) else nullcontext(lambda: None)

    def started_device(self) -> str:
        """Return the device, ready for ops. Raise NotAvailable if it is absent or another device takes its place."""
        device = self.spec.device or self.spec.base
        require_device(device)
        # In a training run on the CPU, the CPU takes the place of the accelerators that its script asks for.
        kind = torch.empty((), device=device).device.type
        if kind != device.partition(":")[0]:
            raise NotAvailable(
                f"device {device!r}",
                f"the script runs on the {kind.upper()}, which replaces that device",
                "partition the module on its own, as FILE.py:FACTORY",
            )
        return device


@contextmanager
def observe_eager(script: str, device: str, report: Callable[[OperatorCall], None]) -> Iterator[None]:
    """Call `report` with each operator that is executed in the context. Raise the observer's own failure at the end."""
    lines, kind_of_device = ScriptLines(script), device.partition(":")[0]
    key = dispatch_key(kind_of_device)
    kept = KeptFailure()

    def tell(call: OpCall, outputs: Any, reason: str) -> None:
        if is_called_by_harness([__file__]):
            return
        kinds = {tensor.device.type for tensor in (*call.tensors, *tensors_in(outputs))}
        # The script may compute on another device, for example before it moves its model.
        if kinds and kind_of_device not in kinds:
            return
        with kept:
            text = configuration(call.operation, call.args, call.kwargs, kind_of_device)
            kind = kind_of(call.operation)
            instructions = (instruction(kind, outputs, text),)
            report(OperatorCall(kind, text, lines.here(), instructions, "dispatcher" if reason else "", reason))

    def returned(call: OpCall, outputs: Any) -> None:
        on_cpu = kind_of_device != "cpu" and is_taken_by_fallback(call.operation, key)
        reason = f"no kernel for {kind_of_device}: the device's fallback executes the operator" if on_cpu else ""
        tell(call, outputs, reason)

    def failed(call: OpCall, error: BaseException) -> None:
        if isinstance(error, NotImplementedError):
            tell(call, (), (str(error).splitlines() or [type(error).__name__])[0])

    with FollowedOps(lambda call: call if call.is_overload else None, returned, failed):
        yield
    kept.tell()
