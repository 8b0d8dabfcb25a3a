from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest

from numdrift.harness.errors import CollisionError, JournalError, UsageError
from numdrift.harness.graphs.culprit_marks import Mark
from numdrift.harness.graphs.export.onnx_model import export_graphs
from numdrift.harness.graphs.run_graphs import RunGraphs, graphs_of
from numdrift.harness.runs.recorded_run import load_run

from ..samples import sample_compile_backward, sample_compile_forward, write_run

NAMES = ["0-forward-pre", "0-backward-pre", "0-backward-post"]


@pytest.fixture
def graphs(tmp_path: Path) -> RunGraphs:
    run = write_run(tmp_path, "compile", [sample_compile_forward(), *sample_compile_backward()])
    return graphs_of(load_run(run))


def test_every_graph_is_written_beside_its_record(graphs: RunGraphs) -> None:
    written = export_graphs(graphs)
    assert written == [graphs.path / f"{name}.onnx" for name in NAMES]
    for path in written:
        model = onnx.load(path)
        onnx.checker.check_model(model)
        assert len(model.graph.node) == len(graphs.graph(path.stem).nodes)


def test_a_folder_is_made_and_holds_the_graphs_and_nothing_else(graphs: RunGraphs, tmp_path: Path) -> None:
    export_graphs(graphs, tmp_path / "a" / "b")
    assert sorted(path.name for path in (tmp_path / "a" / "b").iterdir()) == sorted(f"{x}.onnx" for x in NAMES)


def test_marks_are_asked_for_each_graph(graphs: RunGraphs, tmp_path: Path) -> None:
    export_graphs(graphs, tmp_path, lambda graph: {"mm": Mark("aten.mm")} if graph.stage == "post" else {})
    titles = {name: onnx.load(tmp_path / f"{name}.onnx").graph.node[0].op_type for name in NAMES}
    assert titles == {"0-forward-pre": "permute", "0-backward-pre": "mm", "0-backward-post": "⚠ mm"}


def test_a_file_that_exists_is_refused_before_anything_is_written(graphs: RunGraphs, tmp_path: Path) -> None:
    folder = tmp_path / "to"
    folder.mkdir()
    (folder / "0-backward-post.onnx").write_text("mine")
    with pytest.raises(CollisionError, match=r"0-backward-post\.onnx exists already"):
        export_graphs(graphs, folder, force=False)
    assert [path.name for path in folder.iterdir()] == ["0-backward-post.onnx"]
    assert (folder / "0-backward-post.onnx").read_text() == "mine"


def test_a_folder_that_cannot_be_made_is_named(graphs: RunGraphs, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="file"):
        export_graphs(graphs, tmp_path / "file" / "to")


@pytest.mark.parametrize("name", ["../outside", "a/b", "..", "", 'a"><script>', ".hidden"])
def test_a_graph_whose_name_leads_elsewhere_is_refused(graphs: RunGraphs, tmp_path: Path, name: str) -> None:
    line = {"event": "graph", "name": name, "stage": "pre", "phase": "forward", "step": 0, "nodes": 1}
    with (graphs.path / "graphs.jsonl").open("a") as file:
        file.write(json.dumps(line) + "\n")
    with pytest.raises(JournalError, match="is not a plain file name"):
        export_graphs(RunGraphs(graphs.run), tmp_path / "to")
    assert not (tmp_path / "to").exists()


@pytest.mark.parametrize(
    "broken",
    [{"nodes": [{"name": 3, "op": "mm"}]}, {"nodes": [{"name": "a", "op": "mm", "inputs": [1]}]},
     {"values": {"primals_1": {"shape": [1.5]}}}, {"nodes": [{"name": "a", "op": None}]}],
)  # fmt: skip
def test_a_record_of_wrong_types_is_named(graphs: RunGraphs, tmp_path: Path, broken: dict[str, object]) -> None:
    path = graphs.path / "0-forward-pre.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | broken))
    with pytest.raises(JournalError) as raised:
        export_graphs(graphs, tmp_path / "to")
    assert raised.value.path == path
    assert not list((tmp_path / "to").glob(".*"))
