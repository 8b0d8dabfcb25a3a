"""Metrics from the command line: the founding text's two layers, op by op, and what ends early."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ..conftest import ROOT, Numdrift
from ..processes.forked import numdrift_in, python

SCRIPTS = ROOT / "tests" / "e2e" / "scripts"
BOTH = ("--show", "output2,output1")


@dataclass(frozen=True)
class Shown:
    """One run: what it printed, and the graphs that were compiled and executed in each part of it."""

    printed: str
    run: dict[str, Any]
    text: str

    @property
    def compiled(self) -> list[int]:
        return [one["compiled"] for one in self.run["by_step"] if one["step"] is not None]

    @property
    def found(self) -> list[int]:
        return [one["found"] for one in self.run["by_step"] if one["step"] is not None]

    @property
    def executed(self) -> list[int]:
        return [one["executed"] for one in self.run["by_step"] if one["step"] is not None]


def shown(folder: Path, script: str, mode: str, *arguments: str) -> Shown:
    """Losses only are recorded: the recording itself executes nothing then."""

    def numdrift(*words: str) -> str:
        done = numdrift_in(folder, *words)
        assert done.returncode == 0, done.stderr
        return done.stdout

    how = ("--record", "losses", "--metrics", "--name", "m", "--force", "--quiet", "--in-place")
    numdrift("run", str(SCRIPTS / script), "--mode", f"shown={mode}", *how, "--", *arguments)
    run = json.loads(numdrift("metrics", "m", "--json", "-"))["runs"][0]
    return Shown((folder / "runs/m/shown/stdout.log").read_text(), run, numdrift("metrics", "m", "--text"))


@pytest.mark.slow
def test_each_printed_tensor_ends_a_graph_without_mark_step(tmp_path: Path) -> None:
    # when output2 is printed, and output1 as well
    one = shown(tmp_path, "two_layers.py", "lazy,mark_step=off", "--show", "output2")
    both = shown(tmp_path, "two_layers.py", "lazy,mark_step=off", *BOTH)
    # then each has its graph
    assert (one.compiled, one.executed) == ([1], [1])
    assert (both.compiled, both.executed) == ([2], [2])
    assert {one["what"] for one in both.run["fragmentation"]} == {"read"}
    assert "Metric: CompileTime\n  TotalSamples: 2\n  Accumulator: " in both.text
    assert "Counter: UncachedCompile\n  Value: 2\n" in both.text


@pytest.mark.slow
def test_with_mark_step_there_is_one_graph(tmp_path: Path) -> None:
    found = shown(tmp_path, "two_layers.py", "lazy", "--mark", *BOTH)
    assert (found.compiled, found.executed) == ([1], [1])
    assert found.run["fragmentation"] == []
    assert found.printed.startswith("output2 tensor([[")


@pytest.mark.slow
def test_op_by_op_compiles_small_graphs_and_finds_them_again(tmp_path: Path) -> None:
    # given both examples of the founding text: two layers, then a third of another shape, then one of the second's
    found = shown(tmp_path, "two_layers.py", "lazy,execute=op", "--layers", "4", *BOTH)
    silent = shown(tmp_path, "two_layers.py", "lazy,execute=op", "--layers", "2")
    # then the first two steps compile the ops of the new layers, and printing compiles and executes nothing
    assert (silent.compiled, silent.executed) == ([4], [4]) and silent.printed == ""
    assert found.compiled == [4, 2, 0]
    assert found.executed == [4, 2, 2]
    # and the fourth layer finds what the second has compiled
    assert found.found == [0, 0, 2]
    assert found.run["fragmentation"] == []
    assert max(size for one in found.run["by_step"] for size in one["graph_sizes"]) <= 6


def hashes(folder: Path, mode: str, *arguments: str) -> tuple[list[str], Shown]:
    dump = folder / "graphs.txt"
    dump.unlink(missing_ok=True)
    found = shown(folder, "shows_values.py", f"{mode},env.LTC_SAVE_TENSORS_FILE={dump}", *arguments)
    return re.findall(r"^Hashes: .*$", dump.read_text(), re.MULTILINE), found


@pytest.mark.slow
def test_numdrift_print_and_a_step_closure_leave_every_graph_as_it_is(tmp_path: Path) -> None:
    silent, _ = hashes(tmp_path, "lazy", "--silent")
    with_values, found = hashes(tmp_path, "lazy", "--outputs")
    # then every graph has the hash that it has without
    assert silent == with_values
    # and the values are those that Python's print shows of an eager training
    eager = python(tmp_path, SCRIPTS / "shows_values.py", "--outputs", DEVICE="cpu")
    eager.check_returncode()
    assert [float(number) for number in numbers(found.printed)] == pytest.approx(
        [float(number) for number in numbers(eager.stdout)], rel=1e-3
    )
    assert len(numbers(found.printed)) == 9


def numbers(text: str) -> list[str]:
    return re.findall(r"-?\d+\.\d+|(?<=sum )\d", text)


@pytest.mark.slow
def test_a_value_that_the_script_drops_is_one_more_output_of_its_graph(tmp_path: Path) -> None:
    silent, _ = hashes(tmp_path, "lazy", "--silent")
    with_hidden, found = hashes(tmp_path, "lazy")
    assert len(with_hidden) == len(silent)
    outputs = [len(one.split(",")) for one in with_hidden]
    assert sum(outputs) == sum(len(one.split(",")) for one in silent) + 3
    assert found.printed.count("hidden tensor([[") == 3
    events = (tmp_path / "runs/m/shown/journal/events.jsonl").read_text()
    assert events.count("gets more outputs") == 1


@pytest.mark.slow
def test_numdrift_print_breaks_no_compiled_graph(tmp_path: Path) -> None:
    # when
    found = shown(tmp_path, "shows_values.py", "compile,backend=aot_eager")
    eager = shown(tmp_path, "shows_values.py", "cpu")
    # then one forward and one backward were compiled, and each value was shown once, after its step
    assert found.compiled == [2, 0, 0]
    assert found.executed == [2, 2, 2]
    assert found.run["fragmentation"] == []
    assert found.printed == eager.printed
    assert re.sub(r"[^a-z]+", " ", eager.printed.replace("tensor", "")).split() == ["hidden", "loss", "sum"] * 3


@pytest.mark.slow
def test_metrics_change_no_bit_and_are_shown_side_by_side(numdrift: Numdrift, tmp_path: Path, tiny: Path) -> None:
    # when
    for name, how in (("with", ["--metrics"]), ("without", [])):
        done = numdrift("run", tiny, "--modes", "cpu,lazy", "--name", name, *how)
        assert done.returncode == 0, done.stderr
    # then
    for mode in ("cpu", "lazy"):
        digests = [
            (tmp_path / "runs" / name / mode / "journal/digests.bin").read_bytes() for name in ("with", "without")
        ]
        assert digests[0] == digests[1]
    # and
    table = numdrift("metrics", "with", "--steps").stdout
    assert table.splitlines()[0].split() == ["cpu", "lazy"]
    assert re.search(r"^executed +30 +\d+$", table, re.MULTILINE)
    drawn = numdrift("plot", "with", "--what", "timeline")
    assert "timeline.png" in drawn.stdout
    beside = numdrift("run", tiny, "--mode", "cpu", "--metrics", "--graphs")
    assert (beside.returncode, len(beside.stderr.splitlines())) == (2, 1)


def test_a_script_that_reaches_no_step_is_said_to(numdrift: Numdrift, tmp_path: Path) -> None:
    # given
    (tmp_path / "nothing.py").write_text("print('nothing')\n")
    ran = numdrift("run", "nothing.py", "--mode", "cpu", "--metrics", "--quiet")
    assert (ran.returncode, len(ran.stderr.splitlines())) == (3, 1)
    assert "no training was seen" in ran.stderr and "numdrift.step()" in ran.stderr
    # then
    shown = numdrift("metrics", "nothing")
    assert shown.returncode == 0 and "cpu reached no step" in shown.stdout


def test_a_run_without_metrics_and_one_that_was_killed(numdrift: Numdrift, tiny: Path) -> None:
    # given
    numdrift("run", tiny, "--mode", "cpu", "--name", "none")
    killed = numdrift(
        "run", tiny, "--mode", "cpu", "--metrics", "--name", "killed", "--", "--at", "4", "--then", "kill"
    )
    assert killed.returncode == 3
    # then
    none = numdrift("metrics", "runs/none/cpu")
    assert (none.returncode, none.stdout) == (2, "")
    assert none.stderr == "numdrift: runs/none/cpu has no metrics: record them with `numdrift run --metrics`\n"
    # and the killed one has what there was
    shown = numdrift("metrics", "killed")
    assert shown.returncode == 0
    assert "cpu was cut off (killed): its metrics end with step 3" in shown.stdout
    found = json.loads(numdrift("metrics", "killed", "--json", "-").stdout)["runs"][0]
    assert [one["step"] for one in found["by_step"]] == [None, 0, 1, 2, 3]
