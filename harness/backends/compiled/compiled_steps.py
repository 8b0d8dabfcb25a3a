"""The recorders of the steps of a mode that compiles: each executed graph is split into calls on the tape."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ...hooks.mode_protocol import Mode
from ...records.modes.mode_spec import INDUCTOR, OP_BY_OP
from ...tape.large_values import LargeValues
from ...tape.recording.call_log import CallLog, CallValues
from ...tape.recording.compiled_graphs import CapturedGraph, CompiledGraph, CompiledGraphs
from ...tape.recording.followed_calls import FollowedOps
from ...tape.recording.probed_graph import PutOff
from ...tape.recording.random_calls import RandomCalls
from ...tape.recording.step_recorder import RecordingRequest, StepRecorders
from ...tape.recording.tape_recorder import TapeRecorder
from ...tape.tape import Tape
from ...torch_private.compiler.probing import Boxed
from .node_kernels import NodeCompiler, RecordedKernels, compile_node
from .unrolling import Regions, UnrolledRegion


class CompiledStepRecorder(TapeRecorder):
    """A recorder of the ops of a step, including those of its compiled graphs.

    graphs: the compiled graphs, which are executed through this recorder from `start` to `stop`.
    values: receives the real results of the nodes.
    compile_: compiles single nodes; None if the mode generates no kernels.
    large: keeps the values of the tape, in memory if it is None
    """

    def __init__(
        self,
        step: int,
        script: str,
        graphs: CompiledGraphs,
        values: CallValues,
        compile_: NodeCompiler | None,
        large: LargeValues | None = None,
    ) -> None:
        super().__init__(step, script, modules=False, large=large)
        self._log = CallLog(values, self._large)
        self._regions: Regions | None = Regions(self._log, script)
        self._graphs = graphs
        self._values = values
        self._compile = compile_
        self._suspended = False
        self._put_off = False

    def start(self) -> None:
        super().start()
        self._graphs.executor = self

    def stop(self) -> None:
        super().stop()
        self._graphs.executor = None

    def kernels(self, tape: Tape) -> RecordedKernels:
        """Return the kernels of the step. They keep the results of the calls, to answer requests after the training."""
        assert self._regions is not None
        return RecordedKernels(tape, self._values, self._compile, self._regions.captured)

    def give_up(self, reason: str) -> None:
        super().give_up(reason)
        self._regions = None

    def captured(self, graph: CapturedGraph, inputs: Sequence[Any], execute: Callable[[], Any]) -> Any:
        """Execute the compiled code of a captured graph unchanged, and note the position of the call on the tape."""
        if self._ignores():
            return execute()
        grad = torch.is_grad_enabled()
        with self._looking():
            assert self._regions is not None
            self._regions.called(graph, inputs, grad=grad)
        outputs = execute()
        if self._regions is not None:
            with self._looking():
                self._regions.returned(outputs)
        return outputs

    def executed(self, graph: CompiledGraph, inputs: Sequence[Any], execute: Callable[[], Any]) -> Any:
        """Execute a compiled graph unchanged, and record its calls on the tape."""
        if self._ignores():
            return execute()
        region: UnrolledRegion | None = None
        probed = graph.probed
        if probed is not None and probed.is_put_off:
            self._put_it_off()
            return execute()
        with self._looking():
            assert self._places is not None and self._regions is not None
            region = self._regions.enter(graph, self._places.compiled(), inputs, self._places.frames)
        # Ops that are dispatched from here on belong to the graph, or to its repetitions with probes.
        before, self._suspended = self._suspended, True
        random = RandomCalls()
        try:
            with FollowedOps(random.before, random.after):
                outputs = execute()
            if region is not None:
                region.probe(outputs)
        except PutOff:
            self._put_it_off()
            return outputs
        finally:
            self._suspended = before
        if region is not None:
            with self._looking():
                region.leave(outputs, random)
        return outputs

    @property
    def put_off(self) -> bool:
        return self._put_off

    def _put_it_off(self) -> None:
        self._put_off = True
        self.give_up("reading the values in its compiled graphs takes too long")

    def _ignores(self) -> bool:
        return self._suspended or super()._ignores()


class CompiledSteps(StepRecorders):
    """The recorders of the steps of a mode that compiles, from `install` to `remove`."""

    def __init__(self, mode: Mode, request: RecordingRequest) -> None:
        super().__init__(self._recorder)
        self._request = request
        self._compile: NodeCompiler | None = None
        if mode.backend not in OP_BY_OP:
            self._compile = compile_node if mode.backend == INDUCTOR else _by_adapter(mode)
        self._graphs = CompiledGraphs(
            op_by_op=self._compile is None, compiling_again=request.compiling_again, quick=request.quick
        )

    def install(self) -> None:
        self._graphs.install()

    def remove(self) -> None:
        self._graphs.remove()

    def _recorder(self, step: int) -> CompiledStepRecorder:
        values, large = CallValues(self._request.value_bytes), LargeValues(self._request.folder)
        return CompiledStepRecorder(step, self._request.script, self._graphs, values, self._compile, large)


def _by_adapter(mode: Mode) -> NodeCompiler:
    """Return a compiler of graphs that uses the adapter of a plug-in's backend."""
    adapter = mode.adapter()

    def compile_(module: torch.fx.GraphModule, inputs: Sequence[Any], *, backward: bool) -> Boxed:
        execute = adapter.compile_graph(module, inputs)
        return lambda boxed: execute(*boxed)

    return compile_
