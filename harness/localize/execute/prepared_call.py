"""A call with the arguments on which it is to be executed, and the kernels that execute it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch

from ...tape.replaying.laid_out import LaidOut
from ...tape.replaying.replay import executed
from ...tape.tape import leaves, mapped, views_in
from ..align.storage_flow import FlowNode


@dataclass(frozen=True, slots=True, eq=False)
class PreparedCall:
    """A node with the arguments on which it is to be executed; `number` is the node's number on its side."""

    number: int
    node: FlowNode
    arguments: tuple[Any, ...]
    keywords: Mapping[str, Any]

    @property
    def tensors(self) -> list[torch.Tensor]:
        """The tensors among the arguments, in the order of the call's views."""
        flat = (leaf for value in (*self.arguments, *self.keywords.values()) for leaf in leaves(value))
        return [leaf for leaf in flat if isinstance(leaf, torch.Tensor)]

    @property
    def written(self) -> list[torch.Tensor]:
        """The tensors among the arguments that the call writes."""
        return self.node.execution.written(self.arguments, self.keywords)

    @property
    def is_laid_out_as_recorded(self) -> bool:
        """True if the tensors have the layouts of the recorded call's tensors."""
        pairs = zip(self.tensors, views_in(self.node.call), strict=True)
        return all(LaidOut.of(tensor) == LaidOut.of(view) for tensor, view in pairs)

    def with_tensors(self, changed: Callable[[torch.Tensor], torch.Tensor]) -> PreparedCall:
        """Return the call with each of its tensors changed, in their order."""

        def value(argument: Any) -> Any:
            return changed(argument) if isinstance(argument, torch.Tensor) else argument

        arguments: tuple[Any, ...] = mapped(value, self.arguments)
        keywords = {name: mapped(value, argument) for name, argument in self.keywords.items()}
        return replace(self, arguments=arguments, keywords=keywords)

    def execute(self) -> list[Any]:
        """Execute the call with this process's kernel, and return its flat outputs."""
        return executed(self.node.execution, self.arguments, self.keywords)

    def results(self, outputs: Sequence[Any]) -> list[torch.Tensor]:
        """Return those of the outputs that are fresh, followed by the written arguments."""
        fresh = [output for made, output in zip(self.node.makes, outputs, strict=True) if made is not None]
        return [*fresh, *self.written]

    def write(self, contents: Sequence[torch.Tensor]) -> None:
        """Write these contents to the arguments that the call writes."""
        for tensor, content in zip(self.written, contents, strict=True):
            tensor.copy_(content)


@dataclass(frozen=True, slots=True, eq=False)
class RecordedResults:
    """The results of a call in its real execution.

    inputs: the digests of the call's inputs.
    values: the call's fresh outputs, then its written arguments.
    distances: for a node that goes astray, the distances of the values from those that its kernel computes alone.
    """

    inputs: Sequence[str]
    values: Sequence[torch.Tensor]
    distances: Sequence[torch.Tensor] = ()

    def outputs(self, call: PreparedCall) -> list[Any]:
        """Return the outputs of the call, and write its written arguments."""
        values = iter(self.values)
        outputs: list[Any] = [next(values).clone() if made is not None else None for made in call.node.makes]
        call.write(list(values))
        return outputs


class Kernels(Protocol):
    """The kernels with which one side executes its calls."""

    def execute(self, call: PreparedCall) -> list[Any]:
        """Execute a call on its arguments, some of which it may write, and return its flat outputs."""


class PlainKernels:
    """This process's own kernels."""

    def execute(self, call: PreparedCall) -> list[Any]:
        return call.execute()
