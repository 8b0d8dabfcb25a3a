"""The losses of a training script and, if it has no optimizer, its parameters and the ends of its steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ..errors import AdoptionError
from ..hooks.audience import Guard
from ..records.run.adoption_facts import AdoptionFacts
from ..tape.files.journal_writing import EventLog
from ..tape.origin import script_line
from ..torch_private.untraced import transformation_level
from .named_tensors import OPTIMIZED, TrainingTensors
from .script_losses import Found, Function, ScaledLosses, StepLosses, differentiates_parameters, tensors_in
from .without_optimizer import TrainingByHand, plain_losses, tree_names

WHERE: Mapping[Found, str] = {
    "logged": "the value that the script logs",
    "backward": "the tensor that backward() starts from",
    "gradient": "the tensor that torch.autograd.grad() differentiates",
    "function": "the result of the function that torch.func differentiates",
}


class LossRecording:
    """Receives reports of gradients that are computed.

    adopt: lets the mode replace a function that torch.func differentiates
    changed: called when the training's tensors are no longer the same ones
    end_step: called when a forward begins after a backward, if the script creates no optimizer
    optimized: true once the script has created an optimizer
    found: true once a loss has been found
    seen: true if anything of the current step has been seen
    """

    def __init__(
        self,
        script: str,
        training: TrainingTensors,
        log: EventLog,
        facts: AdoptionFacts,
        adopt: Callable[[Function], Function | None] | None,
        failed: Callable[[str, Exception], None],
        changed: Callable[[], None],
        end_step: Callable[[], None],
    ) -> None:
        self.optimized = self.seen = False
        self._script = script
        self._training = training
        self._log = log
        self._facts = facts
        self._adopt = adopt
        self._failed = failed
        self._changed = changed
        self._end_step = end_step
        self._losses = StepLosses()
        self._scaled = ScaledLosses()
        self._by_hand = TrainingByHand(training)
        self.found = self._stopped = False

    def stop(self) -> None:
        """Stop recording."""
        self._stopped = True
        self._losses.take()

    def forward_begins(self) -> None:
        """Prepare for the call of a root module, or of a function to be differentiated."""
        # Without an optimizer, only the beginning of the next step shows that a step has ended.
        if not self.optimized and self._losses.any and not transformation_level():
            self._end_step()
        self.seen = True

    def backward_started(self, losses: Sequence[torch.Tensor], origin: Found) -> list[torch.Tensor]:
        """Record that a backward starts from these tensors. Return the script's losses, without a scaler's factor."""
        self.forward_begins()
        if self._stopped:
            return []
        started = list(losses)
        with self._guard("recording the loss"):
            started = self._scaled.unscaled(losses)
            self._add(origin, started)
        if not self.optimized:
            with self._guard("finding the parameters"):
                self._tell(self._by_hand.backward_started(losses))
        return started

    def replaces_backward(self, outputs: Any, inputs: Any, arguments: Mapping[str, Any]) -> bool:
        return differentiates_parameters(outputs, inputs, arguments, plain=not self.optimized)

    def function_called(self, arguments: Sequence[Any]) -> None:
        # The names come first, so that the step that ends here is recorded with the parameters that it has produced.
        with self._guard("finding the parameters"):
            if not self.optimized:
                self._tell(self._by_hand.function_called(arguments))
        self.forward_begins()

    def adopted(self, function: Function) -> Function | None:
        return None if self._adopt is None else self._adopt(function)

    def function_returned(self, arguments: Sequence[Any], gradients: Any, loss: Any) -> None:
        with self._guard("recording the gradients"):
            if isinstance(loss, torch.Tensor):
                self._add("function", [loss])
            # `arguments` and `gradients` have the same structure: a gradient for each tensor among the arguments.
            inputs, results = ([tensor for _, tensor in tree_names(list(tree))] for tree in (arguments, [gradients]))
            self._by_hand.gradients_taken(inputs, results)

    def gradients_taken(self, outputs: Any, inputs: Any, results: Sequence[Any]) -> None:
        with self._guard("recording the gradients"):
            losses = plain_losses(tensors_in(outputs))
            if losses:
                self._add("function", losses)
            self._by_hand.gradients_taken(tensors_in(inputs), results)

    def loss_scaled(self, losses: Any, results: Any) -> None:
        with self._guard("recording the loss"):
            self._scaled.scaled(losses, results)

    def optimizer_steps(self) -> None:
        """Name the parameters that are known only from an optimizer, before the optimizer steps."""
        with self._guard("finding the parameters"):
            unnamed = [entry.tensor for entry in self._training.named() if entry.name.startswith(OPTIMIZED)]
            self._tell(bool(unnamed) and self._by_hand.find_parameters(unnamed))

    def script_ended(self) -> None:
        """End the last step, because no next step has shown its end."""
        with self._guard("finding the parameters"):
            self._tell(self._by_hand.script_ended())
        self.forward_begins()

    def take(self) -> tuple[torch.Tensor, ...]:
        """End a step. Return the step's losses and forget them."""
        self.seen = False
        return self._losses.take()

    def take_gradients(self) -> dict[str, torch.Tensor]:
        """End a step. Return the gradients that are in no `.grad`, by the parameters' names."""
        return self._by_hand.take_gradients()

    def _add(self, origin: Found, losses: Sequence[torch.Tensor]) -> None:
        if self._stopped:
            return
        if not self.found:
            self.found = True
            source = script_line(self._script) or ""
            self._log.write("loss", source=source, found=origin)
            self._facts.note("loss", WHERE[origin], source)
        self._losses.add(origin, losses)

    def _tell(self, changed: bool) -> None:
        if changed:
            self._changed()

    def _guard(self, doing: str) -> Guard:
        return Guard(self._failed, doing)


def require_device(losses: Sequence[torch.Tensor], device: str, training: TrainingTensors) -> None:
    """Refuse a script without modules if its loss is not on the mode's device: it would run in a different mode.

    Raises AdoptionError.
    """
    kind = device.partition(":")[0]
    elsewhere = next((loss.device.type for loss in losses if loss.device.type != kind), None)
    if elsewhere is not None and not training.root_classes():
        raise AdoptionError(
            f"the loss is on {elsewhere}, but this mode runs on {kind}, and there is no model to move there: "
            'let the script take the device from os.environ["DEVICE"]'
        )
