"""The earlier runs whose values an experiment does not write again."""

from __future__ import annotations

from pathlib import Path

from numdrift.harness.launch.batch_plan import BatchPlan
from numdrift.harness.launch.prepared_runs import run_config
from numdrift.harness.records.modes.mode_spec import parse_mode
from numdrift.harness.records.results.experiment import Experiment
from numdrift.harness.runs.run_layout import InvestigationFolder


def earlier(folder: Path, experiment: Experiment | None, rank: int = 0) -> list[str]:
    """Return the earlier runs of an experiment, relative to the investigation."""
    name = experiment.name if experiment else "cpu"
    investigation = InvestigationFolder(folder / "evidence" if experiment else folder)
    spec = parse_mode(f"{name}=cpu")
    plan = BatchPlan(Path("train.py"), [spec], investigation, experiment=experiment, nproc=2)
    config = run_config(plan, spec, investigation.run(name, ""), rank)
    return [str(Path(path).relative_to(folder.absolute())) for path in config.earlier]


def test_an_experiment_knows_its_modes_and_what_was_made_of_them(tmp_path: Path) -> None:
    for name in ("compile-again", "compile-from-cpu", "compile-held-cpu-3", "cpu-again"):
        (tmp_path / "evidence" / name).mkdir(parents=True)
    held = Experiment("held", "compile", "cpu", step=3)
    assert earlier(tmp_path, held) == ["compile", "cpu", "evidence/compile-again", "evidence/compile-from-cpu"]
    assert earlier(tmp_path, Experiment("again", "cpu")) == ["cpu"]


def test_a_rank_knows_the_same_rank_of_earlier_runs(tmp_path: Path) -> None:
    assert earlier(tmp_path, Experiment("again", "cpu"), rank=1) == ["cpu/rank1"]


def test_the_first_run_of_a_mode_has_no_earlier_ones(tmp_path: Path) -> None:
    assert earlier(tmp_path, None) == []
