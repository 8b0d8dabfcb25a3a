"""The scores of a pair's steps, and the explanations, other than a fault, for a step beyond the threshold.

There are two such explanations: a discrete choice next to its edge (a kink), and ops that are ill-conditioned in the
step.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...drift.calibration import Threshold
from ...drift.step_score import EDGE, StepScore
from ...drift.verdict import worst_of
from ...records.results.localization_record import Localization
from ..words.culprit_words import ill_conditioned_here


@dataclass(frozen=True, slots=True)
class Scores:
    """The scores of a pair's steps.

    steps: the scores; empty if there can be none, and then `why` is the reason
    noise: a sentence about how the noise was measured
    parts: if one side divides the other side's batches, a clause that says so, else ""
    unreplayed: the reasons why steps cannot be replayed or read
    """

    steps: tuple[StepScore, ...]
    threshold: Threshold
    noise: str
    unreplayed: tuple[str, ...]
    why: str = ""
    notes: tuple[str, ...] = ()
    parts: str = ""


def suspicious_steps(scores: Scores) -> list[int]:
    """Return the steps beyond the threshold that were not replayed with stronger rounding."""
    return [
        step_score.step
        for step_score in scores.steps
        if worst_of([step_score]) > scores.threshold.fault and not step_score.looked_closer
    ]


def with_explanations(scores: Scores, localized: Sequence[Localization]) -> Scores:
    """Mark the steps whose drift comes from ill-conditioned ops. Rescore the steps whose drift comes from a discrete
    choice: the new score is that of the drift that remains with the reference's choices."""
    threshold = scores.threshold.fault
    localization_of = {localization.step: localization for localization in localized}
    chosen = {step for step, localization in localization_of.items() if localization.is_explained(threshold)}
    magnified = {step for step, localization in localization_of.items() if localization.is_ill_conditioned(threshold)}
    steps, notes = [], list(scores.notes)
    for scored in scores.steps:
        step, localization = scored.step, localization_of.get(scored.step)
        if localization is not None and step in chosen:
            choices = localization.choices
            notes.append(
                f"step {step}: {other_choices(choices)}; with the choices of the reference the drift is "
                f"{choices['score']:.3g}"
            )
            scored = _with_the_choices(scored, float(choices["score"]))
        elif localization is not None and step in magnified and not scored.discrete:
            causes = [culprit for culprit in localization.culprits if culprit.significance == "beyond-rounding"]
            notes.append(f"step {step}: {ill_conditioned_here(causes, scored.score)}")
            scored = replace(scored, ill_conditioned=True)
        steps.append(scored)
    alike = _as_ill_conditioned(steps, scores.threshold, looked=localization_of)
    if alike:
        steps = [replace(scored, ill_conditioned=True) if scored.step in alike else scored for scored in steps]
        verbs = ("drifts", "was") if len(alike) == 1 else ("drift", "were")
        notes.append(
            f"{_listed(alike)} {verbs[0]} less than the worst ill-conditioned step and {verbs[1]} not examined"
        )
    return replace(scores, steps=tuple(steps), notes=tuple(notes))


def other_choices(choices: Mapping[str, Any]) -> str:
    """Name the ops whose elements made the opposite choice, and say how many elements did."""
    ops = ", ".join(choices["ops"])
    if choices["flipped"] == 1:
        return f"1 element of {ops}, next to its edge, made the opposite choice"
    return f"{choices['flipped']} elements of {ops}, next to their edges, made the opposite choice"


def _with_the_choices(scored: StepScore, left: float) -> StepScore:
    """Return the score of a step with the reference's discrete choices; `left` is the score that remains with them."""
    tensors = tuple(
        replace(tensor, score=min(tensor.score, left), why=EDGE if tensor.score else tensor.why)
        for tensor in scored.tensors
    )
    # The step counts as replayed with stronger rounding, so that no further tape of it is requested.
    return replace(scored, score=min(scored.score, left), tensors=tensors, discrete=(), looked_closer=True)


def _as_ill_conditioned(steps: Sequence[StepScore], threshold: Threshold, looked: Container[int]) -> list[int]:
    """If the worst step is ill-conditioned, return the steps beyond the threshold that were not examined.

    They then count as ill-conditioned too."""
    beyond = [scored for scored in steps if worst_of([scored]) > threshold.fault]
    worst = max(beyond, key=lambda scored: worst_of([scored]), default=None)
    if worst is None or not worst.ill_conditioned:
        return []
    return [scored.step for scored in beyond if scored.step not in looked and not scored.discrete]


def without_unlooked(scores: Scores) -> Scores:
    """Leave out suspicious steps that were not replayed with stronger rounding, if kinks explain all steps that were.

    Kinks can explain only a few steps: if a model has many kinks, rounding crosses some in every step, and the noise
    includes them. So if most steps are suspicious, none is left out.
    """
    looked = [step_score for step_score in scores.steps if step_score.looked_closer]
    edges = [step_score.step for step_score in looked if step_score.on_edge]
    left_out = suspicious_steps(scores)
    explained = edges and all(worst_of([step_score]) <= scores.threshold.fault for step_score in looked)
    if not explained or 2 * (len(left_out) + len(edges)) > len(scores.steps):
        left_out = []
    notes = []
    if edges:
        notes.append(
            f"{_listed(edges)}: rounding alone flips a discrete choice there (a ReLU, a maximum or a comparison "
            "next to its edge), so the drift is compared with that jump"
        )
    if left_out:
        drift, were = ("drifts", "was") if len(left_out) == 1 else ("drift", "were")
        notes.append(f"{_listed(left_out)} {drift} like those that such a choice explains, and {were} not examined")
    kept = tuple(step_score for step_score in scores.steps if step_score.step not in left_out)
    return replace(scores, steps=kept, notes=tuple(notes))


def _listed(steps: Sequence[int]) -> str:
    return f"step{'s' if len(steps) > 1 else ''} {', '.join(map(str, steps))}"
