"""The adapter of torch's own lazy core with the TorchScript backend, for the bring-up tools.

Whether an op is supported is derived from the core's fallback counters and from the IR that a call of the op adds to
the pending graph. The observed work is every graph that the core compiles and executes, and every copy between the core
and the CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from numdrift.kernels.expectation import tensors_in

from ...hooks.backend_adapter import Tell
from ...records.tools.backend_work import FALLBACK, FROM_DEVICE, RECORDING, TO_DEVICE, OperatorCall, Work
from ...records.tools.graph_record import Value
from ...tape.origin import CALLED_FROM
from ...torch_private.deferred.lazy import (
    LAZY_KEY,
    lazy_counters,
    set_lazy_source_locations,
    start_lazy_backend,
    sync_lazy,
)
from ...torch_private.operators import written_names
from ...torch_private.patches import Patches
from ...torch_private.profiling.lazy_work import (
    COMPILED,
    Copy,
    ExecutedCut,
    lazy_counter,
    lazy_graph_sizes,
    lazy_report,
    lazy_text,
    lazy_without_execution,
    lower_lazy,
    watch_lazy_copies,
    watch_lazy_cuts,
)
from ..called_operators import ADOPTION, Fallback, KeptFailure, is_of_harness, line_in, shape_text
from ..dispatched_support import Added, DeviceBackend, ObservedCall, observe_device
from ..eager.adapter import EagerAdapter
from ..followed_graph import TECHNICAL
from .lazy_dump import ITEM, parse

# Support


@contextmanager
def observe_lazy(script: str, report: Callable[[OperatorCall], None]) -> Iterator[None]:
    """Call `report` with each operator that reaches the lazy core in the context."""
    backend = DeviceBackend(LAZY_KEY, "lazy", "lazy core", lazy_counter, lambda args: None, _added)
    had_locations = set_lazy_source_locations(True)
    try:
        with observe_device(backend, script, report):
            yield
    finally:
        set_lazy_source_locations(had_locations)


def _added(observed: ObservedCall, outputs: Any) -> Added:
    """Return the nodes that a call has made. The call's own frame marks them (see `followed_kernels`)."""
    args = observed.call.passed
    written = list(tensors_in(outputs)) or list(tensors_in(args))
    made = [tensor for tensor in written if tensor.device.type == "lazy"]
    graph = parse(f"## BEGIN_GRAPH\n{lazy_text(made)}\n## END_GRAPH\n")
    marked = f"{observed.number}@{CALLED_FROM}:"
    nodes = [ir_node for ir_node in graph.nodes if ir_node.location.startswith(marked) and not ir_node.is_input]
    computes = next(tensors_in(args), None) is not None and not written_names(observed.call.operation)
    if computes and all(ir_node.is_input for ir_node in graph.nodes):
        return Added((observed.instruction(outputs),))  # the op was executed at once (execute=op)
    # The core's backend may refuse to lower a node of the IR. Lowering, which executes nothing, shows whether it does.
    refusal = ""
    try:
        lower_lazy(made)
    except RuntimeError as error:
        refusal = (str(error).splitlines() or [type(error).__name__])[0]
    values_of = {ir_node.number: ir_node.outputs for ir_node in graph.nodes}
    instructions = []
    for node in nodes:
        # Show a node of the IR as `float32[4] aten::add(float32[4], float32[])`, with its attributes.
        operands = []
        for number, which in node.operands:
            values = values_of.get(number, ())
            operands.append(_value(values[which]) if which < len(values) else "?")
        operands += [f"{name}={value}" for name, value in node.tags.items() if name not in TECHNICAL]
        results = ", ".join(map(_value, node.outputs))
        instructions.append(f"{results} {node.domain}::{node.op}({', '.join(operands)})")
    return Added(tuple(instructions), refusal)


def _value(value: Value) -> str:
    return shape_text(value.dtype or "?", value.shape or ())


# Work


def _is_own_read(frame: Any) -> bool:
    """Return whether numdrift reads a value for itself."""
    return is_of_harness(frame, ADOPTION)


class LazyWork:
    """The observer of the core's work. From `__enter__` to `__exit__`, it calls `report` with each `Work`.

    `__enter__` returns a function that reports all work not yet reported. Where a value is read, the core compiles,
    executes and copies in one call. That call's time is attributed to compilation for a new graph, and to execution for
    a known one. At a mark_step, compilation and execution are timed separately.
    """

    def __init__(self, script: str, report: Callable[[Work], None]) -> None:
        self._script = script
        self._report = report
        self._fallback: Fallback | None = None
        self._sizes = lazy_graph_sizes()
        self._kept = KeptFailure()
        self._patches = Patches("the work of the lazy backend")

    def __enter__(self) -> Callable[[], None]:
        with self._patches:
            self._patches.also(watch_lazy_cuts(self._seen_cut))
            self._patches.also(watch_lazy_copies(self._seen_copy, _is_own_read))
        return self._tell

    def __exit__(self, *raised: object) -> None:
        self._patches.undo()
        self._end_fallback()

    def _tell(self) -> None:
        self._kept.tell()
        self._end_fallback()

    def _seen_cut(self, cut: ExecutedCut) -> None:
        with self._kept:
            self._end_fallback()
            if cut.counted:
                self._executed(cut.reason, cut.scheduled, cut.counted, line_in(self._script), cut.executed)

    def _seen_copy(self, copy: Copy) -> None:
        """Report a copy of a tensor to or from the core, made by the script or for an op that falls back to the CPU."""
        with self._kept:
            if copy.own:
                self._executed(RECORDING, copy.seconds, copy.counted, "")
                return
            call = line_in(self._script, copy.caller)
            # All copies of a fallback come from one place in the code. The core counts the op before the first copy.
            place = (copy.caller.f_code, copy.caller.f_lasti)
            if copy.fell_back or self._fallback is None or self._fallback.place != place:
                self._end_fallback()
            if copy.fell_back and copy.fell_back[-1] != ITEM:
                self._fallback = Fallback(copy.fell_back[-1], place, call, copy.began, copy.began)
            if self._fallback is not None:
                self._fallback.ended = copy.began + copy.seconds
            if not copy.to_cpu:
                self._report(Work("transfer", TO_DEVICE, copy.seconds, copy.bytes, None, call))
                return
            reason = "item" if ITEM in copy.fell_back else "read"
            if self._fallback is not None:
                reason = FALLBACK + self._fallback.op
            if copy.counted:
                self._executed(reason, copy.seconds, copy.counted, call)
            alone = None if copy.counted else copy.seconds
            self._report(Work("transfer", FROM_DEVICE, alone, copy.bytes, None, call))

    def _executed(
        self, reason: str, seconds: float, counted: Mapping[str, int], call: str, execution: float | None = None
    ) -> None:
        """Report that a graph was executed. `execution` is the separately measured time of execution, in seconds."""
        # `size` is the number of nodes of the graph just executed. It is None if further graphs were executed since the
        # last report, for example by a read of numdrift.
        (before, sum_before), (now, total) = self._sizes, lazy_graph_sizes()
        self._sizes = now, total
        size = round(total - sum_before) if now == before + 1 else None
        cached = COMPILED not in counted
        compiled, executed = (None, seconds + (execution or 0.0)) if cached else (seconds, execution)
        self._report(Work("compile", reason, compiled, size, cached, call))
        self._report(Work("execute", reason, executed, size, None, call))

    def _end_fallback(self) -> None:
        fallback, self._fallback = self._fallback, None
        if fallback is not None:
            self._report(fallback.work())


class LazyAdapter(EagerAdapter):
    name = "lazy (TorchScript)"
    instruction_set = "lazy"
    executes_at_once = False
    part = "lazy core"
    settle = staticmethod(sync_lazy)
    counters = staticmethod(lazy_counters)
    report = staticmethod(lazy_report)

    def started_device(self) -> str:
        start_lazy_backend()
        return "lazy"

    def observe_support(self, script: str, report: Callable[[OperatorCall], None]) -> AbstractContextManager[None]:
        return observe_lazy(script, report)

    def without_execution(self) -> AbstractContextManager[None]:
        return lazy_without_execution()

    def observe_work(self, script: str, report: Callable[[Work], None]) -> AbstractContextManager[Tell]:
        return LazyWork(script, report)
