"""The examples of the guides to torch_xla, in the mode that they were written for: what each of them says is so.

The pages of docs/guide show what is tested here beside what other modes make of it.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ..conftest import ROOT
from ..processes.forked import numdrift_in, xla_python

SCRIPTS = ROOT / "tests/xla/scripts"

pytestmark = pytest.mark.slow

NO_STEP = 3
"""The exit code of a run of a script that trains nothing."""


def numdrift(folder: Path, *words: str | Path, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = numdrift_in(folder, *map(str, words))
    assert done.returncode == code, done.stderr
    return done


def bare(folder: Path, script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A script in plain Python with torch_xla."""
    return xla_python(folder, SCRIPTS / script, *arguments, PJRT_DEVICE="CPU", PYTHONPATH=str(ROOT / "src"))


# Operators that are supported or not


def analyzed(folder: Path, reproducer: str, *how: str) -> tuple[str, Any]:
    """What is printed, and the report."""
    script, report = ROOT / f"reproducers/{reproducer}.py", folder / "result.json"
    printed = numdrift(folder, "analyze", script, "--mode", "xla", *how, "--output", report).stdout
    return printed, json.loads(report.read_text())


def test_a_training_of_two_layers_is_supported_whole_and_shows_its_hlo(tmp_path: Path) -> None:
    printed, found = analyzed(tmp_path, "analyze_supported", "--analyze-verbosity", "1")
    assert (found["support_percentage"], found["script"]["steps"]) == ("100.00%", 2)
    assert found["unsupported_operators"] == {"aten": [], "hlo": []}
    # the guide's operators, as often as it counts those of which each call is one instruction
    calls = found["supported_operators"]["aten"]
    assert {name: calls[f"aten::{name}"] for name in ("mm", "mse_loss", "tanh")} == {"mm": 10, "mse_loss": 2, "tanh": 2}
    assert {"aten::add", "aten::relu", "aten::threshold_backward", "aten::mse_loss_backward"} <= set(calls)
    assert "f32[2]{0} tanh(f32[2]{0})" in found["supported_operators"]["hlo"]
    assert "xla supports 100.00% of " in printed


def test_an_fft_is_not_supported_and_the_product_with_it_is(tmp_path: Path) -> None:
    # test_tools.py asks for the instructions
    printed, found = analyzed(tmp_path, "analyze_unsupported")
    assert found["support_percentage"] == "83.33%"
    assert found["supported_operators"] == {"aten": {"aten::add": 1, "aten::mul": 1}}
    (unsupported,) = found["unsupported_operators"]["aten"]
    assert (unsupported["kind"], unsupported["call"]) == ("aten::_fft_r2c", "analyze_unsupported.py:20")
    assert set(found["unsupported_operators"]) == {"aten"}
    assert "hlo instruction " not in printed


# Tensors printed, with mark_step and without; eager debug mode


@dataclass(frozen=True)
class Layers:
    """The layers of layers.py by themselves, in mode `xla` and op by op."""

    alone: str
    runs: Path

    def counts(self, mode: str) -> dict[str, tuple[int, int]]:
        """What was compiled and executed in each part of the script."""
        return counts((self.runs / mode / "stdout.log").read_text())

    def metrics(self, mode: str) -> Any:
        return json.loads(numdrift(self.runs.parent, "metrics", self.runs / mode, "--json", "-").stdout)["runs"][0]


def counts(printed: str) -> dict[str, tuple[int, int]]:
    found = re.findall(r"^(.+): compiled (\d+), executed (\d+)$", printed, re.MULTILINE)
    return {part: (int(compiled), int(executed)) for part, compiled, executed in found}


@pytest.fixture(scope="module")
def layers(tmp_path_factory: pytest.TempPathFactory) -> Layers:
    folder, parts = tmp_path_factory.mktemp("layers"), ("printed", "marked", "closed", "handed", "four")
    modes = ("--mode", "xla", "--mode", "op=xla,execute=op")
    how = ("--metrics", "--name", "l", "--jobs", "2")
    numdrift(folder, "run", SCRIPTS / "layers.py", *modes, *how, "--", *parts, code=NO_STEP)
    return Layers(bare(folder, "layers.py", *parts).stdout, folder / "runs/l")


def test_each_printed_tensor_executes_a_graph_and_none_does_after_a_mark_step(layers: Layers) -> None:
    found = layers.counts("xla")
    assert (found["printed, output2"], found["printed, output1"]) == ((1, 1), (1, 1))
    assert (found["marked, output2"], found["marked, output1"]) == ((1, 1), (0, 0))
    assert found["closed, output1"] == (1, 1)
    # numdrift and its metrics add no graph, and change no number that is printed
    assert (layers.runs / "xla/stdout.log").read_text() == layers.alone


def test_metrics_have_the_graphs_and_the_lines_that_cut_them(layers: Layers) -> None:
    found, told = layers.metrics("xla"), layers.counts("xla").values()
    assert found["compiled"]["count"] == sum(compiled for compiled, _ in told) == 9
    assert found["executed"]["count"] == sum(executed for _, executed in told) == 9
    # both outputs are printed by three parts without a mark_step before them, and one has an op that is handed to the CPU
    lines = (SCRIPTS / "layers.py").read_text().splitlines()
    places = {
        lines[int(one["call"].removeprefix("layers.py:")) - 1].strip(): (one["what"], one["count"], one["graphs"])
        for one in found["fragmentation"]
    }
    assert places == {
        "print(output2)": ("read", 3, 3),
        "print(output1)": ("read", 3, 3),
        "output2 = torch.fft.fft(output2).real": ("aten::_fft_r2c", 1, 1),
    }
    # the graph of both layers has the nodes that it has in the guide
    (rest,) = [one for one in found["by_step"] if one["name"] == "rest"]
    assert rest["graph_sizes"][:3] == [9, 5, 9]


def test_the_familiar_report_has_the_form_and_the_counts_of_torch_xlas_own(layers: Layers) -> None:
    ours = numdrift(layers.runs.parent, "metrics", layers.runs / "xla", "--text").stdout
    (end,) = [json.loads(line) for line in (layers.runs / "xla/metrics.jsonl").read_text().splitlines()[-1:]]
    own = end["report"]
    for name in ("CompileTime", "ExecuteTime", "TensorsGraphSize"):
        assert entry(ours, name) == entry(own, name), name
    # What numdrift reads for its record is a transfer to torch_xla, and none of the training's.
    samples, *form = entry(ours, "TransferFromServerTime")
    assert samples == "  TotalSamples: 11" and form == entry(own, "TransferFromDeviceTime")[1:]
    counters = {name: re.findall(rf"^Counter: {name}\n  Value: (\d+)$", text, re.MULTILINE) for text in (ours, own)
                for name in ("UncachedCompile", "xla::addmm", "aten::_fft_r2c")}  # fmt: skip
    assert counters == {"UncachedCompile": ["9"], "xla::addmm": ["12"], "aten::_fft_r2c": ["1"]}


def entry(report: str, name: str) -> Sequence[str]:
    """A metric of a report: its lines with `#` for each number but that of its samples, and those of rates left out."""
    found = re.search(rf"^Metric: {name}\n((?:  .+\n)+)", report, re.MULTILINE)
    assert found is not None, name
    lines = [line for line in found[1].splitlines() if "Rate: " not in line]
    number = re.compile(r"(?:\d+s)?(?:\d+ms)?\d+\.\d+(?:us)?|\d+s\d+ms")
    return [line if "TotalSamples" in line else number.sub("#", line) for line in lines]


def test_op_by_op_printing_compiles_nothing_and_known_shapes_are_found(layers: Layers) -> None:
    found = layers.counts("op")
    # example 1: ops are compiled although nothing is printed, and none for printing
    assert found["printed, output2"] == (4, 4) and found["printed, output1"] == (0, 0)
    # example 2: the third layer is compiled, the fourth has the shapes of the second
    assert (found["linear3"], found["linear4"]) == ((2, 2), (0, 2))
    assert (found["four, output2"], found["four, output1"]) == ((0, 0), (0, 0))
    metrics = layers.metrics("op")
    assert metrics["compiled"]["count"] == sum(compiled for compiled, _ in found.values())
    assert metrics["executed"]["count"] == sum(executed for _, executed in found.values())
    assert [one["what"] for one in metrics["fragmentation"]] == ["aten::_fft_r2c"]


# Named blocks


def test_the_blocks_that_a_script_names_are_in_its_profile(tmp_path: Path) -> None:
    # graphs are cut where the script says so, and within its blocks
    modes = ("--mode", "xla", "--mode", "phase=xla,mark_step=phase")
    done = numdrift(tmp_path, "profile", SCRIPTS / "named.py", *modes, "--name", "p")
    for mode, cuts in (("xla", 1), ("phase", 3)):
        trace = json.loads((tmp_path / f"runs/p/{mode}/profile/trace.json").read_text())
        names = [one.get("name") for one in trace["traceEvents"] if one.get("cat") == "user_annotation"]
        assert names.count("model_build") == names.count("loss_backward") == 3
        assert "optimizer_step" in names and names.count("mark_step") == 3 * cuts
    for block in ("model_build", "loss_backward", "optimizer_step"):
        assert re.search(rf"^{block} +[\d.]+ +[\d.]+ +1 +[\d.]+ +[\d.]+ +1$", done.stdout, re.MULTILINE), done.stdout


# A model in parts


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    done = bare(tmp_path_factory.mktemp("parts"), "partitioned.py")
    assert done.returncode == 0, done.stderr
    return {one["name"]: one for one in map(json.loads, done.stdout.splitlines())}


LAYERS = {"aten::linear": 3, "aten::relu": 2}
SORT = {"aten::sort": 1}


def test_a_sort_moves_to_the_cpu_and_every_bit_stays(parts: dict[str, Any]) -> None:
    whole, sort = parts["default"], parts["sort"]
    assert whole["subgraphs"] == [["xla", {**LAYERS, "aten::log_softmax": 1, **SORT}]]
    assert sort["subgraphs"] == [["xla", {**LAYERS, "aten::log_softmax": 1}], ["CPU", SORT]]
    assert whole["as xla"] and sort["as xla"]
    # the sort alone on xla has the bits of the CPU
    alone = parts["sort alone"]
    assert alone["subgraphs"] == [["CPU", {**LAYERS, "aten::log_softmax": 1}], ["xla", SORT]]
    assert alone["as cpu"]


def test_three_subgraphs_are_more_than_two(parts: dict[str, Any]) -> None:
    assert [device for device, _ in parts["between"]["subgraphs"]] == ["xla", "CPU", "xla"]
    assert parts["between"]["as xla"]
    said = "The partitioner has found 3 subgraphs which exceeds the specified max subgraph count of 2."
    assert parts["limited"]["refused"] == said


def test_an_operator_that_is_moved_besides_still_counts_as_supported(parts: dict[str, Any]) -> None:
    assert parts["besides"]["supported"] == 100
    assert parts["besides"]["subgraphs"] == [["xla", LAYERS], ["CPU", {"aten::log_softmax": 1, **SORT}]]
