"""What stands on the CPU for the tensors of a step in mode `xla`, by torch_xla's numbers for their values."""

from __future__ import annotations

from collections.abc import Callable, Collection

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from ...tape.tape import NotReplayable
from ...torch_private.xla import read_xla, xla_generator_kept
from ...torch_private.xla_tensors import is_pending, xla_value_id
from .executed_again import ExecutedOp, Program, StepCut, ValueNumber

NUMBER = "aten.lift_fresh.default"
"""The op of `torch.tensor(1.0, device="xla")`; what it takes was made without any."""

OVERWRITTEN = 2**40
"""So far apart are the numbers of values that one tensor of torch_xla has had."""


class StepTwins:
    """Those of one step. What the step starts from is read, made an input of the `program` and shown to `seen`."""

    def __init__(self, program: Program, seen: Callable[[torch.Tensor], object]) -> None:
        self.program = program
        self.taking = "the step"
        """The op that is about to be executed."""
        self._seen = seen
        self._twins: dict[ValueNumber, torch.Tensor] = {}
        self._alive: dict[ValueNumber, StorageWeakRef] = {}
        self._written: dict[int, int] = {}

    def number(self, tensor: torch.Tensor) -> ValueNumber:
        """The number of the value that a tensor has now, apart for what was written over it."""
        number = xla_value_id(tensor)
        return number + self._written.get(number, 0) * OVERWRITTEN

    def is_known(self, tensor: torch.Tensor) -> bool:
        """Whether the twin of a tensor can be had: it has one, or its value can be read."""
        return self.number(tensor) in self._twins or not is_pending(tensor)

    def of(self, tensor: torch.Tensor) -> torch.Tensor:
        """The twin of a tensor. Raises NotReplayable where no op was seen that gives it."""
        number = self.number(tensor)
        if number in self._twins:
            return self._twins[number]
        if not is_pending(tensor):
            (value,) = read_xla([tensor.detach()])
            self.program.inputs[number] = value.clone()
        elif self.taking == NUMBER and not tensor.dim():
            # A copy of what torch_xla has as a constant of its graph is read: the constant stays one.
            with xla_generator_kept():
                (value,) = read_xla([tensor.detach().clone()])
            named = {"dtype": value.dtype, "device": torch.device("xla")}
            made = ExecutedOp(torch.ops.aten.scalar_tensor.default, (value.item(),), named, (number,))
            self.program.ops.append(made)
        else:
            raise NotReplayable(
                f"{self.taking} takes a value that torch_xla still has to compute, and no op was seen that gives it: "
                "one from before the step, or of an op that torch_xla has for itself (einsum)"
            )
        self._twins[number] = value
        self._seen(value)
        return value

    def at_end(self, number: ValueNumber, value: torch.Tensor) -> torch.Tensor:
        """The twin of a value that was read when the step had ended, which is the twin where nothing touched it."""
        return self._twins.setdefault(number, value)

    def made(self, tensor: torch.Tensor, twin: torch.Tensor, *, overwrites: bool) -> ValueNumber:
        """Take what an op has given, and the number that it is known by; `overwrites` says that it is an argument of
        the op, written over."""
        if overwrites:
            self._written[xla_value_id(tensor)] = self._written.get(xla_value_id(tensor), 0) + 1
        number = self.number(tensor)
        self._twins[number], self._alive[number] = twin, StorageWeakRef(tensor.untyped_storage())
        return number

    def cut(self, watched: Collection[ValueNumber]) -> None:
        """What was pending has been executed; what nobody holds any more, and is not `watched`, is not met again."""
        for number in [one for one, mark in self._alive.items() if mark.expired()]:
            del self._alive[number]
            if number not in watched:
                del self._twins[number]
        self.program.ops.append(StepCut(frozenset(self._alive)))
