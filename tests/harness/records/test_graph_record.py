"""The neutral record, its JSON, and the folder of a run that holds it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numdrift.harness.errors import GraphsNotFound, JournalError
from numdrift.harness.graphs.run_graphs import RunGraphs, graphs_of
from numdrift.harness.records.tools.graph_record import INDEX, SCHEMA, Cut, Graph, GraphFolder, Node, Value, phase_of
from numdrift.harness.runs.manifest import RunManifest
from numdrift.harness.runs.recorded_run import RecordedRun

WORDS = st.text(min_size=0, max_size=12)
SHAPES = st.none() | st.lists(st.integers(0, 9) | st.sampled_from(["s0", "s1"]), max_size=4).map(tuple)
SCALARS = st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | st.booleans() | WORDS
NODES = st.recursive(
    st.builds(Node, name=WORDS, op=WORDS),
    lambda inner: st.builds(
        Node,
        name=WORDS,
        op=WORDS,
        domain=WORDS,
        phase=st.sampled_from(["", "forward", "backward"]),
        module=st.none() | WORDS,
        sequence=st.none() | st.integers(0, 2**40),
        inputs=st.lists(WORDS, max_size=3).map(tuple),
        attributes=st.dictionaries(WORDS, SCALARS | st.lists(st.integers(), max_size=3), max_size=3),
        covers=st.lists(WORDS, max_size=3).map(tuple),
        body=st.lists(inner, max_size=2).map(tuple),
    ),
    max_leaves=4,
)
GRAPHS = st.builds(
    Graph,
    name=WORDS,
    mode=WORDS,
    stage=st.sampled_from(["pre", "post"]),
    phase=WORDS,
    step=st.integers(0, 10**9),
    nodes=st.lists(NODES, max_size=4).map(tuple),
    values=st.dictionaries(WORDS, st.builds(Value, dtype=WORDS, shape=SHAPES, binding=WORDS), max_size=3),
    inputs=st.lists(WORDS, max_size=3).map(tuple),
    cut=st.none() | st.builds(Cut, reason=WORDS, op=WORDS),
    seconds=st.none() | st.floats(0, 100),
    notes=st.lists(WORDS, max_size=2).map(tuple),
)


def run_at(path: Path) -> RecordedRun:
    manifest = RunManifest(
        mode="cpu", spec="cpu", suffix="", reproducer="train.py", script_sha256="", arguments=[], record="params",
        started="", position=0, pickle="",
    )  # fmt: skip
    return RecordedRun(path, manifest)


def small(name: str, **fields: object) -> Graph:
    facts = {
        "mode": "",
        "stage": "pre",
        "phase": "forward",
        "step": 0,
        "nodes": (Node("add", "add"),),
        **fields,
    }
    return Graph(name=name, **facts)  # type: ignore[arg-type]


@given(GRAPHS)
def test_a_graph_comes_back_from_its_json(graph: Graph) -> None:
    text = json.dumps(graph.to_json())
    assert Graph.from_json(json.loads(text)) == graph


def test_empty_fields_take_no_room() -> None:
    node = small("0-forward-pre").to_json()["nodes"][0]
    assert node == {"name": "add", "op": "add", "domain": "aten"}


def test_the_root_module_is_not_an_unknown_one() -> None:
    graph = small("a", nodes=(Node("a", "add", module=""), Node("b", "add", module=None)))
    assert [node.module for node in Graph.from_json(graph.to_json()).nodes] == ["", None]


def test_another_schema_is_refused() -> None:
    with pytest.raises(ValueError, match="schema"):
        Graph.from_json(small("a").to_json() | {"schema": SCHEMA + 1})


def test_phases_are_joined_in_their_order() -> None:
    nodes = [Node(str(n), "add", phase=phase) for n, phase in enumerate(["forward", "", "backward", "forward"])]
    assert phase_of(nodes) == "forward+backward"


def test_stages_share_a_name_and_a_second_graph_of_a_phase_gets_another(tmp_path: Path) -> None:
    folder = GraphFolder(tmp_path / "graphs", "cpu")
    names = [folder.reserve("forward"), folder.reserve("backward"), folder.reserve("forward")]
    folder.step = 1
    assert [*names, folder.reserve("forward")] == ["0-forward", "0-backward", "0-forward-2", "1-forward"]


def test_what_is_written_is_read(tmp_path: Path) -> None:
    # given
    folder = GraphFolder(tmp_path / "graphs", "b")
    graph = small("0-forward-pre", hash="ab", seconds=1.5)
    # when
    folder.write(graph)
    folder.executed("0-forward", "ab", Cut("fallback", "aten.lerp", "train.py:3"))
    folder.counters({"compiled": 2, "cached": 0})
    folder.unavailable("post", "not here")
    # then
    read = graphs_of(run_at(tmp_path))
    assert read.graph("0-forward-pre") == replace(graph, mode="b")
    assert [(one.base, one.nodes, one.seconds) for one in read.entries] == [("0-forward", 1, 1.5)]
    assert read.executions[0].cut == {"reason": "fallback", "op": "aten.lerp", "source": "train.py:3"}
    assert read.counters == {0: {"compiled": 2, "cached": 0}}
    assert read.unavailable == [("post", "not here")]


def test_a_torn_last_line_is_left_out(tmp_path: Path) -> None:
    folder = GraphFolder(tmp_path / "graphs", "cpu")
    folder.write(small("0-forward-pre"))
    with (tmp_path / "graphs" / INDEX).open("a") as file:
        file.write('{"event":"graph","na')
    assert len(RunGraphs(run_at(tmp_path)).entries) == 1


def test_a_closed_folder_takes_nothing(tmp_path: Path) -> None:
    folder = GraphFolder(tmp_path / "graphs", "cpu")
    folder.close()
    folder.write(small("0-forward-pre"))
    folder.executed("0-forward")
    assert list((tmp_path / "graphs").iterdir()) == []


def test_a_run_without_graphs_says_how_to_record_them(tmp_path: Path) -> None:
    with pytest.raises(GraphsNotFound, match=r"numdrift run train\.py --mode cpu --graphs"):
        graphs_of(run_at(tmp_path))


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ({"phase": "backwards"}, "did you mean 'backward'"),
        ({"stage": "post"}, "dynamo gave up"),
        ({"step": 7}, "known: 0"),
    ],
)
def test_what_is_not_there_is_named_with_what_is(tmp_path: Path, wanted: dict[str, object], said: str) -> None:
    folder = GraphFolder(tmp_path / "graphs", "cpu")
    folder.write(small("0-backward-pre", phase="backward"))
    folder.unavailable("post", "dynamo gave up")
    with pytest.raises(GraphsNotFound, match=said):
        graphs_of(run_at(tmp_path)).select(**wanted)  # type: ignore[arg-type]


@pytest.mark.parametrize(("steps", "said"), [("7", "step 7, but the run has 2 steps"), ("0-1", "steps 0-1, but")])
def test_a_run_that_was_asked_for_graphs_says_of_which_steps(tmp_path: Path, steps: str, said: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"graphs": True, "graph_steps": steps}))
    run = run_at(tmp_path)
    with pytest.raises(GraphsNotFound, match=said):
        graphs_of(replace(run, manifest=replace(run.manifest, steps=2)))


@pytest.mark.parametrize(
    ("content", "flaw"),
    [
        ("{", "it is not JSON"),
        ("[]", "it is not a JSON object"),
        ('{"schema": 2}', "its schema is 2"),
        ('{"schema": 1}', "the graph lacks the field 'name'"),
        (json.dumps(small("x").to_json() | {"x": 1}), "the graph has an unknown field 'x'"),
        (
            json.dumps(small("x").to_json() | {"nodes": [{"name": "a", "op": "f", "x": 1}]}),
            "a node has an unknown",
        ),
        (json.dumps(small("x").to_json() | {"nodes": ["a"]}), "a node is not a JSON object"),
        (json.dumps(small("x").to_json() | {"values": ["a"]}), "a field has the wrong type"),
        (json.dumps(small("x").to_json() | {"outputs": [["a"]]}), "a field has the wrong type"),
    ],
)
def test_what_is_wrong_with_a_graph_is_said_in_plain_words(tmp_path: Path, content: str, flaw: str) -> None:
    (tmp_path / "graphs").mkdir()
    (tmp_path / "graphs" / "x.json").write_text(content)
    with pytest.raises(JournalError) as raised:
        RunGraphs(run_at(tmp_path)).graph("x")
    assert f"x.json: is not a graph record of schema 1 ({flaw}" in str(raised.value)


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ({"event": "graph", "name": "x"}, "entries"),
        ({"event": "graph", "name": "x", "stage": "pre", "phase": "", "step": "0", "nodes": 1}, "entries"),
        ({"event": "executed", "graph": "x", "step": 0, "other": 1}, "executions"),
        ({"event": "counters", "compiled": 1}, "counters"),
        ({"event": "unavailable", "stage": "post"}, "unavailable"),
    ],
)
def test_a_damaged_line_of_the_index_is_an_error_that_names_it(
    tmp_path: Path, line: dict[str, object], what: str
) -> None:
    (tmp_path / "graphs").mkdir()
    (tmp_path / "graphs" / INDEX).write_text(json.dumps(line) + "\n")
    with pytest.raises(JournalError, match=rf"graphs\.jsonl: line 1 lacks the fields of the event '{line['event']}'"):
        getattr(RunGraphs(run_at(tmp_path)), what)


@pytest.mark.parametrize("content", ["", "[]", '{"schema": 1}', '{"schema": 1, "nodes": [3]}', "[" * 100_000])
def test_a_damaged_graph_is_an_error_that_names_its_file(tmp_path: Path, content: str) -> None:
    (tmp_path / "graphs").mkdir()
    (tmp_path / "graphs" / "x.json").write_text(content)
    with pytest.raises(JournalError, match=r"x\.json"):
        RunGraphs(run_at(tmp_path)).graph("x")


def test_a_graph_of_another_folder_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "graphs").mkdir()
    (tmp_path / "secret.json").write_text(json.dumps(small("secret").to_json()))
    with pytest.raises(JournalError):
        RunGraphs(run_at(tmp_path)).graph("../secret")
