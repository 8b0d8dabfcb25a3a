"""The results of a pair's training runs to the end: the envelope of perturbed runs, the lag over seeds, and, as the
last proof, a run in the other mode with every culprit swapped out.

    remedy(cpu, lazy,kernel.mm=bf16, [aten.mm])       lazy                              the reference's plain kernel
    remedy(cpu, compile, [aten.tanh_backward])        compile,kernel.tanh_backward=aten
    remedy(cpu,kernel.mm=fp64, lazy, [aten.mm])       lazy,kernel.mm=fp64               the reference's own swap
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...drift.curve_envelope import Envelope, loss_envelope
from ...drift.lag import LagTest, lag_test
from ...drift.loss_distance import LossSeries
from ...drift.run_comparison import RunComparison, compare_runs
from ...records.modes.mode_spec import ModeSpec
from ...records.results.culprit import KERNEL, LAYOUT, SETUP, Culprit
from ...records.results.experiment import Experiment
from ...records.results.findings import Findings, TrainedWithout
from ...runs.recorded_run import RecordedRun
from ..evidence.pair_evidence import PairEvidence, evidence_for
from ..evidence.pair_scores import spec_of
from ..experiments.laboratory import Round, repeating
from .question import proven
from .setting_axes import with_setting

MEMBERS = 4
"""The number of perturbed runs in the envelope, unless the user requests more."""

ATEN = "aten"


@dataclass(frozen=True, slots=True)
class Curves:
    """The judgement of the loss curves: the envelope and the lag, each None if its training runs were not requested.
    `sentences` describe both."""

    envelope: Envelope | None
    lag: LagTest | None
    sentences: tuple[str, ...]


def curves_of(evidence: PairEvidence, comparisons: int) -> Curves:
    """Judge the curves. The lag test is corrected for the `comparisons` pairs that are judged together."""
    a, b = series(evidence.a), series(evidence.b)
    label = evidence.b.manifest.label
    envelope = _envelope_of(evidence, evidence.b)
    lag = None
    if evidence.seeds:
        pairs = [(a, b), *((series(reference_run), series(mode_run)) for reference_run, mode_run in evidence.seeds)]
        lag = lag_test(pairs, mode=label, comparisons=comparisons)
    texts = [envelope.words(label) if envelope else "", lag.text if lag else ""]
    return Curves(envelope, lag, tuple(sentence for sentence in texts if sentence))


def _envelope_of(evidence: PairEvidence, run: RecordedRun) -> Envelope | None:
    """Compare a run with the envelope of the reference's perturbed runs; None if there are none."""
    perturbed = [series(rerun) for rerun in evidence.several("a", "perturbed")]
    return loss_envelope(series(evidence.a), series(run), perturbed) if perturbed else None


def series(run: RecordedRun) -> LossSeries:
    """Return the losses of a run by step."""
    return LossSeries([step.step for step in run.journal.steps], [step.loss for step in run.journal.steps])


@dataclass(frozen=True, slots=True)
class Remedy:
    """A mode with the culprits swapped out. `swaps` are the changes, `left` the ops that no key of a mode can swap."""

    spec: ModeSpec
    swaps: tuple[str, ...]
    left: tuple[str, ...]


def remedy(a: ModeSpec, b: ModeSpec, culprits: Sequence[Culprit]) -> Remedy:
    """Return mode `b` with the reference's kernels in place of the culprits'. For each op, these are the reference's
    swaps, or the plain kernel if the reference does not swap the op."""
    spec, swaps, left = b, dict[str, None](), list[str]()
    for culprit in culprits:
        changes = list[str]()
        if culprit.kind != KERNEL and culprit.swapped:
            spec, changes = with_setting(spec, culprit.swapped), [culprit.swapped]
        kernel = dict(spec.kernel)
        # An op that the compiler must not inline receives its arguments in eager mode's layout.
        reached = culprit.kind == KERNEL or (culprit.kind == LAYOUT and spec.capabilities.compiles)
        reached = reached and (culprit.op or "").startswith("aten.")  # a script's op has no other kernel
        of_reference = dict.fromkeys(map(_plain, (*culprit.ops["a"], *culprit.beside)))
        for op in dict.fromkeys((*of_reference, *map(_plain, culprit.ops["b"]))) if reached else ():
            reference_swaps = {key: value for key, value in a.kernel.items() if _plain(key) == op}
            own = [key for key in kernel if _plain(key) == op and key not in reference_swaps]
            # The mode's side of a culprit may include ops whose kernels are swapped for a different reason.
            own = own if op in of_reference else [key for key in own if kernel[key] == (culprit.kernel or {}).get("b")]
            # Without a setting, Inductor generates code for the op, which is not the plain kernel of eager mode.
            plain = {op: ATEN} if spec.capabilities.compiles and op in of_reference else {}
            wanted = reference_swaps or plain
            changes += [f"without kernel.{key}={kernel.pop(key)}" for key in own if key not in wanted]
            changes += [f"kernel.{key}={value}" for key, value in wanted.items() if kernel.get(key) != value]
            kernel.update(wanted)
            spec = replace(spec, kernel=kernel)
        if not changes:  # no key of a mode can swap the culprit out
            left.append(culprit.op or culprit.kind)
        swaps.update(dict.fromkeys(changes))
    return Remedy(spec, tuple(swaps), tuple(dict.fromkeys(left)))


def without_culprits(runs: Sequence[RecordedRun], findings: Findings) -> Round:
    """Train every mode to the end without its culprits."""
    plans = []
    for run, pair in zip(runs[1:], findings.pairs, strict=True):
        fix = remedy(spec_of(runs[0]), spec_of(run), proven(pair.verdict, pair.culprits))
        if fix.swaps and not fix.left:
            experiment = Experiment("without", run.path.name, runs[0].path.name)
            plans.append(repeating(run, experiment, spec=fix.spec))
    return Round("trained to the end without the culprits", plans)


def not_trained(runs: Sequence[RecordedRun], findings: Findings) -> list[str]:
    """Say for each pair within rounding why its mode is not trained without its culprits. For the other pairs, the
    findings state the reason."""
    sentences = []
    for run, pair in zip(runs[1:], findings.pairs, strict=True):
        fix = remedy(spec_of(runs[0]), spec_of(run), proven(pair.verdict, pair.culprits))
        if fix.left and pair.verdict == "rounding":
            sentences.append(f"{pair.b} is not trained to the end without its culprits: {_why_left(fix)}")
    return sentences


def _why_left(fix: Remedy) -> str:
    ops = ", ".join(op for op in fix.left if op != SETUP)
    return f"no setting of a mode replaces {ops}" if ops else "there is no kernel to swap: the data itself differs"


def is_left_over(runs: Sequence[RecordedRun], findings: Findings, trained: Round) -> bool:
    """Check whether a run without its culprits still differs from the reference, for any pair beyond rounding."""
    names = {plan.experiment.run for plan in trained.plans if plan.experiment is not None}
    for run, pair in zip(runs[1:], findings.pairs, strict=True):
        if pair.verdict == "beyond-rounding" and run.path.name in names:
            made = evidence_for(runs[0], run).only("b", "without")
            if made is not None and made.journal.steps and not compare_runs(runs[0], made).identical:
                return True
    return False


def trained_without(evidence: PairEvidence, verdict: str | None, culprits: Sequence[Culprit]) -> TrainedWithout | None:
    """Report on the training run to the end without the culprits, or say why it cannot be made; None if it was not made
    for these culprits."""
    spec, run = spec_of(evidence.b), evidence.only("b", "without")
    fix = remedy(spec_of(evidence.a), spec, proven(verdict, culprits))
    if fix.left and verdict == "beyond-rounding":
        text = f"the mode was not trained to the end without its culprits: {_why_left(fix)}"
        return TrainedWithout(text=text, left=fix.left)
    if run is None or fix.left or replace(spec_of(run), name=spec.name) != fix.spec:
        return None
    swaps = ", ".join(fix.swaps)
    begun = (
        f"trained to the end {swaps if swaps.startswith('without ') else f'with {swaps}'}, {evidence.b.manifest.label}"
    )
    if not run.journal.steps:  # this proves nothing about the culprits, and their proofs remain valid
        text = f"{begun} ended in its first step: {run.manifest.status}, {run.manifest.message}"
        return TrainedWithout(spec=str(fix.spec), swaps=fix.swaps, status=run.manifest.status, text=text)
    compared = compare_runs(evidence.a, run)
    envelope = None if compared.identical else _envelope_of(evidence, run)
    judged = envelope is not None and bool(envelope.judged.size)
    inside = envelope.onset is None if envelope is not None and judged else None

    a, b, text = evidence.a.manifest.label, evidence.b.manifest.label, begun
    if run.manifest.failed and run.manifest.status != "nonfinite":
        text += f" ended after {len(run.journal.steps)} steps: {run.manifest.status}, {run.manifest.message}"
    elif compared.identical:
        text += f" equals {a} bit for bit"
        text += f" in {compared.common_steps:,} common steps" if compared.cut_short else ""
    else:
        text += f" differs from {a} from step {compared.first_differing_step} on"
        text += "" if envelope is None else f"; {envelope.words(f'{b} without its culprits')}"
        if inside is None and spec.capabilities.compiles:
            text += farther_away(compared, compare_runs(evidence.a, evidence.b), b)
    return TrainedWithout(
        spec=str(fix.spec),
        swaps=fix.swaps,
        status=run.manifest.status,
        identical=compared.identical,
        first_differing_step=compared.first_differing_step,
        inside=True if compared.identical else inside,
        envelope=None if envelope is None else envelope.to_json(),
        text=text,
    )


def farther_away(without: RunComparison, whole: RunComparison, b: str) -> str:
    """Say that a run without the culprits of a compiled mode is farther from the reference than the mode itself, and by
    how much; "" if it is not. Taking an op out of a graph changes how the other ops are fused and compiled."""
    if without.common_steps != whole.common_steps:
        return ""
    losses = [comparison.losses.max_relative or 0.0 for comparison in (without, whole)]
    counts = [
        sum(bool(drift.differing) for drift in comparison.parameters.drifts) if comparison.parameters else 0
        for comparison in (without, whole)
    ]
    if losses[0] > losses[1]:
        by = f"its losses differ by up to {losses[0]:.2g} of their value, those of {b} by {losses[1]:.2g}"
    elif losses[0] == losses[1] and counts[0] > counts[1]:
        by = f"{counts[0]} of its parameters and buffers differ, and {counts[1]} of those of {b}"
    else:
        return ""
    return (
        f"; this run is farther from the reference than {b} itself ({by}): swapping out an op changes how the rest is "
        "compiled, so this neither confirms nor refutes the culprits"
    )


def _plain(op: str) -> str:
    """Return the plain name of an op that a key (`tanh_backward@net.1:0`) or an overload names."""
    return op.removeprefix("aten.").partition("@")[0].partition(".")[0].removesuffix("_")
