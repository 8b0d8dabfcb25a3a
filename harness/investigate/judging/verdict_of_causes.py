"""The effect of causes on the verdict: proofs about individual ops override the noise of a whole step.

   verdict before              verdict after     condition
1  nondeterministic            nondeterministic  a cause is a call that does not repeat; the text names it
2  rounding, beyond-rounding   different-setup   a proven cause draws from a different state of a generator
3  beyond-rounding             beyond-rounding   a cause is wrong by itself in an earlier step; the drift begins there
4  rounding                    beyond-rounding   a proven cause is wrong by itself (see `localize.causes.judged_alone`),
                                                 however noisy the step is, and the step in double does not contradict
5  rounding                    rounding          a proven kernel's error is within the rounding of its inputs, but far
                                                 larger than the other side's; the verdict is marked for inspection
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from ...drift.setup_difference import SetupDifference
from ...records.results.culprit import KERNEL, NONDETERMINISM, RECOMPUTED, REDRAWN, SETUP, STRUCTURE, Culprit
from ...records.results.findings import Verdict
from ...tape.op_names import draws
from ...tape.origin import short_place
from ..words.culprit_words import title_of, wrong_by_itself

OMITTED_ROUNDING = 2.0**-6
"""The largest relative error that is attributed to an omitted rounding to bfloat16 before a kernel: four times the unit
roundoff of bfloat16. The errors that were seen are below 2**-8 (root mean square norms in bfloat16, issue 42)."""

LESS_ACCURATE = 100.0
"""The ratio of the two sides' errors above which the verdict is marked for inspection."""


def _names_what_does_not_repeat(verdict: Verdict, culprits: Sequence[Culprit], a: str, b: str) -> Verdict | None:
    unlike = [culprit for culprit in culprits if culprit.kind == NONDETERMINISM]
    if verdict.word != "nondeterministic" or not unlike:
        return None
    sentences = "; ".join(f"{culprit.name} does not repeat: {culprit.text}" for culprit in unlike)
    return replace(verdict, text=f"nondeterministic: {sentences}", step=unlike[0].step)


def _draws_otherwise(verdict: Verdict, culprits: Sequence[Culprit], a: str, b: str) -> Verdict | None:
    drawing = _wrong(culprits, "different-setup")
    if verdict.word not in ("rounding", "beyond-rounding") or not drawing:
        return None
    text = f"different-setup: {title_of(drawing[0])} {wrong_by_itself(drawing[0], a, b)}"
    return replace(verdict, word="different-setup", text=text, step=drawing[0].step, inspect=False)


def _is_wrong_from_earlier(verdict: Verdict, culprits: Sequence[Culprit], a: str, b: str) -> Verdict | None:
    first = verdict.first_significant_step
    wrong = _wrong(culprits, "beyond-rounding")
    began = min((culprit.step for culprit in wrong if culprit.step is not None), default=None)
    if verdict.word != "beyond-rounding" or first is None or began is None or began >= first:
        return None
    text = f"{verdict.text}; its cause is wrong from step {began} on, but noise hides it at first"
    return replace(verdict, text=text, first_significant_step=began)


def _is_wrong_by_itself(verdict: Verdict, culprits: Sequence[Culprit], a: str, b: str) -> Verdict | None:
    wrong = _wrong(culprits, "beyond-rounding")
    if verdict.word != "rounding" or not wrong:
        return None
    step = wrong[0].step
    drift = f"the drift of the whole step ({verdict.score:.3g} times its rounding noise) does not show it"
    text = f"beyond-rounding: {title_of(wrong[0])} {wrong_by_itself(wrong[0], a, b)}; {drift}"
    return replace(verdict, word="beyond-rounding", text=text, step=step, first_significant_step=step, inspect=False)


def _is_less_accurate(verdict: Verdict, culprits: Sequence[Culprit], a: str, b: str) -> Verdict | None:
    if verdict.word != "rounding":
        return None
    notes = []
    for culprit in culprits:
        errors = [(rho, label) for label, rho in ((a, culprit.rho.get("a")), (b, culprit.rho.get("b"))) if rho]
        if culprit.is_proven and culprit.local_significance == "rounding" and len(errors) == 2:
            (better, _), (worse, label) = sorted(errors)
            if worse > LESS_ACCURATE * better:
                notes.append(
                    f"{title_of(culprit)} is {worse / better:.3g} times less accurate in {label}, "
                    "but its error is within what rounding of its inputs causes"
                )
    return replace(verdict, inspect=True, notes=(*verdict.notes, *notes)) if notes else None


def _wrong(culprits: Sequence[Culprit], word: str) -> list[Culprit]:
    """Return the culprits that are wrong by themselves and whose own verdict is `word`."""
    return [culprit for culprit in culprits if culprit.is_wrong_by_itself and culprit.local_significance == word]


Rule = Callable[[Verdict, Sequence[Culprit], str, str], Verdict | None]
"""A function that returns the changed verdict, or None if the rule does not apply."""

RULES: tuple[Rule, ...] = (
    _names_what_does_not_repeat,
    _draws_otherwise,
    _is_wrong_from_earlier,
    _is_wrong_by_itself,
    _is_less_accurate,
)
"""The rules in the order of precedence: the first one that applies decides."""


def with_causes(verdict: Verdict, culprits: Sequence[Culprit], a: str, b: str) -> Verdict:
    """Return the verdict of the steps' scores, adjusted to the causes.

    `a` and `b` are the names of the modes.
    """
    adjusted = (rule(verdict, culprits, a, b) for rule in RULES)
    return next((changed for changed in adjusted if changed is not None), verdict)


def supported(verdict: Verdict, culprits: Sequence[Culprit], closer: str | None) -> list[Culprit]:
    """Leave out kernels whose error the step in double contradicts: they do not change the verdict `rounding`.

    Such a kernel errs more in side b, but b's step is `closer` to the step in double. In b's fused kernel, its inputs
    then have more digits than on the tape: a rounding was omitted before it. An error above OMITTED_ROUNDING has
    another reason, for example a compiler that cancels `x + c - c`, with which the script rounds on purpose.
    """

    def errs_in_b(culprit: Culprit) -> bool:
        is_small = culprit.largest_relative <= OMITTED_ROUNDING
        return culprit.kind == KERNEL and is_small and culprit.rho.get("b", 0.0) > culprit.rho.get("a", 0.0)

    if verdict.word != "rounding" or closer != "b":
        return list(culprits)
    return [culprit for culprit in culprits if not (culprit.is_wrong_by_itself and errs_in_b(culprit))]


def unless_redrawn(verdict: Verdict, setup: Sequence[SetupDifference], culprits: Sequence[Culprit]) -> Verdict:
    """Return the verdict, `beyond-rounding` if it is `different-setup` only because a compiled backward draws anew.

    Nobody can give both modes the same draws then: a proven cause of the mode's own makes them differ.
    """
    kinds = {difference.kind for difference in setup if difference.counts}
    redrawn = next((culprit for culprit in culprits if culprit.is_proven and REDRAWN in culprit.reasons), None)
    if verdict.word != "different-setup" or kinds != {"generator"} or redrawn is None:
        return verdict
    text, step = f"beyond-rounding: {title_of(redrawn)} {REDRAWN}", redrawn.step
    return replace(verdict, word="beyond-rounding", text=text, step=step, first_significant_step=step)


def with_place(verdict: Verdict, causes: Sequence[SetupDifference], culprits: Sequence[Culprit]) -> Verdict:
    """Add the origin of a different batch or draw to the verdict `different-setup`, if a culprit names it.

    `causes` are the differences behind the verdict, a cause before its consequences.
    """
    if verdict.word != "different-setup" or not causes:
        return verdict
    first = causes[0]
    recomputed = next((culprit for culprit in culprits if culprit.local_rule == RECOMPUTED), None)
    if recomputed is not None and first.kind == "generator":
        return replace(verdict, text=f"different-setup: {recomputed.text}")
    drawing = next((culprit for culprit in culprits if culprit.kind == STRUCTURE and _draws_alone(culprit)), None)
    if drawing is not None and first.kind == "generator":
        named = f"{first.text}: {drawing.reasons[0]}"
        named += f" ({short_place(drawing.source)})" if drawing.source else ""
        return replace(verdict, text=verdict.text.replace(first.text, named, 1))
    names = {"batch": (first.name,), "initial": (f"parameter {first.name}", f"buffer {first.name}")}.get(first.kind, ())
    for culprit in sorted(culprits, key=lambda candidate: candidate.op is None):  # the sort is stable
        if not culprit.batch or not culprit.is_proven:
            continue
        is_draw = (
            first.kind == "generator" and first.name == "torch" and culprit.kind == SETUP and culprit.op is not None
        )
        if is_draw or any(name in culprit.batch for name in names):
            seen = "" if culprit.step == first.step else f" (as seen in step {culprit.step})"
            return replace(verdict, text=verdict.text.replace(first.text, f"{first.text}: {culprit.text}{seen}", 1))
    return verdict


def _draws_alone(culprit: Culprit) -> bool:
    """Check whether a culprit is an op that draws random numbers and that only one of the modes executes."""
    op = (culprit.op or "").partition(".")[2]
    return culprit.is_proven and draws(op) and bool(culprit.reasons) and culprit.reasons[0].startswith("only ")


def in_order(culprits: Sequence[Culprit]) -> list[Culprit]:
    """Sort the culprits. A draw that only one mode makes comes first, because it changes the numbers of later draws.

    A culprit without an op, in a step after step 0, says only that the data existed before that step. Such a culprit is
    left out if culprits of step 0, which includes the preparation before it, explain the same arguments.
    """
    followed_names = {name for culprit in culprits for name in culprit.batch or () if culprit.step == 0}
    reported = [
        culprit
        for culprit in culprits
        if culprit.op is not None
        or not culprit.batch
        or culprit.step == 0
        or not followed_names.issuperset(culprit.batch)
    ]
    return sorted(reported, key=lambda culprit: culprit.what != "generator")  # the sort is stable


def of_significant_steps(verdict: Verdict, culprits: Sequence[Culprit]) -> list[Culprit]:
    """Leave out the culprits of the steps before the first significant step: nothing was wrong in those steps.

    Culprits of kind SETUP or NONDETERMINISM are kept. If the first significant step and those after it have no culprit,
    all culprits are kept.
    """
    first = verdict.first_significant_step
    if first is None or not any(culprit.step is not None and culprit.step >= first for culprit in culprits):
        return list(culprits)
    return [
        culprit
        for culprit in culprits
        if culprit.step is None or culprit.step >= first or culprit.kind in (SETUP, NONDETERMINISM)
    ]
