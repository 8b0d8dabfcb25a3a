from __future__ import annotations

import json
import math
import os
import pickle
import struct
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from numdrift.harness.errors import JournalError
from numdrift.harness.records import frames
from numdrift.harness.runs.journal import Journal
from numdrift.harness.runs.pickles import read_pickle, write_pickle
from numdrift.harness.tape.files.journal_writing import EventLog, FrameFile


class Calling:
    """Pickles as a call of `function`."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> Any:
        return self.call


def two_steps(folder: Path) -> Journal:
    """A journal of two steps, the second without a loss, with one parameter w."""
    log, values = EventLog(folder / frames.EVENTS), FrameFile(folder / frames.values_file(0))
    tensors = [{"name": "w", "kind": "parameter", "shape": [2], "dtype": "float32"}]
    log.write("tensors", table=0, tensors=tensors)
    for step, losses in enumerate([[0.1, 9.0], []]):
        values.frame(0, step, [struct.pack("<2f", step, -1.5)], 8)
        log.write("step", step=step, losses=losses, seconds=0.5)
    return Journal(folder)


def plain(arrays: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: array.tolist() for name, array in state.items()} for state in arrays]


def test_what_is_written_is_read(tmp_path: Path) -> None:
    # given
    path = tmp_path / "verify_cpu.pkl"
    # when
    write_pickle(path, "cpu", two_steps(tmp_path))
    # then
    content = read_pickle(path)
    states = content.pop("state_dicts")
    assert plain(states) == [{"w": [0.0, -1.5]}, {"w": [1.0, -1.5]}]
    assert states[0]["w"].dtype == np.float32
    loss, none = content.pop("losses")
    assert loss == 0.1 and math.isnan(none)
    assert content == {"schema": 1, "mode": "cpu", "state_dict_steps": [0, 1]}


def test_any_unpickler_reads_what_is_written(tmp_path: Path) -> None:
    write_pickle(tmp_path / "a.pkl", "cpu", two_steps(tmp_path))
    with (tmp_path / "a.pkl").open("rb") as file:
        assert pickle.load(file)["losses"][0] == 0.1


def test_nothing_else_is_left_in_the_folder(tmp_path: Path) -> None:
    (journal := tmp_path / "journal").mkdir()
    write_pickle(tmp_path / "a.pkl", "cpu", two_steps(journal))
    write_pickle(tmp_path / "a.pkl", "lazy", Journal(journal))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.pkl", "journal"]
    assert read_pickle(tmp_path / "a.pkl")["mode"] == "lazy"


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_strangers_call_is_refused_and_not_made(tmp_path: Path, protocol: int) -> None:
    # given
    target = tmp_path / "made"
    path = tmp_path / "a.pkl"
    content = {"schema": 1, "losses": Calling(os.system, f"touch {target}")}
    path.write_bytes(pickle.dumps(content, protocol))
    # when
    with pytest.raises(JournalError, match=r"refers to .*system, which is not an array: not loaded") as raised:
        read_pickle(path)
    # then
    assert not target.exists()
    assert raised.value.path == path
    # and it would have been made otherwise
    pickle.loads(path.read_bytes())
    assert target.exists()


@pytest.mark.parametrize(
    "content",
    [
        Calling(eval, "1 + 1"),
        Calling(getattr, "", "join"),
        Calling(np.load, "a.npy"),
        np.float32(1.0),
        OrderedDict(a=1),
        Path("a"),
    ],
    ids=["eval", "getattr", "numpy.load", "numpy.float32", "OrderedDict", "Path"],
)
def test_nothing_but_arrays_and_plain_containers_is_admitted(tmp_path: Path, content: object) -> None:
    (tmp_path / "a.pkl").write_bytes(pickle.dumps({"schema": 1, "losses": content}))
    with pytest.raises(JournalError, match="which is not an array: not loaded"):
        read_pickle(tmp_path / "a.pkl")


@pytest.mark.parametrize(
    "content",
    [b"", b"not a pickle", json.dumps({"schema": 1}).encode(), b"\x80\x04.", b"\x80\x04K\x01", b"\x80\xff."],
)
def test_a_foreign_file_is_a_journal_error(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.pkl").write_bytes(content)
    with pytest.raises(JournalError):
        read_pickle(tmp_path / "a.pkl")


@pytest.mark.parametrize("content", [{"schema": 2}, {"schema": 0}, {"schema": "1"}, {"schema": []}, {}, [1], None])
def test_an_unknown_schema_is_a_journal_error(tmp_path: Path, content: object) -> None:
    (tmp_path / "a.pkl").write_bytes(pickle.dumps(content))
    with pytest.raises(JournalError, match="schema 1 to 1"):
        read_pickle(tmp_path / "a.pkl")


def test_a_missing_file_is_a_journal_error(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match="cannot be read"):
        read_pickle(tmp_path / "a.pkl")


def test_a_truncated_pickle_is_a_journal_error(tmp_path: Path) -> None:
    write_pickle(tmp_path / "a.pkl", "cpu", two_steps(tmp_path))
    whole = (tmp_path / "a.pkl").read_bytes()
    for length in range(len(whole)):
        (tmp_path / "a.pkl").write_bytes(whole[:length])
        with pytest.raises(JournalError):
            read_pickle(tmp_path / "a.pkl")


def with_array(folder: Path, dtype_state: tuple[object, ...], shape: tuple[int, ...], data: object) -> Path:
    """A pickle whose one array is rebuilt from these parts, as NumPy's own would be."""

    class Dtype:
        def __reduce__(self) -> Any:
            return np.dtype, ("f4", False, True), dtype_state

    class Rebuilt:
        def __reduce__(self) -> Any:
            plain = np.zeros(1, np.float32).__reduce__()
            return plain[0], plain[1], (1, shape, Dtype(), False, data)

    content = {"schema": 1, "mode": "cpu", "losses": [0.5], "state_dict_steps": [0]}
    (folder / "a.pkl").write_bytes(pickle.dumps(content | {"state_dicts": [{"w": Rebuilt()}]}, 4))
    return folder / "a.pkl"


PLAIN_STATE = (3, "<", None, None, None, -1, -1, 0)


def test_an_array_of_checked_parts_is_loaded(tmp_path: Path) -> None:
    path = with_array(tmp_path, PLAIN_STATE, (2,), struct.pack("<2f", 1.0, -2.0))
    assert read_pickle(path)["state_dicts"][0]["w"].tolist() == [1.0, -2.0]


@pytest.mark.parametrize(
    ("shape", "data"),
    [((2,), b"\0" * 4), ((2,), b"\0" * 12), ((-1,), b"\0" * 4), ((2**62,), b""), ((1,), [0.5]), ((1,), None)],
)
def test_an_array_that_lies_about_its_size_is_a_journal_error(tmp_path: Path, shape: Any, data: object) -> None:
    with pytest.raises(JournalError):
        read_pickle(with_array(tmp_path, PLAIN_STATE, shape, data))


@pytest.mark.parametrize("state", [(3, "O", None, None, None, -1, -1, 63), (3,), (), (3, 7), None, (3, "<,i8,")])
def test_a_dtype_that_lies_is_a_journal_error(tmp_path: Path, state: Any) -> None:
    # given what NumPy's own dtype takes on trust, and crashes on when flags say that it holds objects
    path = with_array(tmp_path, state or (None,), (1,), b"\0" * 4)
    with pytest.raises(JournalError):
        read_pickle(path)


def test_flags_of_a_dtype_have_no_effect(tmp_path: Path) -> None:
    path = with_array(tmp_path, (3, "<", None, None, None, 10**6, 64, 63), (1,), b"\0" * 4)
    assert read_pickle(path)["state_dicts"][0]["w"].dtype == np.dtype("<f4")


def test_an_array_of_objects_is_a_journal_error(tmp_path: Path) -> None:
    content = {"schema": 1, "mode": "cpu", "losses": [], "state_dict_steps": [0]}
    array = np.array([{}, []], dtype=object)
    (tmp_path / "a.pkl").write_bytes(pickle.dumps(content | {"state_dicts": [{"w": array}]}))
    with pytest.raises(JournalError):
        read_pickle(tmp_path / "a.pkl")


def test_arrays_by_columns_keep_their_elements(tmp_path: Path) -> None:
    array = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    content = {
        "schema": 1,
        "mode": "cpu",
        "losses": [],
        "state_dict_steps": [0],
        "state_dicts": [{"w": array}],
    }
    (tmp_path / "a.pkl").write_bytes(pickle.dumps(content, 4))
    assert read_pickle(tmp_path / "a.pkl")["state_dicts"][0]["w"].tolist() == array.tolist()


def test_a_memo_number_out_of_proportion_is_a_journal_error(tmp_path: Path) -> None:
    # given an object to be remembered as number 10 million, for which unpickling would fill 160 MB
    whole = pickle.dumps({"schema": 1}, 4)
    (tmp_path / "a.pkl").write_bytes(whole[:-1] + b"r" + struct.pack("<I", 10**7) + b".")
    with pytest.raises(JournalError, match="uses the memo number 10000000"):
        read_pickle(tmp_path / "a.pkl")


@pytest.mark.parametrize("field", ["mode", "losses", "state_dict_steps", "state_dicts"])
@pytest.mark.parametrize("value", [7, [[]], [{"w": 1}], None], ids=str)
def test_a_field_of_another_kind_is_a_journal_error(tmp_path: Path, field: str, value: object) -> None:
    content = {"schema": 1, "mode": "cpu", "losses": [], "state_dict_steps": [], "state_dicts": []}
    (tmp_path / "a.pkl").write_bytes(pickle.dumps(content | {field: value}))
    with pytest.raises(JournalError, match="cannot be read"):
        read_pickle(tmp_path / "a.pkl")


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 255))
def test_a_changed_byte_is_a_journal_error_at_most(tmp_path: Path, place: int, change: int) -> None:
    # given
    path = tmp_path / "a.pkl"
    if not (tmp_path / frames.EVENTS).exists():
        write_pickle(tmp_path / "whole.pkl", "cpu", two_steps(tmp_path))
    content = bytearray((tmp_path / "whole.pkl").read_bytes())
    content[place % len(content)] ^= change
    path.write_bytes(content)
    # when
    try:
        read = read_pickle(path)
    except JournalError as error:
        assert error.path == path
    else:
        assert read["schema"] == 1
