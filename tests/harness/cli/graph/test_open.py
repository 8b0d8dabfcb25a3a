from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import onnx
import pytest

from numdrift.harness.records.tools.graph_record import Cut

from ....conftest import Numdrift
from ...graphs.investigations import CULPRIT, investigation, write_investigation
from ...graphs.samples import sample_compile_backward, sample_compile_forward, sample_lazy_backward, write_run

PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture
def compiled(tmp_path: Path) -> Path:
    """A run of compile mode: forward before, backward before and after its compiler."""
    return write_run(tmp_path, "compile", [sample_compile_forward(), *sample_compile_backward()])


@pytest.fixture
def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Served:
    """A `graph open` that runs; `said` is its first line."""

    def __init__(self, folder: Path, *arguments: str | Path) -> None:
        command = [sys.executable, "-m", "numdrift", "graph", "open", *map(str, arguments), "--no-browser"]
        self.process = subprocess.Popen(
            command, cwd=folder, env=os.environ | {"PYTHONUNBUFFERED": "1"}, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        assert self.process.stdout is not None
        self.said = self.process.stdout.readline()
        self.url = next((word for word in self.said.split() if word.startswith("http://")), "")

    def get(self, path: str) -> bytes:
        with urllib.request.urlopen(f"{self.url}{path}", timeout=10) as answer:
            return bytes(answer.read())

    def interrupt(self) -> tuple[int, str]:
        self.process.send_signal(signal.SIGINT)
        _, errors = self.process.communicate(timeout=20)
        return self.process.returncode, errors


@pytest.fixture
def served(interruptible: None) -> Iterator[list[Served]]:
    """What is served; all of it ends with the test."""
    started: list[Served] = []
    yield started
    for one in started:
        one.process.kill()
        one.process.communicate()


def test_the_first_forward_graph_is_served_on_loopback_until_ctrl_c(
    tmp_path: Path, compiled: Path, served: list[Served], free_port: int
) -> None:
    one = Served(tmp_path, compiled, "--port", str(free_port))
    served.append(one)
    assert one.said == f"Serving 0-forward-pre of {compiled} at http://127.0.0.1:{free_port} (Ctrl-C ends it)\n"
    assert b"netron" in one.get("/").lower()
    model = onnx.load_model_from_string(one.get("/data/0-forward-pre.onnx"))
    assert [node.op_type for node in model.graph.node] == ["permute", "addmm", "tanh", "permute", "addmm"]
    assert (compiled / "graphs" / "0-forward-pre.onnx").exists()
    assert one.interrupt() == (0, "")


def test_a_graph_with_culprits_is_served_marked_and_the_run_stays_as_it_is(
    tmp_path: Path, compiled: Path, served: list[Served]
) -> None:
    write_investigation(compiled, investigation(CULPRIT))
    one = Served(tmp_path, "mlp", "--mode", "compile", "--phase", "backward", "--post")
    served.append(one)
    titles = [node.op_type for node in onnx.load_model_from_string(one.get("/data/0-backward-post.onnx")).graph.node]
    assert "⚠ mul_sub_sum_tanh…_1" in titles
    assert not list((compiled / "graphs").glob("*.onnx"))


def test_a_port_in_use_is_one_clear_line(numdrift: Numdrift, compiled: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = numdrift("graph", "open", compiled, "--port", port, "--no-browser")
    assert done.returncode == 2
    assert done.stderr == (
        f"numdrift: port {port} is not available (address already in use): choose another with --port\n"
    )


def test_without_netron_the_remedy_is_named(tmp_path: Path, numdrift: Numdrift, compiled: Path) -> None:
    (tmp_path / "netron.py").write_text("raise ImportError('No module named netron')")
    done = numdrift("graph", "open", compiled)
    assert done.returncode == 3
    assert "Netron is not available" in done.stderr
    assert "pip install netron" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_pictures_are_drawn_and_not_written_over(numdrift: Numdrift, tmp_path: Path, compiled: Path) -> None:
    arguments = (
        "graph",
        "open",
        compiled,
        "--phase",
        "backward",
        "--post",
        "--png",
        "a.png",
        "--svg",
        "b.svg",
    )
    done = numdrift(*arguments)
    assert (done.returncode, done.stdout) == (0, "Wrote a.png\nWrote b.svg\n")
    assert (tmp_path / "a.png").read_bytes().startswith(PNG)
    assert "mul · sub · mul · sum · view" in (tmp_path / "b.svg").read_text()
    again = numdrift(*arguments)
    assert again.returncode == 2
    assert "a.png exists already" in again.stderr
    assert numdrift(*arguments, "--force").returncode == 0


def test_a_picture_that_cannot_be_written_is_named(numdrift: Numdrift, compiled: Path) -> None:
    done = numdrift("graph", "open", compiled, "--png", "no/such/folder.png")
    assert done.returncode == 2
    assert "no/such/folder.png cannot be written" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "drawn"),
    [
        ([], "forward · step 0 · before its compiler"),
        (["--phase", "backward"], "backward · step 0 · before its compiler"),
        (["--post"], "backward · step 0 · after its compiler"),
        (["--graph", "0-backward-post"], "backward · step 0 · after its compiler"),
        (["--graph", "0-backward"], "backward · step 0 · before its compiler"),
        (["--graph", "0-backward", "--post"], "backward · step 0 · after its compiler"),
        (["--step", "0", "--phase", "backward", "--pre"], "backward · step 0 · before its compiler"),
    ],
)
def test_the_graph_that_is_meant_is_drawn(
    numdrift: Numdrift, tmp_path: Path, compiled: Path, arguments: list[str], drawn: str
) -> None:
    done = numdrift("graph", "open", compiled, *arguments, "--svg", "a.svg")
    assert done.returncode == 0, done.stderr
    assert f"compile · {drawn}" in (tmp_path / "a.svg").read_text()


def test_a_step_means_the_graphs_that_it_ran(numdrift: Numdrift, tmp_path: Path) -> None:
    ran = [(step, "0-backward", "1a2b3c", None) for step in range(3)]
    run = write_run(tmp_path, "lazy", [sample_lazy_backward()], executions=ran)
    assert numdrift("graph", "open", run, "--step", 2, "--svg", "a.svg").returncode == 0
    done = numdrift("graph", "open", run, "--step", 7, "--svg", "b.svg")
    assert (done.returncode, "has no graph of step 7: known: 0" in done.stderr) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--phase", "backwrd"], "no graph of phase backwrd: did you mean 'backward'?"),
        (["--dynamo"], "no graph of stage dynamo: known: post, pre"),
        (["--graph", "0-backwards-pre"], "no graph '0-backwards-pre': did you mean '0-backward-pre'?"),
        (["--graph", "0-forward", "--post"], "no post graph of 0-forward: known: pre"),
        (["--pre", "--post"], "--pre and --post cannot be combined"),
        (["--graph", "0-backward-post", "--pre"], "is a post graph, not a pre one: leave out --pre"),
        (["--png", "x" * 5000], "cannot be written"),
        (["--mode", "lazy"], "no run of mode 'lazy': known: compile"),
        (["--port", "0"], "--port"),
    ],
)
def test_what_is_not_there_is_named_with_the_nearest(
    numdrift: Numdrift, compiled: Path, arguments: list[str], said: str
) -> None:
    done = numdrift("graph", "open", compiled, *arguments)
    assert done.returncode == 2
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_several_graphs_or_runs_that_could_be_meant_are_listed(
    numdrift: Numdrift, tmp_path: Path, compiled: Path
) -> None:
    backward = sample_lazy_backward()
    write_run(tmp_path, "lazy", [backward, replace(backward, name="0-backward-2-pre")])
    done = numdrift("graph", "open", "mlp")
    assert done.returncode == 2
    assert "has graphs of compile, lazy: choose one with --mode" in done.stderr
    done = numdrift("graph", "open", "mlp", "--mode", "lazy", "--svg", "first.svg")
    assert done.returncode == 0
    assert "This is 0-backward-pre, the first of 2 such graphs" in done.stderr
    assert "name another with --graph: 0-backward-2-pre (10 nodes)" in done.stderr


def test_graphs_that_ran_because_a_value_was_read_are_not_meant(numdrift: Numdrift, tmp_path: Path) -> None:
    whole = replace(sample_lazy_backward(), phase="forward+backward")
    read = replace(whole, name="0-forward-pre", phase="forward", nodes=whole.nodes[:1])
    ran = [(0, "0-backward", "1a", whole.cut), (0, "0-forward", "2b", Cut("read"))]
    write_run(tmp_path, "lazy", [read, whole], executions=ran)
    for arguments in ([], ["--phase", "forward"]):
        assert numdrift("graph", "open", "mlp", *arguments, "--svg", "a.svg", "--force").returncode == 0
        assert "forward+backward" in (tmp_path / "a.svg").read_text()


def test_records_of_a_stranger_end_in_one_line(numdrift: Numdrift, compiled: Path) -> None:
    path = compiled / "graphs" / "0-forward-pre.json"
    for broken in (
        "{",
        "[]",
        json.dumps(json.loads(path.read_text()) | {"nodes": [{"name": "a", "op": "f", "inputs": [[1]]}]}),
    ):
        path.write_text(broken)
        done = numdrift("graph", "open", compiled, "--png", "a.png")
        assert done.returncode == 3
        assert "0-forward-pre.json" in done.stderr
        assert len(done.stderr.splitlines()) == 1
