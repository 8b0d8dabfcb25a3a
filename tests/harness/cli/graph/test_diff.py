"""`numdrift graph diff`, as a user sees it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ....conftest import Numdrift
from ...graphs.samples import sample_compile_backward, sample_lazy_backward, write_run

FIRST = "lazy keeps tanh_backward whole (once in the backward), and compile decomposes it into mul, sub, mul."


@pytest.fixture
def runs(tmp_path: Path) -> tuple[str, str]:
    write_run(tmp_path, "lazy", [sample_lazy_backward()])
    write_run(tmp_path, "compile", sample_compile_backward())
    return "runs/mlp/lazy_main", "runs/mlp/compile_main"


def test_the_answer_comes_first_and_the_tables_show_what_it_is_from(numdrift: Numdrift, runs: tuple[str, str]) -> None:
    done = numdrift("graph", "diff", *runs)
    assert (done.returncode, done.stderr) == (0, "")
    lines = [line.split() for line in done.stdout.splitlines()]
    assert done.stdout.splitlines()[0] == FIRST
    assert ["backward", "aten.mul", "0", "2"] in lines
    assert ["backward", "aten.tanh_backward", "1", "0"] in lines
    assert ["aten.tanh_backward", "backward", "1", "tanh_backward", "mul,", "sub,", "mul", "net.1"] in lines
    assert ["lazy", "0", "1", "10", "-", "mark_step", "(1)"] in lines
    assert "aten.mm" not in done.stdout, "it is the same on both sides"


def test_all_shows_what_is_the_same_too(numdrift: Numdrift, runs: tuple[str, str]) -> None:
    done = numdrift("graph", "diff", *runs, "--all")
    assert ["backward", "aten.mm", "3", "3"] in [line.split() for line in done.stdout.splitlines()]


@pytest.mark.parametrize("arguments", [["--modes", "lazy,compile"], ["runs/mlp", "--modes", "lazy, compile"]])
def test_two_modes_of_an_investigation(numdrift: Numdrift, runs: tuple[str, str], arguments: list[str]) -> None:
    assert numdrift("graph", "diff", *arguments).stdout.splitlines()[0] == FIRST


def test_an_investigation_holds_each_run_against_the_first_that_has_graphs(
    numdrift: Numdrift, runs: tuple[str, str], tmp_path: Path
) -> None:
    # given a third run, and one without graphs; all began at one time, so the order is that of their names
    write_run(tmp_path, "cpu", [sample_lazy_backward()])
    write_run(tmp_path, "aot", [])
    # when
    done = numdrift("graph", "diff", "runs/mlp", "--json", "-")
    # then
    pairs = json.loads(done.stdout)["pairs"]
    assert [(one["a"]["mode"], one["b"]["mode"]) for one in pairs] == [
        ("compile", "cpu"),
        ("compile", "lazy"),
    ]


def test_the_json_is_of_a_version_and_says_the_same(numdrift: Numdrift, runs: tuple[str, str], tmp_path: Path) -> None:
    done = numdrift("graph", "diff", *runs, "--json", "diff.json")
    data = json.loads((tmp_path / "diff.json").read_text())
    assert done.stdout.splitlines()[0] == FIRST
    assert data["schema"] == 1 and data["pairs"][0]["answers"][0] == FIRST
    again = numdrift("graph", "diff", *runs, "--json", "diff.json")
    assert again.returncode == 2 and "--force" in again.stderr


def test_the_page_is_written_once(numdrift: Numdrift, runs: tuple[str, str], tmp_path: Path) -> None:
    done = numdrift("graph", "diff", *runs, "--html", "diff.html")
    assert done.stdout.splitlines()[-1] == "Wrote diff.html"
    assert "tanh_backward" in (tmp_path / "diff.html").read_text()
    assert numdrift("graph", "diff", *runs, "--html", "diff.html").returncode == 2
    assert numdrift("graph", "diff", *runs, "--html", "diff.html", "--force").returncode == 0
    done = numdrift("graph", "diff", *runs, "--html", "x" * 5000)
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and "cannot be written" in done.stderr


def test_a_record_that_cannot_be_read_is_named(numdrift: Numdrift, runs: tuple[str, str], tmp_path: Path) -> None:
    (tmp_path / runs[0] / "graphs" / "0-backward-pre.json").write_text("[]")
    done = numdrift("graph", "diff", *runs)
    assert (done.returncode, done.stdout) == (3, "")
    assert "0-backward-pre.json: is not a graph record of schema 1 (it is not a JSON object)" in done.stderr
    assert "3 a file cannot be read" in " ".join(numdrift("graph", "diff", "--help").stdout.split())


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["runs/mlp/lazy_main"], "is one run; name a second one"),
        (["runs/mlp/lazy_main", "runs/mlp/none"], "there is no run runs/mlp/none"),
        (["runs/mlp/lazy_main", "runs/mlp/bare_main"], "recorded no graphs; record them with"),
        (["runs/mlp", "--modes", "lazy"], "--modes takes two modes"),
        (["runs/mlp", "--modes", "lazy,compiled"], "did you mean 'compile'?"),
        (["runs/mlp/lazy_main", "runs/mlp/compile_main", "--modes", "a,b"], "--modes applies to"),
        (
            ["runs/mlp/lazy_main", "runs/mlp/compile_main", "--step", "9"],
            "no graph of step 9: it has graphs of step 0",
        ),
        (["runs/mlp/lazy_main", "runs/mlp/compile_main", "--phase", "bakward"], "did you mean 'backward'?"),
        (["a", "b", "c"], "takes two runs or one investigation"),
        (["runs/" + "x" * 5000], "there is no investigation"),
        (["runs/" + "x" * 5000, "runs/mlp/lazy_main"], "there is no run"),
    ],
)
def test_bad_input_is_one_line_with_the_remedy(
    numdrift: Numdrift, runs: tuple[str, str], tmp_path: Path, arguments: list[str], complaint: str
) -> None:
    write_run(tmp_path, "bare", [])
    done = numdrift("graph", "diff", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert complaint in done.stderr and done.stderr.count("\n") == 1


def test_a_page_of_several_pairs_is_refused(numdrift: Numdrift, runs: tuple[str, str], tmp_path: Path) -> None:
    write_run(tmp_path, "cpu", [sample_lazy_backward()])
    done = numdrift("graph", "diff", "runs/mlp", "--html", "diff.html")
    assert done.returncode == 2 and "choose two with --modes" in done.stderr


def test_one_run_alone_has_nothing_to_be_compared_with(numdrift: Numdrift, tmp_path: Path) -> None:
    write_run(tmp_path, "lazy", [sample_lazy_backward()])
    done = numdrift("graph", "diff", "runs/mlp")
    assert done.returncode == 2 and "nothing to compare" in done.stderr
