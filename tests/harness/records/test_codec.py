"""Records survive their JSON, and what is not a record is named by its field."""

from __future__ import annotations

import json
import math
import types
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any, ClassVar, Literal, Union, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from numdrift.harness.errors import JournalError
from numdrift.harness.records.codec import (
    NOT_WRITTEN,
    UNCHECKED,
    UNLESS_EMPTY,
    FileForm,
    Unreadable,
    json_text,
    plain,
    read,
)
from numdrift.harness.records.modes.mode_spec import ModeSpec
from numdrift.harness.records.results.culprit import MARK_STEP, WRITTEN_OF_MODE, WRITTEN_OF_OP, Culprit, Proof
from numdrift.harness.records.results.experiment import Experiment
from numdrift.harness.records.run.run_config import RunConfig
from numdrift.harness.records.run.step_selection import KeepParams, StepSelection
from numdrift.harness.records.tools.graph_record import Cut, Graph, Node
from numdrift.harness.records.tools.partition_record import GraphPartition, PartitionConfig
from numdrift.harness.records.tools.profile_record import RunProfile, TraceRequest
from numdrift.harness.runs.manifest import RunManifest
from numdrift.harness.snapshots.snapshot_choice import Choice

TEXT = st.text(max_size=6)
VALUE = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXT,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXT, inner, max_size=2),
    max_leaves=3,
)
"""What a field of any type may hold."""

RECORDS = (
    RunManifest, RunConfig, ModeSpec, TraceRequest, Choice, PartitionConfig, GraphPartition, RunProfile, Experiment,
    Proof, Cut, Node, Graph,
)  # fmt: skip


class Colour(Enum):
    RED = "red"


@dataclass(frozen=True, slots=True)
class Part:
    name: str
    at: tuple[int, float] = (0, 0.0)


@dataclass(frozen=True, slots=True)
class Trial:
    path: Path
    kind: Literal["a", "b"] = "a"
    colour: Colour = Colour.RED
    scores: Mapping[str, float | None] = field(default_factory=dict)
    counts: Mapping[int, int] = field(default_factory=dict)
    parts: tuple[Part, ...] = ()
    shape: tuple[int | str, ...] | None = None
    note: str = field(default="", metadata=UNLESS_EMPTY)
    here: str = field(default="", metadata=NOT_WRITTEN)
    whatever: Any = field(default=0, metadata=UNCHECKED)


def some(hint: Any) -> st.SearchStrategy[Any]:
    """Values of a type."""
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is StepSelection:
        return st.sampled_from(["", "3", "0,5,10-19,100-"]).map(StepSelection.parse)
    if hint is KeepParams:
        return st.sampled_from(["all", "last", "every=3"]).map(KeepParams.parse)
    if hint is PartitionConfig:
        return st.builds(PartitionConfig, st.floats(0, 1), ops_to_partition=st.sampled_from([(), ("aten::mm",)]))
    if hint is Any:
        return VALUE
    if origin in (Union, types.UnionType):
        return st.one_of(*map(some, arguments))
    if origin is Literal:
        return st.sampled_from(arguments)
    if arguments == (Node, ...):
        return st.lists(st.builds(Node, name=TEXT, op=TEXT), max_size=2).map(tuple)
    if origin is tuple:
        if arguments[-1] is Ellipsis:
            return st.lists(some(arguments[0]), max_size=2).map(tuple)
        return st.tuples(*map(some, arguments))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return st.dictionaries(TEXT, some(arguments[1]), max_size=2)
    if isinstance(origin, type) and issubclass(origin, Iterable):
        return st.lists(some(arguments[0]), max_size=2)
    if is_dataclass(hint) and isinstance(hint, type):
        hints = get_type_hints(hint)
        return st.builds(hint, **{one.name: some(hints[one.name]) for one in fields(hint) if one.name != "schema"})
    return TEXT if hint is str else st.from_type(hint)


@settings(max_examples=30, deadline=None)
@pytest.mark.parametrize("kind", RECORDS, ids=lambda kind: kind.__name__)
@given(data=st.data())
def test_a_record_survives_its_json(kind: type[Any], data: st.DataObject) -> None:
    record = data.draw(some(kind))
    text = json_text(record)
    again = read(kind, json.loads(text))
    assert type(again) is kind and json_text(again) == text


@settings(max_examples=50, deadline=None)
@given(data=st.data())
@pytest.mark.parametrize("kind", ["kernel", "structure", MARK_STEP])
def test_a_culprit_survives_its_json(kind: str, data: st.DataObject) -> None:
    hints = get_type_hints(Culprit)
    names = {*WRITTEN_OF_MODE.get(kind, WRITTEN_OF_OP)} - {"kind", "proof"}
    given = {name: data.draw(some(hints[name])) for name in sorted(names)}
    culprit = Culprit(kind=kind, proof=data.draw(some(Proof)), **given)
    assert plain(Culprit.from_json(json.loads(json_text(culprit)))) == plain(culprit)


def test_a_difference_of_the_setup_has_its_own_fields() -> None:
    setup = Culprit("setup", phase="setup", step=2, what="batch", name="input 0", text="other", significance="x")
    assert list(plain(setup)) == [*("phase", "module", "op", "kind", "step", "what", "name", "text", "significance")]
    assert Culprit.from_json(plain(setup)) == setup


def test_values_become_those_that_json_has_and_come_back() -> None:
    trial = Trial(
        Path("a/b"), "b", Colour.RED, {"w": math.inf, "v": None, "u": -math.inf}, {3: 4}, (Part("p", (1, 2.5)),),
        (2, "s0"), here="not in the file",
    )  # fmt: skip
    said = {
        "path": "a/b", "kind": "b", "colour": "red", "scores": {"w": "inf", "v": None, "u": "-inf"}, "counts": {"3": 4},
        "parts": [{"name": "p", "at": [1, 2.5]}], "shape": [2, "s0"], "whatever": 0,
    }  # fmt: skip
    assert plain(trial) == said
    assert read(Trial, said) == Trial(**{**{one.name: getattr(trial, one.name) for one in fields(trial)}, "here": ""})
    assert math.isnan(read(list[float], ["nan"])[0])
    assert plain(Trial(Path(), note="x"))["note"] == "x"
    assert read(Trial, {"path": ".", "whatever": "anything"}).whatever == "anything"


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({}, "lacks 'path'"),
        ([], "is [], not an object"),
        ({"path": ".", "colours": 1}, "colours is an unknown field"),
        ({"path": ".", "kind": "c"}, "kind is 'c', not one of a, b"),
        ({"path": ".", "scores": {"w": "much"}}, "scores.w is 'much', not a number"),
        ({"path": ".", "scores": {"w": True}}, "scores.w is True, not a number"),
        ({"path": ".", "scores": [1]}, "scores is [1], not an object"),
        ({"path": ".", "counts": {"x": 1}}, "counts is {'x': 1}, with keys that are not whole numbers"),
        ({"path": ".", "parts": [{"name": "p"}, {"name": 3}]}, "parts[1].name is 3, not text"),
        ({"path": ".", "parts": [{"at": [1]}]}, "parts[0].at is [1], not a list of 2"),
        ({"path": ".", "parts": "p"}, "parts is 'p', not a list"),
        ({"path": ".", "shape": [1.5]}, "shape[0] is 1.5, not text"),
    ],
)
def test_what_is_no_record_is_named_by_its_field(data: Any, said: str) -> None:
    with pytest.raises(Unreadable) as refused:
        read(Trial, data)
    assert str(refused.value) == said


def test_a_newer_file_may_have_fields_that_are_not_known() -> None:
    @dataclass(frozen=True)
    class Tolerant:
        UNKNOWN_IS_IGNORED: ClassVar[bool] = True
        name: str

    assert read(Tolerant, {"name": "a", "colour": 3}) == Tolerant("a")


def test_a_type_that_json_has_no_form_for_is_a_mistake_of_the_record() -> None:
    with pytest.raises(TypeError, match=r"no way to read .*bytes"):
        read(bytes, "")


def renamed(content: dict[str, Any]) -> dict[str, Any]:
    return {"name": content["called"]}


FORM = FileForm(Part, 3, {1: renamed, 2: lambda content: {**content, "at": [7, 0.5]}}, "take it again")


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ({"schema": 1, "called": "x"}, Part("x", (7, 0.5))),
        ({"schema": 2, "name": "x"}, Part("x", (7, 0.5))),
        ({"schema": 3, "name": "x", "at": [1, 2]}, Part("x", (1, 2))),
    ],
)
def test_older_schemas_become_the_newest(tmp_path: Path, content: dict[str, Any], expected: Part) -> None:
    (tmp_path / "part.json").write_text(json.dumps(content))
    assert FORM.read(tmp_path / "part.json") == expected


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "cannot be read: "),
        ("[" * 100_000, "cannot be read: "),
        ("[]", "has a schema that this version of numdrift cannot read (it reads 1 to 3); take it again"),
        ('{"schema": 4}', "has a schema that this version of numdrift cannot read (it reads 1 to 3); take it again"),
        ('{"schema": 0}', "has a schema that this version of numdrift cannot read (it reads 1 to 3); take it again"),
        (
            '{"schema": true}',
            "has a schema that this version of numdrift cannot read (it reads 1 to 3); take it again",
        ),
        (
            '{"schema": 3, "name": 3}',
            "has a missing or unknown field, or a field of the wrong type: name is 3, not text; take it again",
        ),
    ],
)
def test_a_file_that_cannot_be_used_is_named_with_the_remedy(tmp_path: Path, content: str, said: str) -> None:
    path = tmp_path / "part.json"
    path.write_text(content)
    with pytest.raises(JournalError) as refused:
        FORM.read(path)
    assert str(refused.value).startswith(f"{path}: {said}")
    with pytest.raises(FileNotFoundError):
        FORM.read(tmp_path / "none.json")
