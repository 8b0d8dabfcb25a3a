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

Sums are accumulated in double precision in an unspecified order that depends on the contents' length, the CPU and the
device, not on the number of threads: the same bits give the same record on one device with one implementation. The
hash, the counts, the minimum and the maximum are the same everywhere. Squares of huge float64 overflow to inf. In a
thread that flushes subnormals (`torch.set_flush_denormal`), the statistics count them as zeros.
"""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch

from ...compiler import CSource, compile_library
from ...errors import NumdriftError
from ...records.values.digest_record import RECORD_BYTES, pack, unreadable
from ...torch_private.dispatching import (
    no_dispatch,
    unseen,
    without_dispatch_modes,
    without_function_modes,
    without_swaps,
)
from ...torch_private.profiling.device_work import is_accelerator
from .fetched_values import SMALL, copying, is_gathered
from .torch_digest import Records, TorchDigests

SOURCE = CSource(
    Path(__file__).with_name("digest.c"),
    # The parts of -ffast-math that let gcc vectorise sums; plain_sums.h explains how NaN is found nevertheless.
    flags=(
        "-O3",
        # A loop that began in the middle of a cache line read memory at 0.8 of the speed (AMD Zen 3).
        "-falign-loops=64",
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


def load() -> tuple[ctypes.CDLL | None, str | None]:
    """Return the native library, or None and the reason."""
    try:
        library = ctypes.CDLL(str(compile_library(SOURCE).path))
        library.numdrift_digest.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
        library.numdrift_digest.restype = None
    except (NumdriftError, OSError, AttributeError) as error:
        return None, " ".join(str(error).split())
    return library, None


def hash_text(record: bytes) -> str:
    """Return the hash at the beginning of a digest record, as hexadecimal digits."""
    return f"{int.from_bytes(record[:8], 'little'):016x}"


Item = tuple[int, int, int, int]
"""`struct item` of digest.c: address, number of elements, row of the table `kinds` | bytes per element << 8, and the
address of the geometry, which is 0 for a contiguous tensor."""

MOST_DIMENSIONS = 64
"""The number of dimensions of the largest geometry that strided.h accepts."""

_ROWS = "- float32 float64 float16 bfloat16 int8 uint8 int16 uint16 int32 uint32 int64 uint64"
_KINDS = {name: row for row, name in enumerate(_ROWS.split()) if row} | {"bool": 6}
"""dtype -> row of `kinds`; row 0 is for dtypes that are hashed without statistics."""
_COMPLEX_KINDS = {"complex32": 3, "complex64": 1, "complex128": 2}


def _codes(kinds: dict[str, int]) -> dict[torch.dtype, int]:
    dtypes = {getattr(torch, name, None): kind for name, kind in kinds.items()}
    return {dtype: kind | dtype.itemsize << 8 for dtype, kind in dtypes.items() if dtype is not None}


_CODES = _codes(_KINDS)
_ALL_CODES = _CODES | _codes(_COMPLEX_KINDS)


def native_codes() -> Mapping[str, tuple[int, int]]:
    """Return each dtype's codes: of a tensor that is read in place (0: a copy is read), and of its copy."""
    return {str(dtype).removeprefix("torch."): (_CODES.get(dtype, 0), code) for dtype, code in _ALL_CODES.items()}


_PLAIN = frozenset((torch.Tensor, torch.nn.Parameter))
_UNREADABLE_ERRORS = (RuntimeError, TypeError, ValueError, AttributeError)
_REFUSALS = _UNREADABLE_ERRORS
"""What a device raises that lacks memory (`OutOfMemoryError` is a RuntimeError), a kernel or a dtype."""


class Digester:
    """Digests many tensors at once. Threads may share a digester.

    `native=False` computes the same hashes with torch operations. `notice` receives a sentence if the tensors of a
    device cannot be digested there.
    """

    def __init__(self, *, native: bool = True, notice: Callable[[str], None] = lambda text: None) -> None:
        library, self.reason = load() if native else (None, "native code not requested")
        self._function = None if library is None else library.numdrift_digest
        self.implementation = "torch" if self._function is None else "native"
        self._notice = notice
        self._torch = TorchDigests()
        self._tried: set[tuple[torch.device, frozenset[torch.dtype]]] = set()
        self._refusing: set[torch.device] = set()

    def digest(self, tensors: Sequence[torch.Tensor]) -> bytes:
        """Return records of RECORD_BYTES each, in the order of `tensors`.

        The tensors are neither changed nor tracked by autograd. Ordinary CPU tensors are read in place. Others are
        first copied: a lazy tensor is thereby computed, a sparse one densified. A tensor without values (meta, fake,
        wrapper subclass, freed storage), or one that cannot be copied, has a record with hash 0; nothing is raised.
        """
        with without_function_modes():
            if self._function is None:
                return self._digest_copies(tensors)
            items: list[int] = []
            kept: list[object] = []  # copies and geometries, which must outlive the native call
            unread: list[tuple[int, int]] = []
            for position, tensor in enumerate(tensors):
                # The hot path: an ordinary CPU tensor is read in place.
                item = None
                try:
                    if (
                        type(tensor) in _PLAIN
                        and tensor.is_cpu
                        and (code := _CODES.get(tensor.dtype)) is not None
                        and not tensor.is_neg()
                    ):
                        if tensor.is_contiguous():
                            address = tensor.data_ptr()
                            if address and not tensor.storage_offset():
                                items += (address, tensor.numel(), code, 0)
                                continue
                            item = _item(tensor, code)
                        elif (
                            tensor.layout == torch.strided and not tensor.is_nested and tensor.dim() <= MOST_DIMENSIONS
                        ):
                            geometry = array("q", (tensor.dim(), *tensor.shape, *tensor.stride()))
                            kept.append(geometry)
                            item = _item(tensor, code, geometry.buffer_info()[0])
                except _UNREADABLE_ERRORS:
                    item = None
                if item is None and (copy := _plain_copy(tensor)) is not None:
                    kept.append(copy)
                    item = _item(copy, _ALL_CODES.get(copy.dtype, copy.dtype.itemsize << 8))
                if item is None:
                    unread.append((position, _numel(tensor)))
                    item = (0, 0, 0, 0)
                items += item
            arguments, records = array("Q", items), array("Q", bytes(RECORD_BYTES * len(tensors)))
            self._function(arguments.buffer_info()[0], len(tensors), records.buffer_info()[0])
        if not unread:
            return records.tobytes()
        patched = bytearray(records.tobytes())
        for position, numel in unread:
            patched[position * RECORD_BYTES : (position + 1) * RECORD_BYTES] = pack(unreadable(numel))
        return bytes(patched)

    def launch(self, tensors: Sequence[torch.Tensor]) -> Records:
        """Begin to digest tensors where they lie, and return the function that gives what `digest` returns.

        No strided tensor of an accelerator makes the host wait before the function is called, and it may change
        meanwhile. Every other tensor is digested at once, as by `digest`. If an accelerator has no memory or no kernels
        for the digests, its tensors are copied to the CPU from then on, with a notice. Raises what torch raises if a
        copy fails; so does the returned function.
        """
        by_device: dict[torch.device, list[int]] = {}
        with without_function_modes():
            elsewhere = [position for position, tensor in enumerate(tensors) if not tensor.is_cpu]
            if not elsewhere:
                found = self.digest(tensors) if tensors else b""
                return lambda: found
            for position in elsewhere:
                tensor = tensors[position]
                if tensor.device not in self._refusing and _lies_there(tensor):
                    by_device.setdefault(tensor.device, []).append(position)
            if not by_device:
                found = self.digest(_copied(tensors))
                return lambda: found
            begun = {tuple(places): self._begun([tensors[place] for place in places]) for places in by_device.values()}
            rest = tuple({*range(len(tensors))}.difference(*begun))
            found = self.digest(_copied([tensors[place] for place in rest]))

        def records() -> bytes:
            ordered = [b""] * len(tensors)
            for places, digests in ((rest, found), *((places, finish()) for places, finish in begun.items())):
                for number, place in enumerate(places):
                    ordered[place] = digests[number * RECORD_BYTES : (number + 1) * RECORD_BYTES]
            return b"".join(ordered)

        return records

    def _begun(self, tensors: Sequence[torch.Tensor]) -> Records:
        """Begin to digest tensors of one accelerator."""
        device, dtypes = tensors[0].device, frozenset(tensor.dtype for tensor in tensors)
        try:
            with unseen(), without_swaps():
                if sum(tensor.nbytes for tensor in tensors) <= SMALL and all(map(is_gathered, tensors)):
                    copies = copying(tensors)  # which costs less than to launch the digests
                    return lambda: self.digest(copies())
                finish = self._torch.launch(tensors)
                if (device, dtypes) not in self._tried:  # a device may report only now that it has no kernel
                    finish()
                    self._tried.add((device, dtypes))
        except _REFUSALS as error:
            copied = self.digest(_copied(tensors))
            # The copies are there, so the error is not one of the training itself.
            self._refusing.add(device)
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            self._notice(f"the tensors of {device} are copied to the CPU for their digests at each step: {reason}")
            return lambda: copied

        def records() -> bytes:
            with unseen():
                return finish()

        return records

    def _digest_copies(self, tensors: Sequence[torch.Tensor]) -> bytes:
        """Digest tensors with torch operations on the CPU."""
        copies = [_plain_copy(tensor) for tensor in tensors]
        with unseen(), without_swaps():
            digests = self._torch.launch([copy for copy in copies if copy is not None])()
        upcoming = iter([digests[start : start + RECORD_BYTES] for start in range(0, len(digests), RECORD_BYTES)])
        return b"".join(
            pack(unreadable(_numel(tensor))) if copy is None else next(upcoming)
            for copy, tensor in zip(copies, tensors, strict=True)
        )


def _copied(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Return the tensors on the CPU, those without values as they are. Raises what a copy raises, unlike `digest`."""
    return [
        tensor if tensor.is_cpu or tensor.is_meta or _is_freed(tensor) else tensor.detach().cpu() for tensor in tensors
    ]


def _is_freed(tensor: torch.Tensor) -> bool:
    """Return whether the storage of a strided tensor was freed."""
    try:
        return tensor.layout == torch.strided and bool(tensor.numel()) and not tensor.untyped_storage().nbytes()
    except _UNREADABLE_ERRORS:  # a wrapper subclass has no storage
        return False


def _lies_there(tensor: torch.Tensor) -> bool:
    """Return whether a tensor's values are in an accelerator's memory, as elements with strides."""
    try:
        return (
            is_accelerator(tensor.device.type)
            and type(tensor).__torch_dispatch__ is no_dispatch
            and tensor.layout == torch.strided
            and not tensor.is_quantized
            and not _is_freed(tensor)
        )
    except _UNREADABLE_ERRORS:
        return False


def _has_geometry(tensor: torch.Tensor) -> bool:
    return tensor.layout == torch.strided and not tensor.is_nested and tensor.dim() <= MOST_DIMENSIONS


def _item(tensor: torch.Tensor, code: int, geometry: int = 0) -> Item | None:
    """Return the native item of a tensor, or None if its storage was freed.

    The address of a freed storage is 0; with a storage offset, `data_ptr` is 0 plus that offset.
    """
    numel, address = tensor.numel(), tensor.data_ptr()
    if numel and (not address or (tensor.storage_offset() and not tensor.untyped_storage().nbytes())):
        return None
    return address, numel, code, geometry


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
