"""`numdrift.reference`: packs a reference for other machines; `investigate(against=...)` compares with it."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from ..errors import CollisionError, UsageError
from ..investigate.experiments.investigation_plan import InvestigationRequest
from ..investigate.experiments.laboratory import Laboratory, Progress
from ..investigate.experiments.rounds import kept_steps
from ..investigate.portable_reference import (
    investigate_against,
    is_packed,
    is_report,
    record_reference,
    reference_in,
)
from ..launch.batch_plan import planned
from ..records.codec import put
from ..records.modes.mode_spec import parse_mode
from ..records.results.findings import Findings
from ..records.run.run_config import RunConfig
from ..runs.recorded_run import RecordedRun, load_run
from ..tools.bundle.archive import Bundle, write_bundle
from ..tools.bundle.bundle_contents import Kind
from ..tools.bundle.opening import extract
from .api_running import listener, passive_threads

NEEDED: frozenset[Kind] = frozenset(("record", "values"))
"""The kinds of files in a reference's archive."""


@dataclass(frozen=True, slots=True)
class PackedReference:
    """A reference in an archive at `path`.

    bundle: the content of the archive
    run: the run that it was made from
    steps: the steps that can be compared with it
    """

    path: Path
    bundle: Bundle
    run: RecordedRun
    steps: Sequence[int]


def reference(
    script: Path | str | None = None,
    to: Path | str = "reference.zip",
    arguments: Sequence[str] = (),
    *,
    mode: str = "cpu",
    steps: str | None = None,
    state_budget: float = 1024.0,
    keep: Literal["states", "ops"] = "states",
    module: str | None = None,
    name: str | None = None,
    out: Path | str = "runs",
    max_steps: int | None = None,
    timeout: float | None = None,
    force: bool = False,
    progress: bool = False,
) -> PackedReference:
    """Train a script in one mode, and pack what other machines need to compare with it, as `numdrift reference` does.

        numdrift.reference("train.py", "ref.zip", ["--epochs", "1"], mode="cpu")
        numdrift.investigate("train.py", ["cuda"], against="ref.zip")

    The archive `to` has the losses, the digests of every step, and the states, outcomes and noise of the `steps`
    (default: 8 steps, or as many as fit into `state_budget` MiB). With `keep="ops"`, it also has the ops of these steps
    and the values that they read, so that causes can be found. It contains parameters and gradients, but neither the
    script nor its output. Raises UsageError if the training fails or does not repeat itself, and CollisionError if the
    archive exists.
    """
    options = {
        "module": module, "name": name, "out": out, "max_steps": max_steps, "timeout": timeout, "force": force,
        "steps": steps, "state_budget": state_budget,
    }  # fmt: skip
    request = InvestigationRequest.of(script, [parse_mode(mode)], arguments, options)
    return packed_reference(request, Path(to), listener(progress), ops=keep == "ops")


def packed_reference(
    request: InvestigationRequest,
    to: Path,
    progress: Progress,
    *,
    ops: bool = False,
    describe: Callable[[RecordedRun, Sequence[int]], tuple[str, str]] | None = None,
) -> PackedReference:
    """Pack a reference for `numdrift.reference` and `numdrift reference`.

    With `ops`, the archive also has the tapes of the kept steps. `describe` returns the name and the content of a
    further file of the archive.
    """
    if to.exists() and not request.force:
        raise CollisionError(to, "choose another path with --to, or replace it with --force")
    batch = planned(request)
    with passive_threads(), Laboratory(progress, 1, request.timeout) as laboratory:
        run = record_reference(batch, request, laboratory)
    folder, steps, added = batch.investigation.path, kept_steps(run), ""
    if describe is not None:
        added, content = describe(run, steps)
        put(folder / added, content)
    kinds: frozenset[Kind] = NEEDED if describe is None else NEEDED | frozenset[Kind](("report",))
    bundle = write_bundle(
        folder,
        to,
        kinds,
        wanted=lambda name: name == added or (is_packed(name, ops=ops) and not is_report(name)),
    )
    return PackedReference(to, bundle, run, steps)


def investigated_against(request: InvestigationRequest, archive: Path, progress: Progress) -> tuple[Findings, Path]:
    """Compare modes with a packed reference, for `numdrift.investigate(against=...)` and `investigate --against`."""
    if not archive.is_file():
        raise UsageError(f"there is no reference {archive}; `numdrift reference SCRIPT --to {archive}` makes one")
    batch = planned(request)
    folder = batch.investigation.path
    if not folder.exists():
        extract(archive, folder)
    run = reference_in(folder, archive)
    config = RunConfig.load(run.path / "config.json")
    modes = request.modes or (replace(config.mode, name="here"),)
    if any(spec.name == run.path.name for spec in modes):
        raise UsageError(
            f'the reference is named {run.path.name!r}, too: rename the mode, as in --mode "here={modes[0].base}"'
        )
    if not request.arguments and config.arguments:
        progress.say(f"the script gets the reference's arguments: {shlex.join(config.arguments)}")
    arguments = request.arguments or config.arguments
    names = [run.manifest.mode, *(spec.name for spec in modes)]
    # the folder exists by now, and would make an investigation without a name choose another one
    trained = planned(replace(request, modes=modes, arguments=arguments, name=folder.name))
    plan = replace(trained, positions=names)
    with passive_threads(), Laboratory(progress, request.jobs, request.timeout) as laboratory:
        return investigate_against(load_run(run.path), plan, request, laboratory), folder
