"""The graphs of mode `xla`, and the founding question: who keeps `tanh_backward` whole."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from numdrift import load_run
from numdrift.harness.graphs.run_graphs import RunGraphs
from numdrift.harness.records.tools.graph_record import Graph

from ..conftest import ROOT, Numdrift

pytestmark = pytest.mark.slow

SCRIPT = ROOT / "reproducers/sam_tanh.py"
PARTS = ROOT / "tests/xla/scripts/parts.py"


def graphs_of(run: Path) -> RunGraphs:
    return RunGraphs(load_run(run))


def bound(graph: Graph, names: tuple[str, ...]) -> Iterator[str]:
    """What inputs or outputs are to the script, without constants."""
    found = (graph.values[name].binding for name in names)
    return (one for one in found if one not in ("", "constant"))


def test_graphs_are_captured_before_and_after_xla_and_change_no_bit(numdrift: Numdrift, tmp_path: Path) -> None:
    # given a run with graphs, beside the reference, and one without
    with_graphs = numdrift(
        "run", SCRIPT, "--modes", "cpu,xla", "--graphs", "--name", "g", "--jobs", "2", "--", "--epochs", "2"
    )
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
    parts = [node for node in pre.nodes if node.original == "aten.tanh_backward"]
    assert [node.op for node in parts] == ["pow", "rsub", "mul"] * 2
    squares = [node for kernel in post.nodes for node in kernel.body if node.original == "aten.pow"]
    assert len(squares) >= 2 and {node.op for node in squares} == {"multiply"}
    assert all(node.inputs[0] == node.inputs[1] for node in squares)

    # and a diff says so, and has nothing left over: all else is paired, by the modules of both
    done = numdrift("graph", "diff", tmp_path / "runs/g/cpu", tmp_path / "runs/g/xla")
    said = done.stdout.partition("\n\n")[0].splitlines()
    assert said == [
        "cpu keeps tanh_backward whole (4 times in the backward), and xla decomposes it into pow, rsub, mul.",
        "cpu keeps linalg_vector_norm whole (7 times in the optimizer), and xla decomposes it into mul, sum, sqrt.",
        "In step 0, cpu runs op by op and xla executes 4 graphs (cut by mark_step (4 times)).",
    ]

    # every node has the module and the line of the training that it is from, before XLA and after
    modules = {f"layers.{at}" for at in range(5)}
    for graph in (pre, post):
        assert {node.module for node in graph.nodes} - {None} >= modules
        assert all(node.source.startswith(f"{SCRIPT}:") and node.phase for node in graph.nodes)
    (kernel,) = (node for node in post.nodes if {"pow", "rsub", "mul"} <= {*_covered(node.covers, "layers.3", pre)})
    assert (kernel.module, kernel.phase) == ("layers.3", "backward")
    tanh = next(node for node in pre.nodes if node.op == "tanh" and node.module == "layers.3")
    assert {node.sequence for node in parts if node.module == "layers.3"} == {tanh.sequence} != {None}

    # and its inputs and outputs have the names of the script's tensors
    tensors = [f"layers.{at}.{name}" for at in (0, 2, 4) for name in ("weight", "bias")]
    for graph in (pre, post):
        assert sorted(bound(graph, graph.inputs)) == sorted(
            ["input 0", "input 1", *(f"parameter {one}" for one in tensors)]
        )
        assert sorted(bound(graph, graph.outputs)) == sorted(["loss", *(f"gradient {one}" for one in tensors)])
    later = graphs.graph("1-optimizer-post")
    assert sorted(bound(later, later.outputs)) == sorted(
        [*(f"parameter {one}" for one in tensors), *(f"state {one}.momentum_buffer" for one in tensors)]
    )


def _covered(names: tuple[str, ...], module: str, pre: Graph) -> Iterator[str]:
    return (node.op for node in pre.nodes if node.name in names and node.module == module)


def test_what_torch_xla_takes_apart_lacks_or_is_made_to_execute_is_told(numdrift: Numdrift, tmp_path: Path) -> None:
    # given a training with layer norm, batch norm, dropout, `.item()` and an FFT, with its graphs and without
    with_graphs = numdrift("run", PARTS, "--modes", "cpu,xla", "--graphs", "--name", "g", "--jobs", "2")
    assert with_graphs.returncode == 0, with_graphs.stderr
    without = numdrift("run", PARTS, "--mode", "xla", "--name", "plain")
    assert without.returncode == 0, without.stderr

    # then it prints the same losses, and that as many graphs were compiled
    run, plain = tmp_path / "runs/g/xla", tmp_path / "runs/plain/xla"
    assert (run / "stdout.log").read_text() == (plain / "stdout.log").read_text()
    assert list(load_run(run).journal.digests()) == list(load_run(plain).journal.digests())

    # and each graph says why it was executed where it was
    graphs = graphs_of(run)
    cuts = [graphs.graph(entry.name).cut for entry in graphs.entries if entry.stage == "pre" and entry.step == 0]
    assert [(cut.reason, cut.op) for cut in cuts if cut is not None] == [
        ("fallback", "aten._fft_r2c"),
        ("item", ""),
        ("mark_step", ""),
        ("mark_step", ""),
    ]

    # layer norm and its derivative are made of other ops, which know what of
    pre = graphs.graph("0-forward+backward-pre")
    whole = {"aten.native_layer_norm": "forward", "aten.native_layer_norm_backward": "backward"}
    for original, phase in whole.items():
        nodes = [node for node in pre.nodes if node.original == original]
        assert {"native_batch_norm" if phase == "forward" else "native_batch_norm_backward"} < {one.op for one in nodes}
        assert {(node.module, node.phase) for node in nodes} == {("1", phase)}
        assert len({node.group for node in nodes}) == 1
    said = numdrift("graph", "diff", tmp_path / "runs/g/cpu", run).stdout
    assert (
        "cpu keeps layer_norm whole (once in the forward), and xla decomposes it into native_batch_norm, addcmul."
        in said
    )
    assert "cpu keeps layer_norm_backward whole (once in the backward), and xla decomposes it into" in said

    # the outputs of ops that give several are told apart, and what batch norm writes besides
    assert {*bound(pre, pre.outputs)} == {
        *("loss", "buffer 2.running_mean", "buffer 2.running_var", "buffer 2.num_batches_tracked"),
        *(f"gradient {module}.{name}" for module in (0, 1, 2, 4) for name in ("weight", "bias")),
    }
    assert not pre.notes
