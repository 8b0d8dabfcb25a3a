"""The adapter of torch.compile for the bring-up tools.

The adapter shows the code that Inductor or another backend makes of each operator, and the operators that the backend
leaves to ATen's kernels.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any

import torch
import torch.fx

from ...errors import NotAvailable
from ...hooks.backend_adapter import Tell
from ...records.tools.backend_work import OperatorCall, SupportAnswer, Work
from ...script.script_lines import ScriptLines
from ...torch_private.compiler.compiling import inductor_settings_kept
from ...torch_private.compiler.graph_stages import CALL, number_decomposed_calls, parts_of_op, without_graph_caches
from ...torch_private.compiler.inductor_lowering import (
    LoweredNode,
    compile_by_backend,
    compile_by_inductor,
    inductor_without_execution,
    lower,
    watch_lowering,
)
from ...torch_private.presence import versions_of
from ...torch_private.profiling.compile_work import compile_times, compiler_counters
from ...torch_private.profiling.device_work import is_accelerator
from ..called_operators import KeptFailure, configuration, described_value, kind_of, tensor_text
from ..device_presence import require_device
from ..device_traffic import DeviceTraffic
from ..one_node import examples, naming_device, one_node, taking_cpu_tensors, to_device
from .mode import configure_inductor, require_backend
from .work import CompiledWork

if TYPE_CHECKING:
    from ...records.modes.mode_spec import ModeSpec

INDUCTOR = "inductor lowering"
"""The component that a report names when Inductor does not support an operator."""


@contextmanager
def inductor_as_stated(spec: ModeSpec) -> Iterator[None]:
    """Apply a mode's settings to Inductor within the context."""
    with inductor_settings_kept(spec.inductor):
        configure_inductor(spec)
        yield


class CompileAdapter:
    instruction_set = "inductor"
    executes_at_once = False

    def __init__(self, spec: ModeSpec) -> None:
        """Raise UsageError for a backend that torch.compile does not know."""
        self.spec = spec
        self.name = self._backend
        require_backend(spec.name, self.name)

    def versions(self) -> Mapping[str, str]:
        return {"torch": torch.__version__, **versions_of("triton")}

    def observe_support(self, script: str, report: Callable[[OperatorCall], None]) -> AbstractContextManager[None]:
        self._require_inductor("support analysis")
        return observe_inductor(script, report)

    def without_execution(self) -> AbstractContextManager[None]:
        self._require_inductor("a dry run")
        return inductor_without_execution()

    def _require_inductor(self, what: str) -> None:
        if self.spec.backend not in (None, "inductor"):
            raise NotAvailable(
                f"{what} in mode {self.spec.name!r}",
                f"backend {self.spec.backend} lowers nothing: it executes the captured graph with ATen's kernels",
                "leave out the key backend",
            )

    def supports(self, node: torch.fx.Node) -> SupportAnswer:
        """Return whether the backend supports a node.

        Inductor decomposes and lowers only this node, without generating code. The node is unsupported if its
        lowering raises an error or falls back to a kernel of ATen. Any other backend compiles only this node and
        executes it once. The node is unsupported if the backend raises an error and eager execution does not.
        """
        alone = one_node(node)
        if self._backend == "inductor":
            with inductor_as_stated(self.spec):
                try:
                    lowering = lower(alone.graph, lambda: [kind.empty() for kind in alone.inputs])
                except NotAvailable:
                    raise
                except Exception as error:  # noqa: BLE001, whatever stops the lowering is the answer
                    return SupportAnswer(_type_and_first_line(error), INDUCTOR)
            reason = f"falls back to {', '.join(lowering.fallbacks)}" if lowering.fallbacks else ""
            return SupportAnswer(reason, INDUCTOR if reason else "", lowering.operations)
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            try:
                compile_by_backend(self._backend, alone.graph, examples(alone.inputs))(*examples(alone.inputs))
            except Exception as error:  # noqa: BLE001, as above
                try:
                    alone.graph(*examples(alone.inputs))
                except Exception:  # noqa: BLE001, the op itself refuses these values
                    return SupportAnswer()
                return SupportAnswer(_type_and_first_line(error), self._backend)
        return SupportAnswer()

    def compile_graph(self, graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        device = self.spec.accelerator
        if device is not None:
            require_device(device)
            graph, inputs = naming_device(graph, device), [to_device(value, device) for value in inputs]
        if self._backend != "inductor":
            compiled = compile_by_backend(self._backend, graph, inputs)
        else:
            with inductor_as_stated(self.spec):
                compiled = compile_by_inductor(graph, inputs)
        return compiled if device is None else taking_cpu_tensors(compiled, device)

    @property
    def _backend(self) -> str:
        return self.spec.backend or "inductor"

    def observe_work(self, script: str, report: Callable[[Work], None]) -> AbstractContextManager[Tell]:
        return observe_compiled(script, self.spec.device or "cpu", report)

    def counters(self) -> Mapping[str, int]:
        return compiler_counters()

    def report(self) -> str:
        return compile_times()


def _type_and_first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else ''}"


@contextmanager
def observe_compiled(script: str, device: str, report: Callable[[Work], None]) -> Iterator[Tell]:
    """Report the compiler's work, and the copies to and from the device if it is an accelerator."""
    with ExitStack() as observed:
        tells = [observed.enter_context(CompiledWork(script, report))]
        if is_accelerator(device):
            with suppress(NotAvailable):  # the compiler's own work is still reported
                tells.append(observed.enter_context(DeviceTraffic(script, device, report)))

        def tell() -> None:
            for observer_tell in tells:
                observer_tell()

        yield tell


# Each operator of a graph that Inductor lowers


@contextmanager
def observe_inductor(script: str, report: Callable[[OperatorCall], None]) -> Iterator[None]:
    """Report each operator of a graph that Inductor lowers within the context.

    Raise the observer's own failure at the end. Graph caches are disabled, because a graph from a cache is not
    lowered.
    """
    lines, kept = ScriptLines(script), KeptFailure()
    calls: dict[Any, list[LoweredNode]] = {}
    done: set[Any] = set()

    def seen(lowered: LoweredNode) -> None:
        node = lowered.node
        if node.target is operator.getitem:
            return
        if parts_of_op(node.target) is not None or _original(node) is not None:
            calls.setdefault(node.meta.get(CALL, node), []).append(lowered)

    def failed(node: torch.fx.Node, error: Exception) -> None:
        text = (str(error).splitlines() or [type(error).__name__])[0]
        with kept:
            report(_lowered_call([LoweredNode(node, "", "", f"its lowering raises {text}")], lines))

    def ended() -> None:
        for number, nodes in calls.items():
            computed_again = number in done  # in the backward, from saved values of the forward
            if not computed_again or any(lowered_node.reason for lowered_node in nodes):
                done.add(number)
                with kept:
                    report(_lowered_call(nodes, lines))
        calls.clear()

    with ExitStack() as undone:
        undone.callback(without_graph_caches())
        with suppress(NotAvailable):  # without numbers, each node counts as a separate operator
            undone.callback(number_decomposed_calls())
        undone.callback(watch_lowering(seen, failed, ended))
        yield
    kept.tell()


def _lowered_call(lowered: Sequence[LoweredNode], lines: ScriptLines) -> OperatorCall:
    """Return the call of the operator that these nodes were decomposed from, or that a single node calls."""
    nodes = [lowered_node.node for lowered_node in lowered]
    original = _original(nodes[0]) or nodes[0].target
    if len(nodes) == 1 and str(nodes[0].target) == str(original):  # a copied graph has copies of its overloads
        value = nodes[0].meta.get("val")
        device = value.device.type if isinstance(value, torch.Tensor) else "cpu"
        # Put fake tensors in place of the nodes among the arguments.
        args = torch.fx.node.map_arg(nodes[0].args, lambda node: node.meta.get("val"))
        kwargs = torch.fx.node.map_arg(nodes[0].kwargs, lambda node: node.meta.get("val"))
        configured = configuration(original, args, kwargs, device)
    else:
        # The operator's own arguments are lost, so the tensors that its nodes take are described instead.
        input_nodes = dict.fromkeys(
            input_node for node in nodes for input_node in node.all_input_nodes if input_node not in nodes
        )
        configured = ", ".join(text for input_node in input_nodes if (text := _text(input_node)))
    reason = next((lowered_node.reason for lowered_node in lowered if lowered_node.reason), "")
    return OperatorCall(
        kind_of(original),
        configured,
        lines.of_stack(str(nodes[0].meta.get("stack_trace") or "")),
        tuple(_instruction(lowered_node) for lowered_node in lowered),
        INDUCTOR if reason else "",
        reason,
        tuple(_instruction(lowered_node) for lowered_node in lowered if lowered_node.reason),
    )


def _original(node: torch.fx.Node) -> Any:
    """Return the operator that a node was decomposed from, None if it is unknown."""
    origin = node.meta.get("original_aten")
    return origin if parts_of_op(origin) is not None else None


def _instruction(lowered: LoweredNode) -> str:
    """Return the instruction that Inductor made of a node: `float32[4] Pointwise add(float32[4], 10)`."""
    node = lowered.node
    parts = parts_of_op(node.target)
    name = getattr(node.target, "__name__", str(node.target)) if parts is None else parts[1]
    called = f"{lowered.made} {lowered.extern or name}".strip()
    arguments = ", ".join(
        _text(argument) if isinstance(argument, torch.fx.Node) else _plain(argument)
        for argument in (*node.args, *node.kwargs.values())
        if argument is not None
    )
    return f"{_text(node)} {called}({arguments})".strip()


def _plain(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(_text(item) if isinstance(item, torch.fx.Node) else _plain(item) for item in value)}]"
    return described_value(value, "")


def _text(node: torch.fx.Node) -> str:
    """Return the dtypes and shapes of the tensors in a node's result."""
    value = node.meta.get("val")
    values = value if isinstance(value, (list, tuple)) else [value]
    return ", ".join(tensor_text(item) for item in values if isinstance(item, torch.Tensor))
