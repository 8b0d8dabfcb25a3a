"""Digests of tensors: an exact hash and statistics of the values, for many tensors in one call.

The hash covers the bits of the elements in row-major order, so -0.0 and 0.0 differ, as do two NaN payloads,
while strides do not matter; dtype and shape are left to the caller. Bytes are cut into 4096-byte blocks of
64-byte stripes of eight lanes; a lane of a stripe is a pair of 32-bit words (a, b). With keys K from
splitmix64,

    x = (a + K[2i] mod 2**32) + (b + K[2i + 1] mod 2**32) * 2**32           for the pair at position i of a block
    P = sum of low32(x) * high32(x), S = sum of x, over the stripes of a block     (both of a lane, mod 2**64)
    hash = mix64(bytes * c + sum over blocks and lanes of mix64(P + mix64(S + (8 * block + lane) * golden)))

The last stripe is padded with zeros, stripes after it contribute nothing, and 0 (which stands for unreadable)
becomes 1. P is NH (Black et al., UMAC, CRYPTO 1999): for random keys, two different contents of a lane
collide with probability 2**-32. Its weak point, a factor of zero that hides the other word, is closed by S,
which any change confined to one pair always alters. To go unseen a change must keep both S (its differences
in a lane cancel) and P in every lane that it touches: for two exchanged words this takes neighbours that
differ by exactly the difference of their keys, and equal neighbours never do, because the keys are distinct.
mix64 is the finaliser of splitmix64 (Steele et al., OOPSLA 2014), a bijection. Not a cryptographic hash.

Sums are accumulated in double precision in an unspecified order that depends on the contents' length and the
CPU, not on threads: the same bits give the same record on one machine with one implementation. Squares of
huge float64 overflow to inf. In a thread that flushes subnormals (`torch.set_flush_denormal`) statistics see
them as zeros.
"""

from __future__ import annotations

import functools
import math
from array import array
from collections.abc import Sequence

import torch

from ..records.digest_record import RECORD_BYTES, Digest, pack, unreadable
from ..torch_private.dispatching import no_dispatch as _no_dispatch
from ..torch_private.dispatching import without_dispatch_modes as _without_dispatch_modes
from ..torch_private.dispatching import without_function_modes as _without_function_modes
from .native_digest import load

__all__ = ["RECORD_BYTES", "Digester"]

Item = tuple[int, int, int]
"""`struct item` of digest.c: address, elements, row of its table `kinds` | bytes of an element << 8."""

_ROWS = "- float32 float64 float16 bfloat16 int8 uint8 int16 uint16 int32 uint32 int64 uint64"
_KINDS = {name: row for row, name in enumerate(_ROWS.split()) if row} | {"bool": 6}
"""dtype -> row of `kinds`; row 0 is for dtypes that are hashed without statistics."""
_COMPLEX_KINDS = {"complex32": 3, "complex64": 1, "complex128": 2}


def _codes(kinds: dict[str, int]) -> dict[torch.dtype, int]:
    dtypes = {getattr(torch, name, None): kind for name, kind in kinds.items()}
    return {dtype: kind | dtype.itemsize << 8 for dtype, kind in dtypes.items() if dtype is not None}


_CODES = _codes(_KINDS)
_ALL_CODES = _CODES | _codes(_COMPLEX_KINDS)
_PLAIN = frozenset((torch.Tensor, torch.nn.Parameter))
_UNREADABLE_ERRORS = (RuntimeError, TypeError, ValueError, AttributeError)


class Digester:
    """Digests many tensors at once; a call changes no state, so threads may share one.

    `native=False` computes the same hashes with torch operations.
    """

    def __init__(self, *, native: bool = True) -> None:
        self._function, self.reason = load() if native else (None, "not asked for")
        self.implementation = "torch" if self._function is None else "native"

    def digest(self, tensors: Sequence[torch.Tensor]) -> bytes:
        """Records of RECORD_BYTES in the order of `tensors`, which are neither changed nor tracked by
        autograd.

        Contiguous CPU tensors are read in place; others are first copied (a lazy tensor is thereby computed,
        a sparse one densified). A tensor without values (meta, fake, wrapper subclass, freed storage) or one
        that cannot be copied gives a record with hash 0; nothing is raised.
        """
        with _without_function_modes():
            if self._function is None:
                return b"".join(pack(_digest_with_torch(tensor)) for tensor in tensors)
            items: list[int] = []
            copies: list[torch.Tensor] = []
            unread: list[tuple[int, int]] = []
            for position, tensor in enumerate(tensors):
                item = _item_in_place(tensor) or _item_of_copy(tensor, copies)
                if item is None:
                    unread.append((position, _numel(tensor)))
                    item = (0, 0, 0)
                items += item
            arguments, records = array("Q", items), array("Q", bytes(RECORD_BYTES * len(tensors)))
            self._function(arguments.buffer_info()[0], len(tensors), records.buffer_info()[0])
        return _with_unreadable(records.tobytes(), unread) if unread else records.tobytes()


def _item_in_place(tensor: torch.Tensor) -> Item | None:
    """Where the elements of an ordinary contiguous CPU tensor are; None for all others."""
    try:
        if type(tensor) not in _PLAIN or not tensor.is_cpu or not tensor.is_contiguous() or tensor.is_neg():
            return None
        code = _CODES.get(tensor.dtype)
        return None if code is None else _item(tensor, code)
    except _UNREADABLE_ERRORS:
        return None


def _item(tensor: torch.Tensor, code: int) -> Item | None:
    """None if the storage was freed: the address is then 0, or 0 plus the offset into the storage."""
    numel, address = tensor.numel(), tensor.data_ptr()
    if numel and (not address or (tensor.storage_offset() and not tensor.untyped_storage().nbytes())):
        return None
    return address, numel, code


def _item_of_copy(tensor: torch.Tensor, copies: list[torch.Tensor]) -> Item | None:
    """The item of a plain copy, which is appended to `copies` to outlive the native call."""
    copy = _plain_copy(tensor)
    if copy is None:
        return None
    copies.append(copy)
    return _item(copy, _ALL_CODES.get(copy.dtype, copy.dtype.itemsize << 8))


def _plain_copy(tensor: torch.Tensor) -> torch.Tensor | None:
    """`tensor` as a contiguous CPU tensor with readable memory (itself where it is one), or None."""
    try:
        if tensor.is_meta or type(tensor).__torch_dispatch__ is not _no_dispatch:
            return None
        with torch.no_grad(), _without_dispatch_modes():
            plain = tensor.detach()
            if tensor.layout != torch.strided:
                plain = plain.to_dense()
            if tensor.is_quantized:
                plain = plain.int_repr()
            if plain.numel() and not plain.untyped_storage().nbytes():
                return None
            plain = plain.resolve_conj().resolve_neg().contiguous().cpu()
            return plain if _item(plain, 0) else None
    except _UNREADABLE_ERRORS:
        return None


def _numel(tensor: torch.Tensor) -> int:
    try:
        return int(tensor.numel())
    except _UNREADABLE_ERRORS:
        return 0


def _with_unreadable(records: bytes, positions: list[tuple[int, int]]) -> bytes:
    patched = bytearray(records)
    for position, numel in positions:
        patched[position * RECORD_BYTES : (position + 1) * RECORD_BYTES] = pack(unreadable(numel))
    return bytes(patched)


_M32, _M64 = 2**32 - 1, 2**64 - 1
_GOLDEN = 0x9E3779B97F4A7C15
_KEY_SEED = 0x6E756D6472696674
_LENGTH_FACTOR = 0xD6E8FEB86659FD93
_MIX = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1))
_STRIPE, _BLOCK, _PART = 64, 4096, 1 << 20
"""Bytes; _PART is what the fallback holds at a time, about ten times over in int64."""


def _digest_with_torch(tensor: torch.Tensor) -> Digest:
    plain = _plain_copy(tensor)
    if plain is None:
        return unreadable(_numel(tensor))
    with torch.no_grad(), _without_dispatch_modes():
        flat = (torch.view_as_real(plain) if plain.is_complex() else plain).reshape(-1)
        summed = plain.dtype in _ALL_CODES
        return Digest(_hash(flat.view(torch.uint8)), plain.numel(), *(_statistics(flat) if summed else _NO_STATISTICS))


_NO_STATISTICS = (0, 0, math.nan, math.nan, math.nan, math.nan)


def _statistics(flat: torch.Tensor) -> tuple[int, int, float, float, float, float]:
    """nan, inf, minimum, maximum, mean, l2 of a one-dimensional real tensor."""
    nan = inf = count = 0
    total = squares = 0.0
    low, high = math.inf, -math.inf
    for part in flat.split(_PART // 8):
        values = part.to(torch.float64)
        nan += int(values.isnan().sum())
        inf += int(values.isinf().sum())
        values = values[values.isfinite()]
        if values.numel():
            low, high = min(low, float(values.min())), max(high, float(values.max()))
            total, squares = total + float(values.sum()), squares + float((values * values).sum())
            count += values.numel()
    if not count:
        return nan, inf, math.nan, math.nan, math.nan, 0.0
    return nan, inf, low, high, total / count, math.sqrt(squares)


def _hash(data: torch.Tensor) -> int:
    """The hash of uint8 `data`."""
    total = data.numel() * _LENGTH_FACTOR
    for start in range(0, data.numel(), _PART):
        total += _hash_part(data[start : start + _PART], start // (_BLOCK // 8))
    return _mix64(total & _M64) or 1


def _hash_part(part: torch.Tensor, first_lane: int) -> int:
    stripes = -(-part.numel() // _STRIPE)
    blocks = -(-part.numel() // _BLOCK)
    padded = torch.zeros(blocks * _BLOCK, dtype=torch.uint8, device="cpu")
    padded[: part.numel()] = part
    words = padded.view(torch.int32).view(blocks, 64, 8, 2).to(torch.int64)  # [block, stripe, lane, word]
    low, high = ((words + _keys()) & _M32).unbind(-1)
    products, sums = low * high, low + (high << 32)
    if stripes % 64:
        products[-1, stripes % 64 :] = 0
        sums[-1, stripes % 64 :] = 0
    lanes = torch.arange(first_lane, first_lane + blocks * 8, dtype=torch.int64, device="cpu").view(blocks, 8)
    inner = mix64_tensor(sums.sum(1) + lanes * signed(_GOLDEN))
    return int(mix64_tensor(products.sum(1) + inner).sum())


@functools.cache
def _keys() -> torch.Tensor:
    """[64, 8, 2] int64 with the low halves of the splitmix64 sequence from _KEY_SEED."""
    words = [_mix64((_KEY_SEED + (i + 1) * _GOLDEN) & _M64) & _M32 for i in range(_BLOCK // 4)]
    return torch.tensor(words, dtype=torch.int64, device="cpu").view(64, 8, 2)


def signed(value: int) -> int:
    return value - 2**64 if value >= 2**63 else value


def _mix64(value: int) -> int:
    for shift, factor in _MIX:
        value = (value ^ (value >> shift)) * factor & _M64
    return value


def mix64_tensor(values: torch.Tensor) -> torch.Tensor:
    for shift, factor in _MIX:
        values = (values ^ ((values >> shift) & ((1 << (64 - shift)) - 1))) * signed(factor)
    return values
