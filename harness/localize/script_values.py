"""The tensors of a standalone script: what lies in its file, under which name, and how views of it are written."""

from __future__ import annotations

import keyword
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from ..tape.storages import viewed
from ..tape.tape import View
from ..tape.tensor_file import CODES
from .localized_values import NotShown

RESERVED = re.compile(
    r"_.*|[gt]\d+|torch|json|math|sys|Path|DTYPES|DEVICES|load|error|bits|exact|side_[ab]|held"
)
"""Names that scripts use themselves."""

CALLED = {"self": "x"}
"""What stands for a schema's name of an argument."""


@dataclass(frozen=True, slots=True)
class Named:
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
        if (
            len(self.size) == 2
            and theirs == (self.offset, self.size[::-1], self.stride[::-1])
            and 0 not in self.size
        ):
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
        for name, known in self.tensors.items():
            if name not in taken and self.devices[name] == str(tensor.device) and _is_equal(known, tensor):
                return name
        name = self._unused(wish)
        self.tensors[name], self.devices[name] = tensor.cpu(), str(tensor.device)
        return name

    @property
    def size(self) -> int:
        """Bytes."""
        return sum(one.numel() * one.itemsize for one in self.tensors.values())

    def _unused(self, wish: str) -> str:
        name = CALLED.get(wish, wish)
        if not name.isidentifier() or not name.isascii() or keyword.iskeyword(name) or len(name) > 40:
            name = "tensor"
        name = "tensor" if RESERVED.fullmatch(name) else name
        found, number = name, 2
        while found in self.tensors:
            found, number = f"{name}_{number}", number + 1
        return found


def is_contiguous(size: Sequence[int], stride: Sequence[int]) -> bool:
    return 0 in size or all(
        n == 1 or step == math.prod(size[at + 1 :])
        for at, (n, step) in enumerate(zip(size, stride, strict=True))
    )


def base_of(data: torch.Tensor, views: Sequence[View]) -> tuple[Named, torch.Tensor]:
    """The contiguous tensor that holds all these views of a storage's bytes, without a name yet."""
    first = views[0]
    if any(one.dtype != first.dtype for one in views):
        raise NotShown("the bytes of a tensor are used as two dtypes")
    begin, end = min(one.offset for one in views), max(one.extent for one in views)
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
    return Named("", first.dtype, begin, size, stride, begin), content


def _is_equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    bits = [each.cpu().contiguous().reshape(-1).view(torch.uint8) for each in (one, other)]
    return torch.equal(*bits)
