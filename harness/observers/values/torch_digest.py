"""Digests computed by torch operations on the device where the tensors lie, for many tensors in a few launches.

`digest` defines the hash. The tensors' blocks form rows, and the rows form slices:

- A wide row is WIDE whole blocks of one tensor. A narrow row is one block of what is left of a tensor; if the tensor
  does not fill the row, zeros do.
- A slice is a number of rows of one dtype, of several tensors if they are small. It is gathered by one `cat` or read in
  place, and reduced to a few numbers for each row. So the temporary memory is bounded: about five times SLICE bytes.

What the zeros add to a hash is known in advance, and is subtracted. The numbers of all rows, 56 bytes each, are copied
to the host together and added up there, in a fixed order: on one device, the same bits give the same record.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ...records.values.digest_record import RECORD_BYTES
from .digest_hash import BLOCK, GOLDEN, LENGTH_FACTOR, M32, M64, STRIPE, DigestConstants, mix64_tensor, signed
from .digest_rows import WIDE, RowPlan, RowSlice, plan_of
from .fetched_values import fetching

_MIXED_TOGETHER = 1 << 16
"""Blocks whose lanes are mixed together; the sums of a block's lanes take 128 bytes."""

_PLANS_KEPT = 8

_CARRIERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Bytes of an element -> the dtype as which it is gathered, so that devices need no kernels for rare dtypes."""

_REAL = "float32 float64 float16 bfloat16 bool int8 uint8 int16 uint16 int32 uint32 int64 uint64"
_COUNTED = frozenset(getattr(torch, name) for name in _REAL.split() if hasattr(torch, name))
"""The dtypes with statistics. Tensors of other dtypes are only hashed."""

Records = Callable[[], bytes]
"""Waits for the device, if that is necessary, and returns the records."""


class TorchDigests:
    """Computes digests by torch operations. It keeps constants for each device, and the plans of recent calls."""

    def __init__(self) -> None:
        self._constants: dict[torch.device, DigestConstants] = {}
        self._plans: dict[Any, RowPlan] = {}

    def launch(self, tensors: Sequence[torch.Tensor]) -> Records:
        """Begin to digest tensors of one device, and return the function that gives their records.

        The tensors are strided, and their memory is readable. The caller hides the operations from autograd and from
        the modes of the script. Raises what torch raises if the device has no memory or no kernel for an operation; the
        returned function may raise it, too.
        """
        if not tensors:
            return bytes
        device = tensors[0].device
        if device not in self._constants:
            self._constants[device] = DigestConstants(device)
        plain = [_real(tensor.detach()) for tensor in tensors]
        sizes = tuple((tensor.numel(), tensor.dtype) for tensor in plain)
        if (plan := self._plans.get((device, sizes))) is None:
            plan = plan_of(sizes, device)
            if len(self._plans) >= _PLANS_KEPT:
                self._plans.clear()
            self._plans[device, sizes] = plan
        table = _digest_rows(plain, plan, self._constants[device])
        fetched = fetching(table)
        numel = [tensor.numel() for tensor in tensors]
        return lambda: _records(fetched(), plan.owners, sizes, numel)


def _real(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor with the same elements without lazy conjugation or negation, and complex numbers as pairs."""
    resolved = tensor.resolve_conj().resolve_neg()
    return torch.view_as_real(resolved) if resolved.is_complex() else resolved


def _digest_rows(plain: Sequence[torch.Tensor], plan: RowPlan, constants: DigestConstants) -> torch.Tensor:
    """Return int64 [7, rows] on the device: each row's part of its tensor's hash, then the columns of `_statistics`.

    The numbers of `_statistics` in double precision are stored as their bits.
    """
    columns: list[list[torch.Tensor]] = [[] for _ in range(7)]
    waiting: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = []
    blocks = wide = 0
    for place, part in enumerate(plan.slices):
        gathered = _gathered(plain, part, constants)
        index = plan.index[:, part.begin : part.end]
        waiting.append(_lane_sums(gathered, part, index, constants))
        for column, found in zip(columns[1:], _statistics(gathered, part, index, constants), strict=True):
            column.append(found)
        own_blocks = (part.end - part.begin) * part.width
        blocks, wide = blocks + own_blocks, wide + own_blocks * (part.width == WIDE)
        if blocks >= _MIXED_TOGETHER or place == len(plan.slices) - 1:
            numbers, sums, products = (torch.cat(parts) for parts in zip(*waiting, strict=True))
            hashes = _block_hashes(numbers, sums, products, constants)
            columns[0] += [hashes[:wide].view(-1, WIDE).sum(1), hashes[wide:]]
            waiting, blocks, wide = [], 0, 0
    if not plan.slices:
        return torch.empty((7, 0), dtype=torch.int64, device=constants.places.device)
    return torch.stack([torch.cat(column).view(torch.int64) for column in columns])


def _gathered(plain: Sequence[torch.Tensor], part: RowSlice, constants: DigestConstants) -> torch.Tensor:
    """Return the elements of a slice and its zeros, of a dtype of `_CARRIERS`; they may be the training's memory."""
    carrier, found = _CARRIERS[part.dtype.itemsize], []
    for own in part.parts:
        found.append(_elements(plain[own.tensor], own.begin, own.end).view(carrier))
        if own.zeros:
            found.append(constants.zeros.view(carrier)[: own.zeros])
    # What is read in place is read as int32, which must lie at a multiple of its size.
    if len(found) == 1 and found[0].storage_offset() * carrier.itemsize % 4 == 0 and found[0].data_ptr() % 4 == 0:
        return found[0]
    return torch.cat(found)


def _elements(tensor: torch.Tensor, begin: int, end: int) -> torch.Tensor:
    """Return the elements from `begin` to `end` in row-major order, in one dimension."""
    if tensor.is_contiguous():
        return tensor.view(-1)[begin:end]
    # Copy no more than the rows of the first dimension that hold them.
    tensor = tensor.squeeze()
    length = tensor.numel() // tensor.shape[0]
    first = begin // length
    return tensor[first : -(-end // length)].reshape(-1)[begin - first * length : end - first * length]


def _lane_sums(
    gathered: torch.Tensor, part: RowSlice, index: torch.Tensor, constants: DigestConstants
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the number of each block in its tensor, and S and P of its lanes: int64 [blocks], [blocks, 8] twice."""
    pairs = (gathered.view(torch.int32).view(-1, BLOCK // 4) + constants.keys).view(torch.int64)
    pairs = pairs.view(-1, BLOCK // STRIPE, 8)  # the first word of a pair is its low half; int32 wraps around
    sums = pairs.sum(1)
    low = pairs & M32
    pairs >>= 32
    pairs &= M32
    low *= pairs
    products = low.sum(1)
    numbers = index[0]
    if part.width == WIDE:
        return (numbers.unsqueeze(1) + constants.places[:WIDE]).view(-1), sums, products
    if any(own.zeros for own in part.parts):
        # The keys were added to the zeros, too: the stripes after the last stripe of the data must not count.
        sums -= constants.zero_sums.index_select(0, index[1])
        products -= constants.zero_products.index_select(0, index[1])
    return numbers, sums, products


def _block_hashes(
    numbers: torch.Tensor, sums: torch.Tensor, products: torch.Tensor, constants: DigestConstants
) -> torch.Tensor:
    """Return int64 [blocks]: what each block adds to its tensor's hash."""
    lanes = (numbers * 8).unsqueeze(1) + constants.places[:8]
    return mix64_tensor(products + mix64_tensor(sums + lanes * signed(GOLDEN))).sum(1)


def _statistics(
    gathered: torch.Tensor, part: RowSlice, index: torch.Tensor, constants: DigestConstants
) -> tuple[torch.Tensor, ...]:
    """Return six numbers of each row: NaN elements and finite elements (int64), and, of the finite elements, the
    smallest, the largest, the sum and the sum of squares (float64)."""
    rows = part.end - part.begin
    if part.dtype not in _COUNTED:
        counts = torch.zeros((rows,), dtype=torch.int64, device=gathered.device)
        none = counts.to(torch.float64)
        return counts, counts, none, none, none, none
    values = gathered if part.dtype == torch.bool else gathered.view(part.dtype)
    values = (values if part.dtype.is_floating_point else values.to(torch.float64)).view(rows, -1)
    infinity, minus_infinity, zero = constants.limits(values.dtype)
    finite = values.abs() < math.inf  # false for NaN
    if any(own.zeros for own in part.parts):
        finite &= constants.places[: values.shape[1]] < index[2].unsqueeze(1)
    low = torch.where(finite, values, infinity).amin(1).to(torch.float64)
    high = torch.where(finite, values, minus_infinity).amax(1).to(torch.float64)
    summands = torch.where(finite, values, zero).to(torch.float64)
    total = summands.sum(1)
    summands *= summands
    return values.isnan().sum(1), finite.sum(1), low, high, total, summands.sum(1)


def _records(
    table: torch.Tensor, owners: torch.Tensor, sizes: Sequence[tuple[int, torch.dtype]], numel: Sequence[int]
) -> bytes:
    """Add up the rows of each tensor, and return the tensors' records. `table` is on the CPU."""

    def integers(values: Sequence[int]) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.int64, device="cpu")

    def added(column: torch.Tensor) -> torch.Tensor:
        return torch.zeros(len(sizes), dtype=column.dtype, device="cpu").index_add_(0, owners, column)

    def outermost(column: torch.Tensor, start: float, reduce: str) -> torch.Tensor:
        return torch.full((len(sizes),), start, dtype=torch.float64, device="cpu").scatter_reduce_(
            0, owners, column, reduce
        )

    hashes, nan, finite = (added(column) for column in table[:3])
    low, high, total, squares = table[3:].contiguous().view(torch.float64)
    low, high = outermost(low, math.inf, "amin"), outermost(high, -math.inf, "amax")
    total, squares = added(total), added(squares)
    counted = integers([dtype in _COUNTED for _, dtype in sizes]).bool()
    none = finite == 0
    lengths = [signed(count * dtype.itemsize * LENGTH_FACTOR & M64) for count, dtype in sizes]
    hashes = mix64_tensor(hashes + integers(lengths))
    columns = [
        hashes.masked_fill(hashes == 0, 1),
        integers(numel),
        nan,
        (integers([count for count, _ in sizes]) - finite - nan).masked_fill(~counted, 0),
        low.masked_fill(none, math.nan),
        high.masked_fill(none, math.nan),
        (total / finite).masked_fill(none, math.nan),
        squares.sqrt().masked_fill(~counted, math.nan),
    ]
    packed = torch.stack([column.view(torch.int64) for column in columns], 1)
    return ctypes.string_at(packed.data_ptr(), RECORD_BYTES * len(sizes))
