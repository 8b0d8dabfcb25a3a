from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from numdrift.harness.records import frames

Frame = tuple[int, int, bytes]

one_frame = st.tuples(st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1), st.binary(max_size=40))
several = st.lists(one_frame, max_size=5)


def written(content: list[Frame]) -> list[bytes]:
    return [
        frames.header(table, step, len(payload)) + payload + frames.trailer(table, step)
        for table, step, payload in content
    ]


def read(data: bytes) -> list[Frame]:
    """What the walk finds in a file of these bytes, payloads included."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        return [
            (at.table, at.step, data[at.offset : at.offset + at.length]) for at in frames.scan_frames(Path(file.name))
        ]


@given(several)
def test_every_complete_frame_is_found(content: list[Frame]) -> None:
    assert read(b"".join(written(content))) == content


@given(several.filter(bool), st.data())
def test_a_file_cut_anywhere_yields_the_complete_frames_before_the_cut(
    content: list[Frame], data: st.DataObject
) -> None:
    # given
    parts = written(content)
    cut = data.draw(st.integers(0, sum(map(len, parts))))
    # when
    found = read(b"".join(parts)[:cut])
    # then
    ends = [sum(map(len, parts[: count + 1])) for count in range(len(parts))]
    assert found == content[: sum(end <= cut for end in ends)]


@given(several, st.binary(min_size=1, max_size=80), several)
def test_garbage_ends_the_walk(before: list[Frame], garbage: bytes, after: list[Frame]) -> None:
    # given garbage that does not happen to begin as a frame does
    if garbage.startswith(frames.MAGIC[:1]):
        garbage = b"\0" + garbage
    # when
    found = read(b"".join([*written(before), garbage, *written(after)]))
    # then
    assert found == before


@given(several.filter(bool), st.data())
def test_any_changed_byte_harms_no_earlier_frame(content: list[Frame], data: st.DataObject) -> None:
    # given
    parts = written(content)
    whole = bytearray(b"".join(parts))
    place = data.draw(st.integers(0, len(whole) - 1))
    whole[place] ^= data.draw(st.integers(1, 255))
    # when
    found = read(bytes(whole))
    # then
    untouched = sum(sum(map(len, parts[: count + 1])) <= place for count in range(len(parts)))
    assert found[:untouched] == content[:untouched]


@given(one_frame, one_frame, st.data())
def test_a_frame_whose_header_or_trailer_was_changed_is_not_found(
    first: Frame, second: Frame, data: st.DataObject
) -> None:
    # given
    parts = [bytearray(part) for part in written([first, second])]
    size = len(parts[1])
    around = [*range(frames.HEADER.size), *range(size - frames.TRAILER.size, size)]
    parts[1][data.draw(st.sampled_from(around))] ^= data.draw(st.integers(1, 255))
    # then
    assert read(b"".join(parts)) == [first]


def test_a_file_that_is_not_there_has_no_frames(tmp_path: Path) -> None:
    assert list(frames.scan_frames(tmp_path / "digests.bin")) == []


def test_a_length_beyond_the_file_ends_the_walk() -> None:
    assert read(frames.header(0, 0, 2**64 - 1) + b"x" * 100) == []
