"""What a standalone script shows of a block: both sides' calls, the tensors that they take, and what they give."""

from __future__ import annotations

import keyword
import math
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import torch

from ..tape.ensemble import in_words
from ..tape.in_double import exact_values
from ..tape.laid_out import ALIGNMENT
from ..tape.replay import bits_of, set_apart
from ..tape.storages import viewed
from ..tape.tape import Tape, View
from ..tape.tensor_file import CODES
from .examination import Examined, examined_block
from .hybrid import Mixture, MixtureExecution, TapePair
from .local_error import results_of
from .step_memory import Memory
from .storage_flow import SIDES, FlowValue, Side, Use, is_contiguous
from .suspects import Suspect


class NotShown(Exception):
    """Why a block cannot be shown by a script of its own, in words."""


@dataclass(frozen=True, slots=True, eq=False)
class ShownBlock:
    """A block on side b's very values. `results` are what each side gives there, in the order of the slices' outputs.

    `reference` is the side whose calls give `exact` in double precision, None where neither side's can be executed so;
    `live` says that they need nothing but wider inputs for that. `ulps` are each side's largest errors against it.
    `by_layout` says that it matters how what they take lies in memory.
    """

    slices: Mapping[Side, Tape]
    results: Mapping[Side, Sequence[torch.Tensor]]
    reference: Side | None
    exact: Sequence[torch.Tensor]
    live: bool
    ulps: Mapping[Side, float]
    by_layout: bool = False


def show_blocks(pair: TapePair, found: Mapping[int, Suspect]) -> dict[int, ShownBlock | NotShown]:
    """Walk through side b once more and keep what these blocks take and give, or why that cannot be had."""
    shown: dict[int, ShownBlock | NotShown] = {}
    with set_apart(pair.devices()):
        execution = MixtureExecution(pair, Mixture("b"))
        for number in range(max(found, default=-1) + 1):
            before = execution.memory.fork() if number in found else None
            execution.run_as("b", number, execution.memory)
            if before is not None:
                examined = examined_block(execution, found[number], before, kept=True, errors=True)
                shown[number] = _shown(execution, number, examined, before)
            execution.memory.block_ended(number)
    return shown


def _shown(execution: MixtureExecution, number: int, examined: Examined, before: Memory) -> ShownBlock | NotShown:
    slices = examined.slices
    if slices is None or any(side not in slices for side in SIDES):
        return NotShown(examined.why or "its inputs cannot be told apart from those of its neighbours")
    ours = before.fork()
    memories: dict[Side, Memory] = {"a": ours, "b": execution.memory}
    try:
        execution.run_as("a", number, ours)
        results = {side: _outputs(execution.pair, number, side, slices[side], memories[side]) for side in SIDES}
    except Exception as error:  # noqa: BLE001, an op may raise anything on values that are not its own
        return NotShown(in_words(error))
    reference, exact, live = _exact(slices)
    ulps = {side: error.ulp for side, error in (examined.errors or {}).items()} if reference else {}
    return ShownBlock(slices, results, reference, exact, live, ulps, bool(examined.relaid))


def _outputs(pair: TapePair, number: int, side: Side, block: Tape, memory: Memory) -> list[torch.Tensor]:
    """What the side's outputs are when the block has ended."""
    flow, home = pair.flows[side], pair.home[side]
    found = []
    for one in block.watched:
        slot = one.view.slot
        versions = [value.version for value, node in flow.makers.items() if value.slot == slot and home[node] <= number]
        use = Use(one.view, FlowValue(slot, max(versions, default=0)))
        found.append(memory.tensor(side, use).clone())
    return found


def _exact(slices: Mapping[Side, Tape]) -> tuple[Side | None, Sequence[torch.Tensor], bool]:
    """The first side whose calls can be executed in double, what they give, and whether plain calls give it."""
    for side in SIDES:
        block = slices[side]
        with suppress(Exception):  # an op may raise anything on doubles
            if block.calls:
                values, not_exact = exact_values(block)
                drawn = any(call.draw is not None for call in block.calls)
                return side, results_of(values), not drawn and not not_exact
    return None, (), False


# The tensors of a standalone script: what lies in its file, under which name, and how views of it are
# written.

RESERVED = re.compile(r"_.*|[gt]\d+|torch|json|math|sys|Path|DTYPES|DEVICES|load|error|bits|exact|side_[ab]|held")
"""Names that scripts use themselves."""

CALLED = {"self": "x"}
"""What stands for a schema's name of an argument."""


@dataclass(frozen=True, slots=True)
class ScriptTensor:
    """A tensor of the script with its layout; offset and stride count elements of its storage as it was recorded."""

    name: str
    dtype: torch.dtype
    offset: int
    size: tuple[int, ...]
    stride: tuple[int, ...]
    start: int = 0

    def text(self, view: View) -> str:
        """A view of it, as code. `start` is where the script's own storage begins in the recorded one."""
        if view.dtype != self.dtype:
            raise NotShown(f"the bytes of a {self.dtype} tensor are also used as {view.dtype}")
        mine, theirs = (self.offset, self.size, self.stride), (view.offset, view.size, view.stride)
        if mine == theirs:
            return self.name
        if len(self.size) == 2 and theirs == (self.offset, self.size[::-1], self.stride[::-1]) and 0 not in self.size:
            return f"{self.name}.t()"
        whole = math.prod(self.size) == math.prod(view.size) and self.offset == view.offset
        if whole and is_contiguous(self.size, self.stride) and is_contiguous(view.size, view.stride):
            return f"{self.name}.view({view.size})"
        return f"{self.name}.as_strided({view.size}, {view.stride}, {view.offset - self.start})"


class Values:
    """The tensors of a script's file."""

    def __init__(self) -> None:
        self.tensors: dict[str, torch.Tensor] = {}
        self.devices: dict[str, str] = {}

    def add(self, wish: str, tensor: torch.Tensor, taken: Sequence[str] = ()) -> str:
        """The name of a tensor: that of one with the same bits, unless it is `taken`, or a new one."""
        if tensor.dtype not in CODES:
            raise NotShown(f"it takes or gives {tensor.dtype}, which its file cannot hold")
        device = str(tensor.device)
        for name, known in self.tensors.items():
            alike = self.devices[name] == device and known.dtype == tensor.dtype and known.shape == tensor.shape
            # by their bits: NaN equals nothing, and -0.0 equals 0.0
            if name not in taken and alike and torch.equal(bits_of(known), bits_of(tensor.cpu())):
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
        """Bytes."""
        return sum(one.numel() * one.itemsize for one in self.tensors.values())


def base_of(data: torch.Tensor, views: Sequence[View], *, aligned: bool = False) -> tuple[ScriptTensor, torch.Tensor]:
    """The contiguous tensor that holds all these views of a storage's bytes, without a name yet. With `aligned` they
    begin as far behind a boundary of memory as they did, for it begins at one."""
    first = views[0]
    if any(one.dtype != first.dtype for one in views):
        raise NotShown("the bytes of a tensor are used as two dtypes")
    begin, end = min(one.offset for one in views), max(one.extent for one in views)
    if aligned:
        begin -= begin % (ALIGNMENT // first.dtype.itemsize)
    size: tuple[int, ...] = (end - begin,)
    for one in views:
        shapes = [one.size] if is_contiguous(one.size, one.stride) else []
        if len(one.size) == 2 and is_contiguous(one.size[::-1], one.stride[::-1]):
            shapes.append(one.size[::-1])
        if shapes and one.offset == begin and one.extent == end:
            size = shapes[0]
            break
    stride = tuple(math.prod(size[at + 1 :]) for at in range(len(size)))
    whole = View(first.slot, first.dtype, begin, size, stride)
    content = viewed(data.untyped_storage(), whole).clone()
    return ScriptTensor("", first.dtype, begin, size, stride, begin), content
