"""The kernels of a taped step of mode `xla`: what its ops gave in their graphs, and each op compiled by itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ...records.mode_spec import ModeSpec
from ...tape.call_log import CallValues
from ...tape.ensemble import in_words
from ...tape.laid_out import LaidOut
from ...tape.replay import Computation, executions
from ...tape.step_kernels import executed_apart
from ...tape.tape import NotReplayable, Tape, leaves, mapped
from ...torch_private.dispatching import bare_execution
from ...torch_private.xla import execute_pending, is_xla_op_by_op, read_xla, xla_generator_kept, xla_op_by_op
from .executed_again import ExecutedOp, Program, ValueKey, WantedValue, read_values


class XlaKernels:
    """Those of one step. What its ops gave is read once somebody asks, for that takes a while."""

    def __init__(self, tape: Tape, program: Program, values: CallValues, unreadable: set[ValueKey]) -> None:
        """`unreadable` are values that cannot be read; those that are found here are added."""
        self._notes: Sequence[str] = ()
        self._values = values
        self._op_by_op = is_xla_op_by_op()  # which the mode takes back when the script has ended
        self._ops = {one.position: one for one in program.ops if isinstance(one, ExecutedOp)}
        self._unread: tuple[Tape, Program] | None = tape, program
        self._unreadable = unreadable

    @property
    def notes(self) -> Sequence[str]:
        """Which values of the step are unknown, and why."""
        self._read()
        return self._notes

    def _read(self) -> None:
        """Have the step executed once more, unless it has been, and note what its calls gave."""
        if self._unread is None:
            return
        (tape, program), self._unread = self._unread, None
        computing = {one.position: one for one in executions(tape)}
        fresh: dict[int, list[int | None]] = {}
        for position, one in computing.items():
            op = self._ops.get(position)
            if op is not None and op.drawn is None:
                fresh[position] = [number for number, new in zip(op.outputs, one.call.fresh, strict=True) if new]
        wanted, counts = list[WantedValue](), Counter[str]()
        for position, numbers in fresh.items():
            call, operation = computing[position].call, computing[position].operation
            fused = torch.Tag.pointwise in getattr(operation, "tags", ()) or "norm" in call.name
            for number in numbers:
                if number is not None:
                    wanted.append(WantedValue(number, (call.name, counts[call.name]), fused))
                    counts[call.name] += 1
        program.rewritten = {
            number
            for position, one in computing.items()
            for view in one.written_views()
            if position in self._ops and (number := self._ops[position].number_of(view, one.call)) is not None
        }
        try:
            with xla_op_by_op(self._op_by_op):
                known = read_values(program, wanted, self._unreadable)
        except Exception as error:  # noqa: BLE001, a compiler may raise anything
            self._notes = (f"what its ops gave in XLA's graphs cannot be read: {in_words(error)}",)
            return
        # What an op writes past every name (the running statistics of batch normalization) is what is there at the end,
        # of the last one that writes it.
        last = {view.slot: position for position, one in computing.items() for view in one.written_views()}
        for position, one in computing.items():
            op = self._ops.get(position)
            if op is None:
                continue  # on the CPU, and noted already
            if op.drawn is not None:
                self._values.set(position, op.drawn, keep=True)
                continue
            found = {number: known.found.get(number) for number in fresh[position] if number is not None}
            found |= {number: op.unread[at] for at, number in enumerate(op.outputs) if number and at in op.unread}
            given = [None if number is None else found[number] for number in fresh[position]]
            for view in one.written_views():
                number = op.number_of(view, one.call)
                is_last = last[view.slot] == position
                given.append(known.found.get(number) if number is not None and is_last else None)
            self._values.set(position, given, keep=True)
        left = [one for one in wanted if one.number not in known.found]
        if not known.repeats:
            self._notes = ("executed once more the step does not give its own bits again",)
        elif left:
            names = ", ".join(dict.fromkeys(one.key[0] for one in left))
            said = f"what {len(left)} of its {len(wanted)} values were ({names}) is unknown: reading them"
            self._notes = (f"{said} changes what XLA makes of the graph, or takes too long",)

    def digests(self) -> list[list[str | None]]:
        self._read()
        return self._values.digests

    def prepare(self, positions: Sequence[int]) -> None:
        """Nothing is to be made ready: each op is compiled when it is first executed."""

    def execute(self, one: Computation, arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> list[Any]:
        """An op as a graph of its own; what was on the CPU, and what draws, by torch's own kernels."""
        op = self._ops.get(one.position)
        if op is None or op.drawn is not None or one.call.name == "_to_copy":
            return executed_apart(one, arguments, keywords)
        there: list[tuple[torch.Tensor, torch.Tensor]] = []
        recorded = iter(list(leaves((*op.arguments, *op.keywords.values()))))

        def moved(value: Any) -> Any:
            """The argument where it was: on the device, or on the CPU."""
            was = next(recorded)
            if not isinstance(value, torch.Tensor):
                return was if isinstance(was, torch.device) else value
            if isinstance(was, torch.Tensor):
                return value
            there.append((value, _on_xla(value)))
            return there[-1][1]

        with xla_op_by_op(self._op_by_op), xla_generator_kept(), torch.no_grad(), bare_execution():
            given = mapped(moved, arguments)
            named = {name: mapped(moved, keywords[name]) for name in op.keywords}
            outputs = op.operation(*given, **named)
            made = [] if outputs is None else list(leaves(outputs))
            execute_pending()
            written = {id(tensor) for tensor in one.written(arguments, keywords)}
            for mine, theirs in there:
                if id(mine) in written:
                    mine.copy_(read_xla([theirs])[0])
            results = [read_xla([each])[0] if isinstance(each, torch.Tensor) else each for each in made]
        if op.unread:
            ours = executed_apart(one, arguments, keywords)
            results = [ours[at] if at in op.unread else each for at, each in enumerate(results)]
        return results

    def called(self, position: int) -> list[LaidOut] | None:
        return None

    def value(self, position: int) -> list[torch.Tensor] | None:
        self._read()
        return self._values.value(position)

    def recompiled(self, tape: Tape, spec: ModeSpec, own: ModeSpec) -> dict[str, torch.Tensor]:
        raise NotReplayable("a step of torch_xla is not compiled anew in another mode")


def _on_xla(value: torch.Tensor) -> torch.Tensor:
    """A tensor on the device. One whose dimensions lie in another order is turned there, as it is in the graph: XLA has
    other code for the product with a transposed matrix."""
    strides = value.stride()
    order = sorted(range(value.dim()), key=lambda at: -strides[at])
    turned = value.permute(order)
    if value.is_contiguous() or not turned.is_contiguous():
        return value.to("xla")
    return turned.to("xla").permute([order.index(at) for at in range(value.dim())])
