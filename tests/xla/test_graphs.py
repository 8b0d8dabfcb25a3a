"""The graphs of mode `xla`, and the founding question: who keeps `tanh_backward` whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from numdrift import load_run
from numdrift.harness.graphs.run_graphs import RunGraphs

from ..conftest import ROOT, Numdrift

pytestmark = pytest.mark.slow

SCRIPT = ROOT / "reproducers/sam_tanh.py"


def test_graphs_are_captured_before_and_after_xla_and_change_no_bit(numdrift: Numdrift, tmp_path: Path) -> None:
    # given a run with graphs, beside the reference, and one without
    with_graphs = numdrift("run", SCRIPT, "--modes", "cpu,xla", "--graphs", "--name", "g", "--", "--epochs", "2")
    assert with_graphs.returncode == 0, with_graphs.stderr
    without = numdrift("run", SCRIPT, "--modes", "xla", "--name", "plain", "--", "--epochs", "2")
    assert without.returncode == 0, without.stderr
    run, plain = load_run(tmp_path / "runs/g/xla"), load_run(tmp_path / "runs/plain/xla")

    # then the bits are the same
    assert list(run.journal.digests()) == list(plain.journal.digests())

    # and each graph has both stages: forward with backward, SAM's first step, and SGD's first and later ones
    graphs = RunGraphs(run)
    stages: dict[str, set[str]] = {}
    for entry in graphs.entries:
        stages.setdefault(entry.name.rpartition("-")[0], set()).add(entry.stage)
    names = ("0-forward+backward", "0-optimizer", "0-optimizer-2", "1-optimizer")
    assert stages == {name: {"pre", "post"} for name in names}
    assert not list((run.path / "graphs").glob("xla-*"))

    # torch_xla takes `tanh_backward` apart when it is called; XLA makes a product of the power, in one kernel with the rest
    pre, post = (graphs.graph(f"0-forward+backward-{stage}") for stage in ("pre", "post"))
    backward = [node.op for node in pre.nodes if node.phase == "backward"]
    assert "tanh_backward" not in backward and backward.count("pow") == backward.count("rsub") == 2
    squares = [node for kernel in post.nodes for node in kernel.body if node.original == "aten.pow"]
    assert len(squares) >= 2 and {node.op for node in squares} == {"multiply"}
    assert all(node.inputs[0] == node.inputs[1] for node in squares)

    # and a diff says so
    done = numdrift("graph", "diff", tmp_path / "runs/g/cpu", tmp_path / "runs/g/xla")
    assert "Only cpu has tanh_backward (4 times) in the backward." in done.stdout
    assert "Only xla has mul (4 times), pow (4 times), sub (4 times) in the backward." in done.stdout
