from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from numdrift.harness.errors import JournalError
from numdrift.harness.tape.files.tape_file import exact_file, read_tape, tape_file, write_tape
from numdrift.harness.tape.files.tensor_file import read_tensors, write_tensors
from numdrift.harness.tape.replaying.ensemble import measure_noise
from numdrift.harness.tape.replaying.in_double import exact_values
from numdrift.harness.tape.replaying.replay import AsRecorded, Replay, is_same
from numdrift.harness.tape.tape import GeneratorState, Tape, View, leaves
from numdrift.harness.tape.tape_arguments import DTYPES, FORMATS, LAYOUTS, Decoder, Encoder

from .trainings import TRAININGS, recorded, started


def written(folder: Path, tape: Tape) -> Path:
    path = tape_file(folder, tape.step)
    write_tape(path, tape)
    return path


def plain(value: Any) -> Any:
    """A call's field in a form that compares by what it says."""
    if isinstance(value, GeneratorState):
        return value.device, value.state.tolist()
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    return repr(value)


def test_what_the_first_model_was_called_with_comes_back(tmp_path: Path) -> None:
    with recorded(3) as recorder:
        x = torch.arange(6.0).reshape(2, 3) * 2
        recorder.called_with({"argument 0": x.t()})
        x.add_(1)
    tape = recorder.tape()
    # when
    (one,) = read_tape(written(tmp_path, tape)).batch
    # then
    assert (one.name, one.view, one.position) == ("argument 0", tape.batch[0].view, len(tape.calls) - 1)
    assert torch.equal(one.value, torch.arange(6.0).reshape(2, 3).t() * 2)
    # and nothing is compared by it, and a tape of before had nothing of it
    assert not tape.expected()
    tensors, facts = read_tensors(tape_file(tmp_path, 3))
    write_tensors(tape_file(tmp_path, 3), tensors, {name: one for name, one in facts.items() if name != "given"})
    assert read_tape(tape_file(tmp_path, 3)).batch == ()


@pytest.mark.parametrize("name", TRAININGS)
def test_a_tape_comes_back_whole(name: str, tmp_path: Path) -> None:
    # given
    tape = started(name).taped(12)
    # when
    path = written(tmp_path, tape)
    found = read_tape(path)
    # then
    assert path.name == "tape-000012.safetensors" and exact_file(path).name == "exact-000012.safetensors"
    assert (found.step, found.slots) == (12, tape.slots)
    assert list(found.inputs) and all(torch.equal(found.inputs[slot], data) for slot, data in tape.inputs.items())
    for one, other in zip(found.calls, tape.calls, strict=True):
        for field in ("op", "fresh", "phase", "module", "frames", "sequence", "grad", "owners"):
            assert getattr(one, field) == getattr(other, field)
        for field in ("arguments", "outputs"):
            assert plain(getattr(one, field)) == plain(getattr(other, field))
        assert {key: plain(value) for key, value in one.keywords.items()} == {
            key: plain(value) for key, value in other.keywords.items()
        }
        assert (one.draw is None) == (other.draw is None)
        if one.draw is not None and other.draw is not None:
            assert plain(one.draw.states) == plain(other.draw.states)
            assert all(map(is_same, one.draw.drawn, other.draw.drawn))
    # and it replays, to the same bits and with the same noise
    values = Replay(found).run(AsRecorded())
    assert all(is_same(values[key], value) for key, value in tape.expected().items())
    assert measure_noise(found, 1).tensors == measure_noise(tape, 1).tensors
    assert exact_values(found)[1] == exact_values(tape)[1]


NUMBERS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**62), 2**62),
    st.floats(),
    st.text(),
    st.complex_numbers(),
    st.sampled_from([*DTYPES.values(), *LAYOUTS, *FORMATS, torch.device("cpu"), torch.device("cuda:1")]),
    st.builds(
        lambda slot, dtype, offset, layout: View(slot, dtype, offset, *zip(*layout, strict=True)),
        st.integers(0, 9),
        st.sampled_from(list(DTYPES.values())),
        st.integers(0, 99),
        st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=4),
    ),
)
ARGUMENTS = st.recursive(NUMBERS, lambda inner: st.lists(inner).map(tuple), max_leaves=8)


@given(ARGUMENTS)
@settings(max_examples=200, deadline=None)
def test_arguments_come_back_from_json(value: Any) -> None:
    text = json.dumps(Encoder().encode(value), allow_nan=False)
    found = Decoder(lambda _: torch.empty(0)).decode(json.loads(text))
    assert plain(found) == plain(value)
    for one, other in zip(leaves(found), leaves(value), strict=True):
        assert type(one) is type(other)
        if isinstance(one, float) and one == 0:
            assert math.copysign(1, one) == math.copysign(1, other)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=5)
        | st.dictionaries(
            st.sampled_from(
                ["view", "dtype", "device", "layout", "memory_format", "generator", "complex", "float", "x"]
            ),
            inner,
            max_size=2,
        )
    ),
    max_leaves=12,
)


@given(JSON)
@settings(max_examples=300, deadline=None)
def test_any_json_is_understood_or_refused(value: Any) -> None:
    try:
        Decoder(lambda _: torch.empty(0)).decode(value)
    except (ValueError, TypeError):
        return


Damage = Callable[[dict[str, torch.Tensor], dict[str, Any]], None]


def change(path: str, to: Any) -> Damage:
    """Put a value at a place of the facts, such as `calls.0.op`."""

    def damage(tensors: dict[str, torch.Tensor], facts: dict[str, Any]) -> None:
        *parents, last = [int(part) if part.isdigit() else part for part in path.split(".")]
        place: Any = facts
        for part in parents:
            place = place[part]
        place[last] = to

    return damage


def without(name: str) -> Damage:
    return lambda tensors, facts: None if tensors.pop(name, None) is not None else facts.pop(name)


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (change("schema", 2), "schema"),
        (change("step", -1), "-1"),
        (change("slots.0.0", "8"), "'8'"),
        (change("slots.0.2", "float31"), "'float31'"),
        (change("calls.0.op", "aten.no_such_op.default"), "no_such_op"),
        (change("calls.0.op", "os.system.default"), "os.system"),
        (change("calls.0.op", "aten.__class__.default"), "__class__"),
        (change("calls.0.op", 3), "3"),
        (change("calls.0.phase", "sideways"), "sideways"),
        (change("calls.0.arguments", {"view": [0, "float32", 0, [10**9], [1]]}), "arguments"),
        (change("calls.0.arguments", [{"view": [0, "float32", 0, [10**9], [1]]}]), "ends after the end of its storage"),
        (change("calls.0.arguments", [{"view": [999, "float32", 0, [1], [1]]}]), "slot 999"),
        (change("calls.0.arguments", [{"view": [0, "float32", -1, [1], [1]]}]), "-1"),
        (change("calls.0.arguments", [{"lambda": "x"}]), "kind"),
        (change("calls.0.fresh", []), "outputs"),
        (change("watched.0.0", 10**6), "after the end"),
        (change("watched.0.2", None), "damaged"),
        (without("calls"), "calls"),
        (without("watched 0"), "watched 0"),
        (without("input 0"), ""),
        (change("calls.0.place", 999), "at place 999, which does not exist"),
        (change("places.0", [3]), "damaged"),
        (lambda tensors, facts: tensors.update({"input 0": torch.zeros(3)}), "row of bytes"),
        (lambda tensors, facts: tensors.update({"input 0": torch.zeros(10**6, dtype=torch.uint8)}), "larger"),
    ],
)
def test_a_damaged_tape_is_refused_or_does_not_replay(damage: Damage, words: str, tmp_path: Path) -> None:
    # given
    path = written(tmp_path, started("sam", 0).taped())
    tensors, facts = read_tensors(path)
    damage(tensors, facts)
    write_tensors(path, tensors, facts)
    # when
    if words:
        with pytest.raises(JournalError) as caught:
            read_tape(path)
        # then
        assert words in str(caught.value) and str(path) in str(caught.value) and "\n" not in str(caught.value)
    else:
        assert "a tensor that no recorded op returned" in str(measure_noise(read_tape(path), 1).reason)


@given(st.integers(0, 400), st.integers(0, 255))
@settings(max_examples=25, deadline=None)
def test_changed_bytes_end_in_an_error_or_in_a_tape(tmp_path_factory: Any, at: int, byte: int) -> None:
    with recorded() as recorder:
        recorder.watch("loss 0", torch.ones(3).mul(2).sum())
    path = written(tmp_path_factory.mktemp("tapes"), recorder.tape())
    data = bytearray(path.read_bytes())
    data[at % len(data)] = byte
    path.write_bytes(data)
    try:
        read_tape(path)
    except JournalError:
        return


@pytest.mark.parametrize("share", [0.0, 0.1, 0.9])
def test_a_tape_that_was_cut_off_is_refused(share: float, tmp_path: Path) -> None:
    path = written(tmp_path, started("sam", 0).taped())
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * share)])
    with pytest.raises(JournalError):
        read_tape(path)
