"""`numdrift.check` and `numdrift check`: whether modes compute the same on calls of a function or module.

numdrift.check("ops.py:scaled", inputs="randn(4, 8)").modes[0].verdict       "rounding"
numdrift.check("issue.py", modes=["cpu", "compile"]).message
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import io
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Unpack, get_args

from ..drift.wholes import entries_of
from ..errors import NumdriftError, UsageError
from ..investigate.experiments.investigation_plan import (
    InvestigationOptions,
    InvestigationRequest,
    Localized,
    compared_modes,
    localized_pairs,
)
from ..investigate.experiments.laboratory import Laboratory, Progress
from ..investigate.method import investigate_runs
from ..investigate.words.culprit_words import from_here
from ..launch.batch_plan import BatchPlan, planned
from ..records.frames import REFUSED
from ..records.modes.mode_spec import ModeSpec, parse_mode, parse_modes
from ..records.results.call_check import CallCheck
from ..records.run.call_subject import TIMES, CallFacts, CallSubject, target_of
from ..records.run.input_language import described_inputs
from ..records.run.user_option import option
from ..runs.recorded_run import RecordedRun
from ..runs.run_layout import EVIDENCE
from .api_running import listener, passive_threads, specs_of
from .compared_calls import call_differences, checked_mode, facts_of
from .investigating import DEFAULT_MODES
from .lone_call import ALONE, made_alone
from .shrinking import with_shrunk


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckRequest(InvestigationRequest):
    """The options of a check."""

    OF_RUN: ClassVar[Sequence[str]] = ("keep_files", "in_place")

    name: str | None = option(
        None, "Name of the folder of the check (default: the file's name, with a number if that name is taken)."
    )
    inputs: str = option(
        "",
        "The inputs of the function, as in 'randn(4, 8), randint(0, 10, (4,))' (default: those of inputs() or "
        "get_inputs() in the file).",
        metavar="TEXT",
    )
    load: Path | None = option(
        None,
        "A file of inputs: what torch.save has written (tensors, or a list or dictionary of tensors), or a snapshot, "
        "for the inputs of its graph.",
        Path, kind=Path, metavar="FILE",
    )  # fmt: skip
    input_seeds: int = option(
        2, "Number of sets of inputs of the function, each from its own seed.", flag="--seeds", least=1, metavar="N",
        shows_default=True,
    )  # fmt: skip
    gradients: bool = option(
        True,
        "Also compare gradients, if the function has any (default: yes).",
        flag="--gradients/--no-gradients",
    )
    localize: Localized = option(
        "faults",
        "Find and prove the causes for all modes that differ (all), only for those that differ by more than rounding "
        "(faults), or for none (none).",
        localized_pairs,
        choices=get_args(Localized),
        shows_default=True,
    )
    edges: bool = option(
        False,
        "Also call with special inputs: zeros, subnormal and very large numbers, infinities, NaN, ties, an empty "
        "tensor, size one, and other memory layouts.",
        flag="--edge",
    )
    shrink: bool = option(
        False,
        "Also write a script with the smallest inputs for each proven cause, or with the smallest call for an error in "
        "one mode alone.",
    )
    dynamic: bool = option(False, "Compile with dynamic shapes in all modes that compile.")


class CheckOptions(InvestigationOptions, total=False):
    """The users' options of a `CheckRequest` by their names in Python."""

    load: Path | str | None
    input_seeds: int
    gradients: bool
    edges: bool
    shrink: bool
    dynamic: bool


def check(
    target: Callable[..., Any] | Path | str,
    inputs: Any = "",
    modes: str | Sequence[str] = DEFAULT_MODES,
    *,
    progress: bool = False,
    **options: Unpack[CheckOptions],
) -> CallCheck:
    """Compare calls of a function or module in several modes, as `numdrift check` does.

        numdrift.check("ops.py:scaled", "randn(4, 32), randn(32, 8)").modes[0].answer

    `target` is FILE:NAME, a file that compiles and calls something itself, or a function or class that is defined at
    the top level of a file. `inputs` are tensors, in a tuple, list or dictionary, or a description of inputs
    (docs/guide/check.md); without it, they come from `inputs()` or `get_inputs()` in the file, or from the file `load`.
    Raises UsageError for a target that cannot be called, before any mode is compared.
    """
    chosen: dict[str, Any] = {**options}
    if isinstance(inputs, str):
        chosen["inputs"] = inputs
    else:
        chosen["load"] = _saved(inputs, Path(options.get("out", "runs")))
    request = CheckRequest.of(_written(target), specs_of(modes), (), chosen)
    return checked(request, listener(progress))


def assert_equivalent(
    target: Callable[..., Any] | Path | str,
    inputs: Any = "",
    modes: str | Sequence[str] = DEFAULT_MODES,
    **options: Unpack[CheckOptions],
) -> None:
    """Raise AssertionError if modes differ by more than rounding on calls of a function or module.

        assert_equivalent(scaled, (torch.randn(4, 8), 2), modes="cpu,compile")

    The error's message is the answer: what differs, from what cause. The parameters and the other exceptions are those
    of `numdrift.check`.
    """
    found = check(target, inputs, modes, **options)
    if not found.is_equal:
        raise AssertionError(found.message)


def checked(request: CheckRequest, progress: Progress) -> CallCheck:
    """Check a target for `numdrift.check` and `numdrift check`. Raises UsageError."""
    batch, subject = _planned(request)
    named = f"{batch.script}:{subject.function}" if subject.function else str(batch.script)
    with passive_threads(), Laboratory(progress, request.jobs, request.timeout) as laboratory:
        return calls_checked(request, batch, from_here(named), laboratory)


def calls_checked(request: CheckRequest, batch: BatchPlan, target: str, laboratory: Laboratory) -> CallCheck:
    """Make the calls of a plan in its modes, and compare them. Raises UsageError if the reference makes no call."""
    began = time.monotonic()
    if request.force:  # the evidence of other calls would be taken for that of these
        for name in (EVIDENCE, ALONE):
            shutil.rmtree(batch.investigation.path / name, ignore_errors=True)
    runs = laboratory.free(replace(batch, checkpoints=request.state_budget // 2))
    facts = [facts_of(run) for run in runs]
    _refuse_without_calls(runs[0], facts)
    labels = [call.label for call in facts[0] if not call.raised][::TIMES]
    reference = runs[0].manifest.label
    differences = [call_differences(facts[0], calls, reference) for calls in facts[1:]]
    findings = None
    able = [run for run, found in zip(runs[1:], differences, strict=True) if not found]
    if able and labels:
        findings = investigate_runs([runs[0], *able], request, laboratory)
    modes = [
        checked_mode(runs[0], run, found, findings, labels) for run, found in zip(runs[1:], differences, strict=True)
    ]
    if request.localize != "none":
        modes = [made_alone(mode, (runs[0], run), batch, laboratory) for mode, run in zip(modes, runs[1:], strict=True)]
    if request.shrink:
        laboratory.workers.close_processes()
        modes = [
            with_shrunk(mode, (runs[0], run), batch, laboratory) for mode, run in zip(modes, runs[1:], strict=True)
        ]
    return CallCheck(
        target,
        reference,
        [call.label for call in facts[0][::TIMES]],
        labels,
        modes,
        runs[0].manifest.environment,
        [*(event["text"] for event in runs[0].journal.events("notice")), *_notes_on_draws(request, runs, facts[0])],
        round(time.monotonic() - began, 3),
        str(batch.investigation.path),
    )


def _notes_on_draws(request: CheckRequest, runs: Sequence[RecordedRun], facts: Sequence[CallFacts]) -> Iterator[str]:
    """Say which modes draw eager's random numbers although nobody asked for that, if a call draws any."""
    specs = request.modes or parse_modes(DEFAULT_MODES)
    for spec, run in zip(specs, runs, strict=True) if any(call.draws for call in facts) else ():
        if spec.fallback_random is None and parse_mode(run.manifest.spec).fallback_random is not None:
            yield (
                f"{run.manifest.label} draws the random numbers of eager mode (fallback_random=on), so that the "
                "results can be compared; what it computes with its own numbers was not looked at"
            )


def _planned(request: CheckRequest) -> tuple[BatchPlan, CallSubject]:
    """Return the plan of the first runs, and their subject. Raises UsageError."""
    if request.script is None:
        raise UsageError("no target is given; give a file that compiles and calls something, or FILE:NAME")
    path, function = target_of(request.script)
    if request.inputs and request.load is not None:
        raise UsageError("--inputs and --load both give the inputs: use one of them")
    if (request.inputs or request.load is not None) and not function:
        raise UsageError(f"{path} makes its own calls, with its own inputs; name the function, as in {path}:NAME")
    if request.inputs:
        described_inputs(request.inputs)
    if request.load is not None and not request.load.is_file():
        raise UsageError(f"there is no file {request.load} of inputs")
    saved = "" if request.load is None else str(request.load.absolute())
    subject = CallSubject(
        function, request.inputs, saved, 1 if saved else request.input_seeds, request.edges, request.gradients
    )
    specs: Sequence[ModeSpec] = compared_modes(request.modes or parse_modes(DEFAULT_MODES))
    if request.dynamic:
        specs = [replace(spec, dynamic="on") if spec.capabilities.compiles else spec for spec in specs]
    batch = planned(replace(request, script=str(path), modes=tuple(specs), run={**request.run, "subject": subject}))
    return batch, subject


def _written(target: Callable[..., Any] | Path | str) -> str:
    """Return a target as text. Raises UsageError for one that another process cannot import."""
    if isinstance(target, (str, Path)):
        return str(target)
    name, module = getattr(target, "__qualname__", ""), sys.modules.get(getattr(target, "__module__", ""))
    file = getattr(module, "__file__", None) or ""
    if not name or "<" in name or not file:
        what = name or type(target).__name__
        raise UsageError(
            f"{what} cannot be called in another process, where each mode runs: pass a function or class that is "
            "defined at the top level of a file"
        )
    return f"{inspect.getsourcefile(target) or file}:{name}"


def _saved(inputs: Any, out: Path) -> Path:
    """Write inputs to a file, in which every mode finds them. Raises UsageError for anything but tensors in containers
    and plain values."""
    torch = importlib.import_module("torch")
    out.mkdir(parents=True, exist_ok=True)
    content = io.BytesIO()
    torch.save(inputs, content)
    path = out / f"inputs-{hashlib.sha256(content.getvalue()).hexdigest()[:12]}.pt"
    path.write_bytes(content.getvalue())
    return path


def _refuse_without_calls(reference: RecordedRun, facts: Sequence[Sequence[CallFacts]]) -> None:
    """Raise UsageError if the reference made no call, or no call without an error in any mode."""
    if reference.manifest.status == REFUSED or not facts[0]:
        raise UsageError(reference.manifest.message or f"{reference.manifest.reproducer} makes no call")
    if reference.journal.steps and not entries_of(reference):  # then nothing was compared
        raise NumdriftError(f"no result of {reference.manifest.reproducer} was recorded: report this as a bug")
    errors = [{call.raised for call in calls} for calls in facts]
    if all(texts and "" not in texts for texts in errors):
        raise UsageError(
            f"every call raises an error in every mode ({min(errors[0])}): give inputs that the function takes"
        )
