"""The answer to an investigation in one sentence, which reports print before any number.

It says what differs, from which step on, what the cause is, whether the cause is a fault, and what to do.

compile rounds tanh_backward less exactly in layers.1 and layers.3 (train.py:31); it is rounding and explains all of
the drift; nothing to do
b leaves out mul in the optimizer (train.py:40): a proven fault from step 0 on, which explains all of the drift; look at
train.py:40: fix it if the script itself makes that difference, otherwise report it to whoever owns b, with report.html

docs/reference/answers.md has an example of each outcome, with its exit code.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath

from ..investigate.words.culprit_words import in_words, name_of, wrong_by_itself
from ..investigate.words.kind_words import kinds_compared, kinds_left, not_compared
from ..investigate.words.pinned_words import dependence_of
from ..records.results.culprit import (
    ARGUMENTS,
    COMPILER_SETTING,
    COMPILER_STAGE,
    KERNEL,
    LAYOUT,
    MARK_STEP,
    ORDER,
    PART,
    SETTING,
    SETUP,
    STRUCTURE,
    WEIGHTS,
    Culprit,
    CulpritSetting,
)
from ..records.results.findings import Findings, PairFindings
from .version_or_mode import advice, named_versions

NAMED = 2
"""The number of causes, and of places of a cause, that a sentence names. The others are only counted."""

LESS_EXACT = 2.0
"""A side is called less exact if its error is more than this multiple of the other side's error."""

LEAST = 0.05
"""If the causes explain less than this share of the drift, they are not named."""

MOST = 0.9
"""Once the named causes explain this share of the drift, further causes are only counted."""

ALL = 0.995
"""The smallest share of the drift that is printed as `all`."""

AGAINST = re.compile(r"^([A-Za-z_]\w*: )?(\S+) against (\S+)$")
"""The pattern of a reason that compares an argument in the reference with the same argument in the other mode."""


@dataclass(frozen=True, slots=True)
class PairAnswer:
    """The answer for one pair, as sentences without a full stop.

    what: what happened
    sure: the evidence for `what`, with the numbers
    todo: what to do
    good: whether nothing has to be done
    """

    what: str
    sure: str
    todo: str
    good: bool

    @property
    def sentence(self) -> str:
        return f"{self.what}; {self.todo}"


def answer_of(pair: PairFindings) -> PairAnswer:
    """Return the answer for one pair. If the runs have different interpreters, it names both versions of torch."""
    answer, two = _of_same_versions(pair), pair.interpreters
    if pair.pinned:
        answer = replace(answer, todo=f"{answer.todo}; {dependence_of(pair.pinned)}")
    if two is None:
        return answer
    first = advice(pair, two)
    # If nothing has to be done, the advice on the interpreters comes last, for readers who want to know more.
    todo = [answer.todo, first] if answer.good else [first, answer.todo]
    return replace(
        answer, what=f"{answer.what}{named_versions(pair, two)}", todo="; ".join(part for part in todo if part)
    )


def _of_same_versions(pair: PairFindings) -> PairAnswer:
    """Return the answer for a pair as if both runs had the same interpreter."""
    words = _verdict_words(pair)
    proven = [culprit for culprit in pair.culprits if culprit.is_proven]
    match pair.verdict:
        case "identical":
            what = f"{pair.b} computes the same as {pair.a}, bit for bit"
            return PairAnswer(what, words, "nothing to do", True)
        case "rounding":
            return _rounding(pair, proven)
        case "beyond-rounding":
            return _fault(pair, proven)
        case "different-setup":
            todo = "remove that difference, and investigate again"
            return PairAnswer(
                f"{pair.a} and {pair.b} did not train the same thing: {words}",
                "seen in their inputs and settings; no experiment was needed",
                todo,
                False,
            )
        case "nondeterministic":
            return PairAnswer(
                f"{pair.a} or {pair.b} does not repeat itself, so nothing can be said about their drift: {words}",
                "each mode was trained twice, and its two runs were compared bit for bit",
                "make both modes repeatable first",
                False,
            )
        case "nonfinite":
            todo = f"look at the ops before it{_at(proven[:1])}"
            if proven and proven[0].setting is not None and proven[0].swapped:
                swapped = proven[0].swapped
                remedy = f"disappears with {swapped}: run {pair.b} with {swapped}"
                todo = f"it appears with {_value(proven[0].setting)} and {remedy}{_at(proven[:1])}"
            return PairAnswer(words, "seen in the recorded values", todo, False)
        case "failed":
            return PairAnswer(
                f"{pair.b} cannot be compared with {pair.a}: {words}",
                "this is how the runs ended",
                "fix that first (everything recorded before the failure is kept)",
                False,
            )
    return PairAnswer(
        f"it is undecided whether {pair.b} drifts from {pair.a} by more than rounding: {pair.undecided or words}",
        "no experiment has decided it",
        "it stays unknown until an experiment decides it",
        False,
    )


def answers_of(findings: Findings) -> list[tuple[PairFindings, PairAnswer]]:
    """Return the pairs with their answers; those that need a person come first."""
    pairs = [(pair, answer_of(pair)) for pair in findings.pairs]
    return sorted(pairs, key=lambda row: row[1].good)


def _rounding(pair: PairFindings, proven: Sequence[Culprit]) -> PairAnswer:
    if proven and pair.explained is not None and pair.explained < LEAST:
        what = (
            f"{pair.b} differs from {pair.a} by rounding alone; it is not proven which ops cause most of the difference"
        )
    elif proven:
        share = _explained(pair)
        what = f"{_deeds(pair, proven)}; it is rounding{f' and explains {share}' if share else ''}"
    else:
        since = "" if pair.first_differing_step is None else f" from step {pair.first_differing_step} on"
        what = f"{pair.b} differs from {pair.a}{since} by rounding alone"
    sure = _size(pair)
    if proven:
        sure += f"; {_proof(pair, proven)}"
    compared = kinds_compared(pair.kinds)
    sure += f"; {compared}" if compared else ""
    left = kinds_left(pair.kinds)
    todo = "take a look: that is a lot for rounding" if pair.inspect else "nothing to do"
    todo += " for the kinds of steps that were compared" if left and not pair.inspect else ""
    return PairAnswer(what, sure, f"{todo}; {left}" if left else todo, True)


def _fault(pair: PairFindings, proven: Sequence[Culprit]) -> PairAnswer:
    since = "" if pair.first_significant_step is None else f" from step {pair.first_significant_step} on"
    causes = [culprit for culprit in proven if culprit.significance == "beyond-rounding"] or list(proven)
    size = _size(pair)
    hidden = pair.score is not None and pair.threshold is not None and pair.score <= pair.threshold
    by_itself = next((culprit for culprit in causes if culprit.is_wrong_by_itself), None)
    if hidden and by_itself is not None:
        # If the noise of a whole step hides a fault, that fault is looked for only in the localized step.
        since = f" (seen in step {pair.first_significant_step}, which was taken apart)"
        op = name_of(by_itself).removeprefix("aten.")
        whole = (
            f"{_times(pair.score or 0.0)} times its rounding; a fault begins at {_times(pair.threshold or 0.0)} times"
        )
        size = f"{op} {wrong_by_itself(by_itself, pair.a, pair.b)}; the drift of the whole step ({whole}) hides it"
    if not causes:
        why = f": {pair.unexplained}" if pair.unexplained else ""
        return PairAnswer(
            f"{pair.b} drifts from {pair.a} by more than rounding{since}: a fault whose cause is not proven",
            f"{size}{why}",
            "look at the suspects (--suspects), or start with that step",
            False,
        )
    share = _explained(pair)
    beside = len(causes) < len(proven)
    which = f", which{' together with ordinary rounding' if beside else ''} explains {share}" if share else ""
    what = f"{_deeds(pair, causes)}: a proven fault{since}{which}"
    if _is_left_over(pair):
        # The experiment contradicts that this is the whole cause.
        return PairAnswer(
            f"{what}, but it is not the whole cause: trained without it, {pair.b} still drifts away",
            f"{size}; {_proof(pair, causes)}; {pair.without.text if pair.without is not None else ''}",
            f"look for what is left in a later step (numdrift localize --step N), and start at {_place(causes[0])}",
            False,
        )
    owner = (
        f"the compiler of {pair.b}" if causes[0].kind in (COMPILER_SETTING, COMPILER_STAGE, ORDER) else "that kernel"
    )
    todo = f"report it to whoever owns {owner}, with report.html"
    if causes[0].setting is not None:
        instead = f": run {pair.b} with {causes[0].swapped} where it is not wanted" if causes[0].swapped else ""
        todo = f"that is the effect of {_value(causes[0].setting)}{instead}"
    elif causes[0].is_of_kernel and pair.closer_to_fp64 == pair.b:
        todo = f"it is {pair.a} that is wrong: {todo}"
    elif causes[0].kind == WEIGHTS:
        todo = (
            f"look at {_place(causes[0])}: there, the losses of all parts must add up to the loss of the whole batch "
            "(the mean of means is not the mean if the parts average over different numbers of elements)"
        )
    elif causes[0].kind in (ARGUMENTS, STRUCTURE, SETUP):
        todo = (
            f"look at {_place(causes[0])}: fix it if the script itself makes that difference, "
            f"otherwise report it to whoever owns {pair.b}, with report.html"
        )
    elif causes[0].swapped:
        todo += f", and run {pair.b} with {causes[0].swapped} until it is fixed"
    return PairAnswer(what, f"{size}; {_proof(pair, causes)}", todo, False)


def _deeds(pair: PairFindings, causes: Sequence[Culprit]) -> str:
    """Describe what the other mode does at the first causes, until these explain most of the drift."""
    shares = [culprit.share_of_drift or 0.0 for culprit in causes]
    named = next((count for count in range(1, NAMED) if sum(shares[:count]) >= MOST), NAMED)
    deeds = [f"{_deed(culprit, pair)}{_where(culprit)}" for culprit in causes[:named]]
    more = len(causes) - named
    others = f", with {more} more cause{'s' if more > 1 else ''}" if more > 0 else ""
    return f"{pair.b} {' and '.join(deeds)}{others}"


def _deed(culprit: Culprit, pair: PairFindings) -> str:
    op = (culprit.op or "").partition(".")[2] or culprit.name or "the step's inputs"
    if culprit.batch:
        return f"changes {in_words(culprit.batch)} ({culprit.text})"
    if culprit.kind == SETUP and culprit.op is None:
        return (
            f"starts from different data ({culprit.reasons[1]})"
            if len(culprit.reasons) > 1
            else "starts from different data"
        )
    if culprit.kind == SETUP:
        return f"draws different random numbers in {op}"
    if culprit.kind == ARGUMENTS:
        changes = ", ".join(AGAINST.sub(r"\1\3 instead of \2", reason) for reason in culprit.reasons[:2])
        return f"calls {op} with different arguments ({changes})" if changes else f"calls {op} with different arguments"
    if culprit.kind == STRUCTURE:
        reference_ops, mode_ops = (tuple(culprit.ops.get(side, ())) for side in ("a", "b"))
        if not mode_ops:
            return f"leaves out {op}"
        if not reference_ops:
            return f"also executes {_ops(tuple(dict.fromkeys(mode_ops)))}"
        return f"executes {_ops(mode_ops)} in place of {_ops(reference_ops)}"
    if culprit.kind == SETTING and culprit.setting is not None:
        values = {side: f"{culprit.setting.name}={value}" for side, value in culprit.setting.values.items()}
        in_reference = f" where {pair.a} has {values['a']}" if "a" in values else ""
        return f"has {values.get('b', culprit.setting.name)}{in_reference}, so {culprit.setting.what}"
    if culprit.kind == ORDER:
        reader = replace(culprit, places=[culprit.module] if culprit.module else [])
        return f"executes {op}{_places_of(reader)} {culprit.reasons[0] if culprit.reasons else 'too late'}"
    if culprit.kind == WEIGHTS:
        return "weights the losses of a batch's parts differently"
    if culprit.kind == LAYOUT:
        return f"computes {op} from a different memory layout{_exactness(culprit, pair).replace(' differently', '')}"
    if culprit.kind == KERNEL:
        exactness = _exactness(culprit, pair)
        verb = "rounds" if culprit.significance == "rounding" else "computes"
        return f"{verb} {op}{exactness}"
    names = {
        PART: "differs in the part",
        MARK_STEP: "splits its graphs:",
        COMPILER_STAGE: "drifts because of",
        COMPILER_SETTING: "drifts because of",
        SETTING: "drifts because of",
    }
    return f"{names.get(culprit.kind, 'differs in')} {culprit.name or op}"


def _exactness(culprit: Culprit, pair: PairFindings) -> str:
    errors = [culprit.error_ulp.get(side) for side in ("a", "b")]
    if errors[0] is None or errors[1] is None:
        return " differently"
    if errors[1] > LESS_EXACT * errors[0]:
        return " less exactly"
    if errors[0] > LESS_EXACT * errors[1]:
        return f" more exactly than {pair.a}"
    return " differently"


def _value(setting: CulpritSetting) -> str:
    """Format a setting with the other mode's value, as a key of a mode."""
    return f"{setting.name}={setting.values.get('b', '')}"


def _ops(names: Sequence[str]) -> str:
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {more} more" if more > 0 else "")


def _where(culprit: Culprit) -> str:
    if culprit.setting is not None:
        return _at([culprit]) if culprit.setting.lines else ""
    return "" if culprit.kind == ORDER else _places_of(culprit)


def _places_of(culprit: Culprit) -> str:
    # The names of a Sequential's parts are plain numbers.
    places = [f"module {place}" if place[:1].isdigit() else place for place in culprit.places if place]
    more = len(places) - NAMED
    shown = " and ".join(places) if more <= 0 else f"{', '.join(places[:NAMED])} and {more} more"
    return f"{f' in {shown}' if places else ''}{_at([culprit])}"


def _at(causes: Sequence[Culprit]) -> str:
    """Return the line of the first cause in parentheses. The file's folder is left out, to keep the sentence short."""
    return f" ({PurePath(causes[0].source).name})" if causes and causes[0].source else ""


def _explained(pair: PairFindings) -> str:
    """Return the share of the drift that all causes together explain, in words; "" if it is unknown.

    It is the share of one step's drift. That counts as the drift of the training run unless the run without the causes
    leaves the envelope, or some kinds of steps were not compared.
    """
    if pair.explained is None:
        return ""
    step = next((culprit.step for culprit in pair.culprits if culprit.is_proven), None)
    is_of_step = _is_left_over(pair) or bool(not_compared(pair.kinds))
    of_step = f" of step {step}" if is_of_step and step is not None else ""
    return f"{'all' if pair.explained >= ALL else f'{100 * pair.explained:.0f} %'} of the drift{of_step}"


def _is_left_over(pair: PairFindings) -> bool:
    """Check whether the other mode, trained without the causes, leaves the envelope of the reference."""
    return pair.without is not None and pair.without.inside is False


def _place(cause: Culprit) -> str:
    return PurePath(cause.source).name if cause.source else "there"


def _size(pair: PairFindings) -> str:
    """Describe the size of the drift, and what it is compared with."""
    if pair.score is None or pair.threshold is None:
        return "no step was scored"
    limit = f"a fault begins at {_times(pair.threshold)} times"
    if pair.score == float("inf"):
        return f"a step's results differ in a way that no rounding can cause ({limit})"
    return f"a step's results are up to {_times(pair.score)} times as far apart as rounding alone moves them ({limit})"


def _times(multiple: float) -> str:
    """Format a number with three significant digits and, if it is large, without an exponent: 6,740,000."""
    return f"{float(f'{multiple:.3g}'):,.0f}" if 1000 <= abs(multiple) < 1e12 else f"{multiple:.3g}"


def _proof(pair: PairFindings, causes: Sequence[Culprit]) -> str:
    it, they = ("this", "it") if len(causes) == 1 else ("these", "them")
    bits = f"; trained to the end with {they} replaced, {pair.b} equals {pair.a} bit for bit"
    same = bits if pair.without is not None and pair.without.identical else ""
    return f"swapping {it} into {pair.a} reproduces the drift, and swapping {they} out of {pair.b} removes it{same}"


def _verdict_words(pair: PairFindings) -> str:
    """Return the first sentence of the verdict's text, without the verdict's name."""
    first = pair.text[0] if pair.text else ""
    return first.removeprefix(f"{pair.verdict}: ")
