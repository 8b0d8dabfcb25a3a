"""Snapshots in mode `xla`, executed again as HLO and op by op, and what a script sees of its values once they are there."""

from __future__ import annotations

from pathlib import Path

import pytest

from numdrift.harness.records.tools.snapshot_index import entries_of
from numdrift.harness.snapshots.snapshot_file import read_snapshot
from numdrift.harness.snapshots.snapshot_record import Snapshot
from numdrift.harness.tools.snapshots.replay_answer import answer_of

from ..conftest import ROOT, Numdrift
from ..processes.forked import xla_python

SCRIPTS = ROOT / "tests/xla/scripts"
WHOLE = "0-forward+backward+optimizer"

pytestmark = pytest.mark.slow


def printed(run: Path) -> list[str]:
    return (run / "stdout.log").read_text().splitlines()


def only_snapshot(run: Path) -> tuple[Path, Snapshot]:
    (entry,) = entries_of(run)
    assert not entry.incomplete
    return entry.path, read_snapshot(entry.path)


def test_a_graph_by_callback_is_replayed_bit_for_bit_as_hlo_and_within_rounding_op_by_op(
    numdrift: Numdrift, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    choose = tmp_path / "choose.py"
    choose.write_text("def choose(name, device, count, step):\n    return 'inputs outputs' if step == 2 else ''\n")
    script = SCRIPTS / "pictured.py"
    digest, _ = xla_python(tmp_path, script, PJRT_DEVICE="CPU").stdout.splitlines()
    plain = numdrift("run", script, "--modes", "xla", "--record", "losses", "--name", "plain")
    taken = numdrift("snapshot", "take", script, "--modes", "xla", "--callback", f"{choose}:choose", "--name", "s")
    assert (plain.returncode, taken.returncode) == (0, 0), taken.stderr
    # No bit is another one, and the graphs are the same, besides one that gives what was drawn.
    plain_digest, plain_graphs = printed(tmp_path / "runs/plain/xla")
    taken_digest, taken_graphs = printed(tmp_path / "runs/s/xla")
    assert digest == plain_digest == taken_digest
    known = plain_graphs.split()
    assert [one for one in taken_graphs.split() if one in known] == known
    assert len(taken_graphs.split()) == len(known) + 1

    path, snapshot = only_snapshot(tmp_path / "runs/s/xla")
    assert (snapshot.execution.name, snapshot.execution.step, snapshot.execution.count) == (WHOLE, 2, 2)
    assert not snapshot.unplayable
    assert snapshot.hlo is not None and snapshot.hlo.text.startswith("HloModule")
    assert f"parameter({len(snapshot.hlo.parameters) - 1})" in snapshot.hlo.text
    names = {one.name for one in snapshot.inputs}
    assert {"seed", "parameter first.weight", "buffer norm.running_var", "state last.bias.momentum_buffer"} <= names
    assert {"gradient first.weight", "parameter first.weight afterwards"} <= {one.name for one in snapshot.outputs}
    # The mask is the one that was drawn, the writes are where they were: everything else would be far beyond rounding.
    assert any(call.op.startswith("aten.bernoulli") and call.draw is not None for call in snapshot.tape.calls)
    monkeypatch.chdir(ROOT)  # where .venv-xla is
    as_hlo, op_by_op = answer_of(path), answer_of(path, "cpu")
    assert as_hlo.holds and as_hlo.comparison.identical, as_hlo.text
    assert not op_by_op.comparison.identical
    # torch_xla's batch normalization keeps the biased variance, as xla.md has it.
    assert {one.name for one in op_by_op.comparison.beyond} == {"buffer norm.running_var afterwards"}, op_by_op.text


def test_the_graph_that_gives_a_nan_is_kept_with_the_nan_that_came_in(numdrift: Numdrift, tmp_path: Path) -> None:
    script = SCRIPTS / "pictured.py"
    done = numdrift(
        "snapshot", "take", script, "--modes", "xla", "--on", "nonfinite", "--name", "t", "--", "--nan-at", "1"
    )
    path, snapshot = only_snapshot(tmp_path / "runs/t/xla")
    assert (
        f"{WHOLE} (step 1, execution 1) computed a value that is not finite: its snapshot is {path.name}" in done.stderr
    )
    assert (snapshot.reason, snapshot.around.devices) == ("nonfinite", ("xla",))
    values = {one.name: snapshot.value_of(one) for one in snapshot.inputs}
    nan = [name for name, value in values.items() if value is not None and bool(value.isnan().any())]
    (batch,) = nan
    assert batch.startswith("input")
    value = values[batch]
    assert value is not None and int(value.isnan().sum()) == 1


@pytest.mark.exhaustive
def test_closures_and_words_run_once_the_step_has_its_values_wherever_graphs_are_cut(
    numdrift: Numdrift, tmp_path: Path
) -> None:
    modes = ["cpu", "auto=xla", "off=xla,mark_step=off", "op=xla,execute=op"]
    single = [word for mode in modes for word in ("--mode", mode)]
    done = numdrift("run", SCRIPTS / "closures.py", *single, "--name", "t", "--jobs", "2", "--", "--early")
    assert done.returncode == 0, done.stderr
    reference = printed(tmp_path / "runs/t/cpu")
    assert len(reference) == 9
    for mode in ("off", "op"):
        assert printed(tmp_path / "runs/t" / mode) == reference, mode
    # Where the script alone cuts, and does it before its optimizer, a step has its values at the next cut.
    late = [line.replace(f"after_step {step} in {step}", f"after_step {step} in {step + 1}") for step in range(3)
            for line in reference if f"after_step {step}" in line]  # fmt: skip
    auto = printed(tmp_path / "runs/t/auto")
    assert [line for line in auto if line.startswith("after_step")] == [*late, reference[-2]]
    assert [line for line in auto if line.startswith("closure")] == [one for one in reference if "closure" in one]
