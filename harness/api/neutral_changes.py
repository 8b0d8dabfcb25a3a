"""`numdrift.neutral`: tries the changes that should not matter to a training, such as another loop of its optimizer."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..errors import UsageError, nearest
from ..investigate.experiments.investigation_plan import InvestigationRequest
from ..investigate.experiments.laboratory import Progress
from ..launch.batch_plan import planned, reproducer_of
from ..launch.execute_batch import execute
from ..records.codec import json_text, put
from ..records.modes.execution_keys import NO_EFFECT
from ..records.modes.mode_spec import PLAIN_KEYS, ModeSpec, parse_mode
from ..records.modes.setting_keys import device_of, refused_setting
from ..records.results.findings import Findings
from ..records.results.neutral_matrix import NEUTRAL, NOTHING, NeutralMatrix, TriedChange
from ..runs.recorded_run import load_run
from .api_running import listener, passive_threads
from .investigating import investigated


@dataclass(frozen=True, slots=True)
class NeutralChange:
    """A change that is meant to compute the same thing.

    keys: the keys of the mode that makes it
    compiled: whether the mode compiles
    """

    name: str
    title: str
    keys: Mapping[str, str]
    compiled: bool = False


CHANGES = (
    NeutralChange("optimizer-loop", "the optimizer goes tensor by tensor", {"optimizer": "loop"}),
    NeutralChange("optimizer-foreach", "the optimizer works on lists of tensors", {"optimizer": "foreach"}),
    NeutralChange("optimizer-fused", "the optimizer is one kernel", {"optimizer": "fused"}),
    NeutralChange("clipping-loop", "gradients are clipped tensor by tensor", {"clipping": "loop"}),
    NeutralChange("clipping-foreach", "gradients are clipped as a list of tensors", {"clipping": "foreach"}),
    NeutralChange("gradients-none", "gradients are removed before a step", {"zero_grad": "none"}),
    NeutralChange("gradients-zero", "gradients are set to zero before a step", {"zero_grad": "zeros"}),
    NeutralChange("checkpointing", "activations are computed again in the backward", {"checkpointing": "on"}),
    NeutralChange("channels-last", "convolutions in the channels-last layout", {"memory_format": "channels_last"}),
    NeutralChange("workers-0", "data are loaded by the process itself", {"workers": "0"}),
    NeutralChange("workers-2", "data are loaded by two processes", {"workers": "2"}),
    NeutralChange("threads-1", "one thread", {"threads": "1"}),
    NeutralChange("threads-2", "two threads", {"threads": "2"}),
    NeutralChange("deterministic", "kernels that repeat their bits", {"deterministic": "on"}),
    NeutralChange("attention-math", "attention by its formula", {"sdpa": "math"}),
    NeutralChange("without-onednn", "convolutions without oneDNN", {"mkldnn": "off"}),
    NeutralChange("without-cudnn", "convolutions without cuDNN", {"cudnn": "off"}),
    NeutralChange("compile", "torch.compile", {}, compiled=True),
    NeutralChange("compile-dynamic", "torch.compile with dynamic shapes", {"dynamic": "on"}, compiled=True),
)
"""The changes that are tried, in the order of the table."""


def neutral(
    script: Path | str | None = None,
    arguments: Sequence[str] = (),
    *,
    changes: Sequence[str] = (),
    mode: str = "cpu",
    module: str | None = None,
    name: str | None = None,
    out: Path | str = "runs",
    max_steps: int | None = None,
    timeout: float | None = None,
    jobs: int = 2,
    force: bool = False,
    progress: bool = False,
) -> NeutralMatrix:
    """Try the changes that should not matter to a training, as `numdrift neutral` does.

        found = numdrift.neutral("train.py", ["--epochs", "1"])
        [(change.name, change.outcome) for change in found.changes]

    `changes` are names of the command's table; by default, all that apply to the script are tried. The script is not
    modified: each change is a key of a mode. `mode` is the reference. Everything else is as in `numdrift.investigate`.
    The folder also gets `neutral.json`.

    Raises UsageError for a name that the table lacks, and for a script that cannot be trained.
    """
    options = {
        "module": module, "name": name, "out": out, "max_steps": max_steps, "timeout": timeout, "jobs": jobs,
        "force": force,
    }  # fmt: skip
    request = InvestigationRequest.of(script, [parse_mode(mode)], arguments, options)
    return tried(request, changes, listener(progress))[0]


def tried(
    request: InvestigationRequest, names: Sequence[str], progress: Progress
) -> tuple[NeutralMatrix, Findings | None]:
    """Try changes for `numdrift.neutral` and `numdrift neutral`; also return the findings on those that apply."""
    (reference,) = request.modes
    for name in names:
        if name not in (listed := [change.name for change in CHANGES]):
            raise UsageError(f"there is no change {name!r}; {nearest(name, listed)}")
    chosen = {change.name: change for change in CHANGES if not names or change.name in names}
    modes = {name: mode for name, change in chosen.items() if (mode := mode_with(change, reference)) is not None}
    if names and (refused := [name for name in names if name not in modes]):
        raise UsageError(f"the change {refused[0]!r} has no effect in mode {reference}; leave it out")
    reproducer, _ = reproducer_of(request.script, request.module, request.arguments)
    request = replace(request, name=request.name or f"{reproducer.named_after.stem}-neutral")
    without_effect = ineffective(request, [mode for name, mode in modes.items() if not chosen[name].compiled], progress)
    remaining = [mode for name, mode in modes.items() if name not in without_effect]
    findings, folder = None, request.out / str(request.name)
    if remaining:
        findings, folder = investigated(replace(request, modes=(reference, *remaining), localize="faults"), progress)
    pairs = {pair.b: pair for pair in findings.pairs} if findings is not None else {}
    rows = []
    for name, mode in modes.items():
        if name in without_effect:
            rows.append(TriedChange(name, str(mode), chosen[name].title, NOTHING, None, None, without_effect[name]))
        elif (pair := pairs.get(name)) is not None:
            row = TriedChange(
                name, str(mode), chosen[name].title, pair.verdict, pair.score, pair.threshold, pair.text[0]
            )
            rows.append(row)
    matrix = NeutralMatrix(str(reproducer.path), str(reference), rows, answer_of(rows))
    folder.mkdir(parents=True, exist_ok=True)  # every change may be without effect
    put(folder / NEUTRAL, json_text(matrix, indent=1))
    return matrix, findings


def mode_with(change: NeutralChange, reference: ModeSpec) -> ModeSpec | None:
    """Return the reference's mode with a change; None if the change has no effect there, or is already made."""
    device = device_of(reference.base, reference.device)
    if change.compiled:
        if reference.capabilities.compiles or not reference.capabilities.has_values:
            return None
        compiled_on = "" if device == "cpu" else f",device={reference.device or device}"
        keys = {key: value for key, value in reference.to_json().items() if key not in ("name", "base", "device")}
        mode = parse_mode(f"{change.name}=compile{compiled_on}")
        return ModeSpec.from_json({**mode.to_json(), **keys, **change.keys})
    stated = reference.to_json()
    if any(str(stated.get(key)) == value for key, value in change.keys.items()):
        return None
    values = {key: PLAIN_KEYS[key](value) for key, value in change.keys.items()}
    if refused_setting({**stated, **values}, device) is not None:
        return None
    return replace(reference, name=change.name, **values)


def ineffective(request: InvestigationRequest, modes: Sequence[ModeSpec], progress: Progress) -> dict[str, str]:
    """Return the modes whose changes have no effect on the first step of the training, each with the reason.

    Each mode executes one step. Raises KeyboardInterrupt.
    """
    without: dict[str, str] = {}
    if not modes:
        return without
    with passive_threads(), tempfile.TemporaryDirectory(prefix="numdrift-neutral-") as folder:
        one_step = replace(request, modes=tuple(modes), out=Path(folder), run={**request.run, "max_steps": 1})
        plan = planned(one_step)
        with progress.round("changes that apply to this training", [mode.name for mode in modes]) as reporter:
            result = execute(plan, reporter)
        if result.interrupted:
            raise KeyboardInterrupt
        for finished in result.runs:
            run = load_run(finished.folder.path)
            for doubt in run.manifest.adopted.get("doubts", ()):
                _, found, reason = str(doubt["text"]).partition(NO_EFFECT)
                if found:
                    without[run.manifest.mode] = reason
    return without


def answer_of(rows: Sequence[TriedChange]) -> str:
    """Return what was found, in words."""
    applied = [row for row in rows if row.outcome != NOTHING]
    if not applied:
        return "none of the changes applies to this training"
    failed = [row.name for row in applied if row.outcome == "failed"]
    undecided = [row.name for row in applied if row.outcome is None]
    mattering = [row.name for row in applied if row.matters and row.name not in (*failed, *undecided)]
    count = f"{len(applied)} change{'s' if len(applied) > 1 else ''}"
    verb = "matter" if len(mattering) > 1 else "matters"
    if mattering:
        texts = [f"{len(mattering)} of the {count} {verb} to this training: {', '.join(mattering)}"]
    else:
        texts = [f"none of the {count} matters beyond rounding"]
    texts += [f"undecided: {', '.join(undecided)}"] if undecided else []
    texts += [f"failed: {', '.join(failed)}"] if failed else []
    return "; ".join(texts)
