"""The last proof: one whole training in the other mode with every culprit swapped out, held against the
reference's curve."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..drift.curve_envelope import Envelope, loss_envelope
from ..drift.run_comparison import RunComparison, compare_runs
from ..records.culprit import KERNEL, Culprit
from ..records.experiment import Experiment
from ..records.findings import Findings
from ..records.mode_spec import ModeSpec
from ..runs.recorded_run import RecordedRun
from .compiler_settings import with_setting
from .curves import series
from .evidence import PairEvidence, evidence_for
from .laboratory import Round, repeating
from .pair_scores import spec_of
from .question import proven

MEMBERS = 4
"""Perturbed trainings that the envelope is made of where none were asked for."""

ATEN = "aten"


@dataclass(frozen=True, slots=True)
class Remedy:
    """A mode with the culprits swapped out. `swaps` are what was changed, `left` the ops that no key of a
    mode reaches."""

    spec: ModeSpec
    swaps: tuple[str, ...]
    left: tuple[str, ...]


def remedy(a: ModeSpec, b: ModeSpec, culprits: Sequence[Culprit]) -> Remedy:
    """The mode of `b` with the reference's kernels in place of the culprits'."""
    spec, swaps, left = b, dict[str, None](), list[str]()
    for culprit in culprits:
        changed = _without(a, spec, culprit)
        if changed is None:
            left.append(culprit.op or culprit.kind)
            continue
        spec, said = changed
        swaps.update(dict.fromkeys(said))
    return Remedy(spec, tuple(swaps), tuple(dict.fromkeys(left)))


def _without(a: ModeSpec, b: ModeSpec, culprit: Culprit) -> tuple[ModeSpec, tuple[str, ...]] | None:
    """The mode without one culprit and what was changed, None where its grammar has no words for it."""
    if culprit.kind == KERNEL:
        return _with_kernels(a, b, culprit.ops)
    return (with_setting(b, culprit.swapped), (culprit.swapped,)) if culprit.swapped else None


def _with_kernels(
    a: ModeSpec, b: ModeSpec, ops: Mapping[str, Sequence[str]]
) -> tuple[ModeSpec, tuple[str, ...]] | None:
    """The reference's own swaps of the ops; where it has none its plain kernels."""
    kernel, said = dict(b.kernel), list[str]()
    for op in dict.fromkeys(_plain(name) for side in "ab" for name in ops[side]):
        theirs = {key: value for key, value in a.kernel.items() if _plain(key) == op}
        own = [key for key in kernel if _plain(key) == op and key not in theirs]
        plain = {op: ATEN} if b.base == "compile" and op in map(_plain, ops["a"]) else {}
        given = theirs or plain
        said += [f"without kernel.{key}={kernel.pop(key)}" for key in own if key not in given]
        said += [f"kernel.{key}={value}" for key, value in given.items() if kernel.get(key) != value]
        kernel.update(given)
    return (replace(b, kernel=kernel), tuple(said)) if said else None


def without_culprits(runs: Sequence[RecordedRun], findings: Findings) -> Round:
    """Train every mode to the end without its culprits."""
    plans = []
    for run, pair in zip(runs[1:], findings.pairs, strict=True):
        fix = remedy(spec_of(runs[0]), spec_of(run), proven(pair.verdict, pair.culprits))
        if fix.swaps and not fix.left:
            experiment = Experiment("without", run.path.name, runs[0].path.name)
            plans.append(repeating(run, experiment, spec=fix.spec))
    return Round("trained to the end without the culprits", plans)


def is_left_over(runs: Sequence[RecordedRun], findings: Findings, trained: Round) -> bool:
    """Whether something of a drift beyond rounding is left in a training without its culprits."""
    names = {plan.experiment.run for plan in trained.plans if plan.experiment is not None}
    for run, pair in zip(runs[1:], findings.pairs, strict=True):
        if pair.verdict == "beyond-rounding" and run.path.name in names:
            made = evidence_for(runs[0], run).only("b", "without")
            if made is not None and not compare_runs(runs[0], made).identical:
                return True
    return False


def trained_without(evidence: PairEvidence, verdict: str | None, culprits: Sequence[Culprit]) -> dict[str, Any] | None:
    """What the whole training without the culprits says: `spec`, `swaps`, `status`, `identical`,
    `first_differing_step`, `envelope` and `inside` (None where that is not known); `left` and `text` alone
    where it cannot be made.

    None where it was not made for these culprits."""
    spec, run = spec_of(evidence.b), evidence.only("b", "without")
    fix = remedy(spec_of(evidence.a), spec, proven(verdict, culprits))
    if fix.left and verdict == "beyond-rounding":
        left = ", ".join(fix.left)
        return {
            "text": f"not trained to the end without them: no key of a mode takes {left} out",
            "left": list(fix.left),
        }
    if run is None or not run.journal.steps or fix.left or replace(spec_of(run), name=spec.name) != fix.spec:
        return None
    compared = compare_runs(evidence.a, run)
    envelope = None
    if evidence.several("a", "perturbed") and not compared.identical:
        envelope = loss_envelope(
            series(evidence.a), series(run), [series(one) for one in evidence.several("a", "perturbed")]
        )
    judged = envelope is not None and bool(envelope.judged.size)
    inside = envelope.onset is None if envelope is not None and judged else None
    return {
        "spec": str(fix.spec),
        "swaps": list(fix.swaps),
        "status": run.manifest.status,
        "identical": compared.identical,
        "first_differing_step": compared.first_differing_step,
        "inside": True if compared.identical else inside,
        "envelope": None if envelope is None else envelope.to_json(),
        "text": _sentence(evidence, fix, compared, envelope),
    }


def _sentence(evidence: PairEvidence, fix: Remedy, compared: RunComparison, envelope: Envelope | None) -> str:
    a, b = evidence.a.manifest.label, evidence.b.manifest.label
    swaps = ", ".join(fix.swaps)
    begin = f"trained to the end {swaps if swaps.startswith('without ') else f'with {swaps}'}"
    run = evidence.only("b", "without")
    if run is not None and run.manifest.failed and run.manifest.status != "nonfinite":
        return f"{begin}, {b} ended after {len(run.journal.steps)} steps: {run.manifest.status}, {run.manifest.message}"
    if compared.identical:
        return f"{begin}, {b} is {a} bit for bit"
    differs = f"{begin}, {b} differs from {a} from step {compared.first_differing_step} on"
    return differs if envelope is None else f"{differs}; {envelope.words(f'{b} without them')}"


def _plain(op: str) -> str:
    """The op of a key as `tanh_backward@net.1:0` or of an overload, as a mode names it."""
    return op.removeprefix("aten.").partition("@")[0].partition(".")[0].removesuffix("_")
