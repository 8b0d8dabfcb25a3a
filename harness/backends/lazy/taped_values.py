"""The values of the lazy core, and what stands for each of them on the tape of a step."""

from __future__ import annotations

import torch

from ...tape.call_log import CallLog
from ...tape.replay import is_same
from ...tape.storages import bytes_of_storage
from ...tape.tape import NotReplayable
from ...torch_private.dispatching import storage_address
from ...torch_private.lazy import lazy_has_value, lazy_tensor_id, pending_data
from ...torch_private.lazy_work import functional_tensors


class TapedValues:
    """By the memory in which the core has a value, the memory that stands for it on the tape. Both are kept, so that no
    address of theirs is given to another storage."""

    def __init__(self, log: CallLog) -> None:
        self._log = log
        self._known: dict[int, torch.UntypedStorage] = {}
        self._alone: dict[int, torch.Tensor] = {}
        self._kept: list[torch.Tensor] = []

    def has_value(self, tensor: torch.Tensor) -> bool:
        """Whether a lazy tensor's value is there, or on the tape."""
        return lazy_tensor_id(tensor) in self._alone or lazy_has_value(tensor)

    def real(self, tensor: torch.Tensor) -> torch.Tensor:
        """The core's own value of a lazy tensor that has one. Raises NotReplayable."""
        found = pending_data(functional_tensors([tensor]))
        if len(found) != 1:
            raise NotReplayable("a value of the lazy core cannot be read")
        return found[0][1]

    def of(self, tensor: torch.Tensor) -> torch.Tensor:
        """What stands on the tape for a lazy tensor that has a value."""
        alone = self._alone.get(lazy_tensor_id(tensor))
        return self.standing_for(self.real(tensor)) if alone is None else alone

    def standing_for(self, real: torch.Tensor) -> torch.Tensor:
        """What stands on the tape for a value of the core's; a new one is an input of the step."""
        address = storage_address(real)
        if address not in self._known:
            self._kept.append(real)
            self._known[address] = bytes_of_storage(real).clone().untyped_storage()
        found = torch.empty(0, dtype=real.dtype)
        found.set_(self._known[address], real.storage_offset(), real.size(), real.stride())
        self._log.table.view(found, is_input=True)
        return found

    def adopt(self, mine: torch.Tensor, real: torch.Tensor, what: str) -> None:
        """Let a result on the tape stand for the one that the core has. Raises NotReplayable where it is another."""
        if mine.shape != real.shape or mine.stride() != real.stride() or not is_same(mine.detach(), real):
            raise NotReplayable(f"{what} gave other values than its ops give")
        self._kept += [real, mine]
        self._known[storage_address(real)] = mine.untyped_storage()

    def adopt_alone(self, root: torch.Tensor, mine: torch.Tensor, copied: torch.Tensor) -> None:
        """The same of what was executed for a copy to the CPU alone: the core keeps such a value beside the node that
        computes it, which a later graph executes again."""
        if copied.dtype == mine.dtype:
            self.adopt(mine, copied, "a graph")
        self._kept.append(mine)
        self._alone[lazy_tensor_id(root)] = mine
