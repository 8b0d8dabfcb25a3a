from __future__ import annotations

import errno
import json
import math
import os
import signal
import threading
import time
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from numdrift.harness.records.frames import scan_frames
from numdrift.harness.tape.files.journal_writing import (
    MOST_PARTS,
    WAITING_BYTES,
    AppendFile,
    EventLog,
    FrameFile,
    bytes_of,
    loss_to_json,
)


def read_slowly(pipe: Path, into: list[bytes]) -> threading.Thread:
    """Read a named pipe in a thread that lets its writer wait at first."""

    def read() -> None:
        with pipe.open("rb", buffering=0) as file:
            time.sleep(0.1)
            while chunk := file.read(1 << 20):
                into.append(chunk)

    thread = threading.Thread(target=read)
    thread.start()
    return thread


def test_events_are_lines_of_json(tmp_path: Path) -> None:
    # given
    log = EventLog(tmp_path / "events.jsonl")
    # when
    log.write("step", step=0, losses=[0.1, "nan"])
    log.write("notice", text="a\nb \u00e9")
    # then each is on disk without being closed
    lines = (tmp_path / "events.jsonl").read_bytes().split(b"\n")
    assert [json.loads(line) for line in lines[:-1]] == [
        {"event": "step", "step": 0, "losses": [0.1, "nan"]},
        {"event": "notice", "text": "a\nb \u00e9"},
    ]
    assert lines[-1] == b""


def test_a_failure_is_written_or_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    EventLog(tmp_path / "events.jsonl").failed(3, "disk full")
    EventLog(tmp_path / "missing" / "events.jsonl").failed(3, "disk full, too")
    written = json.loads((tmp_path / "events.jsonl").read_text())
    assert written == {"event": "notice", "step": 3, "text": "disk full", "broken": True}
    assert "disk full, too" in capsys.readouterr().err


@given(st.lists(st.binary(max_size=3), max_size=3 * MOST_PARTS))
def test_parts_are_appended_in_order(parts: list[bytes]) -> None:
    # given a file that nothing but this test writes
    path = Path(f"/proc/self/fd/{(descriptor := os.memfd_create('parts'))}")
    try:
        file = AppendFile(path)
        # when
        total = file.append(parts) + file.append([b"end"])
        file.close()
        # then
        assert path.read_bytes() == b"".join(parts) + b"end"
        assert total == sum(map(len, parts)) + 3
    finally:
        os.close(descriptor)


@pytest.mark.parametrize("count", [MOST_PARTS - 1, MOST_PARTS, MOST_PARTS + 1, 5000])
def test_more_parts_than_one_call_takes(tmp_path: Path, count: int) -> None:
    parts = [bytes([index % 256]) * (index % 4) for index in range(count)]
    assert AppendFile(tmp_path / "a").append(parts) == len(b"".join(parts))
    assert (tmp_path / "a").read_bytes() == b"".join(parts)


def test_nothing_to_append(tmp_path: Path) -> None:
    file = AppendFile(tmp_path / "a")
    assert file.append([]) == file.append([b"", b""]) == 0


def test_a_closed_file_goes_on_where_it_was(tmp_path: Path) -> None:
    file = AppendFile(tmp_path / "a")
    file.append([b"one"])
    file.close()
    file.close()
    file.append([b"two"])
    assert (tmp_path / "a").read_bytes() == b"onetwo"


def test_short_writes_are_carried_on(tmp_path: Path) -> None:
    # given a pipe that is full at 64 KiB, and signals that make the kernel return what it wrote so far
    os.mkfifo(tmp_path / "pipe")
    parts = [bytes([index % 251]) * size for index, size in enumerate([70_001, 0, 1, 300_000, 65_536, 0] * 3)]
    interrupts: list[int] = []
    received: list[bytes] = []
    before = signal.signal(signal.SIGALRM, lambda number, _: interrupts.append(number))
    reader = read_slowly(tmp_path / "pipe", received)
    file = AppendFile(tmp_path / "pipe")
    # when
    signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
    try:
        total = file.append(parts)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        file.close()
        reader.join()
    # then
    assert interrupts
    assert b"".join(received) == b"".join(parts)
    assert total == len(b"".join(parts))


def test_a_frame_is_found_again(tmp_path: Path) -> None:
    path = tmp_path / "values-0.bin"
    FrameFile(path).frame(2, 7, [b"ab", b"", b"c"], 3)
    [found] = scan_frames(path)
    assert (found.table, found.step, found.length) == (2, 7, 3)
    assert path.read_bytes()[found.offset : found.offset + 3] == b"abc"


base = torch.arange(24, dtype=torch.float32).reshape(2, 3, 4) - 7.5


@pytest.mark.parametrize(
    "tensor",
    [
        pytest.param(base, id="contiguous"),
        pytest.param(base.transpose(0, 2), id="transposed"),
        pytest.param(base[:, 1:, ::2], id="strided with an offset"),
        pytest.param(base[:, :1].expand(2, 5, 4), id="expanded"),
        pytest.param(base[1, 2, 3], id="0-d with an offset"),
        pytest.param(torch.tensor(3.5, dtype=torch.float64), id="0-d"),
        pytest.param(base[:, :0], id="empty"),
        pytest.param(torch.tensor([True, False, True]), id="bool"),
        pytest.param(torch.tensor([-(2**62), 5]), id="int64"),
        pytest.param(torch.tensor([1.5, -2.0, math.nan], dtype=torch.float16), id="float16"),
        pytest.param(torch.tensor([1 + 2j, 3 - 4j]), id="complex"),
        pytest.param(torch.tensor([1 + 2j, 3 - 4j]).conj(), id="conjugate view"),
        pytest.param(torch.tensor([1 + 2j, 3 - 4j]).conj().imag, id="negative view"),
        pytest.param(torch.nn.Parameter(base.clone()), id="parameter"),
    ],
)
def test_bytes_are_numpys_in_row_major_order(tensor: torch.Tensor) -> None:
    reference = tensor.detach().resolve_conj().resolve_neg().numpy()
    assert bytes(bytes_of(tensor)) == reference.tobytes()
    assert len(bytes_of(tensor)) == reference.nbytes


def test_bytes_of_bfloat16_are_the_upper_halves_of_float32() -> None:
    tensor = torch.tensor([[1.0, -2.5], [math.inf, 3.0e38]], dtype=torch.bfloat16).t()
    wide = tensor.float().contiguous().numpy().view("uint32")
    assert bytes(bytes_of(tensor)) == (wide >> 16).astype("uint16").tobytes()


def test_no_copy_is_made_of_a_contiguous_tensor() -> None:
    tensor = torch.zeros(4)
    buffer = bytes_of(tensor)
    tensor.fill_(1.0)
    assert bytes(buffer) == tensor.numpy().tobytes()


def test_the_buffer_keeps_a_copy_alive() -> None:
    buffer = bytes_of(torch.full((64, 64), 2.0).t()[:, ::2])
    others = [torch.zeros(64, 32) for _ in range(50)]
    assert bytes(buffer) == torch.full((64, 32), 2.0).numpy().tobytes() and others


@pytest.mark.parametrize(
    ("loss", "written"),
    [(0.1, "0.1"), (math.nan, '"nan"'), (math.inf, '"inf"'), (-math.inf, '"-inf"'), (-0.0, "-0.0")],
)
def test_losses_as_json(loss: float, written: str) -> None:
    assert json.dumps(loss_to_json(loss)) == written


@given(st.floats())
def test_a_loss_survives_json_bit_for_bit(loss: float) -> None:
    assert repr(float(json.loads(json.dumps(loss_to_json(loss))))) == repr(loss)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """A disk that has room for so many more bytes; a write that does not fit is cut off."""
    room, write = {"bytes": 1 << 30}, os.writev

    def limited(descriptor: int, parts: list[memoryview]) -> int:
        if room["bytes"] <= 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written = write(descriptor, [b"".join(parts)[: room["bytes"]]])
        room["bytes"] -= written
        return written

    monkeypatch.setattr(os, "writev", limited)
    return room


def test_a_record_that_does_not_fit_leaves_the_file_as_it_was(tmp_path: Path, disk: dict[str, int]) -> None:
    file = FrameFile(tmp_path / "frames")
    file.frame(0, 0, [b"abc"], 3)
    disk["bytes"] = 10
    with pytest.raises(OSError, match="No space left"):
        file.frame(0, 1, [b"defghijk"], 8)
    disk["bytes"] = 1000
    file.frame(0, 2, [b"xyz"], 3)
    assert [frame.step for frame in scan_frames(tmp_path / "frames")] == [0, 2]


def test_lines_wait_for_room_in_their_order(
    tmp_path: Path, disk: dict[str, int], capsys: pytest.CaptureFixture[str]
) -> None:
    log = EventLog(tmp_path / "events.jsonl")
    log.write("step", step=0)
    disk["bytes"] = 5
    for step in range(1, 4):
        log.write("step", step=step)
    disk["bytes"] = 1000
    log.write("step", step=4)
    lines = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [0, 1, 2, 3, 4]
    assert capsys.readouterr().err.count("No space left on device; its lines wait in memory") == 1


def test_lines_do_not_fill_the_memory(tmp_path: Path, disk: dict[str, int]) -> None:
    log = EventLog(tmp_path / "events.jsonl")
    disk["bytes"] = 0
    log.write("step", text="x" * (WAITING_BYTES // 2))
    with pytest.raises(OSError, match="No space left"):
        log.write("step", text="x" * (WAITING_BYTES // 2))
