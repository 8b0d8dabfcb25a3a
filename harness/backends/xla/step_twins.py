"""CPU twins of the tensors of a step in mode `xla`, by torch_xla's numbers for the tensors' values."""

from __future__ import annotations

from collections.abc import Callable, Collection

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from ...tape.tape import NotReplayable
from ...torch_private.deferred.xla import read_xla, xla_generator_kept
from ...torch_private.deferred.xla_tensors import is_pending, xla_value_id
from .executed_again import ExecutedOp, Program, StepCut, ValueNumber

NUMBER = "aten.lift_fresh.default"
"""The op of `torch.tensor(1.0, device="xla")`. No op makes the argument of this op."""

OVERWRITTEN = 2**40
"""The distance between the numbers of successive values of one torch_xla tensor."""


class StepTwins:
    """The twins of one step.

    A value that the step starts from is read, becomes an input of the `program`, and is passed to `seen`.
    """

    def __init__(self, program: Program, seen: Callable[[torch.Tensor], object]) -> None:
        self.program = program
        self.taking = "the step"
        """The op that is about to be executed."""
        self._seen = seen
        self._twins: dict[ValueNumber, torch.Tensor] = {}
        self._alive: dict[ValueNumber, StorageWeakRef] = {}
        self._written: dict[int, int] = {}

    def number(self, tensor: torch.Tensor) -> ValueNumber:
        """Return the number of a tensor's current value. A value written over an earlier one has its own number."""
        number = xla_value_id(tensor)
        return number + self._written.get(number, 0) * OVERWRITTEN

    def is_known(self, tensor: torch.Tensor) -> bool:
        """Return whether the tensor has a twin, or its value can be read to make one."""
        return self.number(tensor) in self._twins or not is_pending(tensor)

    def of(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the twin of a tensor. Raise NotReplayable if the op that returned it was not observed."""
        number = self.number(tensor)
        if number in self._twins:
            return self._twins[number]
        if not is_pending(tensor):
            (value,) = read_xla([tensor.detach()])
            self.program.inputs[number] = value.clone()
        elif self.taking == NUMBER and not tensor.dim():
            # Read a copy, so that the value remains a constant of torch_xla's graph.
            with xla_generator_kept():
                (value,) = read_xla([tensor.detach().clone()])
            keywords = {"dtype": value.dtype, "device": torch.device("xla")}
            op = ExecutedOp(torch.ops.aten.scalar_tensor.default, (value.item(),), keywords, (number,))
            self.program.ops.append(op)
        else:
            raise NotReplayable(
                f"{self.taking} takes a value that torch_xla has not computed yet and that no observed op returned: it "
                "comes from before the step, or from an op that only torch_xla has (einsum)"
            )
        self._twins[number] = value
        self._seen(value)
        return value

    def at_end(self, number: ValueNumber, value: torch.Tensor) -> torch.Tensor:
        """Return the twin of a value that was read after the step. It is its own twin if no op took or returned it."""
        return self._twins.setdefault(number, value)

    def made(self, tensor: torch.Tensor, twin: torch.Tensor, *, overwrites: bool) -> ValueNumber:
        """Record the twin of a result and return the number of the result.

        `overwrites` is true if the op has written the result over one of its arguments.
        """
        if overwrites:
            self._written[xla_value_id(tensor)] = self._written.get(xla_value_id(tensor), 0) + 1
        number = self.number(tensor)
        self._twins[number], self._alive[number] = twin, StorageWeakRef(tensor.untyped_storage())
        return number

    def cut(self, watched: Collection[ValueNumber]) -> None:
        """Record that all pending work was executed. Drop the twins of released values that are not `watched`."""
        for number in [expired for expired, storage in self._alive.items() if storage.expired()]:
            del self._alive[number]
            if number not in watched:
                del self._twins[number]
        self.program.ops.append(StepCut(frozenset(self._alive)))
