from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from numdrift.harness.tape.replaying.replay import is_same
from numdrift.harness.tape.serving.wire import (
    ConnectionEnded,
    Message,
    WireError,
    described,
    receive,
    send,
    tensors_of,
)

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def ends() -> Iterator[Pair]:
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    with one, other:
        one.settimeout(20)
        other.settimeout(20)
        yield one, other


def passed_on(message: Message) -> Message:
    """The message as it comes out at the other end."""
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    with one, other:
        sending = threading.Thread(target=send, args=(one, message))
        sending.start()
        try:
            return receive(other)
        finally:
            sending.join()


def row(content: bytes) -> torch.Tensor:
    return torch.tensor(list(content), dtype=torch.uint8)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**62), 2**62) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


@given(st.dictionaries(st.text(), VALUES, max_size=4), st.lists(st.binary(max_size=300), max_size=5))
def test_a_message_arrives_as_it_was_sent(fields: dict[str, Any], segments: list[bytes]) -> None:
    arrived = passed_on(Message(fields, [row(one) for one in segments]))
    assert arrived.fields == fields
    assert [bytes(one.tolist()) for one in arrived.segments] == segments


def test_a_large_message_arrives(ends: Pair) -> None:
    data = torch.arange(30_000_000 // 8).view(torch.uint8)
    arrived = passed_on(Message({}, [data, data[5:77]]))
    assert torch.equal(arrived.segments[0], data) and torch.equal(arrived.segments[1], data[5:77])


def test_messages_follow_one_another(ends: Pair) -> None:
    for number in range(3):
        send(ends[0], Message({"number": number}, [row(bytes(number))]))
    ends[0].close()
    for number in range(3):
        arrived = receive(ends[1])
        assert arrived.fields == {"number": number} and arrived.segments[0].numel() == number
    with pytest.raises(ConnectionEnded):
        receive(ends[1])


def framed(header: object) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack(">Q", len(text)) + text


BAD = {
    "a header beyond the limit": struct.pack(">Q", 2**40),
    "no JSON": framed(b"(0, 1)"),
    "no text": framed(b"\xff\xfe"),
    "no object": framed([1]),
    "nothing in it": framed({}),
    "fields that are not an object": framed({"fields": 1, "segments": []}),
    "a length that is not a number": framed({"fields": {}, "segments": ["8"]}),
    "a negative length": framed({"fields": {}, "segments": [-1]}),
    "a length that is a truth": framed({"fields": {}, "segments": [True]}),
    "a length beyond the limit": framed({"fields": {}, "segments": [2**50]}),
    "nesting without end": framed(b"[" * 200_000),
    "a header cut off": struct.pack(">Q", 100) + b"{}",
    "a length cut off": b"\0\0",
    "a segment cut off": framed({"fields": {}, "segments": [100]}) + bytes(99),
}


@pytest.mark.parametrize("content", BAD.values(), ids=BAD)
def test_what_is_no_message_is_refused(ends: Pair, content: bytes) -> None:
    def write() -> None:
        ends[0].sendall(content)
        ends[0].close()

    writing = threading.Thread(target=write)
    writing.start()
    with pytest.raises(WireError) as refused:
        receive(ends[1])
    ends[1].close()
    writing.join()
    assert not isinstance(refused.value, ConnectionEnded)


@given(st.binary(max_size=64))
def test_noise_never_gives_anything_but_a_refusal(content: bytes) -> None:
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    with other:
        with one:
            one.sendall(content)
        with pytest.raises(WireError):
            receive(other)


DTYPES = [torch.float32, torch.bfloat16, torch.float64, torch.complex64, torch.int64, torch.bool, torch.uint8]


@st.composite
def tensors(draw: st.DrawFn) -> torch.Tensor:
    """Views of a storage: transposed, sliced, expanded, empty."""
    size = draw(st.lists(st.integers(0, 4), max_size=3))
    seed = draw(st.integers(0, 1000))
    whole = torch.randint(0, 2, [n + 2 for n in size], generator=torch.Generator().manual_seed(seed))
    tensor = whole.to(draw(st.sampled_from(DTYPES)))
    for dimension, n in enumerate(size):
        tensor = tensor.narrow(dimension, draw(st.integers(0, 2)), n)
    tensor = tensor.permute(draw(st.permutations(range(len(size)))))
    return tensor.unsqueeze(0).expand(3, *tensor.shape) if draw(st.booleans()) else tensor


@given(st.lists(st.none() | tensors(), max_size=4))
def test_tensors_arrive_with_their_layout(sent: list[torch.Tensor | None]) -> None:
    values, segments = described(sent)
    arrived = passed_on(Message({"tensors": values}, segments))
    found = tensors_of(arrived.fields["tensors"], arrived.segments)
    assert len(found) == len(sent)
    for one, other in zip(found, sent, strict=True):
        if one is None or other is None:
            assert one is other
            continue
        assert is_same(one, other)
        assert (one.stride(), one.storage_offset()) == (other.stride(), other.storage_offset())


def test_tensors_that_share_memory_do_so_still() -> None:
    whole = torch.arange(12.0)
    values, segments = described([whole[:6], None, whole.view(3, 4).t(), torch.ones(2)])
    assert len(segments) == 2
    first, _, second, third = tensors_of(values, [one.clone() for one in segments])
    assert first is not None and second is not None and third is not None
    first[5] = 100
    assert second[1, 1] == 100 and third.tolist() == [1, 1]


def test_conjugates_arrive_as_values() -> None:
    values, segments = described([torch.tensor([1 + 2j]).conj()])
    (found,) = tensors_of(values, segments)
    assert found is not None and found.tolist() == [1 - 2j]


@pytest.mark.parametrize(
    "value",
    [
        1,
        {"view": [0, "float32", 0, [3], [1]]},
        {"view": [0, "float32", 2, [1], [1]]},
        {"view": [1, "float32", 0, [1], [1]]},
        {"view": [0, "float33", 0, [1], [1]]},
        {"view": [0, "float32", -1, [1], [1]]},
        {"view": [0, "float32", 0, [2**61, 2**61], [0, 0]]},
        {"view": [0, "float32", 0, [1]]},
        {"generator": ["cpu", 0]},
        {"dtype": "float32"},
        {"call": "os.system"},
    ],
)
def test_a_description_beyond_its_bytes_is_refused(value: object) -> None:
    with pytest.raises((ValueError, TypeError)):
        tensors_of([value], [torch.zeros(8, dtype=torch.uint8)])


def test_what_has_no_bytes_cannot_be_described() -> None:
    for tensor in (torch.empty(3, device="meta"), torch.eye(3).to_sparse()):
        with pytest.raises(ValueError, match="sparse"):
            described([tensor])
