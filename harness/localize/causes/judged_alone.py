"""The verdict on a cause alone, on the inputs of its block, independent of the noise of the step around it.

    different-setup   "generator"   it draws from a different state of a generator
    beyond-rounding   "order"       it reads memory that a later op has already overwritten
    beyond-rounding   "choice"      an op that returns whole numbers or choices returns different ones on equal inputs
                      "error"       its error is more than 16 times the effect of rounding its inputs, and more than if
                                    its sums were added up one term after the other
                      "bound"       its error exceeds 16 times the largest error of a correct kernel of its precision
                      "once"        it rounds each element to 16 bits once, and errs by more than 8 such roundings
                      "bias"        its errors lean to one side, unlike the errors of rounding
                      "values"      different arguments, or ops that only one side has, move values by more than
                                    rounding, or move whole numbers at all
    rounding          "within"      on both sides its errors are at most the effect of rounding its inputs
                      ""            no other rule applies, and its error is known
    None              ""            its inputs or its error are not known

The sides are compared with each other: if both are equally far from double, neither is wrong.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ...records.results.culprit import KERNEL, LAYOUT, ORDER, SETTING, SETUP, STRUCTURE
from ..align.argument_differences import GENERATOR, PART
from ..align.argument_differences import LAYOUT as RELAID
from ..align.storage_flow import SIDES, Side
from ..errors.local_error import LocalError
from .examination import Examined, flagged
from .net_effect import Effects, NetEffect
from .site_causes import Cause
from .suspects import UNROUNDED

LOCAL_FAULT = 16.0
"""The rho above which a kernel is at fault by itself, however noisy the step around it is."""

MOVED = 4.0
"""The rho above which values differ by more than rounding. The same limit applies to the distance between the values in
roundings of their own precision."""

MEANT = 2.0
"""If the results differ by more than this number of roundings, both as computed and in exact arithmetic, the arguments
of the op have different meanings."""

ONCE = 8.0
"""The number of roundings above which an elementwise op that rounds each element once is wrong: a correct one errs by
one rounding."""

LEANS, UPRIGHT = 6.0, 3.0
"""The bias of errors, in standard errors of their signs, above which they lean to one side, and below which they do
not."""

MOST = 0.5
"""The lean (mean of the signs) above which most errors are to one side. Long sums in float32 lean by 0.1 or 0.2."""

UNREAD = "or the value from "
"""The beginning of the reason that says that an op's inputs in its compiled graph are not known."""

OTHER_PRODUCTS = 1e4
"""The factor for the bound of convolutions, in place of LOCAL_FAULT. A library may compute them by Winograd or Fourier
transforms, whose errors are larger than those of sums of products."""

CHOICES = frozenset(
    (
        "argmax", "argmin", "bucketize", "ceil", "eq", "floor", "floor_divide", "fmod", "ge", "gt", "isfinite", "isinf",
        "isnan", "le", "lt", "ne", "remainder", "round", "searchsorted", "sign", "trunc",
    )
)  # fmt: skip
"""Ops for which all correct kernels compute the same result on the same inputs."""


WITHIN = 2.0
"""The rho up to which a kernel's error counts as at most the effect of rounding its inputs."""


@dataclass(frozen=True, slots=True)
class _Judgement:
    """The facts about a cause on which its verdict depends.

    rule: the rule by which its errors are a fault, "" if they are not.
    moved: the distance between the sides' results, in roundings.
    other_arguments: True if the sides call the ops with different arguments.
    is_known: True if the errors of both sides are known.
    within: True if the errors are at most the effect of rounding the inputs.
    """

    rule: str
    moved: float
    other_arguments: bool
    is_known: bool
    within: bool


def errors_of(cause: Cause, examined: Mapping[int, Examined]) -> dict[Side, LocalError]:
    """Return each side's largest error at the cause's sites, if it is known."""
    errors: dict[Side, LocalError] = {}
    for site in cause.sites:
        for side, error in (examined[site.lead].errors or {}).items():
            if side not in errors or error.ulp > errors[side].ulp:
                errors[side] = error
    return errors


def judged_alone(
    cause: Cause, examined: Mapping[int, Examined], errors: Mapping[Side, LocalError], effects: Effects
) -> tuple[str | None, str]:
    """Return the verdict and the rule behind it.

    `errors` are each side's largest errors at the cause's sites. `effects` are the joint effects of sites with several
    blocks, and of sites that are wired differently.
    """
    if cause.kind == SETUP:
        return ("different-setup", "generator") if any(GENERATOR in reason for reason in cause.reasons) else (None, "")
    if cause.kind == ORDER:
        return "beyond-rounding", "order"
    # A cast that only one side's script requests counts by its effect: there is none if its graph omits the rounding.
    is_of_one_side = cause.kind == STRUCTURE and not all(cause.ops.values())
    excused = UNREAD if is_of_one_side else (UNREAD, UNROUNDED)
    if any(reason.startswith(excused) for reason in cause.reasons):
        return None, ""
    leads = [examined[site.lead] for site in cause.sites]
    chooses = any(len(cause.ops[side]) == 1 and CHOICES.issuperset(cause.ops[side]) for side in SIDES)
    if any(test.elsewhere or (chooses and test.largest) for test in leads):
        return "beyond-rounding", "choice"
    judge = _Judge(cause, examined)
    judgement = judge.of_blocks(errors)
    # A kernel whose site has no effect on the first phase, bit for bit, acts in the backward: its own errors count.
    leaves_nothing = cause.kind == KERNEL and bool(errors) and _leaves_nothing(cause, effects)
    if any(site.is_several or site in effects for site in cause.sites) and not leaves_nothing:
        judgement = judge.of_effects([effects.get(site, ()) for site in cause.sites], judgement.rule)
    # A different whole number among the arguments cannot come from rounding; nor can a difference in exact arithmetic.
    meant = max((test.meant for test in leads), default=0.0) > MEANT and judgement.moved > MEANT
    if judgement.rule or (judgement.other_arguments and (math.isinf(judgement.moved) or meant)):
        return "beyond-rounding", judgement.rule or "values"
    return ("rounding", "within" if judgement.within else "") if judgement.is_known else (None, "")


def verdict_alone(cause: Cause, examined: Mapping[int, Examined], effects: Effects) -> str | None:
    """Return the verdict on a cause, given the effects of its sites."""
    verdict, _ = judged_alone(cause, examined, errors_of(cause, examined), effects)
    return verdict


class _Judge:
    """The judgement of a cause by its blocks, each alone, or by the joint effects of its sites."""

    def __init__(self, cause: Cause, examined: Mapping[int, Examined]) -> None:
        self._cause = cause
        self._examined = examined
        self._tests = [examined[block] for block in flagged(examined, cause.blocks)]
        # A different layout also means a different kernel, of the same op on the same values.
        self._kernels = (KERNEL, LAYOUT, SETTING)
        self._times = OTHER_PRODUCTS if "convolution" in "".join(cause.ops["a"]) else LOCAL_FAULT

    def of_blocks(self, errors: Mapping[Side, LocalError]) -> _Judgement:
        """Judge by these errors and by the blocks, each of which is executed alone."""
        tests, leads = self._tests, [self._examined[site.lead] for site in self._cause.sites]
        moved = max((test.roundings for test in tests), default=0.0)
        single = bool(leads) and all(test.single for test in leads)
        other_arguments = self._has_other_arguments(tests)
        rule = self._rule(errors, moved, tests, other_arguments=other_arguments, single=single)
        is_known = len(errors) == len(SIDES)
        if not rule and is_known and moved > ONCE and all(test.once for test in tests):
            better, worse = sorted(error.ulp for error in errors.values())
            rule = "once" if worse > ONCE * max(1.0, better) else ""
        within = all(_within(test.errors, test.roundings if test.differs else math.inf) for test in tests)
        return _Judgement(rule, moved, other_arguments, is_known, within)

    def of_effects(self, phases: Sequence[Sequence[NetEffect | None]], rule_of_blocks: str) -> _Judgement:
        """Judge by the effects of the sites, phase by phase; `rule_of_blocks` is the rule by the blocks alone."""
        # The backward reads the results of the first phase: the first phase's effect counts.
        first = [effects[0] for effects in phases if effects and effects[0] is not None]
        inside = {block for effect in first for block in effect.blocks}
        other_arguments = self._has_other_arguments([test for test in self._tests if test.suspect.block in inside])
        moved = max((effect.roundings for effect in first), default=0.0)
        measured = [effect for effect in first if not effect.like_others]
        rule = rule_of_blocks
        if is_known := bool(measured) and all(len(effect.errors) == len(SIDES) for effect in measured):
            rules = [
                self._rule(
                    effect.errors,
                    effect.roundings,
                    [self._examined[block] for block in effect.blocks if block in self._examined],
                    other_arguments=other_arguments,
                    single=effect.single,
                )
                for effect in measured
            ]
            rule = next(filter(None, rules), rule if rule in ("bias", "bound") else "")
        within = all(
            effect is not None and (effect.like_others or _within(effect.errors, effect.roundings))
            for effects in phases
            for effect in effects
        )
        return _Judgement(rule if moved > MOVED else "", moved, other_arguments, is_known, within)

    def _has_other_arguments(self, tests: Iterable[Examined]) -> bool:
        """Check whether the sides call an op of these blocks with arguments of different meanings.

        A setting chooses kernels: the ops that it brings in, such as cuDNN's, compute the same with different
        arguments.
        """
        return self._cause.kind != SETTING and any(
            test.suspect.kind not in self._kernels and not {RELAID, PART}.issuperset(test.suspect.reasons)
            for test in tests
        )

    def _rule(
        self,
        errors: Mapping[Side, LocalError],
        roundings: float,
        tests: Iterable[Examined],
        *,
        other_arguments: bool,
        single: bool,
    ) -> str:
        """Return the rule by which the errors of these blocks are a fault, "" if they are not.

        other_arguments: True if the sides call the ops with different arguments.
        single: True if the results are single numbers, such as a norm. Their errors are not averaged, and may by chance
            be several times as large as usual.
        """
        if len(errors) < len(SIDES):
            return ""
        # A correct kernel may add its n terms one after the other, with an error of up to sqrt(n) of their roundings.
        terms = max((test.terms for test in tests), default=0) if self._cause.kind in self._kernels else 0
        worse, better = sorted(errors.values(), key=lambda error: error.rho, reverse=True)
        if worse.rho > max(LOCAL_FAULT, math.sqrt(terms)) * max(1.0, better.rho):
            return "values" if other_arguments else "error"
        least = LOCAL_FAULT if single else MOVED
        if other_arguments and min(worse.rho, roundings) > least * max(1.0, better.rho):
            return "values"
        leans = abs(worse.bias) > LEANS and abs(worse.lean) > MOST
        if worse.rho > MOVED * max(1.0, better.rho) and leans and abs(better.bias) < UPRIGHT:
            return "bias"
        # A product that is not rounded before it is added exceeds the bounds of single elements, but hardly moves them.
        bounds = [error.bound for error in errors.values() if error.bound is not None and not math.isnan(error.bound)]
        breaks = len(bounds) == len(SIDES) and max(bounds) > self._times * max(1.0, min(bounds))
        return "bound" if breaks and roundings > MOVED else ""


def _leaves_nothing(cause: Cause, effects: Effects) -> bool:
    first = [site_effects[0] for site in cause.sites if (site_effects := effects.get(site))]
    return bool(first) and all(effect is not None and not effect.roundings for effect in first)


def _within(errors: Mapping[Side, LocalError] | None, roundings: float) -> bool:
    if roundings <= WITHIN:
        return True  # however far from double both are, they agree with each other
    measured = errors or {}
    return len(measured) == len(SIDES) and all(
        error.rho <= WITHIN and (error.bound is None or error.bound <= 1) for error in measured.values()
    )
