"""The records of a step tape: what one training step did, as calls of ops on views of storages.

A storage is known by its slot, a number; an argument or output that is a tensor is a view of a slot. So
aliasing and ops in place need no care, and what only makes another view computes nothing.

    >>> weight = torch.tensor([1.0, 2.0], requires_grad=True)
    >>> def recorded_step(work):
    ...     recorder = TapeRecorder(0, "train.py", modules=False)
    ...     recorder.start()
    ...     loss = work(weight).sum()
    ...     recorder.watch("loss", loss)
    ...     recorder.watch("gradient 0 weight", torch.autograd.grad(loss, weight)[0])
    ...     recorder.stop()
    ...     return recorder.tape()
    >>> for call in recorded_step(lambda weight: 3 * weight).calls:
    ...     taken = [one.slot if isinstance(one, View) else one for one in call.arguments]
    ...     print(call.phase, call.op, taken, "gives", [one.slot for one in call.outputs], call.fresh)
    forward aten.mul.Tensor [0, 3] gives [1] (True,)
    forward aten.sum.default [1] gives [2] (True,)
    forward aten.ones_like.default [2] gives [3] (True,)
    backward aten.expand.default [3, (2,)] gives [3] (False,)
    backward aten.mul.Tensor [3, 3] gives [4] (True,)

Slot 0 holds the weight, from before the step; expand gives another view of slot 3 and nothing fresh.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch

from .origin import line_of

Phase = Literal["data", "forward", "backward", "optimizer"]
"""`data` is what comes before the step's first forward; `optimizer` everything after a backward."""


SCRATCH = ("empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided")
"""Ops that make memory and no values."""


class NotReplayable(Exception):
    """Why a step cannot be recorded or replayed, in words for the user of the script."""


@dataclass(frozen=True, slots=True)
class View:
    """A tensor as a view of the storage in `slot`; offset and stride count elements."""

    slot: int
    dtype: torch.dtype
    offset: int
    size: tuple[int, ...]
    stride: tuple[int, ...]

    @property
    def extent(self) -> int:
        """How many elements of its storage lie before the end of the view; none of an empty one."""
        if 0 in self.size:
            return 0
        return self.offset + 1 + sum((n - 1) * step for n, step in zip(self.size, self.stride, strict=True))


@dataclass(frozen=True, slots=True, eq=False)
class GeneratorState:
    """A random generator of a device, as it was before a call."""

    device: str
    state: torch.Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Draw:
    """What a random op drew: its outputs, then the arguments that it wrote.

    `states` are those of the default generators that it moved, none where the generator was an argument.
    """

    states: tuple[GeneratorState, ...]
    drawn: tuple[torch.Tensor, ...]


@dataclass(frozen=True, slots=True)
class Slot:
    """A storage: its bytes, its device, and the dtype in which it was first seen."""

    size: int
    device: str
    dtype: torch.dtype


@dataclass(frozen=True, slots=True)
class CompiledNode:
    """A node of a compiled graph. `graph` names the graph ("0 forward": number of the region, phase), `name`
    the node; `origin` is the op that it was decomposed from (`aten.tanh_backward.default`, or its own), and
    calls with one `group` came from one call of that op."""

    graph: str
    name: str
    origin: str
    group: int


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """One op. Lists in its arguments are tuples, tensors are views, generators are their states.

    `outputs` are flat: views, or plain values where the op gave the script a number. `fresh` says of each whether its
    storage begins with this call. `module` is the path from the outermost module that was called, None outside of any.
    `frames` are those of the user's own files, the innermost first, each as `file:line function`: an op of the backward
    has those of the forward whose derivative it is.
    `owners` are the parameters that a call outside of any module is about. `sequence` is the number of the autograd
    node that the call makes or, in the backward, belongs to; those of compiled nodes are negative. `grad` is the grad
    mode. `compiled` says which node of a compiled graph stands behind the call. Where ops are executed later than they
    are called, `iteration` is the pass of the step in which it was called, `order` its place among all that was called,
    and `repeats` the call, by its number, of which this is another execution.
    """

    op: str
    arguments: tuple[Any, ...]
    keywords: Mapping[str, Any]
    outputs: tuple[Any, ...]
    fresh: tuple[bool, ...]
    phase: Phase
    module: str | None
    frames: tuple[str, ...]
    sequence: int | None
    grad: bool
    draw: Draw | None
    owners: tuple[str, ...] = ()
    compiled: CompiledNode | None = None
    iteration: int | None = None
    order: int | None = None
    repeats: int | None = None

    @property
    def name(self) -> str:
        """The op without namespace and overload: `add_` for `aten.add_.Tensor`."""
        return self.op.split(".")[1]

    @property
    def line(self) -> str | None:
        """The innermost line of the user's own files, as `file:line`."""
        return line_of(self.frames[0]) if self.frames else None


@dataclass(frozen=True, slots=True, eq=False)
class Watched:
    """A value that the step is compared by: `view` as it was before the call number `position`."""

    position: int
    name: str
    view: View
    value: torch.Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Tape:
    """One step. `inputs` are the bytes of the storages that came from before it, by slot, in the CPU's memory as all
    values of a tape are; `settings` are what torch
    was set to in it (see `step_settings`). `starts` are views of what it starts from, by the names that are watched at
    its end, where it writes nothing in place: a parameter is another storage then than the one that it was. `given` is
    what the script gave to the first root module that it called, named `argument 0`, `argument 1`: the batch, which
    nothing is compared by. `set_at` are the lines of the script by which settings have the values that they have."""

    step: int
    slots: tuple[Slot, ...]
    inputs: Mapping[int, torch.Tensor]
    calls: tuple[Call, ...]
    watched: tuple[Watched, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)
    starts: Mapping[str, View] = field(default_factory=dict)
    given: tuple[Watched, ...] = ()
    set_at: Mapping[str, str] = field(default_factory=dict)

    def expected(self) -> dict[str, torch.Tensor]:
        """The recorded values by their names."""
        return {one.name: one.value for one in self.watched}

    def without_values(self) -> Tape:
        """Its calls alone: what the step began with and gave takes up most of the memory."""
        return replace(self, inputs={}, watched=(), given=())


def mapped(function: Callable[[Any], Any], value: Any) -> Any:
    """The value with `function` applied to everything in it that is no list; lists become tuples."""
    if isinstance(value, (list, tuple)):
        return tuple(mapped(function, one) for one in value)
    return function(value)


def leaves(value: Any) -> Iterator[Any]:
    """Everything in the value that is no list."""
    if isinstance(value, (list, tuple)):
        for one in value:
            yield from leaves(one)
    else:
        yield value


def views_in(call: Call) -> Iterator[View]:
    """The views that the call takes."""
    for value in (*call.arguments, *call.keywords.values()):
        for leaf in leaves(value):
            if isinstance(leaf, View):
                yield leaf
