from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from numdrift.harness.errors import NotAvailable, SnapshotError
from numdrift.harness.snapshots.snapshot_file import read_snapshot
from numdrift.harness.snapshots.snapshot_record import Port
from numdrift.harness.tape.files.tensor_file import read_tensors, write_tensors
from numdrift.harness.tape.replaying.replay import is_same
from numdrift.harness.tape.tape import Call
from numdrift.harness.tools.snapshots.replay_answer import answer_of
from numdrift.harness.tools.snapshots.snapshot_contents import contents_of

from .samples import AROUND, snapshot_of, step_of, written


@pytest.mark.parametrize("name", ["mlp", "sam", "lstm", "embeddings"])
def test_a_snapshot_comes_back_and_gives_every_bit_again(name: str, tmp_path: Path) -> None:
    # given
    made = snapshot_of(name)
    # when
    path = written(tmp_path, name)
    found = read_snapshot(path)
    # then
    assert path.name == "0-forward-step000003-execution000002.safetensors"
    assert (found.execution, found.around, found.held) == (made.execution, made.around, made.held)
    assert found.outputs == made.outputs
    assert len(found.tape.calls) == len(made.tape.calls)
    assert all(
        is_same(one, other)
        for one, other in zip(found.output_values(), made.output_values(), strict=True)
        if one is not None and other is not None
    )
    answer = answer_of(path)
    assert answer.holds and answer.comparison.identical


def test_inputs_are_in_the_file_as_the_script_has_them(tmp_path: Path) -> None:
    tape = step_of("sam")
    slot, view = next(
        (one.slot, one) for call in tape.calls for one in call.arguments if hasattr(one, "slot") and one.size
    )
    path = written(tmp_path, "sam", inputs=(Port("parameter 0.weight", view),), held=("inputs",))
    tensors, facts = read_tensors(path)
    assert tuple(tensors[f"input {slot}"].shape) == view.size
    assert tensors[f"input {slot}"].dtype == torch.float32
    assert facts["snapshot"]["inputs"][0][0] == "parameter 0.weight"
    assert read_snapshot(path).sensitive() == {"parameters": 1}


@pytest.mark.parametrize("held", [("inputs",), ("outputs",), ()])
def test_what_is_not_held_is_not_in_the_file(held: tuple[str, ...], tmp_path: Path) -> None:
    path = written(tmp_path, "sam", held=held)
    kinds = {name.partition(" ")[0] for name in read_tensors(path)[0]}
    assert kinds == {word.removesuffix("s") for word in held}
    found = read_snapshot(path)
    assert contents_of(found).ops["aten.tanh"] == 2
    if "inputs" in held:
        answer = answer_of(path)
        assert answer.holds and "nothing to compare" in answer.text
    else:
        with pytest.raises(SnapshotError, match="holds no inputs"):
            answer_of(path)


@given(data=st.data())
@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_file_with_a_flipped_bit_is_refused(data: st.DataObject, tmp_path: Path) -> None:
    # given
    path = tmp_path / "sam.safetensors"
    if not path.exists():
        written(tmp_path, "sam").replace(path)
    content = bytearray(path.read_bytes())
    where = data.draw(st.integers(0, len(content) - 1))
    content[where] ^= 1 << data.draw(st.integers(0, 7))
    damaged = tmp_path / "damaged.safetensors"
    damaged.write_bytes(content)
    # when
    with pytest.raises(SnapshotError) as caught:
        read_snapshot(damaged)
    # then
    assert "\n" not in str(caught.value) and caught.value.exit_code == 2


def test_a_file_that_was_cut_off_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, "sam")
    whole = path.read_bytes()
    for size in (0, 5, 100, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(SnapshotError):
            read_snapshot(path)


def test_other_files_are_refused(tmp_path: Path) -> None:
    other = tmp_path / "values.safetensors"
    write_tensors(other, {"a": torch.zeros(2)}, {"schema": 1})
    with pytest.raises(SnapshotError, match="is not a snapshot"):
        read_snapshot(other)
    text = tmp_path / "train.py"
    text.write_text("print('a script, of more than eight bytes')\n")
    for path in (text, tmp_path / "nowhere"):
        with pytest.raises(SnapshotError):
            read_snapshot(path)


Forgery = Callable[[dict[str, Any]], Any]


def call_in(facts: dict[str, Any], op: str) -> dict[str, Any]:
    found: dict[str, Any] = next(one for one in facts["tape"]["calls"] if one["op"] == op)
    return found


FORGERIES: dict[str, tuple[Forgery, str]] = {
    "an op that maps a file": (
        lambda facts: call_in(facts, "aten.tanh.default").update(
            op="aten.from_file.default", arguments=["/tmp/forged", True, 8]
        ),
        "from_file",
    ),
    "an op of a library": (
        lambda facts: call_in(facts, "aten.tanh.default").update(op="mine.tanh.default"),
        "the op mine.tanh.default, but a snapshot may execute only ops of aten",
    ),
    "an op that torch does not have": (
        lambda facts: call_in(facts, "aten.tanh.default").update(op="aten.tanhh.default"),
        "aten.tanhh.default",
    ),
    "no op at all": (lambda facts: call_in(facts, "aten.tanh.default").update(op="os.system"), "os.system"),
    "a view behind its storage": (
        lambda facts: facts["outputs"][0].__setitem__(1, [0, "float32", 10**9, [1], [1]]),
        "lies outside of its storage",
    ),
    "too few outputs": (lambda facts: facts["outputs"].pop(), "have names"),
    "another reason": (lambda facts: facts.update(reason="because"), "reason"),
    "another schema": (lambda facts: facts.update(schema=99), "schema 99"),
    "no tape": (lambda facts: facts.pop("tape"), "cannot be understood"),
    "a tensor too many": (lambda facts: facts["sha256"].update({"input 99": "0"}), "too few or too many tensors"),
    "a number as a name": (lambda facts: facts["execution"].update(name=7), "name is 7, not text"),
    "a step before the first": (lambda facts: facts["execution"].update(step=-1), "-1"),
}


def forged(path: Path, forgery: Forgery) -> Path:
    """The file with its description changed, and the digest of the description made to fit."""
    tensors, outer = read_tensors(path)
    facts = outer["snapshot"]
    forgery(facts)
    text = json.dumps(facts, sort_keys=True, separators=(",", ":"))
    write_tensors(path, tensors, {"snapshot": facts, "sha256": hashlib.sha256(text.encode()).hexdigest()})
    return path


@pytest.mark.parametrize("what", FORGERIES)
def test_a_forged_file_executes_nothing(what: str, tmp_path: Path) -> None:
    forgery, complaint = FORGERIES[what]
    path = forged(written(tmp_path, "sam"), forgery)
    with pytest.raises(SnapshotError, match=complaint):
        answer_of(path)
    assert not Path("/tmp/forged").exists()


def test_an_op_that_refuses_its_arguments_is_an_error_of_the_replay(tmp_path: Path) -> None:
    path = forged(
        written(tmp_path, "sam"),
        lambda facts: call_in(facts, "aten.tanh.default").update(arguments=["no tensor"]),
    )
    answer = answer_of(path, "cpu")
    assert not answer.holds and answer.text.startswith("it raises the error")


def test_a_file_that_is_rewritten_as_it_is_stays_good(tmp_path: Path) -> None:
    assert answer_of(forged(written(tmp_path, "sam"), lambda facts: None)).holds


def test_what_comes_from_an_accelerator_is_executed_on_the_cpu(tmp_path: Path) -> None:
    # given a step with dropout whose storages, generators and devices are said to be those of a GPU
    tape = step_of("mlp")

    def elsewhere(call: Call) -> Call:
        draw = call.draw
        states = () if draw is None else tuple(replace(one, device="cuda:0") for one in draw.states)
        return replace(call, draw=None if draw is None else replace(draw, states=states))

    there = replace(
        tape,
        slots=tuple(replace(one, device="cuda:0") for one in tape.slots),
        calls=tuple(map(elsewhere, tape.calls)),
    )
    around = replace(AROUND, mode="cuda", spec="cuda", devices=("cuda:0",))
    path = written(tmp_path, "mlp", tape=there, around=around)
    # when
    answer = answer_of(path, "cpu")
    # then
    assert answer.comparison.identical
    with pytest.raises(NotAvailable, match="cuda"):
        answer_of(path)


def test_values_of_rare_kinds_are_kept(tmp_path: Path) -> None:
    tape = step_of("mlp")
    rare = [torch.full((2, 3), 1.5).to(torch.float8_e4m3fn), torch.full((3,), complex(1, -2))]
    watched = tuple(replace(one, value=value) for one, value in zip(tape.watched, rare, strict=False))
    path = written(tmp_path, "mlp", tape=replace(tape, watched=watched), outputs=snapshot_of("mlp").outputs[:2])
    found = read_snapshot(path).output_values()
    assert [str(one.dtype) for one in found if one is not None] == ["torch.float8_e4m3fn", "torch.complex64"]
    facts = contents_of(read_snapshot(path)).outputs
    assert [(one.minimum, one.maximum) for one in facts] == [(1.5, 1.5), (-2.0, 1.0)]
