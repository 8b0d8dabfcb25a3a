"""How causes come back into the verdict: what is proven of single ops stands above the noise of a whole step.

nondeterministic  stays, and says which call does not repeat
different-setup   where a proven cause draws from another state of a generator
beyond-rounding   where a proven cause is wrong by itself (see `localize.judged_alone`), however noisy the step is
rounding          stays, and is worth a look, where a proven kernel is within the rounding of its inputs, and yet far
                  less accurate than the other side's
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..drift.setup_difference import SetupDifference
from ..records.culprit import NONDETERMINISM, SETUP, Culprit
from ..records.findings import Verdict
from .culprit_words import title_of, wrong_by_itself

LESS_ACCURATE = 100.0
"""By how much the error of one side is larger than that of the other from which on it is worth a look."""


def with_causes(verdict: Verdict, culprits: Sequence[Culprit], a: str, b: str) -> Verdict:
    """The verdict that the scores of the steps gave, and what the causes say to it. `a` and `b` name the modes."""
    unlike = [one for one in culprits if one.kind == NONDETERMINISM]
    if verdict.word == "nondeterministic" and unlike:
        said = "; ".join(f"{one.name} does not repeat: {one.text}" for one in unlike)
        return replace(verdict, text=f"nondeterministic: {said}", step=unlike[0].step)
    if verdict.word not in ("rounding", "beyond-rounding"):
        return verdict
    acting = [one for one in culprits if one.is_wrong_by_itself]
    setup = [one for one in acting if one.local_significance == "different-setup"]
    wrong = [one for one in acting if one.local_significance == "beyond-rounding"]
    if setup:
        text = f"{title_of(setup[0])} {wrong_by_itself(setup[0], a, b)}"
        return replace(
            verdict, word="different-setup", text=f"different-setup: {text}", step=setup[0].step, inspect=False
        )
    if verdict.word == "beyond-rounding":
        first = verdict.first_significant_step
        began = min((one.step for one in wrong if one.step is not None), default=None)
        if first is None or began is None or began >= first:
            return verdict
        text = f"{verdict.text}; what causes it is wrong from step {began} on, where noise hides it"
        return replace(verdict, text=text, first_significant_step=began)
    if wrong:
        drift = f"the drift of the whole step ({verdict.score:.3g} times its rounding noise) does not show it"
        text = f"{title_of(wrong[0])} {wrong_by_itself(wrong[0], a, b)}; {drift}"
        return replace(
            verdict,
            word="beyond-rounding",
            text=f"beyond-rounding: {text}",
            step=wrong[0].step,
            first_significant_step=wrong[0].step,
            inspect=False,
        )
    return _less_accurate(verdict, culprits, a, b)


def with_place(verdict: Verdict, causes: Sequence[SetupDifference], culprits: Sequence[Culprit]) -> Verdict:
    """A different set-up with what makes it another one, where a batch or a draw was followed to that. `causes` are the
    differences that make the verdict, the first one first."""
    if verdict.word != "different-setup" or not causes:
        return verdict
    first = causes[0]
    names = {"batch": (first.name,), "initial": (f"parameter {first.name}", f"buffer {first.name}")}.get(first.kind, ())
    for one in sorted(culprits, key=lambda one: one.op is None):  # the sort is stable
        if not one.batch or not one.is_proven:
            continue
        is_draw = first.kind == "generator" and first.name == "torch" and one.kind == SETUP and one.op is not None
        if is_draw or any(name in one.batch for name in names):
            seen = "" if one.step == first.step else f" (as seen in step {one.step})"
            return replace(verdict, text=verdict.text.replace(first.text, f"{first.text}: {one.text}{seen}", 1))
    return verdict


def in_order(culprits: Sequence[Culprit]) -> list[Culprit]:
    """The culprits, a draw that one mode makes alone before what draws other numbers for that.

    Data of which only one thing is known, that it was there before a step, is left out where what was done before the
    first step tells more of the same arguments."""
    known = {name for one in culprits for name in one.batch or () if one.step == 0}
    told = [
        one
        for one in culprits
        if one.op is not None or not one.batch or one.step == 0 or not known.issuperset(one.batch)
    ]
    return sorted(told, key=lambda one: one.what != "generator")  # the sort is stable


def of_significant_steps(verdict: Verdict, culprits: Sequence[Culprit]) -> list[Culprit]:
    """The culprits without those of a step before the first significant one, where nothing was wrong in a step that was
    looked into before that one."""
    first = verdict.first_significant_step
    if first is None or not any(one.step is not None and one.step >= first for one in culprits):
        return list(culprits)
    return [one for one in culprits if one.step is None or one.step >= first or one.kind in (SETUP, NONDETERMINISM)]


def _less_accurate(verdict: Verdict, culprits: Sequence[Culprit], a: str, b: str) -> Verdict:
    notes = []
    for one in culprits:
        errors = [(rho, label) for label, rho in ((a, one.rho.get("a")), (b, one.rho.get("b"))) if rho]
        if one.is_proven and one.local_significance == "rounding" and len(errors) == 2:
            (better, _), (worse, label) = sorted(errors)
            if worse > LESS_ACCURATE * better:
                notes.append(
                    f"{title_of(one)} is {worse / better:.3g} times less accurate in {label}, "
                    "though within what rounding of its inputs causes"
                )
    return replace(verdict, inspect=True, notes=(*verdict.notes, *notes)) if notes else verdict
