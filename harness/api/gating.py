"""Keep a training as it is: a baseline in the repository, and checks against it.

numdrift.save_baseline("train.py", "baselines/train.zip", ["--steps", "6"])
numdrift.check_baseline("baselines/train.zip").verdict           ("identical")
numdrift.assert_same_training("train.py", baseline="baselines/train.zip")  # raises AssertionError
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ..errors import NumdriftError, UsageError
from ..investigate.experiments.investigation_plan import InvestigationRequest
from ..investigate.experiments.laboratory import Progress
from ..investigate.words.culprit_words import from_here
from ..launch.batch_plan import reproducer_of
from ..launch.revisions import committed_revision
from ..records.codec import json_text, read_fields
from ..records.modes.mode_spec import parse_mode
from ..records.results.baseline import BASELINE, Baseline, BaselineCheck
from ..records.results.findings import WITHIN, PairFindings
from ..report.answer import answers_of
from ..runs.recorded_run import RecordedRun
from ..tools.bundle.opening import read_packed
from .api_running import listener
from .investigating import investigated
from .referencing import investigated_against, packed_reference

SIZE_LIMIT = 4.0
"""The largest size of a baseline, in MiB, unless the user states another one: it is meant for a repository."""


def save_baseline(
    script: Path | str | None = None,
    to: Path | str = "numdrift-baseline.zip",
    arguments: Sequence[str] = (),
    *,
    mode: str = "cpu",
    steps: str | None = None,
    limit: float = SIZE_LIMIT,
    module: str | None = None,
    out: Path | str = "runs",
    max_steps: int | None = None,
    timeout: float | None = None,
    force: bool = False,
    progress: bool = False,
) -> Baseline:
    """Train a script and pack its baseline into the archive `to`, as `numdrift baseline save` does.

        numdrift.save_baseline("train.py", "baselines/train.zip", ["--steps", "6"], steps="0,5")

    The archive has the losses, the digests of every step, the environment, and for some `steps` their states, outcomes
    and rounding noise (default: as many as fit into `limit` MiB, at most 8). Raises UsageError if it does not fit or if
    the training fails or does not repeat itself, and CollisionError if the archive exists.
    """
    options = {
        "module": module, "out": out, "max_steps": max_steps, "timeout": timeout, "force": force, "steps": steps,
        "state_budget": limit,
    }  # fmt: skip
    request = InvestigationRequest.of(script, [parse_mode(mode)], arguments, options)
    return saved(request, Path(to), limit, listener(progress))


def check_baseline(
    baseline: Path | str = "numdrift-baseline.zip",
    script: Path | str | None = None,
    arguments: Sequence[str] = (),
    *,
    mode: str | None = None,
    causes: bool = True,
    module: str | None = None,
    out: Path | str = "runs",
    timeout: float | None = None,
    jobs: int = 2,
    progress: bool = False,
) -> BaselineCheck:
    """Train a script and compare the training with its baseline, as `numdrift baseline check` does.

    The script, its arguments and the mode are those of the baseline unless they are stated. If the training differs by
    more than rounding, and the baseline's revision of the repository can be trained here, both are investigated, which
    finds the `causes`. Raises UsageError for an archive that is no baseline, or that of another script.
    """
    options = {"module": module, "out": out, "timeout": timeout, "jobs": jobs}
    modes = [] if mode is None else [parse_mode(mode)]
    request = InvestigationRequest.of(script, modes, arguments, options)
    return checked(request, Path(baseline), listener(progress), causes=causes)


def assert_same_training(
    script: Path | str | None = None,
    arguments: Sequence[str] = (),
    *,
    baseline: Path | str = "numdrift-baseline.zip",
    mode: str | None = None,
    causes: bool = True,
    module: str | None = None,
    out: Path | str = "runs",
    timeout: float | None = None,
) -> None:
    """Raise AssertionError if a training differs from its baseline by more than rounding. The message names the cause.

    The parameters and the other exceptions are those of `check_baseline`.
    """
    found = check_baseline(
        baseline, script, arguments, mode=mode, causes=causes, module=module, out=out, timeout=timeout
    )
    if not found.passes:
        raise AssertionError(found.message)


def saved(request: InvestigationRequest, to: Path, limit: float, progress: Progress) -> Baseline:
    """Save a baseline for `numdrift.save_baseline` and `numdrift baseline save`."""
    reproducer, _ = reproducer_of(request.script, request.module, request.arguments)
    revision = committed_revision(reproducer.path)
    made: list[Baseline] = []

    def describe(run: RecordedRun, steps: Sequence[int]) -> tuple[str, str]:
        named = request.module or from_here(str(request.script))  # other machines have other folders
        mode, limit_of_steps = str(request.modes[0]), request.run.get("max_steps")
        is_module = request.module is not None
        made.append(Baseline(named, is_module, request.arguments, mode, revision, steps, limit_of_steps))
        return BASELINE, json_text(made[0], indent=1)

    to.parent.mkdir(parents=True, exist_ok=True)
    packed_reference(request, to, progress, describe=describe)
    size = to.stat().st_size / 2**20
    if size > limit:
        to.unlink()
        raise UsageError(
            f"the baseline would have {size:.1f} MiB, more than {limit:g} MiB: keep fewer steps (--steps 0), train a "
            "smaller model, or allow more with --limit"
        )
    return made[0]


def checked(request: InvestigationRequest, archive: Path, progress: Progress, *, causes: bool = True) -> BaselineCheck:
    """Check a training against its baseline for `numdrift.check_baseline` and `numdrift baseline check`."""
    began = time.monotonic()
    baseline = baseline_in(archive)
    stated = request.script if request.module is None else request.module
    if stated is not None and Path(str(stated)).name != Path(baseline.script).name:
        raise UsageError(f"{archive} is the baseline of {baseline.script}, not of {stated}")
    if stated is None and baseline.is_module:
        request = replace(request, module=baseline.script)
    elif stated is None:
        request = replace(request, script=baseline.script)
    mode = request.modes[0] if request.modes else parse_mode(baseline.mode)
    now = replace(mode, name="now")
    arguments = request.arguments or tuple(baseline.arguments)
    run = {**request.run, **({} if baseline.max_steps is None else {"max_steps": baseline.max_steps})}
    request = replace(request, modes=(now,), arguments=arguments, run=run)
    findings, folder = investigated_against(request, archive, progress)
    (pair,) = findings.pairs
    named, places = list[str](), list[str]()
    if causes and pair.verdict not in (*WITHIN, "failed"):
        named, places = _causes(request, baseline, folder, progress)
    name = f"{baseline.script} in {mode.base if mode.name == mode.base else mode}"
    seconds = time.monotonic() - began
    return BaselineCheck(name, str(archive), pair.verdict, pair.text[0], named, places, seconds, str(folder))


def baseline_in(archive: Path) -> Baseline:
    """Return what a baseline was made from. Raises UsageError and JournalError."""
    if not archive.is_file():
        raise UsageError(f"there is no baseline {archive}; `numdrift baseline save SCRIPT --to {archive}` makes one")
    content = read_packed(archive, BASELINE)
    if content is None:
        raise UsageError(f"{archive} is no baseline; `numdrift baseline save SCRIPT --to {archive}` makes one")
    return read_fields(Baseline, content)


def _causes(
    request: InvestigationRequest, baseline: Baseline, folder: Path, progress: Progress
) -> tuple[list[str], list[str]]:
    """Return the causes in words and their lines, from an investigation of the baseline's revision and of the present
    training; or the reason why none was looked for."""
    if not baseline.revision:
        return ["no cause was looked for: the baseline was made from a script with uncommitted changes"], []
    (now,) = request.modes
    before = replace(now, name="before", git=baseline.revision)
    progress.say(f"comparing with the baseline's revision {baseline.revision[:12]}, to find the cause")
    try:
        findings, _ = investigated(
            replace(request, modes=(before, now), name=f"{folder.name}-causes", localize="faults"), progress
        )
    except NumdriftError as error:
        return [f"no cause was looked for: {error}"], []
    sentences = [answer.sentence for _, answer in answers_of(findings)]
    return sentences, [source for pair in findings.pairs for source in _sources(pair)]


def _sources(pair: PairFindings) -> list[str]:
    proven = [culprit for culprit in pair.culprits if culprit.is_proven or culprit.proof is None]
    return list(dict.fromkeys(culprit.source for culprit in proven if culprit.source))
