from __future__ import annotations

from pathlib import Path

import onnx

from ....conftest import Numdrift
from ...graphs.investigations import CULPRIT, investigation, write_investigation
from ...graphs.samples import sample_compile_backward, sample_lazy_backward, write_run


def test_graphs_are_written_beside_their_records_again_and_again(tmp_path: Path, numdrift: Numdrift) -> None:
    run = write_run(tmp_path, "compile", sample_compile_backward())
    for _ in range(2):
        done = numdrift("graph", "export", run)
        assert done.returncode == 0, done.stderr
        written = [run / "graphs" / f"0-backward-{stage}.onnx" for stage in ("pre", "post")]
        assert done.stdout.splitlines() == [f"Wrote {path}" for path in written]
    for path in written:
        onnx.checker.check_model(onnx.load(path))


def test_another_folder_is_not_written_over_without_force(tmp_path: Path, numdrift: Numdrift) -> None:
    write_run(tmp_path, "lazy", [sample_lazy_backward()])
    first = numdrift("graph", "export", "mlp", "--mode", "lazy", "--to", "here")
    assert first.stdout == "Wrote here/0-backward-pre.onnx\n"
    again = numdrift("graph", "export", "mlp", "--mode", "lazy", "--to", "here")
    assert again.returncode == 2
    assert "here/0-backward-pre.onnx exists already" in again.stderr
    assert numdrift("graph", "export", "mlp", "--to", "here", "--force").returncode == 0


def test_a_folder_that_cannot_be_is_one_line(tmp_path: Path, numdrift: Numdrift) -> None:
    write_run(tmp_path, "lazy", [sample_lazy_backward()])
    for arguments in (["mlp", "--to", "x" * 5000], ["x" * 5000]):
        done = numdrift("graph", "export", *arguments)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1)


def test_culprits_of_the_investigation_are_marked(tmp_path: Path, numdrift: Numdrift) -> None:
    run = write_run(tmp_path, "lazy", [sample_lazy_backward()])
    write_investigation(run, investigation(CULPRIT))
    numdrift("graph", "export", run, "--to", "here")
    titles = [one.op_type for one in onnx.load(tmp_path / "here" / "0-backward-pre.onnx").graph.node]
    assert "⚠ tanh_backward" in titles
