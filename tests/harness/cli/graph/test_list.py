from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from numdrift.harness.cli.graph.list import GraphRow, steps_of
from numdrift.harness.graphs.run_graphs import graphs_of
from numdrift.harness.records.tools.graph_record import Cut
from numdrift.harness.runs.recorded_run import load_run

from ....conftest import Numdrift
from ...graphs.samples import (
    manifest,
    sample_compile_backward,
    sample_compile_forward,
    sample_lazy_backward,
    write_run,
)

CUT = Cut("mark_step", source="scripts/train.py:33")
FALLBACK = Cut("fallback", "aten.lerp.Scalar", "scripts/train.py:40")


def lazy_run(tmp_path: Path) -> Path:
    """A backward graph in steps 0 to 3 and an optimizer graph cut by fallbacks, twice in step 0."""
    backward = sample_lazy_backward()
    optimizer = replace(backward, name="0-optimizer-pre", phase="optimizer", hash="0f0f")
    ran = [(step, "0-backward", "1a2b3c", CUT) for step in range(4)]
    ran += [(0, "0-optimizer", "0f0f", FALLBACK)] * 2
    counters = {
        0: {"compiled": 2, "cached": 1},
        1: {"compiled": 0, "cached": 1},
        2: {"compiled": 0, "cached": 1},
    }
    counters |= {3: {"compiled": 0, "cached": 1, "total_compiled": 2, "total_cached": 4}}
    return write_run(tmp_path, "lazy", [backward, optimizer], executions=sorted(ran, key=str), counters=counters)


def compile_run(tmp_path: Path) -> Path:
    forward = sample_compile_forward()
    dynamo = replace(forward, name="0-forward-dynamo", stage="dynamo", nodes=forward.nodes[:3], notes=("graph 1",))
    graphs = [dynamo, forward, *sample_compile_backward()]
    return write_run(tmp_path, "compile", graphs, unavailable={"post": "Inductor was not used"})


def test_a_row_counts_runs_and_cuts_of_a_graph_in_a_step(tmp_path: Path) -> None:
    first, _ = steps_of(graphs_of(load_run(lazy_run(tmp_path))))
    assert first.graphs == [
        GraphRow("0-backward", "backward", {"pre": 10}, "1a2b3c", 1, {"mark_step at train.py:33": 1}),
        GraphRow(
            "0-optimizer",
            "optimizer",
            {"pre": 10},
            "0f0f",
            2,
            {"fallback aten.lerp.Scalar at train.py:40": 2},
        ),
    ]
    assert first.counters == {"compiled": 2, "cached": 1}


def test_like_steps_that_follow_each_other_are_one(tmp_path: Path) -> None:
    steps = steps_of(graphs_of(load_run(lazy_run(tmp_path))))
    assert [(one.first, one.last) for one in steps] == [(0, 0), (1, 3)]


def test_steps_with_a_gap_between_them_stay_apart(tmp_path: Path) -> None:
    ran = [(step, "0-backward", "1a2b3c", CUT) for step in (1, 2, 9)]
    run = write_run(tmp_path, "lazy", [sample_lazy_backward()], executions=ran)
    steps = steps_of(graphs_of(load_run(run)))
    assert [(one.first, one.last) for one in steps] == [(0, 0), (1, 2), (9, 9)]


def test_stages_of_one_graph_share_a_row(tmp_path: Path) -> None:
    (step,) = steps_of(graphs_of(load_run(compile_run(tmp_path))))
    assert [(one.graph, dict(one.nodes)) for one in step.graphs] == [
        ("0-forward", {"dynamo": 3, "pre": 5}),
        ("0-backward", {"pre": 12, "post": 5}),
    ]
    assert [one.seconds for one in step.graphs] == [1.25, 2.5]


def test_a_graph_that_ran_and_was_not_captured_has_a_row(tmp_path: Path) -> None:
    ran = [(0, "0-backward", "1a2b3c", CUT), (0, "0-lost", "77", None)]
    run = write_run(tmp_path, "lazy", [sample_lazy_backward()], executions=ran)
    (step,) = steps_of(graphs_of(load_run(run)))
    assert step.graphs[1] == GraphRow("0-lost", "", {}, "77", 1, {})


def test_the_table_shows_it_all(tmp_path: Path, numdrift: Numdrift) -> None:
    lazy_run(tmp_path)
    compile_run(tmp_path)
    done = numdrift("graph", "list", "mlp")
    assert (done.returncode, done.stderr) == (0, "")
    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert "0 0-forward forward dynamo → pre 3 → 5 f00d 1x 1.25 s" in lines
    assert "0-optimizer optimizer pre 10 0f0f 2x - fallback aten.lerp.Scalar at train.py:40 (2x)" in lines
    assert "1-3 0-backward backward pre 10 1a2b3c 1x - mark_step at train.py:33" in lines
    assert "step 0: 3 runs of 2 graphs; compiled 2, cached 1" in lines
    assert "steps 1-3: 1 run of 1 graph in each; compiled 0, cached 1" in lines
    assert "whole run, including numdrift's own reads: compiled 2, cached 4" in lines
    assert "no post graphs: Inductor was not used" in lines
    assert "note: 0-forward-dynamo: graph 1" in lines


@pytest.mark.parametrize(
    ("stages", "said"),
    [
        (("pre",), "step 0: runs op by op: 2 stretches"),
        (("dynamo", "pre", "post"), "step 0: 2 runs of 1 graph"),
        (("pre", "post", "stream"), "step 0: 2 runs of 1 graph and 1 stretch of ops outside of them"),
    ],
)
def test_stretches_of_ops_are_no_graphs(tmp_path: Path, numdrift: Numdrift, stages: tuple[str, ...], said: str) -> None:
    forward = sample_compile_forward()
    graphs = [
        replace(forward, name=f"0-optimizer-{one}" if one == "stream" else f"0-forward-{one}", stage=one)
        for one in stages
    ]
    ran = [(0, "0-forward", "f00d", None)] * 2
    ran += [(0, "0-optimizer", "f00d", None)] * ("stream" in stages)
    write_run(tmp_path, "some", graphs, executions=ran)
    assert said in numdrift("graph", "list").stdout.splitlines()


def test_json_has_the_rows_and_the_index(tmp_path: Path, numdrift: Numdrift) -> None:
    run = lazy_run(tmp_path)
    done = numdrift("graph", "list", run, "--json", "-")
    data = json.loads(done.stdout)
    assert data["schema"] == 1
    (one,) = data["runs"]
    assert (one["mode"], one["totals"]) == ("lazy", {"compiled": 2, "cached": 4})
    assert [step["last"] for step in one["steps"]] == [0, 3]
    assert one["steps"][0]["graphs"][1]["cuts"] == {"fallback aten.lerp.Scalar at train.py:40": 2}
    assert [entry["name"] for entry in one["graphs"]] == ["0-backward-pre", "0-optimizer-pre"]


def test_a_run_without_graphs_says_how_to_record_them(tmp_path: Path, numdrift: Numdrift) -> None:
    folder = tmp_path / "runs" / "mlp" / "cpu_main"
    folder.mkdir(parents=True)
    manifest("cpu").write(folder / "run.json")
    done = numdrift("graph", "list", "mlp")
    assert done.returncode == 2
    assert "`numdrift run train.py --mode cpu --graphs`" in done.stderr
    lazy_run(tmp_path)
    done = numdrift("graph", "list", "mlp")
    assert done.returncode == 0
    assert "without graphs: cpu_main" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["mpl"], "did you mean 'mlp'?"),
        (["mlp", "--mode", "lzy"], "has no run of mode 'lzy': did you mean 'lazy'?"),
        (["runs/mlp/lasy_main"], "runs/mlp has no run 'lasy_main': did you mean 'lazy_main'?"),
        (["runs/" + "x" * 5000], "there is no investigation"),
        (["runs/mlp/lazy_main", "--mode", "cpu"], "runs/mlp/lazy_main has no run of mode 'cpu': known: lazy"),
    ],
)
def test_what_is_not_there_is_named_with_the_nearest(
    tmp_path: Path, numdrift: Numdrift, arguments: list[str], said: str
) -> None:
    lazy_run(tmp_path)
    done = numdrift("graph", "list", *arguments)
    assert done.returncode == 2
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1
