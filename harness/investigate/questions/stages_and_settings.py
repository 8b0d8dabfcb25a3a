"""The search for the stage or setting of torch.compile, or the setting of a device, that causes a drift.

The search executes one step with different stages and settings. The worker that has the step compiles the step's dynamo
graph again and calls it with the step's own inputs. It executes everything else as recorded. As a check, the worker
first compiles the graph unchanged: the result must have the step's bits. If the worker cannot do all this, the script
is trained again up to the step, once for each stage and setting.

The stages are torch's own ladder: capture, autograd capture, decompositions, code generation. If the score rises from
one stage to the next, the later stage causes the drift. The mode may differ from the reference in more than compilation
(a variable, a kernel). Then the ladder begins with the mode without torch.compile. The compiler does not cause the
drift that exists without it.

The settings are those of Inductor's code generation that change its rounding, for the CPU or for a device. On a device,
the settings that choose kernels are added (`setting_axes`). An eager mode on a device has only those that choose
kernels.

    cpu 0, eager 0, aot_eager 0, aot_eager_decomp_partition 2, inductor 400      code generation causes the drift
    contract=fast 400, inductor.cpp.simdlen=1 3                                  without vectors, the drift is gone
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from ...drift.verdict import worst_of
from ...errors import JournalError
from ...records.modes.mode_spec import ModeSpec
from ...records.modes.setting_keys import SETTING_KEYS
from ...records.results.culprit import COMPILER_SETTING, COMPILER_STAGE, SETTING, Culprit
from ...records.results.findings import CompilerScores
from ...records.run.step_files import recompiled_folder
from ...runs.recorded_run import RecordedRun
from ...runs.step_outcomes import outcome_path, outcome_steps
from ..evidence.pair_evidence import PairEvidence
from ..evidence.pair_scores import score_of, spec_of
from ..experiments.investigation_plan import InvestigationRequest
from ..experiments.laboratory import Laboratory, Round, begun_in
from .question import Inquiry, QuestionAnswer, mode_culprit, proven
from .setting_axes import GRAPH_CACHE, UNCOMPILED, folder_name, is_possible, variants_of
from .step_workers import holding, once_more

NO_OPTION = "has no such option"
"""The phrase by which a process reports an option that its own torch lacks."""

STAGES = {
    "eager": "capture by dynamo",
    "aot_eager": "capture by AOTAutograd",
    "aot_eager_decomp_partition": "decomposition and partitioning",
    "inductor": "code generation",
}


class StagesAndSettings:
    """The question that executes a step with each of the other stages and settings."""

    def asks(self, inquiry: Inquiry, plan: InvestigationRequest) -> bool:
        """Return True on request (`knobs`), or if no op is proven to cause a drift beyond rounding.

        Return False for a mode without stages and settings, such as a mode on the CPU that Inductor does not compile.
        """
        pair = inquiry.pair
        unexplained = pair.verdict == "beyond-rounding" and not proven(pair.verdict, pair.culprits)
        # The step itself has to be beyond rounding; a step that an op explains does not count.
        scores = [findings for findings in pair.steps if findings.step == inquiry.at and not findings.explained]
        unexplained = unexplained and worst_of(scores) > inquiry.threshold
        specs = (spec_of(run) for run in (inquiry.evidence.b, inquiry.evidence.a))
        return (plan.knobs or unexplained) and any(variants_of(*specs))

    def look(self, laboratory: Laboratory, inquiries: Sequence[Inquiry], plan: InvestigationRequest) -> None:
        for inquiry in inquiries:
            b, step = inquiry.evidence.b, inquiry.step
            known_to_torch = (
                variant for variant in variants_of(spec_of(b), spec_of(inquiry.evidence.a)) if is_possible(*variant)
            )
            variants = dict(known_to_torch)
            uncompiled = variants.pop(f"backend={UNCOMPILED}", None)
            # A worker always compiles a step anew, so caches have to be tried in a training run.
            caches = {text: variants.pop(text) for text in [*variants] if text.startswith(f"{GRAPH_CACHE}=")}
            compiled = spec_of(b).is_inductor
            trained = _not_recompiled(laboratory, inquiry, variants) if compiled else variants
            if uncompiled is not None:
                # Without torch.compile there is no graph to execute, so this variant has to be trained. If eager
                # kernels execute dynamo's graph within rounding, the variant is within rounding, too, and is skipped.
                scores = settings_of(inquiry.evidence)
                if scores is None or scores.stages.get("eager", math.inf) > inquiry.threshold:
                    trained = {f"backend={UNCOMPILED}": uncompiled, **trained}
            if inquiry.evidence.only("b", "unobserved") is not None:
                trained = {**caches, **trained}
            plans = [
                begun_in(inquiry.states, b, inquiry.experiment("set", folder_name(text)), [step], spec=spec)
                for text, spec in trained.items()
            ]
            if plans:
                what = "stages and settings of the compiler" if compiled else "settings of the device"
                laboratory.make(Round(f"{what} in step {step} of {b.manifest.label}", plans))

    def answer(self, evidence: PairEvidence, threshold: float, step: int | None) -> QuestionAnswer:
        scores = settings_of(evidence)
        labels = evidence.a.manifest.label, evidence.b.manifest.label
        alike = f"backend={UNCOMPILED}" not in dict(variants_of(spec_of(evidence.b), spec_of(evidence.a)))
        return QuestionAnswer(
            instead=setting_culprits(scores, labels, threshold, alike=alike),
            sentences=setting_sentences(scores, threshold),
            compiler=scores,
        )


def _not_recompiled(laboratory: Laboratory, inquiry: Inquiry, variants: Mapping[str, ModeSpec]) -> dict[str, ModeSpec]:
    """Request the step from its worker with each of these variants; return the variants that it could not execute."""
    step, b, say = inquiry.step, inquiry.evidence.b, laboratory.progress.say
    lacking = {
        text: spec
        for text, spec in variants.items()
        if not any(outcome_path(folder, step).exists() for _, folder in _recompiled(inquiry.evidence, text))
    }
    if not lacking:
        return {}
    if holding(laboratory, inquiry, "b") is None:
        laboratory.make(Round(f"a worker for step {step}", [once_more(inquiry, "b")]))
    worker = holding(laboratory, inquiry, "b")
    if worker is None:
        return lacking
    run, _ = worker
    say(f"step {step} of {b.manifest.label}, compiled again with {len(lacking)} other stages and settings")
    failed: dict[str, ModeSpec] = {}
    reasons: list[str] = []
    for number, (text, spec) in enumerate(lacking.items(), 1):
        # The stages are a ladder: if one were left out, the next one would seem to cause its drift.
        if not text.startswith("backend=") and not laboratory.has_time:
            laboratory.search.leave_out(
                b.path, f"step {step} with {len(lacking) - number + 1} of the compiler's settings"
            )
            break
        say(f"  {b.manifest.label}: {number} of {len(lacking)}, {text}")
        request = {"request": "recompile", "step": step, "mode": spec.to_json(), "name": folder_name(text)}
        answer = laboratory.workers.ask(run, request)
        reason = "no answer came" if answer is None else str(answer.get("reason", ""))
        if reason and NO_OPTION not in reason:  # the mode's own torch may lack the option
            failed[text] = spec
            reasons.append(reason)
    for reason in dict.fromkeys(reasons):
        say(f"  {b.manifest.label}: {reason}; trained up to the step instead")
    return failed


def _recompiled(evidence: PairEvidence, text: str) -> list[tuple[RecordedRun, Path]]:
    """Return the runs whose worker may have executed the step with this setting.

    Each run comes with the folder of the outcome.
    """
    runs = [run for run in (evidence.forced, *evidence.several("b", "held")) if run is not None]
    return [(run, recompiled_folder(run.path, folder_name(text))) for run in runs]


def settings_of(evidence: PairEvidence) -> CompilerScores | None:
    """Return the scores of the first step that was executed with other stages and settings.

    Return None if no such scores exist or can be read.
    """

    def score(run: RecordedRun, step: int, folder: Path | None = None) -> float | None:
        try:
            scored = score_of(evidence, run, step, folder)
        except JournalError:
            return None
        return None if scored is None else worst_of([scored])

    experiments = evidence.experiments("b", "set")
    texts = [text for text, _ in variants_of(spec_of(evidence.b), spec_of(evidence.a))]
    recompiled = {text: _recompiled(evidence, text) for text in texts}
    steps = {experiment.step for experiment in experiments if experiment.step is not None}
    steps |= {step for folders in recompiled.values() for _, folder in folders for step in outcome_steps(folder)}
    for step in sorted(steps):
        whole = next((step_score for run in evidence.started if (step_score := score(run, step)) is not None), None)
        if whole is None:
            continue
        scores: dict[str, float] = {}
        for text in texts:
            attempts: list[tuple[RecordedRun, Path | None]] = [*recompiled[text]]
            attempts += [
                (run, None)
                for experiment, run in experiments.items()
                if (experiment.step, experiment.detail) == (step, folder_name(text))
            ]
            for run, folder in attempts:
                step_score = score(run, step, folder)
                if step_score is not None:
                    scores.setdefault(text, step_score)
        return CompilerScores(
            step,
            whole,
            {text.removeprefix("backend="): value for text, value in scores.items() if text.startswith("backend=")},
            {text: value for text, value in scores.items() if not text.startswith("backend=")},
        )
    return None


def setting_sentences(scores: CompilerScores | None, threshold: float) -> list[str]:
    """Describe the scores in sentences."""
    if scores is None:
        return []
    sentences, step = [], scores.step
    if scores.stages:
        stages = {**scores.stages, "inductor": scores.score}
        listed = ", ".join(
            f"{'not compiled' if stage == UNCOMPILED else stage} {score:.3g}" for stage, score in stages.items()
        )
        sentences.append(f"z of step {step} by the compiler's stages: {listed}")
        if stages.get(UNCOMPILED, 0.0) > threshold:
            sentences.append("the mode drifts without torch.compile as well: the compiler's stages are not the cause")
    if scores.settings:
        listed = ", ".join(f"{text} {score:.3g}" for text, score in scores.settings.items())
        gone = [text for text, score in scores.settings.items() if score <= threshold < scores.score]
        ending = f"; {' or '.join(gone)} removes the drift" if gone else ""
        whose = "settings of the device" if all(map(_of_kernels, scores.settings)) else "the compiler's settings"
        sentences.append(f"z of step {step} by {whose}: {listed}{ending}")
    return sentences


def _of_kernels(text: str) -> bool:
    """Check whether `KEY=VALUE` is a setting that chooses kernels, whichever mode calls them."""
    return text.partition("=")[0] in SETTING_KEYS


def _part_of_compiler(text: str) -> str:
    """Name the part of torch.compile that a setting `KEY=VALUE` changes."""
    return "torch.compile's cache of graphs" if text.startswith(GRAPH_CACHE) else "torch.compile's code generation"


def setting_culprits(
    scores: CompilerScores | None, labels: Sequence[str], threshold: float, *, alike: bool = True
) -> list[Culprit]:
    """Return the setting that removes a drift beyond rounding, else the stage that causes it.

    These culprits count only if no op is named. Two modes are `alike` if they differ only in the compiler.
    """
    if scores is None or scores.score <= threshold:
        return []
    helping = {text: score for text, score in scores.settings.items() if score <= threshold}
    # Any other setting changes the keys of torch's caches, and so compiles a graph anew, too.
    of_cache = {text: score for text, score in helping.items() if text.startswith(GRAPH_CACHE)}
    text, score = min((of_cache or helping).items(), key=lambda item: item[1], default=("", math.inf))
    stages = {labels[0]: 0.0, **scores.stages, "inductor": scores.score}
    beyond = next(stage for stage, score in stages.items() if score > threshold)
    before = list(stages)[list(stages).index(beyond) - 1]  # never -1: the reference comes first, with score 0
    # No stage causes a drift that exists without the compiler. If the modes are not alike and the first stage drifts,
    # the modes' other difference may be the reason.
    own = beyond == UNCOMPILED or (before == labels[0] and not alike)
    named_before = "the mode without torch.compile" if before == UNCOMPILED else before
    stage = f"{STAGES[beyond]} causes the drift: {named_before} is within rounding" if scores.stages and not own else ""
    if score <= threshold:
        # Do not name the stage as a second culprit: swapping it out would also swap out every later stage.
        kernels = _of_kernels(text)
        return [
            mode_culprit(
                kind=SETTING if kernels else COMPILER_SETTING,
                step=scores.step,
                name=f"the setting {text.partition('=')[0]}" if kernels else _part_of_compiler(text),
                reasons=[f"{text} removes the drift", *([stage] if stage else [])],
                before=scores.score,
                after=score,
                threshold=threshold,
                why=f"z {scores.score:.3g} as it is, {score:.3g} with {text}",
                swapped=text,
            )
        ]
    if not stage:
        return []
    return [
        mode_culprit(
            kind=COMPILER_STAGE,
            step=scores.step,
            name=f"torch.compile's stage {beyond}",
            reasons=[stage],
            before=stages[beyond],
            after=stages[before],
            threshold=threshold,
            why=f"z {stages[before]:.3g} with {named_before}, {stages[beyond]:.3g} with {beyond}",
            swapped=f"backend={before}" if before in STAGES else None,
        )
    ]
