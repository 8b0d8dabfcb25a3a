"""`numdrift.investigate`, `compare` and `localize`: verdicts and causes for programs and notebooks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from ..drift.run_comparison import compare_runs
from ..errors import UsageError
from ..investigate.investigation_plan import (
    DEFAULT_STATE_BUDGET,
    InvestigationPlan,
    changes_nothing,
    compared_modes,
    pair_to_localize,
    recorded_runs,
)
from ..investigate.judge import judge_pairs
from ..investigate.laboratory import Laboratory
from ..investigate.method import investigate as investigate_plan
from ..investigate.method import investigate_runs, localize_runs
from ..launch.batch_kernels import OwnKernels, own_kernels
from ..launch.reproducer import asked_for
from ..records.findings import Findings
from ..records.step_selection import StepSelection
from ..runs.recorded_run import RecordedRun, load_run, told_apart
from ..runs.run_layout import Investigation as InvestigationFolder
from ..runs.run_layout import choose_investigation
from .api_progress import told
from .api_recording import Recording
from .api_running import specs_of
from .investigation_results import Comparison, Investigation, investigation_of
from .waiting import passive_threads

Localized = bool | Literal["all", "faults", "none"]
"""Whose causes are looked for: of every pair that differs (True, `all`), of those beyond rounding, or of none (False)."""


def investigate(
    script: Path | str | None = None,
    modes: str | Sequence[str] | None = None,
    arguments: Sequence[str] = (),
    *,
    module: str | None = None,
    out: Path | str = "runs",
    name: str | None = None,
    suffix: str | None = None,
    steps: str | None = None,
    envelope: int = 0,
    seeds: int = 0,
    state_budget: float = DEFAULT_STATE_BUDGET / 2**20,
    kernels: OwnKernels | None = None,
    nproc: int = 1,
    against_single: bool = False,
    timeout: float | None = None,
    jobs: int = 2,
    localize: Localized = True,
    scripts: bool = True,
    confirm: bool = True,
    knobs: bool = False,
    partition_bisect: bool = False,
    strict: bool = False,
    force: bool = False,
    progress: bool = False,
) -> Investigation:
    """Decide whether modes differ by more than rounding, which side is right, and which op it is: `numdrift investigate`.

        found = numdrift.investigate("train.py", modes=["cpu", "compile"], arguments=["--epochs", "10"])
        found.pairs[0].verdict
        found.culprits_frame()

    `modes` are as in `numdrift.run` (default cpu and compile). `script` may also be the folder of an investigation that is
    recorded, and `suffix` one of its batches. What was run already under this `name` is not run again. `localize=False`
    judges and looks for no cause. The other options are the command's (docs/guide/investigate.md): `state_budget` in MiB,
    `timeout` in seconds a run, `envelope` and `seeds` count further trainings. Each run has `nproc` processes, with
    `against_single` held against the first mode in one.

    Prints nothing unless `progress`. Writes `investigation.json` into the folder. Raises UsageError before anything is
    started, KeyboardInterrupt when Ctrl-C ended the runs.
    """
    teller = told(progress)
    laboratory = Laboratory(teller, jobs, timeout)
    asked: dict[str, Any] = {
        "steps": None if steps is None else StepSelection.parse(steps),
        "envelope": envelope,
        "seeds": seeds,
        "state_budget": int(state_budget * 2**20),
        "jobs": jobs,
        "timeout": timeout,
        "force": force,
        "localize": _whose(localize),
        "scripts": scripts,
        "confirm": confirm,
        "knobs": knobs,
        "partition_bisect": partition_bisect,
    }
    with passive_threads():
        if script is not None and Path(script).is_dir():
            if modes or arguments or name or kernels or nproc > 1 or against_single:
                raise changes_nothing(script)
            runs = recorded_runs(Path(out), Path(script), suffix)
            folder = InvestigationFolder(runs[0].path.parent)
            plan = InvestigationPlan(script=Path(script), modes=(), investigation=folder, **asked)
            return _found(investigate_runs(runs, plan, laboratory), folder.path, teller.said)
        if against_single and nproc < 2:
            raise UsageError(
                "against_single holds several processes against one: say how many, as in nproc=2"
            )
        reproducer, words = asked_for(None if script is None else str(script), module, tuple(arguments))
        plan = InvestigationPlan(
            script=reproducer.path,
            module=reproducer.module,
            strict=strict,
            modes=compared_modes(
                specs_of(modes if modes is not None else "cpu,compile"), alone=against_single
            ),
            nproc=nproc,
            against_single=against_single,
            investigation=choose_investigation(Path(out), reproducer.named_after, name, ""),
            arguments=words,
            kernels=own_kernels(kernels),
            **asked,
        )
        return _found(investigate_plan(plan, laboratory), plan.investigation.path, teller.said)


def compare(a: RecordedRun | Recording | Path | str, b: RecordedRun | Recording | Path | str) -> Comparison:
    """Hold run b against run a, the reference. Nothing is run and nothing is written: `numdrift compare`.

        compared = numdrift.compare("runs/study/cpu", "runs/study/compile")
        compared.verdict, compared.losses(), compared.parameters()

    The verdict comes from what is recorded; it is None where experiments of `numdrift.investigate` are missing. Raises
    UsageError for a run without a recorded step, RunNotFound and JournalError for what cannot be read.
    """
    left, right = told_apart(loaded(a), loaded(b))
    distances = compare_runs(left, right)
    found = judge_pairs([(left, right)])
    return Comparison(left, right, distances, _found(found, left.path.parent).pairs[0])


def localize(
    a: RecordedRun | Path | str,
    b: RecordedRun | Path | str,
    step: int | None = None,
    *,
    knobs: bool = False,
    partition_bisect: bool = False,
    scripts: bool = True,
    confirm: bool = True,
    timeout: float | None = None,
    jobs: int = 2,
    progress: bool = False,
) -> Investigation:
    """Find the ops that make run b differ from run a, and prove it: `numdrift localize`.

        numdrift.localize("runs/study/cpu", "runs/study/compile", step=12).culprits_frame()

    Both are runs of one investigation; what the verdict needs and is not there yet is run first. `step` is the one to look
    into (default: the first significant one). Raises UsageError for runs that cannot be localized.
    """
    runs = pair_to_localize(loaded(a), loaded(b))
    folder = InvestigationFolder(runs[0].path.parent)
    plan = InvestigationPlan(
        script=Path(runs[0].manifest.reproducer),
        modes=(),
        investigation=folder,
        jobs=jobs,
        timeout=timeout,
        step=step,
        knobs=knobs,
        partition_bisect=partition_bisect,
        scripts=scripts,
        confirm=confirm,
    )
    teller = told(progress)
    with passive_threads():
        found = localize_runs(runs, plan, Laboratory(teller, jobs, timeout))
    return _found(found, folder.path, teller.said)


def loaded(run: RecordedRun | Recording | Path | str) -> RecordedRun:
    """The run itself, or the one that a recording has left or that lies in a folder."""
    if isinstance(run, Recording):
        return run.run
    return run if isinstance(run, RecordedRun) else load_run(run)


def _found(findings: Findings, folder: Path, said: Sequence[str] = ()) -> Investigation:
    return investigation_of(findings.to_json(), folder, tuple(said))


def _whose(localize: Localized) -> str:
    if isinstance(localize, bool):
        return "all" if localize else "none"
    if localize not in ("all", "faults", "none"):
        raise UsageError(f"localize={localize!r} is none of 'all', 'faults', 'none', True and False")
    return localize
