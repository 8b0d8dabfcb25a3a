"""Messages between two processes over a socket: a JSON object, followed by segments of bytes.

    8 bytes       length of the header, big-endian
    the header    JSON: {"fields": the object, "segments": the length of each segment in bytes}
    the segments  one after the other

No part of a message is ever evaluated as code.
"""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from ...torch_private.dispatching import storage_address, without_dispatch_modes, without_function_modes
from ..files.journal_writing import bytes_of
from ..storages import bytes_of_storage, viewed
from ..tape import View
from ..tape_arguments import Decoder, Encoder

LENGTH = struct.Struct(">Q")

MOST_HEADER = 64 * 2**20
"""The largest number of bytes of a header."""

MOST_BYTES = 2**38
"""The largest total number of bytes of a message's segments."""


class WireError(Exception):
    """Raised when the received bytes are not a message; the connection can no longer be used."""


class ConnectionEnded(WireError):
    """Raised when the other side has closed the connection between two messages."""


@dataclass(frozen=True, slots=True, eq=False)
class Message:
    """One message; the segments are one-dimensional tensors of bytes on the CPU."""

    fields: Mapping[str, Any]
    segments: Sequence[torch.Tensor] = field(default=())


def send(connection: socket.socket, message: Message) -> None:
    """Send a message. Raises OSError, and ValueError for a header that is too long."""
    described = {"fields": message.fields, "segments": [segment.numel() for segment in message.segments]}
    header = json.dumps(described, separators=(",", ":")).encode()
    if len(header) > MOST_HEADER:
        raise ValueError(f"a header of {len(header)} bytes exceeds the limit of {MOST_HEADER} bytes")
    # A script may have restored the default action of SIGPIPE, which ends the process when the other side is gone.
    connection.sendall(LENGTH.pack(len(header)) + header, socket.MSG_NOSIGNAL)
    for segment in message.segments:
        connection.sendall(_buffer(segment), socket.MSG_NOSIGNAL)


def receive(connection: socket.socket) -> Message:
    """Receive a message, each segment in separate memory. Raises WireError and OSError (TimeoutError)."""
    start = bytearray(LENGTH.size)
    _fill(connection, memoryview(start), is_first=True)
    (length,) = LENGTH.unpack(start)
    if length > MOST_HEADER:
        raise WireError(f"a header of {length} bytes exceeds the limit of {MOST_HEADER} bytes")
    header = bytearray(length)
    _fill(connection, memoryview(header))
    try:
        described = json.loads(header.decode("utf-8"))
        fields, lengths = described["fields"], described["segments"]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        complaint = (str(error).splitlines() or [""])[0][:200]
        raise WireError(f"an invalid header ({type(error).__name__}: {complaint})") from error
    if not isinstance(fields, dict) or not isinstance(lengths, list):
        raise WireError("a header without its fields and segments")
    # Memory is allocated before the other side has sent the bytes, so their number is limited here.
    if not all(type(size) is int and size >= 0 for size in lengths) or sum(lengths) > MOST_BYTES:
        raise WireError("segments of invalid lengths")
    segments = []
    for size in lengths:
        try:
            with without_dispatch_modes(), without_function_modes():
                segment = torch.empty(size, dtype=torch.uint8, device="cpu")
        except RuntimeError as error:
            raise WireError(f"there is no memory for {size} bytes") from error
        if size:
            _fill(connection, _buffer(segment))
        segments.append(segment)
    return Message(fields, tuple(segments))


def _buffer(segment: torch.Tensor) -> memoryview:
    with without_dispatch_modes(), without_function_modes():
        return memoryview(bytes_of(segment)).cast("B")


def _fill(connection: socket.socket, buffer: memoryview, *, is_first: bool = False) -> None:
    """Fill the buffer with received bytes. `is_first` says whether a message begins with these bytes."""
    filled = 0
    while filled < len(buffer):
        count = connection.recv_into(buffer[filled:])
        if not count:
            if is_first and not filled:
                raise ConnectionEnded("the connection was closed")
            raise WireError("the connection was closed within a message")
        filled += count


# Tensors in a message: each is a view of a segment, which contains the bytes of the tensor's storage.


def described(tensors: Sequence[torch.Tensor | None]) -> tuple[list[Any], list[torch.Tensor]]:
    """Return tensors as JSON values, and the segments to which the values refer.

    Tensors that share memory share a segment.

    Raises ValueError for a tensor that is not a plain view of memory.
    """
    encoder = Encoder()
    values: list[Any] = []
    segments: list[torch.Tensor] = []
    numbers: dict[int, tuple[int, torch.Tensor]] = {}
    for tensor in tensors:
        if tensor is None:
            values.append(None)
            continue
        if tensor.layout != torch.strided or tensor.is_quantized or tensor.is_meta:
            raise ValueError("a tensor that is sparse, quantized or without values")
        plain = tensor.detach().resolve_conj().resolve_neg()
        address = storage_address(plain)
        if address not in numbers:
            numbers[address] = len(segments), plain
            segments.append(bytes_of_storage(plain).cpu())
        offset, size, stride = int(plain.storage_offset()), tuple(plain.size()), tuple(plain.stride())
        values.append(encoder.encode(View(numbers[address][0], plain.dtype, offset, size, stride)))
    return values, segments


def tensors_of(values: Any, segments: Sequence[torch.Tensor]) -> list[torch.Tensor | None]:
    """Recreate the tensors from the results of `described`. They use the memory of the segments.

    Raises ValueError and TypeError.
    """
    if not isinstance(values, list):
        raise TypeError("tensors that are not a list")
    decoder = Decoder(_no_generator)
    tensors: list[torch.Tensor | None] = []
    for value in values:
        if value is None:
            tensors.append(None)
            continue
        view = decoder.decode(value)
        if not isinstance(view, View) or view.slot >= len(segments):
            raise ValueError("a tensor without its bytes")
        segment = segments[view.slot]
        # If a view exceeds its storage, torch enlarges the storage instead of refusing.
        if view.extent * view.dtype.itemsize > segment.numel():
            raise ValueError("a tensor that ends after the end of its bytes")
        try:
            tensors.append(viewed(segment.untyped_storage(), view))
        except RuntimeError as error:
            raise ValueError(f"a tensor that cannot be created: {str(error).splitlines()[0]}") from error
    return tensors


def _no_generator(number: int) -> torch.Tensor:
    raise ValueError(f"a reference to generator {number}, but messages contain no generators")
