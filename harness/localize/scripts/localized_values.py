"""The contents of a block's standalone script: both sides' calls, their inputs and their results."""

from __future__ import annotations

import keyword
import math
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import torch

from ...tape.files.tensor_file import CODES
from ...tape.replaying.in_double import exact_values
from ...tape.replaying.laid_out import ALIGNMENT
from ...tape.replaying.replay import bits_of, set_apart
from ...tape.storages import viewed
from ...tape.tape import Tape, View, in_words
from ..align.storage_flow import SIDES, FlowValue, Side, Use, is_contiguous
from ..causes.examination import Examined, examined_block
from ..causes.suspects import Suspect
from ..errors.local_error import results_of
from ..execute.hybrid import Hybrid, HybridExecution
from ..execute.step_memory import Memory
from ..execute.tape_pair import TapePair


class NotShown(Exception):
    """Raised if a standalone script cannot show a block. The message is the reason."""


@dataclass(frozen=True, slots=True, eq=False)
class ShownBlock:
    """The calls of a block on both sides, executed with side b's values as inputs.

    slices: each side's calls and inputs.
    results: each side's results, in the order of the slices' outputs.
    reference: the side whose calls compute `exact` in double; None if neither side's calls can be executed in double.
    exact: the results in double.
    live: True if plain calls on inputs in double compute `exact`.
    ulps: each side's largest error against `exact`, in ULP.
    by_layout: True if the layouts of the inputs matter.
    """

    slices: Mapping[Side, Tape]
    results: Mapping[Side, Sequence[torch.Tensor]]
    reference: Side | None
    exact: Sequence[torch.Tensor]
    live: bool
    ulps: Mapping[Side, float]
    by_layout: bool = False


def show_blocks(pair: TapePair, suspected: Mapping[int, Suspect]) -> dict[int, ShownBlock | NotShown]:
    """Execute side b once more; return the inputs and results of these blocks, or the reason why they are missing."""
    shown: dict[int, ShownBlock | NotShown] = {}
    with set_apart(pair.devices()):
        execution = HybridExecution(pair, Hybrid("b"))
        for number, before in execution.stops(suspected):
            examined = examined_block(execution, suspected[number], before, kept=True, errors=True)
            shown[number] = _shown(execution, number, examined, before)
    return shown


def _shown(execution: HybridExecution, number: int, examined: Examined, before: Memory) -> ShownBlock | NotShown:
    slices = examined.slices
    if slices is None or any(side not in slices for side in SIDES):
        return NotShown(examined.why or "its inputs cannot be told apart from those of its neighbours")
    fork = before.fork()
    memories: dict[Side, Memory] = {"a": fork, "b": execution.memory}
    try:
        execution.run_as("a", number, fork)
        results = {side: _outputs(execution.pair, number, side, slices[side], memories[side]) for side in SIDES}
    except Exception as error:  # noqa: BLE001, an op may raise anything on values other than its recorded ones
        return NotShown(in_words(error))
    reference, exact, live = _exact(slices)
    ulps = {side: error.ulp for side, error in (examined.errors or {}).items()} if reference else {}
    return ShownBlock(slices, results, reference, exact, live, ulps, bool(examined.relaid))


def _outputs(pair: TapePair, number: int, side: Side, block: Tape, memory: Memory) -> list[torch.Tensor]:
    """Return the side's outputs at the end of the block."""
    flow, home = pair.flows[side], pair.home[side]
    outputs = []
    for watched in block.watched:
        slot = watched.view.slot
        versions = [value.version for value, node in flow.makers.items() if value.slot == slot and home[node] <= number]
        use = Use(watched.view, FlowValue(slot, max(versions, default=0)))
        outputs.append(memory.tensor(side, use).clone())
    return outputs


def _exact(slices: Mapping[Side, Tape]) -> tuple[Side | None, Sequence[torch.Tensor], bool]:
    """Return the first side whose calls can be executed in double, their results, and whether plain calls compute
    these."""
    for side in SIDES:
        block = slices[side]
        with suppress(Exception):  # an op may raise anything on doubles
            if block.calls:
                values, not_exact = exact_values(block)
                drawn = any(call.draw is not None for call in block.calls)
                return side, results_of(values), not drawn and not not_exact
    return None, (), False


# The tensors of a standalone script: their names in its file, and their views as code

RESERVED = re.compile(r"_.*|[gt]\d+|torch|json|math|sys|Path|DTYPES|DEVICES|load|error|bits|exact|side_[ab]|held")
"""Names that scripts use for other things."""

CALLED = {"self": "x"}
"""Names to use in place of an argument's name in the schema."""


@dataclass(frozen=True, slots=True)
class ScriptTensor:
    """A tensor of the script with its layout.

    `offset` and `stride` count elements of the recorded storage. `start` is the element of the recorded storage at
    which the script's storage begins.
    """

    name: str
    dtype: torch.dtype
    offset: int
    size: tuple[int, ...]
    stride: tuple[int, ...]
    start: int = 0

    def text(self, view: View) -> str:
        """Return a view of the tensor as code."""
        if view.dtype != self.dtype:
            raise NotShown(f"the bytes of a {self.dtype} tensor are also used as {view.dtype}")
        own_layout, view_layout = (self.offset, self.size, self.stride), (view.offset, view.size, view.stride)
        if own_layout == view_layout:
            return self.name
        if (
            len(self.size) == 2
            and view_layout == (self.offset, self.size[::-1], self.stride[::-1])
            and 0 not in self.size
        ):
            return f"{self.name}.t()"
        is_whole = math.prod(self.size) == math.prod(view.size) and self.offset == view.offset
        if is_whole and is_contiguous(self.size, self.stride) and is_contiguous(view.size, view.stride):
            return f"{self.name}.view({view.size})"
        return f"{self.name}.as_strided({view.size}, {view.stride}, {view.offset - self.start})"


class Values:
    """The tensors of a script's file."""

    def __init__(self) -> None:
        self.tensors: dict[str, torch.Tensor] = {}
        self.devices: dict[str, str] = {}

    def add(self, wish: str, tensor: torch.Tensor, used: Sequence[str] = ()) -> str:
        """Add a tensor and return its name, `wish` if possible.

        If there already is a tensor with the same bits whose name is not in `used`, return its name and add nothing.
        """
        if tensor.dtype not in CODES:
            raise NotShown(f"it takes or returns {tensor.dtype}, which the script's file cannot hold")
        device = str(tensor.device)
        for name, stored in self.tensors.items():
            is_alike = self.devices[name] == device and stored.dtype == tensor.dtype and stored.shape == tensor.shape
            # compare bits, because NaN is unequal to itself and -0.0 equals 0.0
            if name not in used and is_alike and torch.equal(bits_of(stored), bits_of(tensor.cpu())):
                return name
        stem = CALLED.get(wish, wish)
        plain = stem.isidentifier() and stem.isascii() and not keyword.iskeyword(stem) and len(stem) <= 40
        stem = "tensor" if not plain or RESERVED.fullmatch(stem) else stem
        name, number = stem, 2
        while name in self.tensors:
            name, number = f"{stem}_{number}", number + 1
        self.tensors[name], self.devices[name] = tensor.cpu(), device
        return name

    @property
    def size(self) -> int:
        """The size in bytes."""
        return sum(tensor.numel() * tensor.itemsize for tensor in self.tensors.values())


def base_of(data: torch.Tensor, views: Sequence[View], *, aligned: bool = False) -> tuple[ScriptTensor, torch.Tensor]:
    """Return a contiguous tensor, not yet named, for all these views of a storage's bytes; also return its content.

    The tensor's memory begins at a multiple of ALIGNMENT bytes. With `aligned`, the address of each view modulo
    ALIGNMENT is the recorded one.
    """
    first = views[0]
    if any(used.dtype != first.dtype for used in views):
        raise NotShown("the bytes of a tensor are used as two dtypes")
    begin, end = min(used.offset for used in views), max(used.extent for used in views)
    if aligned:
        begin -= begin % (ALIGNMENT // first.dtype.itemsize)
    size: tuple[int, ...] = (end - begin,)
    for view in views:
        shapes = [view.size] if is_contiguous(view.size, view.stride) else []
        if len(view.size) == 2 and is_contiguous(view.size[::-1], view.stride[::-1]):
            shapes.append(view.size[::-1])
        if shapes and view.offset == begin and view.extent == end:
            size = shapes[0]
            break
    stride = tuple(math.prod(size[place + 1 :]) for place in range(len(size)))
    whole_view = View(first.slot, first.dtype, begin, size, stride)
    content = viewed(data.untyped_storage(), whole_view).clone()
    return ScriptTensor("", first.dtype, begin, size, stride, begin), content
