"""A script's calls to numdrift while the script is recorded: its losses, its steps, its phases."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

import torch

from ..hooks.mode_protocol import Mode
from ..observers.values.ended_step import LoggedStep, LoggedValues
from ..records.run.adoption_facts import AdoptionFacts
from ..script.after_step import AfterStep, Waiting, plain_tensors, showing_op, text_of, write_text
from ..tape.origin import script_line
from ..torch_private.dispatching import next_sequence_number, sequence_number

MOST_NODES = 1000
"""The maximum number of graph nodes that are inspected."""


def made_after(border: int, values: Iterable[Any]) -> bool:
    """Return whether these values have autograd graphs whose nodes all have at least the number `border`.

    If so, a forward has begun unnoticed, for example in a function that the script compiles.
    """
    nodes = [value.grad_fn for value in values if isinstance(value, torch.Tensor) and value.grad_fn is not None]
    waiting, visited = list(nodes), set(nodes)
    for node in waiting:  # grows during the loop
        # Autograd numbers its nodes in the order of creation: a node with a number below the border belongs to the
        # previous step.
        number = sequence_number(node)
        if number is not None and number < border:
            return False
        for following, _ in node.next_functions:
            if following is not None and following not in visited and len(visited) < MOST_NODES:
                visited.add(following)
                waiting.append(following)
    return bool(nodes)


class TrainingSteps(Protocol):
    """Counts the steps of the training, and records notices."""

    step: int

    def end_step(self) -> None:
        """End the current step."""

    def notice(self, text: str) -> None:
        """Record a notice for the reader of the run."""


class ScriptWords:
    """Receives one script's calls to numdrift (see `script/script_api.py`).

    steps_are_own: true once the script itself has begun to mark the ends of its steps
    logged: the values that the script logged
    after_step: the values that the script prints, or passes to a function, once the step has been executed
    named_phases: the phases that the script has entered and not yet left, innermost last
    anything_seen: returns whether anything of the current step has been seen
    hears_phases: called as `hears_phases(name, begins=...)` when the script enters or leaves a phase
    """

    def __init__(
        self,
        steps: TrainingSteps,
        mode: Mode,
        facts: AdoptionFacts,
        script: str,
        guard: AbstractContextManager[None],
        anything_seen: Callable[[], bool],
    ) -> None:
        self.logged = LoggedValues(facts.doubt)
        self.steps_are_own = False
        self._steps = steps
        self._mode = mode
        self.named_phases: list[str] = []
        self._facts = facts
        self._script = script
        self._guard = guard
        self._seen = anything_seen
        self._heard = False
        self._border = 0
        self._hears: Callable[[Mapping[str, Any]], None] | None = None
        self.hears_phases: Callable[..., Any] | None = None
        self._hears_closure: Callable[..., None] | None = None
        self._show_op = showing_op() if "torch._dynamo" in sys.modules else None
        self.after_step = AfterStep(mode, steps.notice)

    @property
    def device(self) -> str:
        return self._mode.device

    def take(self) -> tuple[LoggedStep, ...]:
        """End a step. Return the values logged since the previous step ended."""
        self._border = next_sequence_number()
        self._heard = False
        return self.logged.take()

    def log(self, values: Mapping[str, Any]) -> None:
        if self._hears is None and "torch._dynamo" in sys.modules:
            # In a function that the script compiles, the graph breaks here, and `_hear` is not traced.
            self._hears = torch.compiler.disable(self._hear)
        hear = self._hears or self._hear
        hear(values)

    def _hear(self, values: Mapping[str, Any]) -> None:
        with self._guard:
            # A value that is logged after a step's end and before anything of the next step is seen belongs to the
            # ended step, unless the value's graph shows that a forward has begun.
            unseen = not self._begun() and self._steps.step > 0 and not self.steps_are_own
            late = unseen and not made_after(self._border, values.values())
            self.logged.add(self._steps.step - late, values)
            self._heard = self._heard or not late
            if "loss" in values:
                self._facts.note("loss", "the script logs it (numdrift.log)", script_line(self._script) or "")

    def _begun(self) -> bool:
        return self._heard or self._seen()

    def own_steps(self) -> None:
        with self._guard:
            if not self.steps_are_own:
                self.steps_are_own = True
                self._facts.note("step", "the script marks the ends of its steps", script_line(self._script) or "")

    def end_step(self) -> None:
        first = not self.steps_are_own
        self.own_steps()
        if first and not self._begun():
            return  # before the training, or right after an optimizer's `step()`, which has already ended the step
        self._steps.end_step()

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        self.named_phases.append(name)
        heard = None if torch.compiler.is_compiling() else self.hears_phases  # a call would break the function's graph
        if heard is not None:
            heard(name, begins=True)
        try:
            yield
        finally:
            self.named_phases.pop()
            if heard is not None:
                heard(name, begins=False)

    def show(self, values: Sequence[Any], sep: str, end: str) -> None:
        tensors: list[torch.Tensor] = []
        text = text_of(values, tensors, sep, end)
        if torch.compiler.is_compiling():
            if self._show_op is not None:
                self._show_op(tensors, text)
        else:
            self._wait(plain_tensors(tensors), functools.partial(write_text, text))

    def show_copies(self, values: Sequence[torch.Tensor], text: str) -> None:
        self.after_step.add(Waiting(values, functools.partial(write_text, text)), between=False)

    def run_after_step(self, closure: Callable[..., Any], values: Sequence[Any]) -> None:
        if self._hears_closure is None and "torch._dynamo" in sys.modules:
            self._hears_closure = torch.compiler.disable(self._hear_closure)
        hear = self._hears_closure or self._hear_closure
        hear(closure, values)

    def _hear_closure(self, closure: Callable[..., Any], values: Sequence[Any]) -> None:
        tensors = plain_tensors([value for value in values if isinstance(value, torch.Tensor)])

        def call(read: Sequence[torch.Tensor]) -> None:
            following = iter(read)
            closure(*(next(following) if isinstance(value, torch.Tensor) else value for value in values))

        self._wait(tensors, call)

    def _wait(self, tensors: Sequence[torch.Tensor], does: Callable[[Sequence[torch.Tensor]], None]) -> None:
        between = self._steps.step > 0 and not self._begun() and not made_after(self._border, tensors)
        self.after_step.add(Waiting(tensors, does), between=between)

    def mark_step(self) -> None:
        self._mode.mark_step()
