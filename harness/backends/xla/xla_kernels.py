"""The kernels of a recorded step of mode `xla`.

They provide the results that the ops had in XLA's graphs, and execute each op as a separately compiled graph.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ...records.modes.mode_spec import ModeSpec
from ...tape.recording.call_log import CallValues
from ...tape.replaying.laid_out import LaidOut
from ...tape.replaying.replay import Computation, executions
from ...tape.serving.step_kernels import executed_apart
from ...tape.tape import NotReplayable, Tape, in_words, leaves, mapped
from ...torch_private.deferred.xla import execute_pending, is_xla_op_by_op, read_xla, xla_generator_kept, xla_op_by_op
from ...torch_private.dispatching import bare_execution
from .executed_again import ExecutedOp, Program, ValueKey, WantedValue, read_values


class XlaKernels:
    """The kernels of one step. Reading the results of its ops is slow, and is delayed until the first request."""

    def __init__(self, tape: Tape, program: Program, values: CallValues, unreadable: set[ValueKey]) -> None:
        """`unreadable` is the caller's set of values that cannot be read. Further unreadable values are added to it."""
        self._notes: Sequence[str] = ()
        self._values = values
        self._op_by_op = is_xla_op_by_op()  # the mode resets this when the script ends
        self._ops = {op.position: op for op in program.ops if isinstance(op, ExecutedOp)}
        self._unread: tuple[Tape, Program] | None = tape, program
        self._unreadable = unreadable

    @property
    def notes(self) -> Sequence[str]:
        """Notes that say which values of the step are unknown, and why."""
        self._read()
        return self._notes

    def _read(self) -> None:
        """Execute the step again and record the results of its calls, unless an earlier call has done so."""
        if self._unread is None:
            return
        (tape, program), self._unread = self._unread, None
        computations = executions(tape)
        fresh: dict[int, list[int | None]] = {}
        for computation in computations:
            op = self._ops.get(computation.position)
            if op is not None and op.drawn is None:
                fresh[computation.position] = [
                    number for number, new in zip(op.outputs, computation.call.fresh, strict=True) if new
                ]
        wanted = _wanted_values(computations, fresh)
        program.rewritten = {
            number
            for computation in computations
            if (op := self._ops.get(computation.position)) is not None
            for view in computation.written_views()
            if (number := op.number_of(view, computation.call)) is not None
        }
        try:
            with xla_op_by_op(self._op_by_op):
                fetched = read_values(program, wanted, self._unreadable)
        except Exception as error:  # noqa: BLE001, a compiler may raise anything
            self._notes = (f"the results of its ops in XLA's graphs cannot be read: {in_words(error)}",)
            return
        self._set_values(computations, fresh, fetched.found)
        unknown = [value for value in wanted if value.number not in fetched.found]
        if not fetched.repeats:
            self._notes = ("executed once more, the step does not reproduce its own bits",)
        elif unknown:
            names = ", ".join(dict.fromkeys(value.key[0] for value in unknown))
            summary = f"{len(unknown)} of its {len(wanted)} values ({names}) are unknown: reading them"
            self._notes = (f"{summary} changes how XLA compiles the graph, or takes too long",)

    def _set_values(
        self,
        computations: Sequence[Computation],
        fresh: Mapping[int, Sequence[int | None]],
        found: Mapping[int, torch.Tensor],
    ) -> None:
        """Set the results of each call on the device: first those in fresh storages, then the views that the op writes
        to.

        A value that ops overwrite without returning it (the running statistics of batch normalization) is read at the
        end of the step, so only the result of the last op that writes the value is known.
        """
        last = {view.slot: computation.position for computation in computations for view in computation.written_views()}
        for computation in computations:
            position = computation.position
            op = self._ops.get(position)
            if op is None:
                continue  # on the CPU, and already recorded
            if op.drawn is not None:
                self._values.set(position, op.drawn, keep=True)
                continue
            contents = {number: found.get(number) for number in fresh[position] if number is not None}
            contents |= {number: op.unread[at] for at, number in enumerate(op.outputs) if number and at in op.unread}
            results = [None if number is None else contents[number] for number in fresh[position]]
            for view in computation.written_views():
                number = op.number_of(view, computation.call)
                is_last = last[view.slot] == position
                results.append(found.get(number) if number is not None and is_last else None)
            self._values.set(position, results, keep=True)

    def digests(self) -> list[list[str | None]]:
        self._read()
        return self._values.digests

    def prepare(self, positions: Sequence[int]) -> None:
        """Do nothing: each op is compiled when it is first executed."""

    def execute(self, computation: Computation, arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> list[Any]:
        """Execute an op as a separate graph. Torch's own kernels execute copies, ops on the CPU and ops that draw."""
        op = self._ops.get(computation.position)
        if op is None or op.drawn is not None or computation.call.name == "_to_copy":
            return executed_apart(computation, arguments, keywords)
        transfers: list[tuple[torch.Tensor, torch.Tensor]] = []
        recorded = iter(list(leaves((*op.arguments, *op.keywords.values()))))

        def moved(value: Any) -> Any:
            """Return an argument, moved to the device that it was on in the step: XLA's device or the CPU."""
            original = next(recorded)
            if not isinstance(value, torch.Tensor):
                return original if isinstance(original, torch.device) else value
            if isinstance(original, torch.Tensor):
                return value
            transfers.append((value, _on_xla(value)))
            return transfers[-1][1]

        with xla_op_by_op(self._op_by_op), xla_generator_kept(), torch.no_grad(), bare_execution():
            device_arguments = mapped(moved, arguments)
            device_keywords = {name: mapped(moved, keywords[name]) for name in op.keywords}
            outputs = op.operation(*device_arguments, **device_keywords)
            flat_outputs = [] if outputs is None else list(leaves(outputs))
            execute_pending()
            written = {id(tensor) for tensor in computation.written(arguments, keywords)}
            for argument, device_copy in transfers:
                if id(argument) in written:
                    argument.copy_(read_xla([device_copy])[0])
            results = [read_xla([output])[0] if isinstance(output, torch.Tensor) else output for output in flat_outputs]
        if op.unread:
            plain_results = executed_apart(computation, arguments, keywords)
            results = [plain_results[at] if at in op.unread else result for at, result in enumerate(results)]
        return results

    def called(self, position: int) -> list[LaidOut] | None:
        return None

    def value(self, position: int) -> list[torch.Tensor] | None:
        self._read()
        return self._values.value(position)

    def recompiled(self, tape: Tape, spec: ModeSpec, own: ModeSpec) -> dict[str, torch.Tensor]:
        raise NotReplayable("a step of torch_xla cannot be compiled again in another mode")


def _on_xla(value: torch.Tensor) -> torch.Tensor:
    """Return a copy of a tensor on the device.

    A tensor whose strides are a permutation of contiguous ones is copied contiguously and permuted on the device, as
    in the graph, because XLA has different code for the product with a transposed matrix.
    """
    strides = value.stride()
    order = sorted(range(value.dim()), key=lambda dim: -strides[dim])
    turned = value.permute(order)
    if value.is_contiguous() or not turned.is_contiguous():
        return value.to("xla")
    return turned.to("xla").permute([order.index(dim) for dim in range(value.dim())])


def _wanted_values(computations: Sequence[Computation], fresh: Mapping[int, Sequence[int | None]]) -> list[WantedValue]:
    """Return the values to read: those in `fresh`, which maps a call's position to the numbers of its fresh results."""
    wanted, counts = list[WantedValue](), Counter[str]()
    for computation in computations:
        name = computation.call.name
        fused = torch.Tag.pointwise in getattr(computation.operation, "tags", ()) or "norm" in name
        for number in fresh.get(computation.position, ()):
            if number is not None:
                wanted.append(WantedValue(number, (name, counts[name]), fused))
                counts[name] += 1
    return wanted
