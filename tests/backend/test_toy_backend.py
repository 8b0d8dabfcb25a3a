"""A vendor's backend in under 150 lines, found by its entry point, has every bring-up tool (docs/guide/add-a-backend.md)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ..processes.forked import numdrift_in

HERE = Path(__file__).parent
ENTRY_POINTS = "[numdrift.modes]\ntoy = toy_backend:ToyMode\n"
METADATA = "Metadata-Version: 2.1\nName: toy-backend\nVersion: 0.1\n"

Numdrift = Callable[..., "subprocess.CompletedProcess[str]"]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def numdrift(tmp_path_factory: pytest.TempPathFactory) -> Numdrift:
    """The command line in a folder with the training script, where the plug-in is installed."""
    folder = tmp_path_factory.mktemp("toy")
    installed = folder / "site"
    (installed / "toy_backend-0.1.dist-info").mkdir(parents=True)
    (installed / "toy_backend-0.1.dist-info" / "METADATA").write_text(METADATA)
    (installed / "toy_backend-0.1.dist-info" / "entry_points.txt").write_text(ENTRY_POINTS)
    shutil.copy(HERE / "toy_backend.py", installed)
    shutil.copy(HERE / "sorting.py", folder)

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return numdrift_in(folder, *arguments, PYTHONPATH=f"{installed}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")

    return run


def answer(numdrift: Numdrift, *arguments: str, code: int = 0) -> Any:
    """What a command gives as JSON."""
    done = numdrift(*arguments, "--json", "-")
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout)


def test_it_is_small() -> None:
    assert len((HERE / "toy_backend.py").read_text().splitlines()) < 150


def test_analyze_names_the_op_that_it_lacks(numdrift: Numdrift) -> None:
    found = answer(numdrift, "analyze", "sorting.py", "--mode", "toy", "--analyze-verbosity", "1")

    (lacking,) = found["unsupported_operators"]["aten"]
    assert (lacking["kind"], lacking["failureAt"], lacking["reason"]) == (
        "aten::sort",
        "toyc",
        "toy has no sort",
    )
    assert lacking["call"] == "sorting.py:14"
    assert found["supported_operators"]["aten"]["aten::tanh"] == 6
    assert "toy.tanh" in found["supported_operators"]["toy"]
    assert found["toyc_version"] == "0.1"


def test_partition_puts_the_op_on_the_cpu(numdrift: Numdrift) -> None:
    found = answer(numdrift, "partition", "sorting.py", "--mode", "toy", "--name", "partitioned")

    forward = found["graphs"][0]
    places = {one["kind"]: one["device"] for one in forward["operators"]}
    assert places == {"aten::linear": "toy", "aten::tanh": "toy", "aten::sort": "CPU"}
    assert [one["device"] for one in forward["subgraphs"]] == ["toy", "CPU", "toy"]
    assert [one["operators"] for one in forward["subgraphs"]] == [
        {"aten::linear": 1, "aten::tanh": 1},
        {"aten::sort": 1},
        {"aten::linear": 1},
    ]


def test_metrics_come_from_its_adapter(numdrift: Numdrift) -> None:
    assert numdrift("run", "sorting.py", "--modes", "toy", "--metrics", "--name", "measured").returncode == 0

    (run,) = answer(numdrift, "metrics", "runs/measured")["runs"]

    assert run["backend"] == "toy"
    assert run["compiled"]["count"] == 2
    assert run["executed"]["count"] == 12
    (fallen,) = run["fragmentation"]
    assert (fallen["what"], fallen["call"], fallen["count"]) == ("aten::sort", "sorting.py:14", 6)
    assert run["counters"]["toy::tanh"] == run["counters"]["aten::sort"] == 6


def test_its_graphs_are_captured(numdrift: Numdrift) -> None:
    assert numdrift("run", "sorting.py", "--modes", "toy", "--graphs", "--name", "drawn").returncode == 0

    shown = numdrift("graph", "list", "runs/drawn/toy").stdout

    assert "dynamo → pre" in shown
    assert "compiled 2, cached 0, executed 2, dynamo 1, breaks 0" in shown


def test_snapshots_of_it_replay_in_it_and_tell_it_from_the_cpu(numdrift: Numdrift) -> None:
    taken = numdrift("snapshot", "take", "sorting.py", "--modes", "toy", "--steps", "2", "--name", "kept")
    assert taken.returncode == 0, taken.stderr
    file = "runs/kept/toy/snapshots/0-backward-step000002-execution000002.safetensors"

    own = answer(numdrift, "snapshot", "replay", file)
    other = answer(numdrift, "snapshot", "replay", file, "--mode", "cpu", code=1)

    assert own["identical"]
    assert not other["holds"]
    beyond = {one["name"] for one in other["outputs"] if one["state"] == "beyond rounding"}
    assert beyond == {"gradient first.weight", "gradient first.bias"}


@pytest.fixture(scope="module")
def judged(numdrift: Numdrift) -> Any:
    """What an investigation finds."""
    return answer(numdrift, "investigate", "sorting.py", "--modes", "cpu,toy", "--name", "judged", code=1)


def test_investigate_names_and_proves_its_inaccurate_kernel(judged: Any) -> None:
    (pair,) = judged["pairs"]
    (culprit,) = pair["culprits"]
    assert pair["verdict"] == "beyond-rounding"
    assert (culprit["op"], culprit["phase"]) == ("aten.tanh_backward", "backward")
    assert culprit["error_ulp"]["a"] < 2
    assert culprit["error_ulp"]["b"] > 1e4
    assert culprit["proof"]["swap_out"]["holds"]
    assert culprit["proof"]["swap_in"]["holds"]


@pytest.mark.usefixtures("judged")
def test_a_bisection_by_partitions_finds_the_same_operator(numdrift: Numdrift) -> None:
    found = answer(
        numdrift,
        "investigate",
        "sorting.py",
        "--modes",
        "cpu,toy",
        "--name",
        "judged",
        "--partition-bisect",
        code=1,
    )

    (pair,) = found["pairs"]
    parts = pair["parts"]
    (carrier,) = parts["carriers"]
    ((operator, line, _),) = carrier["operators"]
    assert (operator, line.partition(":")[0]) == ("aten::tanh", "sorting.py")
    assert parts["backend"] == "toy"
    assert carrier["alone"] > pair["threshold"] > carrier["without"]
    assert parts["whole"] == pytest.approx(parts["score"])
    assert [one["op"] for one in pair["culprits"]] == ["aten.tanh_backward"]
    assert found["training_runs"] == parts["asked"] + 1  # the control; what was run without the flag is not run again


def test_what_cannot_be_bisected_by_partitions_is_refused_before_anything_runs(numdrift: Numdrift) -> None:
    for modes, more, said in (
        ("toy,cpu", (), "the reference must be cpu, not toy"),
        ("cpu", ("--mode", "new=cpu,threads=1"), "'new' has no backend to put parts of the model on"),
        ("cpu,toy", ("--localize", "none"), "--localize none forbids that"),
        ("cpu,toy", ("--nproc", "2"), "leave out --nproc"),
    ):
        done = numdrift("investigate", "sorting.py", "--modes", modes, "--name", "no", "--partition-bisect", *more)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1)
        assert said in done.stderr
