"""Digests of tensors: an exact hash and statistics of the values, for many tensors in one call.

The hash covers the bits of the elements in row-major order, so -0.0 and 0.0 differ, as do two NaN payloads, while
strides do not matter; dtype and shape are left to the caller. Bytes are cut into 4096-byte blocks of 64-byte stripes of
eight lanes; a lane of a stripe is a pair of 32-bit words (a, b). With keys K from splitmix64,

    x = (a + K[2i] mod 2**32) + (b + K[2i + 1] mod 2**32) * 2**32           for the pair at position i of a block
    P = sum of low32(x) * high32(x), S = sum of x, over the stripes of a block     (both of a lane, mod 2**64)
    hash = mix64(bytes * c + sum over blocks and lanes of mix64(P + mix64(S + (8 * block + lane) * golden)))

The last stripe is padded with zeros, stripes after it contribute nothing, and 0 (which means unreadable) becomes 1. P
is the NH hash (Black et al., UMAC, CRYPTO 1999): for random keys, two different contents of a lane collide with
probability 2**-32. Its weak point is a factor of zero, which hides the other word. S covers it: any change confined
to one pair alters S. A change goes unseen only if it keeps both S (its differences in a lane cancel)
and P in every lane that it touches. An exchange of two words goes unseen only if their neighbours differ by exactly
the difference of the neighbours' keys. If the neighbours are equal, the exchange is always seen, because the keys are
distinct. mix64 is the finaliser of splitmix64 (Steele et al., OOPSLA 2014), a bijection. This is not a cryptographic
hash.

Sums are accumulated in double precision in an unspecified order that depends on the contents' length and the CPU, not
on threads: the same bits give the same record on one machine with one implementation. Squares of huge float64 overflow
to inf. In a thread that flushes subnormals (`torch.set_flush_denormal`), the statistics count them as zeros.
"""

from __future__ import annotations

import ctypes
import functools
import math
from array import array
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from ...compiler import CSource, compile_library
from ...errors import NumdriftError
from ...records.values.digest_record import RECORD_BYTES, Digest, pack, unreadable
from ...torch_private.dispatching import no_dispatch, without_dispatch_modes, without_function_modes

SOURCE = CSource(
    Path(__file__).with_name("digest.c"),
    # The parts of -ffast-math that let gcc vectorise sums; digest.c explains how NaN is found nevertheless.
    flags=(
        "-O3",
        "-fassociative-math",
        "-ffinite-math-only",
        "-fno-signed-zeros",
        "-fno-trapping-math",
        "-fno-math-errno",
        "-shared",
        "-fPIC",
    ),
    # Tried in turn: a compiler may not support the first ones.
    tunings=(("-march=native", "-mprefer-vector-width=512"), ("-march=native",), ()),
)

DigestFunction = Callable[[int, int, int], None]


def load() -> tuple[DigestFunction | None, str | None]:
    """Return the native function (address of items, number of items, address of records), or None and the reason."""
    try:
        function = ctypes.CDLL(str(compile_library(SOURCE).path)).numdrift_digest
    except (NumdriftError, OSError, AttributeError) as error:
        return None, " ".join(str(error).split())
    function.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
    function.restype = None
    return function, None


def hash_text(record: bytes) -> str:
    """Return the hash at the beginning of a digest record, as hexadecimal digits."""
    return f"{int.from_bytes(record[:8], 'little'):016x}"


Item = tuple[int, int, int]
"""`struct item` of digest.c: address, number of elements, and row of the table `kinds` | bytes per element << 8."""

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
    """Digests many tensors at once. A call changes no state, so threads may share a digester.

    `native=False` computes the same hashes with torch operations.
    """

    def __init__(self, *, native: bool = True) -> None:
        self._function, self.reason = load() if native else (None, "native code not requested")
        self.implementation = "torch" if self._function is None else "native"

    def digest(self, tensors: Sequence[torch.Tensor]) -> bytes:
        """Return records of RECORD_BYTES each, in the order of `tensors`.

        The tensors are neither changed nor tracked by autograd. Contiguous CPU tensors are read in place. Others are
        first copied: a lazy tensor is thereby computed, a sparse one densified. A tensor without values (meta, fake,
        wrapper subclass, freed storage), or one that cannot be copied, has a record with hash 0; nothing is raised.
        """
        with without_function_modes():
            if self._function is None:
                return b"".join(pack(_digest_with_torch(tensor)) for tensor in tensors)
            items: list[int] = []
            copies: list[torch.Tensor] = []  # these must outlive the native call
            unread: list[tuple[int, int]] = []
            for position, tensor in enumerate(tensors):
                # The hot path: an ordinary contiguous CPU tensor is read in place.
                item = None
                try:
                    if (
                        type(tensor) in _PLAIN
                        and tensor.is_cpu
                        and tensor.is_contiguous()
                        and not tensor.is_neg()
                        and (code := _CODES.get(tensor.dtype)) is not None
                    ):
                        item = _item(tensor, code)
                except _UNREADABLE_ERRORS:
                    item = None
                if item is None and (copy := _plain_copy(tensor)) is not None:
                    copies.append(copy)
                    item = _item(copy, _ALL_CODES.get(copy.dtype, copy.dtype.itemsize << 8))
                if item is None:
                    unread.append((position, _numel(tensor)))
                    item = (0, 0, 0)
                items += item
            arguments, records = array("Q", items), array("Q", bytes(RECORD_BYTES * len(tensors)))
            self._function(arguments.buffer_info()[0], len(tensors), records.buffer_info()[0])
        if not unread:
            return records.tobytes()
        patched = bytearray(records.tobytes())
        for position, numel in unread:
            patched[position * RECORD_BYTES : (position + 1) * RECORD_BYTES] = pack(unreadable(numel))
        return bytes(patched)


def _item(tensor: torch.Tensor, code: int) -> Item | None:
    """Return the native item of a tensor, or None if its storage was freed.

    The address of a freed storage is 0; with a storage offset, `data_ptr` is 0 plus that offset.
    """
    numel, address = tensor.numel(), tensor.data_ptr()
    if numel and (not address or (tensor.storage_offset() and not tensor.untyped_storage().nbytes())):
        return None
    return address, numel, code


def _plain_copy(tensor: torch.Tensor) -> torch.Tensor | None:
    """Return `tensor` as a contiguous CPU tensor with readable memory (itself if it is one), or None."""
    try:
        if tensor.is_meta or type(tensor).__torch_dispatch__ is not no_dispatch:
            return None
        with torch.no_grad(), without_dispatch_modes():
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


_M32, _M64 = 2**32 - 1, 2**64 - 1
_GOLDEN = 0x9E3779B97F4A7C15
_KEY_SEED = 0x6E756D6472696674
_LENGTH_FACTOR = 0xD6E8FEB86659FD93
_MIX = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1))
_STRIPE, _BLOCK, _PART = 64, 4096, 1 << 20
"""Sizes in bytes. Without the native function, _PART bytes are hashed at a time, and their int64 numbers take about ten
times as much memory."""


def _digest_with_torch(tensor: torch.Tensor) -> Digest:
    plain = _plain_copy(tensor)
    if plain is None:
        return unreadable(_numel(tensor))
    with torch.no_grad(), without_dispatch_modes():
        flat = (torch.view_as_real(plain) if plain.is_complex() else plain).reshape(-1)
        hash_, numel = _hash(flat.view(torch.uint8)), plain.numel()
        if plain.dtype not in _ALL_CODES:
            return Digest(hash_, numel, 0, 0, math.nan, math.nan, math.nan, math.nan)
        nan = inf = count = 0
        total = squares = 0.0
        low, high = math.inf, -math.inf
        for part in flat.split(_PART // 8):
            values = part.to(torch.float64)
            nan += int(values.isnan().sum())
            inf += int(values.isinf().sum())
            values = values[values.isfinite()]  # minimum, maximum, mean and l2 cover the finite values only
            if values.numel():
                low, high = min(low, float(values.min())), max(high, float(values.max()))
                total, squares = total + float(values.sum()), squares + float((values * values).sum())
                count += values.numel()
    if not count:
        return Digest(hash_, numel, nan, inf, math.nan, math.nan, math.nan, 0.0)
    return Digest(hash_, numel, nan, inf, low, high, total / count, math.sqrt(squares))


def _hash(data: torch.Tensor) -> int:
    """Return the hash of uint8 `data`, as the module's docstring defines it."""
    total = data.numel() * _LENGTH_FACTOR
    for start in range(0, data.numel(), _PART):
        part = data[start : start + _PART]
        blocks, stripes = -(-part.numel() // _BLOCK), -(-part.numel() // _STRIPE)
        padded = torch.zeros(blocks * _BLOCK, dtype=torch.uint8, device="cpu")
        padded[: part.numel()] = part
        words = padded.view(torch.int32).view(blocks, 64, 8, 2).to(torch.int64)  # [block, stripe, lane, word]
        low, high = ((words + _keys()) & _M32).unbind(-1)
        products, sums = low * high, low + (high << 32)  # [block, stripe, lane]; int64 wraps around as uint64 does
        if stripes % 64:
            # The keys were added to the padding, too: the stripes after the last stripe of the data must not count.
            products[-1, stripes % 64 :] = 0
            sums[-1, stripes % 64 :] = 0
        first_lane = start // (_BLOCK // 8)
        lanes = torch.arange(first_lane, first_lane + blocks * 8, dtype=torch.int64, device="cpu").view(blocks, 8)
        inner = mix64_tensor(sums.sum(1) + lanes * signed(_GOLDEN))
        total += int(mix64_tensor(products.sum(1) + inner).sum())
    return _mix64(total & _M64) or 1


@functools.cache
def _keys() -> torch.Tensor:
    """Return the keys: int64 [64, 8, 2], the low halves of the splitmix64 sequence from _KEY_SEED."""
    words = [_mix64((_KEY_SEED + (i + 1) * _GOLDEN) & _M64) & _M32 for i in range(_BLOCK // 4)]
    return torch.tensor(words, dtype=torch.int64, device="cpu").view(64, 8, 2)


def signed(value: int) -> int:
    return value - 2**64 if value >= 2**63 else value


def _mix64(value: int) -> int:
    for shift, factor in _MIX:
        value = (value ^ (value >> shift)) * factor & _M64
    return value


def mix64_tensor(values: torch.Tensor) -> torch.Tensor:
    # torch shifts int64 arithmetically: the mask removes the copies of the sign bit.
    for shift, factor in _MIX:
        values = (values ^ ((values >> shift) & ((1 << (64 - shift)) - 1))) * signed(factor)
    return values
