"""`numdrift.run`: a script in several modes, a process each, recorded."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import RunNotFound, nearest
from ..launch.batch_kernels import OwnKernels, own_kernels
from ..launch.batch_options import kept_states, resynced, steps_of_graphs
from ..launch.batch_plan import BatchPlan
from ..launch.execute_batch import execute
from ..launch.reproducer import asked_for
from ..records.mode_spec import ModeSpec, parse_modes
from ..records.step_selection import KeepParams, StepSelection
from ..runs.recorded_run import RecordedRun, load_run
from ..runs.run_layout import check_name, choose_investigation
from .api_progress import told
from .waiting import passive_threads

if TYPE_CHECKING:
    import pandas as pd

    from .api_recording import Level


@dataclass(frozen=True, slots=True)
class RunBatch:
    """The runs of one call in the order of their modes; `path` is the folder that they are in.

    `exit_code` is that of the command line: 0 when every run completed, 3 when one did not, 2 for a mode that was wrong.
    """

    path: Path
    runs: Sequence[RecordedRun]
    exit_code: int

    def __getitem__(self, mode: str) -> RecordedRun:
        """The run of a mode by its name. Raises RunNotFound, naming the modes that there are."""
        known = {run.manifest.mode: run for run in self.runs}
        if mode not in known:
            raise RunNotFound(f"{self.path} has no run of mode {mode!r}: {nearest(mode, known)}")
        return known[mode]

    def losses(self) -> pd.DataFrame:
        """The loss of each step: a column a mode, a row a step."""
        pandas = importlib.import_module("pandas")
        frame: pd.DataFrame = pandas.DataFrame({run.manifest.mode: run.losses() for run in self.runs})
        return frame.rename_axis("step")


def run(
    script: Path | str | None = None,
    modes: str | Sequence[str] = ("cpu", "compile"),
    arguments: Sequence[str] = (),
    *,
    module: str | None = None,
    out: Path | str = "runs",
    name: str | None = None,
    suffix: str = "",
    record: Level = "params",
    steps: str = "",
    keep_params: str = "all",
    keep_budget: float = 256.0,
    kernels: OwnKernels | None = None,
    trace_kernels: Sequence[str] = (),
    graphs: bool = False,
    graph_steps: str | None = None,
    states: str | None = None,
    resync: Path | str | RecordedRun | None = None,
    nproc: int = 1,
    sketches: bool = False,
    timeout: float | None = None,
    jobs: int = 1,
    strict: bool = False,
    force: bool = False,
    progress: bool = False,
) -> RunBatch:
    """Run a script in each mode, in a process of its own, and record what happens: `numdrift run`.

        batch = numdrift.run("train.py", ["cpu", "compile"], ["--epochs", "3"], name="study")
        batch["compile"].losses()

    `modes` are modes in full (`"fast=compile,contract=fast"`), or one text of plain ones (`"cpu,compile"`); the first is the
    reference. `arguments` go to the script; `module` is the name behind `-m` in place of a script. The other options are the
    command's (docs/guide/run.md): `keep_budget` in MiB, `timeout` in seconds a run, `steps` and the like as in `"0,5,10-19"`.

    Prints nothing unless `progress`. A mode that fails is recorded as such and the others go on. Raises UsageError before
    anything is started, KeyboardInterrupt when Ctrl-C ended the runs.
    """
    reproducer, words = asked_for(None if script is None else str(script), module, tuple(arguments))
    chosen = StepSelection.parse(steps)
    plan = BatchPlan(
        script=reproducer.path,
        module=reproducer.module,
        modes=specs_of(modes),
        investigation=choose_investigation(Path(out), reproducer.named_after, name, suffix),
        arguments=words,
        suffix=check_name("suffix", suffix) if suffix else "",
        record=record,
        steps=chosen,
        keep_params=KeepParams.parse(keep_params),
        value_budget=int(keep_budget * 2**20),
        timeout=timeout,
        jobs=jobs,
        force=force,
        kernels=own_kernels(kernels),
        trace_kernels=trace_kernels,
        graphs=graphs,
        graph_steps=steps_of_graphs(graph_steps, graphs),
        states=kept_states(states),
        nproc=nproc,
        sketches=sketches,
        strict=strict,
        **resynced(None if resync is None else path_of(resync), chosen),
    )
    with passive_threads():
        result = execute(plan, told(progress))
    if result.interrupted:
        raise KeyboardInterrupt
    runs = [load_run(one.folder.path) for one in result.runs]
    return RunBatch(plan.investigation.path, runs, result.exit_code)


def specs_of(modes: str | Sequence[str]) -> list[ModeSpec]:
    """The modes that were given. Raises UsageError and ModeError."""
    return parse_modes(modes) if isinstance(modes, str) else parse_modes(None, list(modes))


def path_of(run: RecordedRun | Path | str) -> Path:
    return run.path if isinstance(run, RecordedRun) else Path(run)
