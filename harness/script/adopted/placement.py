"""Models and tensors that are moved to the mode's device, because the script chose the CPU or no device for them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch.optim.optimizer import Optimizer

from ...errors import AdoptionError
from ...torch_private.accelerators import enter_below, move_in_place, take_out, without_weak_references
from ...torch_private.dispatching import without_function_modes
from ..understood import ScriptNotes
from .meeting import Meeting, moved


class Placement:
    """Moves models to `device` in place. After the first move, it also moves CPU tensors that meet the device's
    tensors."""

    def __init__(self, device: str, notes: ScriptNotes) -> None:
        self.device = device
        self.kind = device.partition(":")[0]
        self._notes = notes
        self._meeting: Meeting | None = None

    def place(self, module: torch.nn.Module, optimizers: Iterable[Optimizer]) -> None:
        """Move a root module to the device before the module's first call. Parameters stay the same objects.

        Raises AdoptionError if the module is on a different device and cannot be moved.
        """
        kinds = {parameter.device.type for parameter in module.parameters()}
        if kinds <= {self.kind}:
            return
        name = type(getattr(module, "_orig_mod", module)).__name__
        if kinds - {self.kind, "cpu"} or self.kind == "cpu":
            raise AdoptionError(
                f"{name} is on {' and '.join(sorted(kinds))}, but this mode runs on {self.kind}: let the script "
                'take the device from os.environ["DEVICE"] and move the model and the data there'
            )
        tensors = [tensor for tensor in [*module.parameters(), *module.buffers()] if tensor.is_cpu]
        with without_weak_references(module):
            self._move(tensors, name, optimizers)
        module.register_forward_pre_hook(MovedArguments(self.device), with_kwargs=True)
        self._notes.note("placement", f"{name} was on cpu and has been moved to {self.kind}")

    def optimizer_made(self, optimizer: Optimizer) -> None:
        """Move the plain tensors of an optimizer, since they belong to no module whose first call would move them."""
        if self.kind == "cpu":
            return
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        plain = [
            parameter
            for parameter in parameters
            if type(parameter) is torch.Tensor and parameter.is_cpu and parameter.is_leaf
        ]
        if plain:
            self._move(plain, "a tensor of the optimizer", [optimizer])
            were, have = ("tensors were", "have") if len(plain) > 1 else ("tensor was", "has")
            self._notes.note("placement", f"{len(plain)} optimizer {were} on cpu and {have} been moved to {self.kind}")

    def meet(self) -> None:
        """From now on, move CPU tensors to the device for each call in which they meet a tensor of the device."""
        if self._meeting is None and self.kind != "cpu":
            self._meeting = Meeting(self.device)
            enter_below(self._meeting)

    def check(self, tensors: Sequence[torch.Tensor]) -> None:
        """Report a doubt if none of these tensors is on the mode's device. Called after the first step."""
        if tensors and all(tensor.device.type != self.kind for tensor in tensors):
            kinds = " and ".join(sorted({tensor.device.type for tensor in tensors}))
            self._notes.doubt(
                f"no parameter is on {self.kind} (all are on {kinds}), so this run does not use its mode's device: "
                'move the tensors to os.environ["DEVICE"]'
            )

    def close(self) -> None:
        if self._meeting is not None:
            take_out(self._meeting)
            self._meeting = None

    def _move(self, tensors: Sequence[torch.Tensor], name: str, optimizers: Iterable[Optimizer]) -> None:
        with without_function_modes(), torch.no_grad():
            for tensor in tensors:
                try:
                    move_in_place(tensor, self.device)
                except (RuntimeError, NotImplementedError) as error:
                    raise AdoptionError(
                        f"{name} is on cpu and cannot be moved to {self.kind} ({str(error).splitlines()[0]}): let the "
                        'script take the device from os.environ["DEVICE"] and move the model and the data there'
                    ) from error
            # The optimizers' state of these tensors is moved too, except for single numbers: step counts stay on the
            # CPU.
            moved_ids = {id(tensor) for tensor in tensors}
            for optimizer in optimizers:
                for parameter, state in optimizer.state.items():
                    if id(parameter) in moved_ids and isinstance(state, dict):
                        for key, value in state.items():
                            if isinstance(value, torch.Tensor) and value.is_cpu and value.dim():
                                state[key] = value.to(self.device)
        self.meet()


class LeftInPlace(Placement):
    """Leaves everything where the script has put it."""

    def place(self, module: torch.nn.Module, optimizers: Iterable[Optimizer]) -> None:
        """Do nothing."""

    def optimizer_made(self, optimizer: Optimizer) -> None:
        """Do nothing."""

    def check(self, tensors: Sequence[torch.Tensor]) -> None:
        """Do nothing."""


class MovedArguments:
    """A forward pre-hook that moves the module's arguments to `device`."""

    def __init__(self, device: str) -> None:
        self._device = device

    def __call__(self, module: torch.nn.Module, args: Any, kwargs: Any) -> tuple[Any, Any]:
        return moved(args, self._device), moved(kwargs, self._device)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        # A saved model may be loaded without numdrift, so a hook that does nothing is saved in place of this one.
        return getattr, (contextlib.nullcontext(), "__exit__")
