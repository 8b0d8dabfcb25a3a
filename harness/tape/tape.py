"""The records of a step tape: one training step, as calls of ops on views of storages.

A storage is identified by a number, its slot. A tensor among arguments or outputs is a view of a slot. Aliasing and
in-place ops therefore need no special treatment, and a call that only creates another view computes nothing.

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
    ...     arguments = [value.slot if isinstance(value, View) else value for value in call.arguments]
    ...     print(call.phase, call.op, arguments, "->", [view.slot for view in call.outputs], call.fresh)
    forward aten.mul.Tensor [0, 3] -> [1] (True,)
    forward aten.sum.default [1] -> [2] (True,)
    forward aten.ones_like.default [2] -> [3] (True,)
    backward aten.expand.default [3, (2,)] -> [3] (False,)
    backward aten.mul.Tensor [3, 3] -> [4] (True,)

Slot 0 holds the weight, which exists before the step. `expand` returns another view of slot 3, so its output is not
fresh.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch

from .origin import line_of

Phase = Literal["data", "forward", "backward", "optimizer"]
"""The phase of a call: `data` precedes the step's first forward, `optimizer` is everything after a backward."""


SCRATCH = ("empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided")
"""Ops that allocate memory without values."""


class NotReplayable(Exception):
    """Raised for a step that cannot be recorded or replayed, with the reason in words for the user."""


def in_words(error: Exception) -> str:
    """Return an exception as one line of text."""
    first = (str(error).splitlines() or [""])[0]
    return first if isinstance(error, NotReplayable) else f"{type(error).__name__}: {first}".rstrip(": ")


@dataclass(frozen=True, slots=True)
class View:
    """A tensor as a view of the storage in `slot`; offset and stride are in elements."""

    slot: int
    dtype: torch.dtype
    offset: int
    size: tuple[int, ...]
    stride: tuple[int, ...]

    @property
    def extent(self) -> int:
        """The number of the storage's elements up to the end of the view, 0 for an empty view."""
        if 0 in self.size:
            return 0
        return self.offset + 1 + sum((n - 1) * step for n, step in zip(self.size, self.stride, strict=True))


@dataclass(frozen=True, slots=True, eq=False)
class GeneratorState:
    """The state of a device's random generator before a call."""

    device: str
    state: torch.Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Draw:
    """The values that a random op drew: its outputs, then the arguments that it wrote.

    `states` are the states of the default generators that the op advanced, none if its generator was an argument.
    """

    states: tuple[GeneratorState, ...]
    drawn: tuple[torch.Tensor, ...]


@dataclass(frozen=True, slots=True)
class Slot:
    """A storage: its size in bytes, its device, and the dtype in which it was first seen."""

    size: int
    device: str
    dtype: torch.dtype


@dataclass(frozen=True, slots=True)
class CompiledNode:
    """A node of a compiled graph.

    graph: the name of the graph, which is the number of its region and its phase, such as "0 forward"
    name: the name of the node
    origin: the op from which the node was decomposed (`aten.tanh_backward.default`), or the node's own op
    group: a number that all nodes from one call of `origin` share
    """

    graph: str
    name: str
    origin: str
    group: int


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """A call of an op. In its arguments, tuples replace lists, views replace tensors, and states replace generators.

    outputs: a flat list of views, and of plain values if the op returned a number to the script
    fresh: for each output, whether this call creates its storage
    module: the path of the calling module within the outermost module that was called, None outside of any module
    frames: the frames of the user's own files, innermost first, each as `file:line function`; an op of the backward has
        the frames of the forward op whose derivative it is
    owners: the parameters that a call outside of any module concerns
    sequence: the number of the autograd node that the call creates or, in the backward, belongs to; the numbers of
        compiled nodes are negative
    grad: the grad mode
    compiled: the node of a compiled graph that the call represents

    The other fields are for ops that are executed some time after they are called:
    iteration: the number of the forward and backward pass, within the step, in which the op was called
    order: the index of the call in the order in which the step called its ops
    repeats: the position of the call that this call executes again

    settled: for a call that does not repeat, the results that an unchanged replay takes over from the tape (see
        `replaying.settling`): its fresh outputs, then the arguments that it has written
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
    settled: tuple[torch.Tensor, ...] | None = None

    @property
    def name(self) -> str:
        """The name of the op without namespace and overload: `add_` for `aten.add_.Tensor`."""
        return self.op.split(".")[1]

    @property
    def line(self) -> str | None:
        """The innermost line of the user's own files, as `file:line`."""
        return line_of(self.frames[0]) if self.frames else None


@dataclass(frozen=True, slots=True, eq=False)
class Watched:
    """A value that is compared between executions of the step: the content of `view` before call number `position`."""

    position: int
    name: str
    view: View
    value: torch.Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Tape:
    """One recorded step.

    inputs: the bytes of the storages that exist before the step, by slot; all values of a tape are in the CPU's memory
    settings: the settings of torch in the step (see `step_settings`)
    set_at: the lines of the script that set the settings
    batch: the arguments of the first root module that the script called, named `argument 0`, `argument 1`; they are not
        compared
    starts: views of the values at the start of the step, by the names under which the values at its end are watched.
        Set only for a step that writes nothing in place, since its updated parameters are in different storages.
    """

    step: int
    slots: tuple[Slot, ...]
    inputs: Mapping[int, torch.Tensor]
    calls: tuple[Call, ...]
    watched: tuple[Watched, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)
    starts: Mapping[str, View] = field(default_factory=dict)
    batch: tuple[Watched, ...] = ()
    set_at: Mapping[str, str] = field(default_factory=dict)

    def expected(self) -> dict[str, torch.Tensor]:
        """Return the watched values by their names."""
        return {watched.name: watched.value for watched in self.watched}

    def without_values(self) -> Tape:
        """Return the tape without its values, which use most of the memory."""
        return replace(self, inputs={}, watched=(), batch=())


def mapped(function: Callable[[Any], Any], value: Any) -> Any:
    """Return the value with `function` applied to everything in it except lists; lists become tuples."""
    if isinstance(value, (list, tuple)):
        return tuple(mapped(function, item) for item in value)
    return function(value)


def leaves(value: Any) -> Iterator[Any]:
    """Yield everything in the value except lists."""
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from leaves(item)
    else:
        yield value


def views_in(call: Call) -> Iterator[View]:
    """Yield the views that the call takes."""
    for value in (*call.arguments, *call.keywords.values()):
        for leaf in leaves(value):
            if isinstance(leaf, View):
                yield leaf
