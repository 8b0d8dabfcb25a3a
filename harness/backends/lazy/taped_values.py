"""The values of the lazy core, and the tensors that represent them on the tape of a step."""

from __future__ import annotations

import torch

from ...tape.recording.call_log import CallLog
from ...tape.replaying.replay import is_same
from ...tape.storages import bytes_of_storage
from ...tape.tape import NotReplayable
from ...torch_private.deferred.lazy import lazy_has_value, lazy_tensor_id, pending_data
from ...torch_private.dispatching import storage_address
from ...torch_private.profiling.lazy_work import functional_tensors


class TapedValues:
    """The memory that represents each value on the tape, by the address of the core's memory for that value.

    Both blocks of memory are kept alive, so that no other storage gets their addresses.

    A number may differ from its representative by rounding: TorchScript optimises a graph that it executes for the
    third time, for example by making one product of several. The tape then holds what the graph's ops compute one by
    one. The localizer measures how far its results are from those of the step.
    """

    def __init__(self, log: CallLog) -> None:
        self._log = log
        self._storages: dict[int, torch.UntypedStorage] = {}
        self._alone: dict[int, torch.Tensor] = {}
        self._kept: list[torch.Tensor] = []

    def has_value(self, tensor: torch.Tensor) -> bool:
        """Return whether the core or the tape has a lazy tensor's value."""
        return lazy_tensor_id(tensor) in self._alone or lazy_has_value(tensor)

    def real(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the core's own value of a lazy tensor that has one. Raise NotReplayable if it cannot be read."""
        data = pending_data(functional_tensors([tensor]))
        if len(data) != 1:
            raise NotReplayable("a value of the lazy core cannot be read")
        return data[0][1]

    def of(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the tensor that represents a lazy tensor on the tape. The lazy tensor must have a value."""
        alone = self._alone.get(lazy_tensor_id(tensor))
        return self.standing_for(self.real(tensor)) if alone is None else alone

    def standing_for(self, real: torch.Tensor) -> torch.Tensor:
        """Return the tensor that represents a value of the core on the tape. A new value is an input of the step."""
        address = storage_address(real)
        if address not in self._storages:
            self._kept.append(real)
            self._storages[address] = bytes_of_storage(real).clone().untyped_storage()
        taped = torch.empty(0, dtype=real.dtype)
        taped.set_(self._storages[address], real.storage_offset(), real.size(), real.stride())
        self._log.table.view(taped, is_input=True)
        return taped

    def adopt(self, result: torch.Tensor, real: torch.Tensor, maker: str) -> None:
        """Let a result on the tape represent the core's value `real`.

        Raise NotReplayable if they have other layouts, or if they differ and are not numbers that rounding may change.
        """
        alike = result.shape == real.shape and result.stride() == real.stride() and result.dtype == real.dtype
        may_be_rounded = real.is_floating_point() and torch.equal(result.isfinite(), real.isfinite())
        if not alike or not (may_be_rounded or is_same(result.detach(), real)):
            raise NotReplayable(f"{maker} returned values other than those of its ops")
        self._kept += [real, result]
        self._storages[storage_address(real)] = result.untyped_storage()

    def adopt_alone(self, root: torch.Tensor, result: torch.Tensor, copied: torch.Tensor) -> None:
        """Adopt the result of an execution that was made only for a copy to the CPU.

        The core does not replace the node that computes such a value, so a later graph executes the node again.
        """
        if copied.dtype == result.dtype:
            self.adopt(result, copied, "a graph")
        self._kept.append(result)
        self._alone[lazy_tensor_id(root)] = result
